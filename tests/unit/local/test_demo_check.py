"""The demo ends with 0 only if each block came out as expected: each kind of difference must be seen."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from types import SimpleNamespace

import pytest

from local.demo.check import differences, handed_over, instances_at
from local.demo.fleet import read
from local.demo.watch import NewBlock, Run, Seen
from local.stack import Stack

FLEET, CASES = read()
CASE = next(case for case in CASES if case.pk == "vision-train")
UNBOUGHT = next(case for case in CASES if case.pk == "robotics-sim")
REPLACED = next(case for case in CASES if case.pk == "genome-map")
OLD_END = datetime(2026, 5, 5, 11, 30, tzinfo=UTC)

NEW = NewBlock("cr-1", "us-west-2b", OLD_END + timedelta(hours=3.5), OLD_END + timedelta(days=7), "scheduled")


def as_expected(case):
    end = OLD_END + timedelta(days=case.expected.days)
    hook = timedelta(seconds=case.longest_hook)
    return Seen(
        first_end=OLD_END,
        end=end,
        status=case.expected.status,
        extension=Run("x", "SUCCEEDED", case.expected.ends_in) if case.expected.ends_in else Run(),
        actions=[(end - timedelta(minutes=37) - hook, "0/0/0", f"blockkeeper-{case.reservation_id}-end")],
    )


def stack_with(orders):
    """A stack whose EC2 has sold these: reservation -> fees."""
    entries = [
        {"CapacityReservationId": reservation_id, "UpfrontFee": fee}
        for reservation_id, fees in orders.items()
        for fee in fees
    ]
    ec2 = SimpleNamespace(
        get_paginator=lambda _: SimpleNamespace(paginate=lambda: [{"CapacityBlockExtensions": entries}])
    )
    return Stack(SimpleNamespace(client=lambda *_: ec2), {}, "", "")


def found(case, seen, fees, answer=None):
    orders = {case.reservation_id: fees} if fees else {}
    return differences(stack_with(orders), [case], {case.pk: seen}, {case.pk: answer or case.expected.answer})


def test_what_is_as_expected_has_no_difference():
    assert found(CASE, as_expected(CASE), ["55813.63"]) == {}
    assert found(UNBOUGHT, as_expected(UNBOUGHT), []) == {}


@pytest.mark.parametrize(
    ("change", "fees", "text"),
    [
        ({"status": "ERROR"}, ["55813.63"], "its status is ERROR"),
        ({"extension": Run("x", "FAILED", "Payment failed")}, ["55813.63"], "ended in Payment failed"),
        ({"extension": Run("x", "RUNNING", "Extension confirmed")}, ["55813.63"], "ended in nothing"),
        ({"end": OLD_END}, ["55813.63"], "moved by 0 days"),
        ({}, [], "0 extensions were ordered"),
        ({}, ["55813.63", "55813.63"], "2 extensions were ordered"),
        ({}, ["1.00"], "cost 1.00 USD"),
        ({"actions": []}, ["55813.63"], "has 0 actions to zero"),
        ({"new_blocks": [NEW]}, ["55813.63"], "1 new blocks were bought, expected is none"),
    ],
)
def test_each_kind_of_difference_is_seen(change, fees, text):
    (problems,) = found(CASE, replace(as_expected(CASE), **change), fees).values()
    assert any(text in problem for problem in problems), problems


@pytest.mark.parametrize("minutes", [-30, 30])
def test_a_scale_in_that_is_too_late_or_far_too_early_is_seen(minutes):
    seen = as_expected(CASE)
    seen.actions = [(at + timedelta(minutes=minutes), sizes, name) for at, sizes, name in seen.actions]
    (problems,) = found(CASE, seen, ["55813.63"]).values()
    assert "goes to zero at" in problems[0]


def test_an_order_for_a_block_that_must_not_be_extended_is_seen():
    assert "expected is none" in found(UNBOUGHT, as_expected(UNBOUGHT), ["1.00"])[UNBOUGHT.pk][0]


def replaced(**fields):
    seen = replace(as_expected(REPLACED), new_blocks=[NEW], new_fee=Decimal("18068.68"))
    return replace(seen, plan_b=Run("x", "SUCCEEDED", "Block replaced"), **fields)


def test_a_new_block_is_as_expected():
    assert found(REPLACED, replaced(), []) == {}
    assert handed_over(REPLACED, replaced()) == []


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"new_blocks": []}, "0 new blocks were bought, expected is exactly one"),
        ({"new_blocks": [NEW, replace(NEW, reservation_id="cr-2")]}, "2 new blocks were bought"),
        ({"new_blocks": [replace(NEW, availability_zone="us-west-2c")]}, "the new block is us-west-2c, 164 hours"),
        ({"new_blocks": [replace(NEW, end=OLD_END)]}, "-4 hours"),
        ({"new_fee": Decimal(1)}, "1 USD"),
    ],
)
def test_each_difference_of_a_new_block_is_seen(change, text):
    (problems,) = found(REPLACED, replace(replaced(), **change), []).values()
    assert any(text in problem for problem in problems), problems


def test_an_extension_of_the_new_block_is_seen():
    orders = stack_with({NEW.reservation_id: ["1.00"]})
    assert "expected is none" in differences(orders, [REPLACED], {REPLACED.pk: replaced()}, {})[REPLACED.pk][0]


@pytest.mark.parametrize(
    "run", [Run(), Run("x", "RUNNING", "Block replaced"), Run("x", "FAILED", "Groups not pointed")]
)
def test_a_plan_b_that_has_not_ended_well_is_seen(run):
    assert "expected is the end Block replaced" in handed_over(REPLACED, replace(replaced(), plan_b=run))[0]


@pytest.mark.parametrize(("hours", "count"), [(-2, 2), (0, 0), (3, 0), (3.5, 2), (168, 0)])
def test_a_group_has_the_instances_of_the_new_block_too(hours, count):
    seen = replaced(start=OLD_END - timedelta(days=6))
    assert instances_at(REPLACED, seen, OLD_END + timedelta(hours=hours)) == count


def test_a_persons_own_no_is_what_is_expected_then():
    seen = as_expected(CASE)
    seen.status, seen.extension.last_state, seen.end = "EXPIRING", "Extension rejected", OLD_END
    seen.actions = [(at - timedelta(days=7), sizes, name) for at, sizes, name in seen.actions]
    assert found(CASE, seen, [], answer="reject") == {}
    assert found(CASE, seen, ["55813.63"], answer="reject") != {}


def test_each_block_of_the_fleet_is_enrolled_and_has_an_expectation():
    assert len(CASES) == len(FLEET["blocks"]) == len(FLEET["environments"])
    assert {case.expected.status for case in CASES} >= {"EXTENDED", "EXPIRING", "ERROR", "NO_ACTION_REQUIRED"}
    fees = [case.expected.fee for case in CASES if case.expected.fee is not None]
    assert len(fees) == 4
    assert all(isinstance(fee, Decimal) for fee in fees)


@pytest.mark.parametrize(
    ("minutes_from_start", "minutes_to_end", "count"),
    [(-1, 2000, 0), (0, 2000, 8), (2000, 31, 8), (2000, 30, 0), (2000, -60, 0)],
)
def test_a_group_has_the_blocks_instances_from_its_start_until_ec2_terminates(
    minutes_from_start, minutes_to_end, count
):
    moment = OLD_END
    block = Seen(start=moment - timedelta(minutes=minutes_from_start), end=moment + timedelta(minutes=minutes_to_end))
    assert instances_at(CASE, block, moment) == count
    assert instances_at(CASE, Seen(), moment) == 0
