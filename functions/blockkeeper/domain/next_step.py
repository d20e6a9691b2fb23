"""What happens next with an enrolled block, in words for a person."""

from datetime import datetime, timedelta

from blockkeeper.domain.deadlines import Deadlines
from blockkeeper.domain.durations import LEGAL_DAYS
from blockkeeper.domain.environment import Environment, Status
from blockkeeper.domain.instants import format_instant
from blockkeeper.domain.purchase_policy import missing_policy

SHORTEST_EXTENSION = timedelta(days=min(LEGAL_DAYS))


def next_step(environment: Environment, deadlines: Deadlines | None, now: datetime) -> str:
    """The next thing that happens or is awaited, with its time.

    Args:
        deadlines: of the block's present end; None while its end has not been read from EC2.
        now: aware UTC.
    """
    if deadlines is None:
        return "the next sweep reads the block from EC2"
    step = _at_the_end(environment, deadlines, now) or _before_the_end(environment, deadlines, now)
    plan_b = _plan_b(environment, deadlines)
    return f"{step}; {plan_b}" if plan_b else step


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


def _before_the_end(environment: Environment, deadlines: Deadlines, now: datetime) -> str:
    drains = f"groups drain at {format_instant(_drain_at(environment, deadlines))}"
    if now >= deadlines.decide_by:
        return f"too late to extend; {drains}"
    if lacking := missing_policy(environment):
        return f"nothing is bought: {lacking}; {drains}"
    if environment.extend_until is not None and deadlines.end + SHORTEST_EXTENSION > environment.extend_until:
        return f"no extension goes past extend_until {format_instant(environment.extend_until)}; {drains}"
    if environment.status is Status.EXTENSION_REJECTED:
        return f"the extension was rejected; {drains}"
    if environment.status is Status.EXTENSION_APPROVAL_REQUIRED:
        return f"an approver answers by {format_instant(deadlines.decide_by)}"
    if now >= deadlines.first_search:
        return f"the next sweep searches for an extension; it is decided by {format_instant(deadlines.decide_by)}"
    return f"the search for an extension begins at {format_instant(deadlines.first_search)}"


def _drain_at(environment: Environment, deadlines: Deadlines) -> datetime:
    return deadlines.drain_at(drain=longest_drain(environment))


def longest_drain(environment: Environment) -> timedelta:
    """The longest `drain_minutes` of the record's groups."""
    return timedelta(minutes=max((group.drain_minutes for group in environment.groups), default=0))
