"""Extensions bought for a block, as EC2's history shows them, and how far the one for this end has come.

Source: DescribeCapacityBlockExtensionHistory. EndDate moves only after payment succeeded, so a bought extension is none yet.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from enum import StrEnum
from typing import Any

from blockkeeper.domain.instants import format_instant
from blockkeeper.domain.money import UnreadableFeeError, parse_usd
from blockkeeper.domain.reservation import Reservation

PENDING, SUCCEEDED, FAILED = "payment-pending", "payment-succeeded", "payment-failed"


@dataclass(frozen=True, slots=True)
class Extension:
    """One entry of the history. `status` is EC2's own word; `fee` is None when it cannot be read."""

    offering_id: str
    status: str
    starts: datetime
    ends: datetime
    fee: Decimal | None


class Stage(StrEnum):
    """How far an extension has come."""

    PENDING = "pending"
    PAID = "paid"
    CONFIRMED = "confirmed"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Progress:
    """A stage and the reason in words."""

    stage: Stage
    reason: str


def parse_extensions(entries: Iterable[Mapping[str, Any]], reservation_id: str) -> tuple[Extension, ...]:
    """Read the extensions of one reservation.

    Raises:
        KeyError: an entry without id, status or dates; a read that cannot be understood is never "nothing there".
    """
    return tuple(
        Extension(
            offering_id=entry["CapacityBlockExtensionOfferingId"],
            status=entry["CapacityBlockExtensionStatus"],
            starts=entry["CapacityBlockExtensionStartDate"].astimezone(UTC),
            ends=entry["CapacityBlockExtensionEndDate"].astimezone(UTC),
            fee=_fee(entry.get("UpfrontFee")),
        )
        for entry in entries
        if entry.get("CapacityReservationId") == reservation_id
    )


def extension_from(extensions: Iterable[Extension], end: datetime, ordered: str | None = None) -> Extension | None:
    """The extension that starts at `end`; one whose payment did not fail is preferred to one that did.

    Args:
        ordered: offering id of our own order, if any: somebody else's failed payment then says nothing.
    """
    from_here = [
        extension
        for extension in extensions
        if extension.starts == end and (extension.status != FAILED or ordered in {None, extension.offering_id})
    ]
    return min(from_here, key=lambda extension: extension.status == FAILED, default=None)


def progress(
    extension: Extension | None, reservation: Reservation, end: datetime, pay_by: datetime, now: datetime
) -> Progress:
    """How far the extension of the block that ended at `end` has come; EC2's EndDate decides (design rule 3)."""
    if reservation.end > end:
        return Progress(Stage.CONFIRMED, f"EC2 moved the end to {format_instant(reservation.end)}")
    status = extension.status if extension else None
    if status == FAILED:
        return Progress(Stage.FAILED, "EC2 could not take the payment; the block ends at its old end")
    if status == SUCCEEDED:
        return Progress(Stage.PAID, "paid; EC2 has not moved the end yet")
    if now >= pay_by:
        return Progress(
            Stage.FAILED, f"not paid by {format_instant(pay_by)}, EC2's last moment; the block ends at its old end"
        )
    return Progress(Stage.PENDING, f"EC2 shows {status or 'no extension yet'}")


def _fee(text: object) -> Decimal | None:
    try:
        return parse_usd(text)
    except UnreadableFeeError:
        return None
