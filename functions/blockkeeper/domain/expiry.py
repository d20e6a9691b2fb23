"""What is due for a block now: the decision of detect-expiry, computed from EC2's own state each time.

Events only make it sooner. EC2's expiration warning comes 40 minutes before the end, later than the last moment to buy, so it can
only lead to draining (case B02).
"""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from blockkeeper.domain.deadlines import deadlines_of
from blockkeeper.domain.environment import Environment, Status
from blockkeeper.domain.instants import format_instant
from blockkeeper.domain.purchase_policy import none_fits
from blockkeeper.domain.reservation import WAITING_STATES, Reservation

# From here on each sweep also checks that the groups have gone to zero.
LAST_HOUR = timedelta(minutes=60)

# Statuses that extend-block owns while the block is due for the same end; the sweep leaves them alone.
_OWNED_BY_WORKFLOW = frozenset(
    {
        Status.ACTIVE,
        Status.EXTENSION_APPROVAL_REQUIRED,
        Status.EXTENSION_PAYMENT_PENDING,
        Status.EXTENSION_UNAVAILABLE,
        Status.EXTENSION_REJECTED,
        Status.ERROR,
    }
)


# A person may extend a block before it is due; its workflow has the word then, too.
_KEPT_BEFORE_DUE = frozenset({Status.EXTENDED, Status.EXTENSION_APPROVAL_REQUIRED, Status.EXTENSION_PAYMENT_PENDING})


class Action(StrEnum):
    """What detect-expiry starts for a block."""

    NONE = "none"
    EXTEND = "extend"
    DRAIN = "drain"


@dataclass(frozen=True, slots=True)
class Decision:
    """An action, the record's status from now on, and the reason in words.

    `error` is what the record shows as its error; None when all is well.
    """

    action: Action
    status: Status
    reason: str
    error: str | None = None


def owned_elsewhere(owner_id: str) -> str:
    """The word of an account that sees a block and does not own it."""
    return f"the block is owned by account {owner_id}; only its owner can extend it"


def missing_target(
    region: str | None, owner_id: str | None, error: str | None, targets: Collection[tuple[str, str]]
) -> str | None:
    """The entry of `Targets` without which no sweep looks at a record's block, such as `111122223333:us-east-1`; None if one does.

    Args:
        owner_id: as the sweep mirrored it; None before it has met the block, which may then be in any account.
        error: the record's. An account that sees a block of another says so there, and then it is that account which looks.
    """
    if region not in {place for _, place in targets}:
        return f"{owner_id or 'ACCOUNT'}:{region}"
    if owner_id is None or (owner_id, region) in targets or error == owned_elsewhere(owner_id):
        return None
    return f"{owner_id}:{region}"


def decide(
    environment: Environment,
    reservation: Reservation,
    *,
    account: str,
    payment_margin: timedelta,
    now: datetime,
    owner_swept: bool = False,
) -> Decision:
    """Decide what is due for an enrolled block.

    Args:
        environment: the record as it is stored, which may be older than EC2's state.
        reservation: the block as EC2 shows it now.
        account: the account whose view this is; only a block's owner can extend it ("Share Capacity Blocks").
        payment_margin: how long before EC2's last order the decision must stand.
        owner_swept: whether the account that owns the block is looked at, too; then its word about the block counts.
    """
    deadlines = deadlines_of(environment, reservation, payment_margin)
    # A record that no sweep has met yet knows no end; what its workflow wrote is about this one.
    same_end = environment.end_time in (None, reservation.end)
    if reservation.ended or now >= reservation.end:
        return _ended(reservation)
    if reservation.state in WAITING_STATES:
        return Decision(Action.NONE, Status.PENDING, f"EC2 shows the block as {reservation.state}")
    in_last_hour = now >= reservation.end - LAST_HOUR or now >= deadlines.terminates_at - LAST_HOUR
    drain = Action.DRAIN if in_last_hour else Action.NONE
    if not reservation.extendable:
        text = f"EC2 shows the unknown state {reservation.state!r}; nothing is bought (look at the block in the EC2 console)"
        return Decision(drain, Status.ERROR, text, text)
    if reservation.owner_id != account:
        text = owned_elsewhere(reservation.owner_id)
        if owner_swept and environment.state is not None:
            return Decision(drain, environment.status, text, environment.error)
        return Decision(drain, Status.EXPIRING if in_last_hour else Status.NO_ACTION_REQUIRED, text, text)
    if now >= deadlines.decide_by:
        if same_end and environment.status is Status.EXTENSION_PAYMENT_PENDING:
            return Decision(drain, environment.status, "an extension waits for its payment", environment.error)
        text = (
            f"too late to extend: the last moment to decide was {format_instant(deadlines.decide_by)}; the groups drain"
        )
        return Decision(drain, Status.EXPIRING, text, environment.error if same_end else None)
    if now < deadlines.first_search:
        kept = same_end and environment.status in _KEPT_BEFORE_DUE
        status = environment.status if kept else Status.NO_ACTION_REQUIRED
        return Decision(Action.NONE, status, f"due from {format_instant(deadlines.first_search)}")
    return _due(environment, reservation, same_end=same_end)


def _due(environment: Environment, reservation: Reservation, *, same_end: bool) -> Decision:
    if none_fits(environment, reservation.end) and environment.extend_until is not None:
        until = format_instant(environment.extend_until)
        return Decision(Action.NONE, Status.NO_ACTION_REQUIRED, f"an extension would end past extend_until {until}")
    if same_end and environment.status in _OWNED_BY_WORKFLOW:
        return Decision(Action.EXTEND, environment.status, "due; its workflow has the word", environment.error)
    return Decision(Action.EXTEND, Status.ACTIVE, f"due: it ends at {format_instant(reservation.end)}")


def _ended(reservation: Reservation) -> Decision:
    if reservation.state in {"cancelled", "failed", "payment-failed"}:
        text = f"EC2 shows the block as {reservation.state}"
        return Decision(Action.NONE, Status.ERROR, text, text)
    return Decision(Action.NONE, Status.EXPIRED, f"the block ended at {format_instant(reservation.end)}")
