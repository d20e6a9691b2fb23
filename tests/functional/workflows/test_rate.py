"""EC2 allows a search and a purchase every seven seconds: executions take turns, and whoever is throttled all the same waits."""

from datetime import timedelta

import pytest

from local.engine.world import ACCOUNT

from .conftest import START, Story, a_story

SEARCH, PURCHASE = "DescribeCapacityBlockExtensionOfferings", "PurchaseCapacityBlockExtension"
SECOND, HOUR = timedelta(seconds=1), timedelta(hours=1)


def searches(story):
    return [call for call in story.world.market.calls if call.operation == SEARCH]


def queue(story, operation, ahead):
    """Others have so many seconds of turns before ours."""
    full_at = START + timedelta(seconds=66.67 + ahead)
    item = {"id": f"{ACCOUNT}#us-east-1#{operation}", "full_at_ms": int(full_at.timestamp() * 1000)}
    story.put("rate", item)


def test_case_b43_fourteen_blocks_at_once_are_searched_and_bought_without_one_throttle():
    with a_story(MonthlyLimit="500000") as world:
        story = Story(world)
        for i in range(14):
            story.block(f"cr-{i:02}").enrol(f"e{i:02}", capacity_block_id=f"cr-{i:02}")
            given = {"environment": f"e{i:02}", "reservation_id": f"cr-{i:02}", "account": ACCOUNT}
            given |= {"region": "us-east-1", "end_date": "2026-05-04T11:30:00Z"}
            world.start("ExtendBlock", given, f"cr-{i:02}-20260504T1130Z")
        world.run_until_idle()
        paths = [execution.path for execution in world.executions("ExtendBlock")]
        assert [path[-1] for path in paths] == ["Extension confirmed"] * 14
        assert [call.error for call in world.market.calls if call.error] == []
        assert sum("Wait for a turn to search" in path for path in paths) == 4


@pytest.mark.parametrize(
    ("operation", "state"), [(SEARCH, "Wait for a turn to search"), (PURCHASE, "Wait for a turn to buy")]
)
def test_behind_ninety_who_wait_nobody_stands_and_the_second_wait_is_for_a_turn_of_its_own(live, operation, state):
    """Ten calls at once and ninety in the queue; an order that went out after the first wait would be one too early."""
    full_at = START + 100 * timedelta(milliseconds=6667)
    item = {"id": f"{ACCOUNT}#us-east-1#{operation}", "full_at_ms": int(full_at.timestamp() * 1000)}
    live.block().enrol().put("rate", item)
    execution = live.extend()
    live.world.run_until_idle()
    assert execution.path[-1] == "Extension confirmed"
    assert execution.path.count(state) == 2
    (call,) = [call for call in live.world.market.calls if call.operation == operation]
    assert call.at == START + timedelta(seconds=607), "600, and then the 7 until the next token"
    assert live.item("rate", item["id"])["full_at_ms"] == int(1000 * (full_at.timestamp() + 6.667))


@pytest.mark.parametrize(
    ("operation", "state"), [(SEARCH, "Wait for a turn to search"), (PURCHASE, "Wait for a turn to buy")]
)
def test_a_turn_is_waited_for_once_and_then_ones_own(live, operation, state):
    queue(live.block().enrol(), operation, 100)
    execution = live.extend()
    live.world.run_for(99 * SECOND)
    assert execution.path[-1] == state
    assert [call for call in live.world.market.calls if call.operation == operation] == []
    live.world.run_until_idle()
    assert execution.path[-1] == "Extension confirmed"
    assert execution.path.count(state) == 1


def test_an_offer_is_looked_up_again_in_turn(live):
    execution = live.block().enrol(require_approval=True).extend()
    live.world.run_for(10 * SECOND)
    queue(live, SEARCH, 100)
    live.answer("approve")
    live.world.run_until_idle()
    assert execution.path[-1] == "Extension confirmed"
    assert "Wait for a turn to look up" in execution.path


def test_shorter_lengths_are_searched_only_when_the_wanted_one_is_missing_and_each_once(live):
    live.block(offering={"hours": [24, 48]}).enrol(extend_by_days=3, fallback_days=[2, 1])
    queue(live, SEARCH, -7)  # one token
    execution = live.extend()
    live.world.run_until_idle()
    assert execution.path[-1] == "Extension confirmed"
    assert [call.params["CapacityBlockExtensionDurationHours"] for call in searches(live)] == [72, 48]
    assert [each.offering.hours for each in live.bought()] == [48]


@pytest.mark.parametrize("kind", ["describe_limit", "throttle"])
def test_case_b43_a_throttle_is_waited_out_longer_each_time(live, kind):
    # botocore tries RequestLimitExceeded five times by itself, and CapacityBlockDescribeLimitExceeded once.
    times = {"describe_limit": 2, "throttle": 10}[kind]
    live.world.market.faults.add(kind=kind, operation=SEARCH, times=times)
    execution = live.block().enrol().extend()
    live.world.run_until_idle()
    assert execution.path[-1] == "Extension confirmed"
    assert execution.path.count("Wait for a turn to search") == 2
    assert len(searches(live)) == times + 1


def test_case_b43_a_throttle_that_stays_is_told_once_and_looked_at_again_later(live):
    fault = live.world.market.faults.add(kind="describe_limit", operation=SEARCH, times=None)
    execution = live.block().enrol().extend()
    live.world.run_for(HOUR)
    assert "CapacityBlockDescribeLimitExceeded" in live.record()["error"]
    assert live.told() == [("Extension Failed", "failed")]
    assert len(searches(live)) < 30
    fault.times = 1
    live.world.run_until_idle()
    assert execution.path[-1] == "Extension confirmed"


def test_one_that_is_throttled_lets_the_others_wait_too(live):
    live.world.market.faults.add(kind="describe_limit", operation=SEARCH)
    live.block().enrol().extend()
    live.world.run_for(SECOND)
    full_at = live.item("rate", f"{ACCOUNT}#us-east-1#{SEARCH}")["full_at_ms"]
    assert full_at >= (live.world.now() + timedelta(seconds=65)).timestamp() * 1000


@pytest.mark.parametrize("value", [0.0, None])
def test_case_b43_a_quota_of_zero_is_told_as_such_and_not_waited_for_as_a_rate(live, value):
    live.world.account.quotas["L-DA6814F2"] = value  # P5; None: never changed, so AWS's default, 0
    live.world.market.faults.add(kind="describe_limit", operation=SEARCH, times=None)
    execution = live.block().enrol().extend()
    live.world.run_for(HOUR)
    assert "quota-code L-DA6814F2" in live.record()["error"]
    assert "Wait for a turn to search" not in execution.path
    assert len(searches(live)) < 5
    live.world.run_until_idle()
    assert (execution.path[-1], execution.error) == ("No quota", "QuotaIsZero")
    assert live.told() == [("Extension Failed", "no_quota")]


@pytest.mark.parametrize(("instance_type", "denied"), [("p6-b200.48xlarge", False), ("p5.48xlarge", True)])
def test_case_b43_a_quota_that_cannot_be_read_is_not_guessed(live, instance_type, denied):
    live.world.account.denied |= {"GetServiceQuota"} if denied else set()
    live.world.market.faults.add(kind="describe_limit", operation=SEARCH, times=7)
    live.block(instance_type=instance_type).enrol(instance_type=instance_type).extend()
    live.world.run_for(HOUR / 5)
    assert "could not be read here" in live.record()["error"]
    live.world.run_until_idle()
    assert live.record()["status"] == "EXTENDED"
