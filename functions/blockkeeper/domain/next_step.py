"""What happens next with an enrolled block, in words for a person."""

from collections.abc import Collection, Mapping
from datetime import datetime, timedelta

from blockkeeper.domain.deadlines import Deadlines
from blockkeeper.domain.environment import Environment, Status
from blockkeeper.domain.expiry import missing_target, owned_elsewhere
from blockkeeper.domain.instants import format_instant
from blockkeeper.domain.ledger import IN_THE_WAY
from blockkeeper.domain.outcome import Outcome
from blockkeeper.domain.purchase_policy import missing_policy, none_fits
from blockkeeper.domain.reservation import ENDED_STATES, EXTENDABLE_STATES, WAITING_STATES

# Ends of extend-block before the last moment to decide: it does not start again for the same end by itself. After every other
# outcome it goes on looking.
_ENDS: Mapping[str, str] = {
    Outcome.DRY_RUN: "rehearsed for this end, so nothing is bought for it by itself; `blockkeeper extend {pk}` starts it again",
    Outcome.REJECTED: "the extension was rejected; `blockkeeper extend {pk}` asks again",
    Outcome.APPROVAL_EXPIRED: "nobody answered in time; `blockkeeper extend {pk}` asks again",
    Outcome.PAYMENT_FAILED: (
        "EC2 could not take the payment, and nothing more is ordered for this end: settle it with your account's billing, and"
        " extend the block in the EC2 console if it must go on"
    ),
    Outcome.UNKNOWN: (
        "what became of the order is not known, so nothing more is bought for the block: `blockkeeper resolve {pk}` shows what EC2"
        " says, and takes your word"
    ),
    Outcome.NOT_EXTENDABLE: "nothing is bought for this end: mend what the error says, then `blockkeeper extend {pk}`",
}


def next_step(
    environment: Environment, deadlines: Deadlines | None, now: datetime, targets: Collection[tuple[str, str]]
) -> str:
    """The next thing that happens or is awaited, with its time; where nothing is bought, why, and the remedy.

    Args:
        deadlines: of the block's present end; None while its end has not been read from EC2.
        now: aware UTC.
        targets: (account, Region) pairs that are swept.
    """
    unseen = _unseen(environment, targets)
    if environment.state in ENDED_STATES and environment.state != "expired":
        return (
            f"EC2 shows the block as {environment.state}: enrol another block, or `blockkeeper remove {environment.pk}`"
        )
    if deadlines is None:
        return unseen or _unread(environment)
    step = _at_the_end(environment, deadlines, now) or _before_the_end(environment, deadlines, now, unseen)
    plan_b = _plan_b(environment, deadlines)
    return f"{step}; {plan_b}" if plan_b else step


def _unseen(environment: Environment, targets: Collection[tuple[str, str]]) -> str | None:
    """Why no sweep does anything for the block; None when one does."""
    owner, region = environment.owner_id, environment.region
    if missing := missing_target(region, owner, environment.error, targets):
        return f"nobody looks at the block: add {missing} to Targets"
    if owner is not None and environment.error == owned_elsewhere(owner):
        return f"only account {owner}, which owns the block, can extend it: add {owner}:{region} to Targets"
    return None


def _unread(environment: Environment) -> str:
    if environment.error is not None and environment.status is Status.ERROR:
        return "each sweep looks for the block again: mend what the error says"
    return "the next sweep reads the block from EC2"


def _plan_b(environment: Environment, deadlines: Deadlines) -> str | None:
    """How the search for a new block stands, or what took the place of this one."""
    said = environment.replacement or {}
    if said.get("end_date") != format_instant(deadlines.end):
        return None
    if said.get("environment"):
        return f"replaced by {said['reservation_id']}, enrolled as {said['environment']}"
    return f"new block: {said['reason']}"


def _at_the_end(environment: Environment, deadlines: Deadlines, now: datetime) -> str | None:
    if now >= deadlines.end:
        return "the block has ended; enrol another block or delete the record"
    if now >= deadlines.terminates_at:
        return f"EC2 is terminating instances; the block ends at {format_instant(deadlines.end)}"
    if environment.status is Status.EXTENSION_PAYMENT_PENDING:
        return f"EC2 takes the payment by {format_instant(deadlines.pay_by)}, or the block ends as planned"
    if now >= _drain_at(environment, deadlines):
        return f"groups drain; EC2 terminates instances at {format_instant(deadlines.terminates_at)}"
    return None


def _before_the_end(environment: Environment, deadlines: Deadlines, now: datetime, unseen: str | None) -> str:
    drains = f"groups drain at {format_instant(_drain_at(environment, deadlines))}"
    if not environment.groups:
        drains = f"EC2 terminates instances at {format_instant(deadlines.terminates_at)}"
    if now >= deadlines.decide_by:
        return f"too late to extend; {drains}"
    if stopped := unseen or _not_bought(environment, deadlines):
        return f"{stopped}; {drains}"
    decided = f"decided by {format_instant(deadlines.decide_by)}"
    if environment.status is Status.EXTENSION_APPROVAL_REQUIRED:
        return f"an approver answers by {format_instant(deadlines.decide_by)}: `blockkeeper approvals {environment.pk}`"
    if now < deadlines.first_search:
        return f"the search for an extension begins at {format_instant(deadlines.first_search)}"
    if _outcome(environment, deadlines) is not None:
        return f"extend-block looks again, after six hours at the latest; it is {decided}"
    if environment.status is Status.ERROR:
        return f"each sweep looks at the block again: mend what the error says; {drains}"
    who = "extend-block searches" if environment.status is Status.ACTIVE else "the next sweep searches"
    return f"{who} for an extension; it is {decided}"


def _not_bought(environment: Environment, deadlines: Deadlines) -> str | None:
    """Why nothing is bought for the present end, with the remedy; None when something may be."""
    state, pk = environment.state, environment.pk
    if state in WAITING_STATES:
        return f"EC2 shows the block as {state}; the search waits until it is scheduled or active"
    if state is not None and state not in EXTENDABLE_STATES | ENDED_STATES:
        return f"nothing is bought while EC2 shows the block as {state}: look at it in the EC2 console"
    if lacking := missing_policy(environment):
        return f"nothing is bought: {lacking}"
    if none_fits(environment, deadlines.end) and environment.extend_until is not None:
        until = format_instant(environment.extend_until)
        return (
            f"no extension that the record asks for fits before extend_until {until}; set a later one if it is to go on"
        )
    if IN_THE_WAY in (environment.error or ""):
        return _ENDS[Outcome.UNKNOWN].format(pk=pk)
    ended = _ENDS.get(_outcome(environment, deadlines) or "")
    return None if ended is None else ended.format(pk=pk)


def _outcome(environment: Environment, deadlines: Deadlines) -> str | None:
    """What extend-block last said of the present end."""
    said = environment.extension_outcome or {}
    return said.get("outcome") if said.get("end_date") == format_instant(deadlines.end) else None


def _drain_at(environment: Environment, deadlines: Deadlines) -> datetime:
    return deadlines.drain_at(drain=longest_drain(environment))


def longest_drain(environment: Environment) -> timedelta:
    """The longest `drain_minutes` of the record's groups."""
    return timedelta(minutes=max((group.drain_minutes for group in environment.groups), default=0))
