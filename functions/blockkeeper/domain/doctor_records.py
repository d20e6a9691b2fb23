"""Checks of environment records, alone and beside each other, against Targets and what EC2 shows."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import datetime
from decimal import Decimal
from difflib import get_close_matches

from blockkeeper.domain.calendar import overbooked
from blockkeeper.domain.doctor import Check, Finding, Severity, finding, record_subject
from blockkeeper.domain.environment import Environment
from blockkeeper.domain.expiry import missing_target
from blockkeeper.domain.extension import FAILED, Extension
from blockkeeper.domain.instants import format_instant
from blockkeeper.domain.money import format_usd
from blockkeeper.domain.purchase_policy import bought_in_a_row, missing_policy
from blockkeeper.domain.reservation import Reservation

Target = tuple[str, str]


def look_at_record(
    environment: Environment, targets: Collection[Target], teams: Collection[str], now: datetime
) -> Iterator[Finding]:
    """All checks of a record that need nothing but the record and the stack's parameters.

    Args:
        teams: those that have a limit of their own.
    """
    subject = record_subject(environment.pk)
    update = f"`blockkeeper enrol FILE --update` with it for {environment.pk}"
    if lacking := missing_policy(environment):
        problem, _, remedy = lacking.partition(" (")
        yield finding(Check.MISSING_POLICY, subject, problem, f"{remedy.removesuffix(')')}: {update}")
    elif environment.require_approval and environment.quorum > len(environment.approvers):
        problem = f"quorum is {environment.quorum}, and {len(environment.approvers)} approvers are named"
        remedy = f"name more approvers, or lower quorum to {len(environment.approvers)} at most: {update}"
        yield finding(Check.QUORUM, subject, problem, remedy)
    until = environment.extend_until
    if until is not None and until <= now:
        problem = f"extend_until is {format_instant(until)}, which has passed"
        remedy = f"set a later one, or null for none: {update}; leave it if the block may end"
        yield finding(Check.EXTEND_UNTIL, subject, problem, remedy, Severity.WARNING)
    if many := bought_in_a_row(environment):
        problem, _, remedy = many.partition(" (")
        yield finding(Check.LOOK_AHEAD, subject, problem, f"{remedy.removesuffix(')')}: {update}", Severity.WARNING)
    if environment.team is not None and teams and environment.team not in teams:
        near = get_close_matches(environment.team, teams, n=1)
        problem = f"team is {environment.team}, which TeamLimits does not name" + (
            f"; it has {near[0]}" if near else ""
        )
        remedy = f"add {environment.team}=AMOUNT to TeamLimits (`sam deploy`), or correct team: {update}"
        yield finding(Check.TEAM, subject, problem, remedy, Severity.NOTE)
    if missing := missing_target(environment.region, environment.owner_id, environment.error, targets):
        named = ",".join(f"{account}:{region}" for account, region in targets)
        known = "" if environment.owner_id is None else f" of account {environment.owner_id}"
        problem = f"its block{known} is in {environment.region}; Targets are {named.replace(',', ', ')}"
        remedy = f"add it: `sam deploy --parameter-overrides Targets={named},{missing}`"
        yield finding(Check.NOT_IN_TARGETS, subject, problem, remedy)


def look_at_block(
    environment: Environment, reservation: Reservation, accounts: Collection[str], extensions: Iterable[Extension]
) -> Iterator[Finding]:
    """All checks of a record against its block.

    Args:
        accounts: those of the targets in the block's Region.
        extensions: EC2's history of the block.
    """
    subject = record_subject(environment.pk)
    if reservation.owner_id not in accounts:
        problem = f"{reservation.reservation_id} belongs to {reservation.owner_id}, which is no target"
        remedy = (
            f"add {reservation.owner_id}:{environment.region} to Targets and deploy docs/member-account.yaml there, or let"
            " the owner enrol it in a stack of its own"
        )
        yield finding(Check.FOREIGN_OWNER, subject, problem, remedy)
    if reservation.instance_type != environment.instance_type:
        problem = f"instance_type is {environment.instance_type}; {reservation.reservation_id} is of {reservation.instance_type}"
        remedy = "correct instance_type or capacity_block_id: `blockkeeper enrol FILE --update`"
        yield finding(Check.INSTANCE_TYPE, subject, problem, remedy, Severity.WARNING)
    if text := overbooked(environment, reservation):
        problem, _, remedy = text.partition(" (")
        yield finding(
            Check.GROUP_SIZE, subject, problem, f"{remedy.removesuffix(')')}: `blockkeeper enrol FILE --update`"
        )
    yield from ceiling(environment, extensions)


def ceiling(environment: Environment, extensions: Iterable[Extension]) -> Iterator[Finding]:
    """The price ceiling against what the last extension cost, hour for hour."""
    paid = [each for each in extensions if each.fee is not None and each.status != FAILED and each.ends > each.starts]
    if not paid or environment.max_upfront_fee is None:
        return
    last = max(paid, key=lambda each: each.starts)
    # The fee as a fraction, so that no cent is made up by dividing.
    spent, seconds = last.fee or Decimal(0), int((last.ends - last.starts).total_seconds())
    costs = {hours: spent * hours * 3600 / seconds for hours in (environment.wanted_hours, *environment.fallback_hours)}
    dear = {hours: fee for hours, fee in costs.items() if fee > environment.max_upfront_fee}
    if not dear:
        return
    hours, fee = next(iter(dear.items()))
    every = len(dear) == len(costs)
    problem = (
        f"max_upfront_fee is {format_usd(environment.max_upfront_fee)}; at the price of the extension until"
        f" {format_instant(last.ends)} {hours} hours cost {format_usd(fee.quantize(Decimal('0.01')))}"
    )
    remedy = "raise max_upfront_fee, or want fewer days: `blockkeeper enrol FILE --update`"
    yield finding(
        Check.CEILING, record_subject(environment.pk), problem, remedy, Severity.ERROR if every else Severity.WARNING
    )


def block_missing(environment: Environment, accounts: Collection[str]) -> Finding:
    """No target in the record's Region shows its block."""
    seen_by = ", ".join(sorted(accounts))
    problem = f"{environment.capacity_block_id} is no Capacity Block that {seen_by} sees in {environment.region}"
    remedy = f"correct capacity_block_id or region, or `blockkeeper remove {environment.pk}`"
    return finding(Check.BLOCK_MISSING, record_subject(environment.pk), problem, remedy)


def two_records(environments: Sequence[Environment]) -> Iterator[Finding]:
    """Records that name one block; worse if they share a group, too (case B32 is one group with two blocks, which is fine)."""
    by_block: dict[tuple[str, str], list[Environment]] = defaultdict(list)
    for environment in environments:
        by_block[environment.region, environment.capacity_block_id].append(environment)
    for (_, block), same in by_block.items():
        for environment in same if len(same) > 1 else ():
            others = [each for each in same if each is not environment]
            groups = {group.label for group in environment.groups}
            shared = sorted({group.label for each in others for group in each.groups} & groups)
            problem = f"{block} is enrolled by {', '.join(sorted(each.pk for each in others))} as well"
            if shared:
                problem += f", and both arrange {', '.join(shared)}"
            remedy = f"keep one: `blockkeeper remove {environment.pk}`, with all groups of the block in the other"
            severity = Severity.ERROR if shared else Severity.WARNING
            yield finding(Check.TWO_RECORDS, record_subject(environment.pk), problem, remedy, severity)
