"""Compares what became of each block with what events/fleet.json expects; orders are read from EC2 itself, not from the product."""

from datetime import datetime, timedelta
from decimal import Decimal

from local.demo.fleet import Case, Expected
from local.demo.watch import Seen, short
from local.stack import Stack

TERMINATION = timedelta(minutes=30)  # before the end, EC2 terminates
EARLIEST_DRAIN = timedelta(minutes=20)  # more than this before it has to be is wasted


def differences(
    stack: Stack, cases: list[Case], seen: dict[str, Seen], answers: dict[str, str | None]
) -> dict[str, list[str]]:
    """By block, what differs; nothing when all is as expected.

    Args:
        answers: what approvers really answered; a person at the terminal may have decided otherwise than the fleet expects.
    """
    orders = _orders(stack, cases, seen)
    found = {}
    for case in cases:
        expected = _expected(case, answers.get(case.pk))
        problems = [
            *_block(expected, seen[case.pk]),
            *_ordered(expected, orders[case.pk]),
            *_group(case, seen[case.pk]),
            *_bought(case, seen[case.pk]),
        ]
        if problems:
            found[case.pk] = problems
    return found


def _expected(case: Case, answer: str | None) -> Expected:
    """The expectation, after a person's own decision."""
    expected = case.expected
    if answer == expected.answer:
        return expected
    if answer == "reject":
        return Expected("EXPIRING", "Extension rejected", 0, None, answer)
    days = int(case.record["extend_by_days"])
    return Expected("EXTENDED", "Extension confirmed", days, _any_fee, answer)


_any_fee = Decimal(-1)


def _block(expected: Expected, block: Seen) -> list[str]:
    problems = []
    if block.status != expected.status:
        problems.append(f"its status is {block.status}, expected is {expected.status} ({block.error or 'no error'})")
    ends_in = block.extension.last_state if block.extension.closed else None
    if ends_in != expected.ends_in:
        problems.append(
            f"its extend-block ended in {ends_in or 'nothing'}, expected is {expected.ends_in or 'nothing'}"
        )
    if block.first_end is not None and block.end is not None:
        moved = block.end - block.first_end
        if moved != timedelta(days=expected.days):
            problems.append(f"its end moved by {moved.days} days to {short(block.end)}, expected are {expected.days}")
    return problems


def _ordered(expected: Expected, fees: list[Decimal]) -> list[str]:
    if expected.fee is None:
        return [f"{len(fees)} extensions were ordered, expected is none"] if fees else []
    if len(fees) != 1:
        return [f"{len(fees)} extensions were ordered, expected is exactly one"]
    if expected.fee not in (fees[0], _any_fee):
        return [f"its extension cost {fees[0]:,} USD, expected are {expected.fee:,}"]
    return []


def _group(case: Case, block: Seen) -> list[str]:
    """The group must go to zero before EC2 terminates, early enough for its longest hook, and not hours before."""
    if case.group is None or block.end is None:
        return []
    zero = [at for at, sizes, name in block.actions if sizes == "0/0/0" and case.reservation_id in name]
    if len(zero) != 1:
        return [f"group {case.group} has {len(zero)} actions to zero, expected is exactly one"]
    drain = timedelta(minutes=max([group.get("drain_minutes", 0) for group in case.record["groups"]]))
    latest = block.end - TERMINATION - max(drain, timedelta(seconds=case.longest_hook))
    if not latest - EARLIEST_DRAIN <= zero[0] < latest:
        return [f"group {case.group} goes to zero at {short(zero[0])}, expected is shortly before {short(latest)}"]
    return []


def _bought(case: Case, block: Seen) -> list[str]:
    """Of a new block: exactly the one that is expected, in its zone, of its length and fee."""
    expected, new = case.expected.new_block, block.new_blocks
    if len(new) != (1 if expected else 0):
        return [f"{len(new)} new blocks were bought, expected {'is exactly one' if expected else 'is none'}"]
    if expected is None:
        return []
    hours = (new[0].end - new[0].start) // timedelta(hours=1)
    if (new[0].availability_zone, hours, block.new_fee) != (expected.availability_zone, expected.hours, expected.fee):
        wanted = f"{expected.availability_zone}, {expected.hours} hours, {expected.fee} USD"
        return [
            f"the new block is {new[0].availability_zone}, {hours} hours, {block.new_fee} USD; expected is {wanted}"
        ]
    return []


def handed_over(case: Case, block: Seen) -> list[str]:
    """Plan B's own end, once the groups have gone over."""
    if case.expected.new_block is None or (block.plan_b.closed and block.plan_b.last_state == "Block replaced"):
        return []
    return [f"its replace-block is at {block.plan_b.last_state or 'nothing'}, expected is the end Block replaced"]


def instances_at(case: Case, block: Seen, moment: datetime) -> int:
    """How many instances the block's group must have: all from a block's start on, none from EC2's termination on."""
    blocks = [(block.start, block.end), *((new.start, new.end) for new in block.new_blocks)]
    if any(start and end and start <= moment < end - TERMINATION for start, end in blocks):
        return case.count
    return 0


def _orders(stack: Stack, cases: list[Case], seen: dict[str, Seen]) -> dict[str, list[Decimal]]:
    """Every extension that EC2 has ever taken an order for, by block; of a new block under the one that it replaces."""
    names = {case.reservation_id: case.pk for case in cases}
    names |= {new.reservation_id: pk for pk, block in seen.items() for new in block.new_blocks}
    found: dict[str, list[Decimal]] = {case.pk: [] for case in cases}
    for region in sorted({case.region for case in cases}):
        pages = stack.aws.client("ec2", region).get_paginator("describe_capacity_block_extension_history").paginate()
        for entry in (each for page in pages for each in page["CapacityBlockExtensions"]):
            found[names[entry["CapacityReservationId"]]].append(Decimal(entry["UpfrontFee"]))
    return found
