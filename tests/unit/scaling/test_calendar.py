"""The capacity calendar: sizes over time, and the scheduled actions that make them."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blockkeeper.domain.calendar import (
    LEAST_LEFT,
    START_OFFSET,
    ZERO,
    Action,
    GroupBlock,
    GroupFacts,
    Plan,
    Sizes,
    action_names,
    in_waves,
    plan_changes,
    plan_group,
)
from blockkeeper.domain.environment import Kind
from blockkeeper.domain.reservation import Reservation

START = datetime(2026, 5, 3, 11, 30, tzinfo=UTC)
END = datetime(2026, 5, 4, 11, 30, tzinfo=UTC)
BEFORE = START - timedelta(days=2)
MIDWAY = START + timedelta(hours=12)
HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)
EMPTY = GroupFacts("train", ZERO)
FULL = GroupFacts("train", Sizes(0, 4, 4), instances=4)


def reservation(reservation_id: str = "cr-0a1", **facts: Any) -> Reservation:
    known: dict[str, Any] = {
        "owner_id": "111122223333",
        "region": "us-east-1",
        "instance_type": "p5.48xlarge",
        "availability_zone": "us-east-1a",
        "availability_zone_id": "use1-az1",
        "instance_count": 4,
        "state": "scheduled",
        "start": START,
        "end": END,
        "ultraserver": False,
        "environment": None,
    }
    return Reservation(reservation_id=reservation_id, **(known | facts))


def block(reservation_id: str = "cr-0a1", instances: int | None = None, drain: int = 0, **facts: Any) -> GroupBlock:
    return GroupBlock(reservation(reservation_id, **facts), instances, timedelta(minutes=drain))


def plan(
    *blocks: GroupBlock, group: GroupFacts = EMPTY, now: datetime = BEFORE, taken: tuple[datetime, ...] = ()
) -> Plan:
    return plan_group(blocks, group, taken, now)


def at(hour: int, minute: int, day: int = 4) -> datetime:
    return datetime(2026, 5, day, hour, minute, tzinfo=UTC)


def test_a_block_to_come_has_a_start_and_an_end_named_after_it():
    assert plan(block()).actions == (
        Action("blockkeeper-cr-0a1-start", at(11, 35, day=3), Sizes(0, 4, 4)),
        Action("blockkeeper-cr-0a1-end", at(10, 53), ZERO),
    )


def test_before_the_start_the_group_is_left_alone():
    assert plan(block(), group=GroupFacts("train", Sizes(2, 8, 2))).sizes_now is None


def test_case_b03_only_the_end_that_ec2_shows_counts():
    moved = block(state="active", end=END + timedelta(days=1))
    assert [action.at for action in plan(moved, group=FULL, now=MIDWAY).actions] == [at(10, 53, day=5)]
    assert [action.at for action in plan(block(state="active"), group=FULL, now=MIDWAY).actions] == [at(10, 53)]


def test_case_b08_the_end_leaves_room_for_the_longest_hook():
    hook = GroupFacts("train", ZERO, timedelta(seconds=1200), "drain-nodes")
    assert plan(block(), group=hook).actions[-1].at == at(10, 33)
    assert plan(block(drain=45), group=hook).actions[-1].at == at(10, 8)
    assert plan(block(ultraserver=True), group=hook).actions[-1].at == at(10, 3)


def test_case_b08_what_keeps_instances_alive_is_found_days_before():
    group = GroupFacts("train", ZERO, protected=True, suspended=frozenset({"ScheduledActions", "AZRebalance"}))
    suspended, protected = plan(block(), group=group).findings
    assert "ScheduledActions are suspended" in suspended
    assert "resume-processes" in suspended
    assert "AZRebalance" not in suspended
    assert "protects instances from scale in" in protected
    assert plan(block(), group=group).actions, "the actions are armed all the same"


def test_case_b08_a_hook_longer_than_the_time_left_is_named():
    group = GroupFacts("train", Sizes(0, 4, 4), timedelta(hours=1), "drain-nodes", instances=4)
    late = plan(block(state="active"), group=group, now=at(10, 30))
    assert late.sizes_now == ZERO
    assert any("hook drain-nodes may wait 3600 s, longer than the 30 min" in text for text in late.findings)
    early = plan(block(state="active"), group=group, now=at(9, 52))
    assert early.sizes_now == ZERO
    assert early.findings == []


def test_case_b08_instances_that_are_still_there_at_the_last_look_are_counted():
    group = GroupFacts("train", ZERO, instances=2)
    assert plan(block(state="active"), group=group, now=at(10, 54)).instances_left == 0
    late = plan(block(state="active"), group=group, now=at(10, 55))
    assert late.instances_left == 2
    assert "2 instances are still there" in late.findings[0]


def test_case_b10_a_moved_end_overwrites_the_action_of_the_same_name_and_nothing_else():
    standing = [
        Action("blockkeeper-cr-0a1-end", at(10, 53), ZERO),
        Action("nightly-backup", at(2, 0), Sizes(None, None, 1)),
    ]
    wanted = plan(block(state="active", end=END + timedelta(days=1)), group=FULL, now=MIDWAY).actions
    puts, deletes = plan_changes(wanted, standing)
    assert puts == (Action("blockkeeper-cr-0a1-end", at(10, 53, day=5), ZERO),)
    assert deletes == ()
    assert plan_changes(wanted, [*wanted, standing[1]]) == ((), ())


def test_case_b10_an_action_of_a_block_that_is_gone_is_deleted_and_one_that_cannot_be_read_is_kept():
    standing = [
        Action("blockkeeper-cr-0a1-end", at(10, 53), ZERO),
        Action("blockkeeper-cr-0b2-end", at(9, 53), ZERO),
        Action("mine", at(1, 0), ZERO),
    ]
    assert plan_changes((), standing, kept={"cr-0b2"}) == ((), ("blockkeeper-cr-0a1-end",))


def test_equal_instants_in_another_zone_are_no_change():
    ours = Action("blockkeeper-cr-0a1-end", at(10, 53), ZERO)
    theirs = Action(ours.name, ours.at.astimezone(timezone(timedelta(hours=2))), ZERO)
    assert plan_changes([ours], [theirs]) == ((), ())


@pytest.mark.parametrize("state", ["expired", "cancelled", "failed", "payment-failed"])
def test_a_block_that_has_ended_is_armed_no_more(state: str):
    assert plan(block(state=state)).actions == ()
    assert plan(block(state=state)).sizes_now is None


def test_case_b29_a_group_that_another_scaler_grows_after_the_end_is_emptied_again():
    group = GroupFacts("train", Sizes(0, 2, 2), instances=2)
    again = plan(block(state="active"), group=group, now=at(10, 56))
    assert again.sizes_now == ZERO
    assert any("its sizes were 0/2/2 after the scale-in for cr-0a1" in text for text in again.findings)
    assert again.check_at == at(10, 53), "it is looked at again at each sweep"


def test_the_end_is_kept_at_zero_for_an_hour_after_the_block_and_then_left_alone():
    group = GroupFacts("train", Sizes(0, 2, 2))
    gone = block(state="expired")
    assert plan(gone, group=group, now=END + 59 * MINUTE).sizes_now == ZERO
    assert plan(gone, group=group, now=END + 60 * MINUTE).sizes_now is None
    assert plan(gone, group=group, now=END + 60 * MINUTE).check_at is None


def test_case_b31_nothing_is_started_into_a_block_with_less_than_an_hour_left():
    assert plan(block(state="active"), group=EMPTY, now=END - 61 * MINUTE).sizes_now == Sizes(0, 4, 4)
    assert plan(block(state="active"), group=EMPTY, now=END - 59 * MINUTE).sizes_now is None


def test_case_b31_from_the_scale_in_on_minimum_and_desired_are_zero():
    group = GroupFacts("train", Sizes(2, 2, 2), instances=1)
    assert plan(block(state="active"), group=group, now=at(10, 54)).sizes_now == ZERO


def test_case_b32_the_end_of_one_block_takes_its_own_share_only():
    a = block("cr-0a1", instance_count=2)
    b = block("cr-0b2", instance_count=4, start=at(23, 30, day=3), end=END + timedelta(days=1))
    assert [(action.name, action.sizes.desired) for action in plan(a, b).actions] == [
        ("blockkeeper-cr-0a1-start", 2),
        ("blockkeeper-cr-0b2-start", 6),
        ("blockkeeper-cr-0a1-end", 4),
        ("blockkeeper-cr-0b2-end", 0),
    ]


def test_case_b32_consecutive_blocks_drain_and_fill_again():
    a = block("cr-0a1", state="active")
    b = block("cr-0b2", start=END, end=END + timedelta(days=1))
    assert [(action.name, action.sizes) for action in plan(a, b, group=FULL, now=MIDWAY).actions] == [
        ("blockkeeper-cr-0a1-end", ZERO),
        ("blockkeeper-cr-0b2-start", Sizes(0, 4, 4)),
        ("blockkeeper-cr-0b2-end", ZERO),
    ]


def test_two_blocks_that_end_together_have_start_times_of_their_own():
    actions = plan(block("cr-0a1"), block("cr-0b2")).actions
    assert [(action.name[-9:], action.at, action.sizes.desired) for action in actions] == [
        ("0a1-start", at(11, 35, day=3), 4),
        ("0b2-start", at(11, 36, day=3), 8),
        ("r-0b2-end", at(10, 52), 4),
        ("r-0a1-end", at(10, 53), 0),
    ]


def test_another_actions_start_time_moves_an_end_earlier_and_a_start_later():
    moved = plan(block(), taken=(at(10, 53), at(10, 52), START + START_OFFSET))
    assert [action.at for action in moved.actions] == [at(11, 36, day=3), at(10, 51)]
    assert len(moved.notes) == 2
    assert moved.findings == []


def test_case_b36_the_start_waits_some_minutes_and_the_size_is_set_at_once_when_the_block_is_there():
    waiting = plan(block(), now=START + 2 * MINUTE)
    assert waiting.sizes_now is None
    assert waiting.actions[0].at == START + START_OFFSET
    there = plan(block(state="active"), now=START + 2 * MINUTE)
    assert there.sizes_now == Sizes(0, 4, 4)
    assert [action.name for action in there.actions] == ["blockkeeper-cr-0a1-end"]


def test_case_b36_a_missed_start_is_not_made_up_for_before_the_block_is_there():
    assert plan(block(), now=START + 20 * MINUTE).sizes_now is None


def test_while_the_block_runs_a_smaller_size_is_the_teams_own():
    group = GroupFacts("train", Sizes(0, 4, 1), instances=1)
    assert plan(block(state="active"), group=group, now=MIDWAY).sizes_now is None


def test_while_the_block_runs_more_than_was_bought_is_brought_down():
    group = GroupFacts("train", Sizes(1, 9, 9), instances=4)
    assert plan(block(state="active"), group=group, now=MIDWAY).sizes_now == Sizes(0, 4, 4)


def test_a_paid_extension_that_comes_after_the_scale_in_fills_the_group_again():
    late = plan(block(state="active", end=END + timedelta(days=1)), group=EMPTY, now=at(11, 0))
    assert late.sizes_now == Sizes(0, 4, 4)


def test_without_any_count_the_start_is_reported_and_the_end_is_armed():
    unknown = plan(block(instance_count=None))
    assert [action.name for action in unknown.actions] == ["blockkeeper-cr-0a1-end"]
    assert "set instances in groups" in unknown.findings[0]
    known = plan(block(instance_count=None, instances=3))
    assert known.actions[0].sizes == Sizes(0, 3, 3)


def test_the_sizes_of_a_running_block_without_a_count_are_left_alone():
    unknown = plan(block(state="active", instance_count=None), group=FULL, now=MIDWAY)
    assert unknown.sizes_now is None
    assert "does not show the instance count of cr-0a1" in unknown.findings[0]


def test_an_unknown_state_starts_nothing_and_keeps_the_end():
    odd = plan(block(state="something-new"))
    assert [action.name for action in odd.actions] == ["blockkeeper-cr-0a1-end"]
    assert "'something-new' is unknown" in odd.findings[0]
    assert plan(block(state="something-new"), group=FULL, now=MIDWAY).sizes_now is None


def test_a_hook_longer_than_the_block_is_of_use_is_named():
    group = GroupFacts("train", ZERO, timedelta(hours=2), "drain-nodes")
    short = plan(block(end=START + 2 * HOUR), group=group)
    assert [action.name for action in short.actions] == ["blockkeeper-cr-0a1-end"], (
        "whatever runs there must go in time"
    )
    assert "lifecycle hook drain-nodes, 7200 s" in short.findings[0]


def test_writes_that_change_places_are_parted():
    a, b = Action("blockkeeper-a-end", at(10, 0), ZERO), Action("blockkeeper-b-end", at(10, 5), ZERO)
    swapped = [Action(a.name, b.at, ZERO), Action(b.name, a.at, ZERO)]
    times = {a.name: a.at, b.name: b.at}
    for wave in in_waves(swapped, [a, b]):
        for action in wave:
            assert action.at not in [moment for name, moment in times.items() if name != action.name]
            times[action.name] = action.at
    assert times == {action.name: action.at for action in swapped}


minutes = st.integers(0, 3 * 24 * 60).map(lambda count: START - timedelta(days=1) + count * MINUTE)


@st.composite
def stories(draw: st.DrawFn) -> tuple[list[GroupBlock], GroupFacts, list[Action], datetime]:
    blocks = []
    for number in range(draw(st.integers(1, 4))):
        start = START + draw(st.integers(-24, 48)) * HOUR
        blocks.append(
            block(
                f"cr-0a{number}",
                instances=draw(st.none() | st.integers(1, 6)),
                drain=draw(st.integers(0, 240)),
                start=draw(st.sampled_from([start, start, start, None])),
                end=start + draw(st.integers(1, 96)) * HOUR,
                instance_count=draw(st.none() | st.integers(1, 8)),
                state=draw(st.sampled_from(["scheduled", "active", "active", "expired", "payment-pending", "odd"])),
                ultraserver=draw(st.booleans()),
            )
        )
    size = st.integers(0, 6)
    low, middle, high = sorted((draw(size), draw(size), draw(size)))
    group = GroupFacts(
        "train", Sizes(low, high, middle), timedelta(seconds=draw(st.integers(0, 7200))), "drain", draw(size)
    )
    others = [
        Action(f"other-{number}", moment, ZERO) for number, moment in enumerate(draw(st.sets(minutes, max_size=6)))
    ]
    return blocks, group, others, draw(minutes)


@given(stories())
def test_whatever_the_blocks_the_actions_are_ones_that_auto_scaling_takes(story: Any):
    blocks, group, others, now = story
    planned = plan_group(blocks, group, {action.at for action in others}, now)
    by_id = {each.reservation.reservation_id: each for each in blocks}
    times = [action.at for action in [*planned.actions, *others]]
    assert len(set(times)) == len(times), "start times are unique"
    for action in planned.actions:
        sizes = action.sizes
        assert None not in (sizes.minimum, sizes.maximum, sizes.desired)
        assert 0 <= sizes.minimum <= sizes.desired <= sizes.maximum  # type: ignore[operator]
        assert action.at > now
        each = by_id[action.reservation_id]
        if action.name.endswith("-end"):
            lead = timedelta(minutes=60 if each.reservation.ultraserver else 30)
            assert action.at + max(group.longest_hook, each.drain) + lead <= each.reservation.end
        else:
            assert each.reservation.end - action.at >= LEAST_LEFT - 10 * MINUTE
            assert each.reservation.start is not None
            assert action.at >= each.reservation.start
    if planned.sizes_now is not None:
        now_ = planned.sizes_now
        assert 0 <= now_.minimum <= now_.desired <= now_.maximum  # type: ignore[operator]


@given(stories())
def test_whatever_the_blocks_planning_twice_changes_nothing_and_touches_no_other_action(story: Any):
    blocks, group, others, now = story
    first = plan_group(blocks, group, {action.at for action in others}, now)
    stale = Action("blockkeeper-cr-0gone-end", now + HOUR, ZERO)
    puts, deletes = plan_changes(first.actions, [*others, stale])
    assert deletes == (stale.name,)
    assert not {action.name for action in others} & {*deletes, *(action.name for action in puts)}
    sizes = first.sizes_now or group.sizes
    after = GroupFacts(group.name, sizes, group.longest_hook, group.hook_name, sizes.desired or 0)
    second = plan_group(blocks, after, {action.at for action in others}, now)
    assert plan_changes(second.actions, [*others, *puts]) == ((), ())
    assert second.sizes_now is None


@given(stories())
def test_whatever_the_blocks_the_last_action_of_all_empties_the_group(story: Any):
    blocks, group, others, now = story
    actions = plan_group(blocks, group, {action.at for action in others}, now).actions
    if actions:
        assert actions[-1].name.endswith("-end")
        assert actions[-1].sizes == ZERO


def shares(blocks: list[GroupBlock], group: GroupFacts, at: datetime) -> tuple[int, int]:
    """The shares that surely last at a moment, and those that may: at its edges a boundary can be moved by some minutes."""
    least = most = 0
    for each in blocks:
        reservation_ = each.reservation
        lead = timedelta(minutes=60 if reservation_.ultraserver else 30) + max(group.longest_hook, each.drain)
        drains = reservation_.end - lead - 7 * MINUTE
        if reservation_.start is None or drains <= reservation_.start + START_OFFSET:
            continue
        if reservation_.end - reservation_.start - START_OFFSET < LEAST_LEFT:
            continue
        most += (each.size or 0) if reservation_.start <= at < drains else 0
        least += (each.size or 0) if reservation_.start + START_OFFSET + 10 * MINUTE <= at < drains - 10 * MINUTE else 0
    return least, most


@given(stories(), st.integers(0, 8 * 24 * 12))
def test_at_every_moment_a_group_has_the_sum_of_the_shares_of_the_blocks_that_run(story: Any, later: int):
    blocks, group, others, _ = story
    blocks = [
        GroupBlock(replace(each.reservation, state="scheduled"), each.instances, each.drain)
        for each in blocks
        if each.size is not None
    ]
    actions = plan_group(blocks, group, {action.at for action in others}, START - timedelta(days=30)).actions
    at_ = START - timedelta(days=1) + later * 5 * MINUTE
    size = max((action for action in actions if action.at <= at_), key=lambda action: action.at, default=None)
    least, most = shares(blocks, group, at_)
    assert least <= (0 if size is None else size.sizes.desired or 0) <= most


@settings(deadline=None, max_examples=40)
@given(stories())
def test_a_group_without_schedules_that_is_looked_at_when_the_plan_says_follows_to_the_minute(story: Any):
    drawn, group, _, _ = story
    group = replace(group, kind=Kind.NODE_GROUP, sizes=Sizes(0, 1, 0), instances=0)
    now = START - timedelta(days=1)
    for _ in range(2000):
        blocks = [
            GroupBlock(replace(each.reservation, state=_state(each.reservation, now)), each.instances, each.drain)
            for each in drawn
            if each.size is not None
        ]
        plan_ = plan_group(blocks, group, (), now)
        if plan_.sizes_now is not None:
            desired = plan_.sizes_now.desired or 0
            group = replace(group, sizes=plan_.sizes_now, instances=desired)
            assert plan_.sizes_now.maximum == max(desired, 1) or desired <= (plan_.sizes_now.maximum or 0)
        for each in blocks:
            terminates = each.reservation.end - timedelta(minutes=60 if each.reservation.ultraserver else 30)
            if terminates <= now < each.reservation.end and len(blocks) == 1:
                assert group.sizes.desired == 0, "nothing runs when EC2 terminates"
        if plan_.look_at is None:
            break
        assert plan_.look_at > now
        now = plan_.look_at
    else:
        raise AssertionError("the looks never end")
    assert group.sizes.desired == 0


def _state(reservation_: Reservation, now: datetime) -> str:
    if now >= reservation_.end:
        return "expired"
    return "active" if reservation_.start is not None and now >= reservation_.start else "scheduled"


@given(stories())
def test_whatever_the_blocks_to_come_a_size_is_the_sum_of_the_shares_that_last(story: Any):
    blocks, group, _, _ = story
    actions = plan_group(blocks, group, (), START - timedelta(days=30)).actions
    times = {action.name: action.at for action in actions}
    for action in actions:
        lasting = 0
        for each in blocks:
            start, end = action_names(each.reservation.reservation_id)
            if start in times and times[start] <= action.at < times[end]:
                lasting += each.size or 0
        assert action.sizes == Sizes(0, lasting, lasting)


def test_a_block_that_replaces_another_takes_over_after_the_group_was_at_zero():
    """The old block drains by its own calendar; the new share begins when groups are pointed at the new block, not with it."""
    old = block()
    new = GroupBlock(reservation("cr-0n1", start=at(10, 0), end=at(11, 30, day=6)), instances=2, not_before=at(11, 5))
    actions = plan(old, new, now=MIDWAY).actions
    assert [(action.name, action.at, action.sizes.maximum) for action in actions] == [
        ("blockkeeper-cr-0a1-end", at(10, 53), 0),
        ("blockkeeper-cr-0n1-start", at(11, 5), 2),
        ("blockkeeper-cr-0n1-end", at(10, 53, day=6), 0),
    ]
    started = GroupBlock(
        reservation("cr-0n1", state="active", start=at(10, 0), end=at(11, 30, day=6)), not_before=at(11, 5)
    )
    assert plan(old, started, group=FULL, now=at(10, 30)).sizes_now is None, "not beside the old share"
    assert plan(old, started, now=at(11, 5)).sizes_now == Sizes(0, 4, 4)
