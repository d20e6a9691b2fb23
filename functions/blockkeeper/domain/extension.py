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
from blockkeeper.domain.money import CURRENCY, UnreadableFeeError, parse_usd
from blockkeeper.domain.reservation import Reservation

PENDING, SUCCEEDED, FAILED = "payment-pending", "payment-succeeded", "payment-failed"
LAST_WORDS = frozenset({SUCCEEDED, FAILED})


@dataclass(frozen=True, slots=True)
class Extension:
    """One entry of the history. `status` is EC2's own word; `fee` is USD, and None when it cannot be read or is another currency.

    `instance_count`, `hours` and `purchased` (aware UTC) are None when EC2 does not show them.
    """

    offering_id: str
    status: str
    starts: datetime
    ends: datetime
    fee: Decimal | None
    currency: str | None = None
    instance_count: int | None = None
    hours: int | None = None
    purchased: datetime | None = None


class Stage(StrEnum):
    """How far an extension has come. OVERDUE: paid, and EC2 has not moved the end by the last moment at which it could be paid."""

    PENDING = "pending"
    PAID = "paid"
    OVERDUE = "overdue"
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
            fee=_fee(entry),
            currency=entry.get("CurrencyCode"),
            instance_count=entry.get("InstanceCount"),
            hours=entry.get("CapacityBlockExtensionDurationHours"),
            purchased=_utc(entry.get("CapacityBlockExtensionPurchaseDate")),
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


def past_fee_per_instance_hour(extensions: Iterable[Extension]) -> Decimal | None:
    """What the block's latest paid extension cost, whoever bought it, in USD per instance and hour, to four places.

    None when none was paid for, or EC2 does not show all that it takes: an older one is not put in its place.
    """
    paid = [extension for extension in extensions if extension.status == SUCCEEDED]
    if not paid:
        return None
    latest = max(paid, key=lambda extension: (extension.starts, extension.ends))
    if latest.fee is None or not latest.instance_count or not latest.hours:
        return None
    return (latest.fee / (latest.instance_count * latest.hours)).quantize(Decimal("0.0001"))


def progress(
    extension: Extension | None, reservation: Reservation, end: datetime, pay_by: datetime, now: datetime
) -> Progress:
    """How far the extension of the block that ended at `end` has come; EC2's EndDate decides (design rule 3)."""
    if reservation.end > end:
        return Progress(Stage.CONFIRMED, f"EC2 moved the end to {format_instant(reservation.end)}")
    status = extension.status if extension else None
    if status == FAILED:
        return Progress(Stage.FAILED, "EC2 could not take the payment; the block ends at its old end")
    if status == SUCCEEDED and now >= end:
        text = "EC2 shows it as paid, and the block has ended at its old end all the same; take it up with AWS Support"
        return Progress(Stage.FAILED, text)
    if status == SUCCEEDED and now >= pay_by:
        text = "EC2 shows it as paid and has not moved the end; until it does the groups drain at the old end"
        return Progress(Stage.OVERDUE, text)
    if status == SUCCEEDED:
        return Progress(Stage.PAID, "paid; EC2 has not moved the end yet")
    if now >= pay_by:
        return Progress(
            Stage.FAILED, f"not paid by {format_instant(pay_by)}, EC2's last moment; the block ends at its old end"
        )
    return Progress(Stage.PENDING, f"EC2 shows {status or 'no extension yet'}")


def _fee(entry: Mapping[str, Any]) -> Decimal | None:
    if entry.get("CurrencyCode", CURRENCY) != CURRENCY:
        return None
    try:
        return parse_usd(entry.get("UpfrontFee"))
    except UnreadableFeeError:
        return None


def _utc(instant: datetime | None) -> datetime | None:
    return None if instant is None else instant.astimezone(UTC)
