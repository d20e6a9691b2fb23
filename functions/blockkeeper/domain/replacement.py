"""Whether and when a block is replaced by a new one: what replace-block does next, and every rule before it buys.

The order is the policy's: an extension of the wanted length, shorter ones, again until the last moment; then a new block. The buyer
does not trust what the workflow hands it: it reads record and approval again (design rules 1, 2, 6 and 7).
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from blockkeeper.domain.deadlines import decide_block_by
from blockkeeper.domain.environment import Environment
from blockkeeper.domain.instants import format_instant, parse_instant
from blockkeeper.domain.ledger import Step
from blockkeeper.domain.money import UnreadableFeeError, format_usd, parse_usd
from blockkeeper.domain.new_block import BlockReconciliation, NewBlock, Wanted
from blockkeeper.domain.next_move import Move, NextMove
from blockkeeper.domain.outcome import Outcome
from blockkeeper.domain.purchase_policy import Refusal, none_fits, too_few, used_up
from blockkeeper.domain.reservation import WAITING_STATES, Reservation

# Ends of extend-block after which a new block is searched. A person's no, a policy that forbids, a budget that is spent, a payment
# that failed and an order of unknown outcome are no reason to buy something else.
REPLACED_AFTER = frozenset(
    {
        Outcome.NO_OFFERING,
        Outcome.TOO_DEAR,
        Outcome.UNREADABLE,
        Outcome.REFUSED,
        Outcome.APPROVAL_EXPIRED,
        Outcome.TOO_LATE,
        Outcome.FAILED,
    }
)
# What replace-block says while it goes on; everything else is an end, after which nothing more is done for the same end.
_UNDER_WAY = frozenset({"offered", "purchased"})


def latest_start(environment: Environment, end: datetime) -> datetime | None:
    """The latest start that the policy accepts for a new block; None without a policy for one."""
    return None if environment.replace is None else end + timedelta(hours=environment.replace.max_gap_hours)


def search_until(environment: Environment, end: datetime, payment_margin: timedelta) -> datetime | None:
    """Until when a new block may be searched: after it even the latest that fits could not be decided on and paid in time."""
    latest = latest_start(environment, end)
    return None if latest is None else decide_block_by(latest, payment_margin)


def to_be_replaced(environment: Environment, end: datetime, outcome: str | None) -> bool:
    """Whether a new block is to be searched, now that nothing extends the block beyond `end`.

    Args:
        outcome: how extend-block ended for this end; None when it never ran.
    """
    if environment.replace is None:
        return False
    said = environment.replacement or {}
    if said.get("end_date") == format_instant(end) and said.get("outcome") not in _UNDER_WAY:
        return False
    if none_fits(environment, end):
        return False
    return outcome is None or outcome in REPLACED_AFTER


def replacement_due(
    environment: Environment, end: datetime, decide_by: datetime, payment_margin: timedelta, now: datetime
) -> bool:
    """Whether a sweep starts replace-block: nobody can extend the block any more, and there is time for a new one."""
    until = search_until(environment, end, payment_margin)
    if until is None or not decide_by <= now < until:
        return False
    said = environment.extension_outcome or {}
    return to_be_replaced(
        environment, end, said.get("outcome") if said.get("end_date") == format_instant(end) else None
    )


def asks(environment: Environment) -> bool:
    """Whether people were asked about a new block, so that a request may be open."""
    return (environment.replacement or {}).get("outcome") == Outcome.OFFERED


def missing_replace_policy(environment: Environment) -> str | None:
    """What the record lacks before a new block may be bought for it, with the remedy; None when it is complete."""
    if environment.replace is None:
        return "replace is not set; no new block is bought without it (set max_gap_hours and max_upfront_fee)"
    if environment.require_approval and not environment.approvers:
        return "approvers is empty and require_approval is true; nobody could say yes (name at least one approver)"
    return None


def wanted_block(
    environment: Environment, old: Reservation, hours: int, *, end: datetime, payment_margin: timedelta, now: datetime
) -> Wanted | str:
    """What a new block of `hours` must be like, or why none can be bought, in words."""
    lacking = missing_replace_policy(environment)
    if lacking or environment.replace is None:
        return str(lacking)
    count = old.instance_count or environment.instance_count
    if count is None:
        return f"EC2 does not show how many instances {old.reservation_id} has"
    if old.platform is None:
        return f"EC2 does not show the InstancePlatform of {old.reservation_id}"
    if old.ultraserver:
        return f"{old.reservation_id} is an UltraServer block; those are bought by hand"
    return Wanted(
        instance_type=old.instance_type,
        instance_count=count,
        hours=hours,
        old_zone=old.availability_zone,
        old_end=end,
        earliest_start=now + (end - decide_block_by(end, payment_margin)),
        latest_start=end + timedelta(hours=environment.replace.max_gap_hours),
        end_by=environment.extend_until,
        zones=environment.replace.availability_zones,
        ceiling=environment.replace.max_upfront_fee,
    )


def resumed(reconciliation: BlockReconciliation) -> NextMove | None:
    """What an order that was sent before asks for, whatever became of policy and old block since; None when none was sent."""
    if reconciliation.step in {Step.ADOPT, Step.UNKNOWN, Step.PAYMENT_FAILED}:
        return NextMove(Move.RESUME, reconciliation.reason)
    return None


def replacement_move(
    environment: Environment,
    old: Reservation,
    reconciliation: BlockReconciliation,
    *,
    end: datetime,
    account: str,
    payment_margin: timedelta,
    now: datetime,
    in_the_way: str | None,
) -> NextMove:
    """Decide what replace-block does next.

    Args:
        in_the_way: ledger id of another order for the old block that forbids this one (`aws.ledger.in_the_way`).
    """
    if move := resumed(reconciliation):
        return move
    if old.end != end:
        return NextMove(Move.STOP, f"the block now ends at {format_instant(old.end)}", Outcome.SUPERSEDED)
    if environment.capacity_block_id != old.reservation_id:
        text = f"the record is for {environment.capacity_block_id} now"
        return NextMove(Move.STOP, text, Outcome.NOT_EXTENDABLE)
    if old.owner_id != account:
        text = f"the block is owned by account {old.owner_id}; only its owner buys another in its place"
        return NextMove(Move.STOP, text, Outcome.NOT_EXTENDABLE)
    if lacking := missing_replace_policy(environment):
        return NextMove(Move.STOP, lacking, Outcome.NOT_ALLOWED)
    until = search_until(environment, end, payment_margin)
    if until is None or now >= until:
        return NextMove(Move.STOP, f"the last moment to decide was {format_instant(until or end)}", Outcome.TOO_LATE)
    if reconciliation.step is Step.SUPERSEDED:
        return NextMove(Move.WAIT, reconciliation.reason)
    if old.state in WAITING_STATES:
        return NextMove(Move.WAIT, f"EC2 shows the block as {old.state}")
    if in_the_way is not None:
        return NextMove(Move.WAIT, f"the order {in_the_way} stands in the way")
    return NextMove(Move.SEARCH, "due")


def block_refusal(
    environment: Environment,
    approval: Mapping[str, Any] | None,
    block: NewBlock,
    old: Reservation,
    *,
    end: datetime,
    payment_margin: timedelta,
    ledger_id: str,
    now: datetime,
    live: bool,
) -> Refusal | None:
    """Why a new block must not be bought now; None when it may.

    Args:
        approval: the stored approval, or None.
        old: the block that is replaced, read just now.
        ledger_id: the purchase that the approval would be used for.
        live: whether money would move.
    """
    if environment.capacity_block_id != old.reservation_id:
        return Refusal(f"the record is for {environment.capacity_block_id}, not {old.reservation_id}")
    decide_by = decide_block_by(block.start, payment_margin)
    if now > decide_by:
        text = f"too late: the last moment to decide on the block of {format_instant(block.start)} was {format_instant(decide_by)}"
        return Refusal(text, Outcome.TOO_LATE)
    lengths = (environment.wanted_hours, *environment.fallback_hours)
    wishes = [
        wanted_block(environment, old, hours, end=end, payment_margin=payment_margin, now=now) for hours in lengths
    ]
    misfits = [wish if isinstance(wish, str) else wish.misfit(block) for wish in wishes]
    if all(misfits):
        return Refusal(str(misfits[0]))
    ceiling = environment.replace.max_upfront_fee if environment.replace else None
    if ceiling is None or block.fee > ceiling:
        limit = "" if ceiling is None else format_usd(ceiling)
        return Refusal(f"{format_usd(block.fee)} is above replace.max_upfront_fee {limit}")
    if not environment.require_approval:
        return None
    no = used_up(approval, ledger_id, live=live)
    no = no or block_approval_refusal(approval, block, old.reservation_id, end) or too_few(approval, environment)
    return None if no is None else Refusal(no)


def block_approval_refusal(
    approval: Mapping[str, Any] | None, block: NewBlock, reservation_id: str, end: datetime
) -> str | None:
    """Why a stored approval does not cover the block: it is bound to old block and end, zone, start, end, ceiling (case B16)."""
    if approval is None:
        return "there is no approval, and the policy asks for one"
    # Only the decision record's own word counts; "true", 1 or a truthy text do not (case B16).
    if approval.get("status") != "APPROVED":
        return f"the approval is {approval.get('status')}, not APPROVED"
    if approval.get("what") != "block":
        return "the approval is not for a new block; ask again"
    try:
        bound = (
            approval["reservation_id"],
            parse_instant(approval["current_end"]),
            parse_instant(approval["new_start"]),
            parse_instant(approval["new_end"]),
            approval.get("availability_zone"),
        )
        ceiling = parse_usd(approval["ceiling"])
    except (KeyError, ValueError, TypeError, UnreadableFeeError) as error:
        return f"the approval cannot be read: {error}"
    if bound != (reservation_id, end, block.start, block.end, block.zone):
        return "the approval is for another block, start, end or zone; ask again"
    if block.fee > ceiling:
        return f"{format_usd(block.fee)} is more than the approved {format_usd(ceiling)}; ask again"
    return None
