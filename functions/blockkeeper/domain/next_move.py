"""What extend-block does next for its block: search, wait, look at an order that was sent, or stop."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from blockkeeper.domain.deadlines import Deadlines
from blockkeeper.domain.environment import Environment
from blockkeeper.domain.expiry import owned_elsewhere
from blockkeeper.domain.instants import format_instant
from blockkeeper.domain.ledger import Reconciliation, Step
from blockkeeper.domain.outcome import Outcome
from blockkeeper.domain.purchase_policy import missing_policy
from blockkeeper.domain.reservation import WAITING_STATES, Reservation

FIRST_PAUSE = timedelta(minutes=15)
LONGEST_PAUSE = timedelta(hours=6)
SHORTEST_PAUSE = timedelta(minutes=5)


class Move(StrEnum):
    """The next move."""

    SEARCH = "search"
    WAIT = "wait"
    RESUME = "resume"
    STOP = "stop"


@dataclass(frozen=True, slots=True)
class NextMove:
    """The move, the reason in words, and for STOP the outcome."""

    move: Move
    reason: str
    outcome: Outcome | None = None


def next_move(
    environment: Environment,
    reservation: Reservation,
    reconciliation: Reconciliation,
    deadlines: Deadlines,
    *,
    account: str,
    now: datetime,
    in_the_way: str | None = None,
) -> NextMove:
    """Decide the next move.

    Args:
        reconciliation: ledger and EC2 compared for the end that the workflow is about (`deadlines.end`).
        account: the account that the workflow acts in.
        in_the_way: ledger id of another order for this block that forbids this one (`aws.ledger.in_the_way`), so nobody is asked
            before the buyer has looked what became of it.
    """
    if reconciliation.step in {Step.ADOPT, Step.UNKNOWN, Step.PAYMENT_FAILED}:
        return NextMove(Move.RESUME, reconciliation.reason)
    if reservation.end != deadlines.end:
        return NextMove(Move.STOP, reconciliation.reason, Outcome.SUPERSEDED)
    if environment.capacity_block_id != reservation.reservation_id:
        text = f"the record is for {environment.capacity_block_id} now"
        return NextMove(Move.STOP, text, Outcome.NOT_EXTENDABLE)
    if reservation.owner_id != account:
        return NextMove(Move.STOP, owned_elsewhere(reservation.owner_id), Outcome.NOT_EXTENDABLE)
    if now >= deadlines.decide_by:
        text = f"the last moment to decide was {format_instant(deadlines.decide_by)}"
        return NextMove(Move.STOP, text, Outcome.TOO_LATE)
    if reconciliation.step is Step.SUPERSEDED:
        return NextMove(Move.WAIT, reconciliation.reason)
    if reservation.state in WAITING_STATES:
        return NextMove(Move.WAIT, f"EC2 shows the block as {reservation.state}")
    if not reservation.extendable:
        text = f"EC2 shows the block as {reservation.state}; only active and scheduled blocks are extended"
        return NextMove(Move.STOP, text, Outcome.NOT_EXTENDABLE)
    lacking = missing_policy(environment)
    if lacking:
        return NextMove(Move.STOP, lacking, Outcome.NOT_ALLOWED)
    first = None if in_the_way is None else NextMove(Move.RESUME, f"the order {in_the_way} stands in the way")
    return first or NextMove(Move.SEARCH, "due")


def pause(turn: int, last_moment: datetime, now: datetime) -> timedelta:
    """How long to wait before looking again: longer each turn, shorter again towards the last moment, whole seconds.

    A workflow of 56 days stays far below Step Functions' 25,000 history events (case B37).
    """
    growing = min(FIRST_PAUSE * 2 ** min(turn, 8), LONGEST_PAUSE)
    towards_the_end = max((last_moment - now) / 2, SHORTEST_PAUSE)
    return timedelta(seconds=int(min(growing, towards_the_end).total_seconds()))
