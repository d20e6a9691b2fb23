"""Whether a sweep has to start scale-groups, without any call to Auto Scaling."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from blockkeeper.domain.calendar import fingerprint, overbooked, scaling_due
from blockkeeper.domain.environment import Environment, Group, parse_environment
from blockkeeper.domain.reservation import Reservation

END = datetime(2026, 5, 4, 11, 30, tzinfo=UTC)
NOW = END - timedelta(days=1)
BLOCK = Reservation(
    "cr-0a1",
    "111122223333",
    "us-east-1",
    "p5.48xlarge",
    None,
    None,
    4,
    "active",
    END - timedelta(days=2),
    END,
    False,
    None,
)
RECORD = {
    "PK": "team-vision",
    "name": "team-vision",
    "capacity_block_id": "cr-0a1",
    "region": "us-east-1",
    "instance_type": "p5.48xlarge",
    "extend_by_days": 1,
    "extension_lookahead_days": 2,
    "require_approval": True,
    "groups": [{"auto_scaling_group": "train"}],
}


@pytest.fixture
def environment() -> Environment:
    return parse_environment(RECORD)


def armed(environment: Environment, check_at: datetime | None = None) -> Environment:
    return replace(environment, groups_armed=fingerprint(environment, BLOCK), groups_check_at=check_at)


def test_a_block_is_due_until_its_groups_are_arranged(environment):
    assert scaling_due(environment, BLOCK, NOW)
    assert not scaling_due(armed(environment), BLOCK, NOW)


@pytest.mark.parametrize(
    "facts",
    [{"end": END + timedelta(days=1)}, {"state": "expired"}, {"instance_count": 5}, {"start": END - timedelta(days=3)}],
)
def test_a_block_is_due_again_when_ec2_shows_other_facts(environment, facts):
    assert scaling_due(armed(environment), replace(BLOCK, **facts), NOW)


@pytest.mark.parametrize(
    "group",
    [
        Group(auto_scaling_group="infer"),
        Group(auto_scaling_group="train", instances=2),
        Group(auto_scaling_group="train", drain_minutes=9),
    ],
)
def test_a_block_is_due_again_when_its_policy_changes(environment, group):
    assert scaling_due(replace(armed(environment), groups=(group,)), BLOCK, NOW)


def test_groups_that_are_taken_off_a_record_are_due_once_more(environment):
    bare = replace(armed(environment), groups=())
    assert scaling_due(bare, BLOCK, NOW)
    assert not scaling_due(armed(bare), BLOCK, NOW)
    assert not scaling_due(replace(bare, groups_armed=None), BLOCK, NOW)


def test_groups_that_are_taken_off_while_another_could_not_be_arranged_are_due_until_they_are_disarmed(environment):
    bare = replace(environment, groups=(), groups_followed=("train", "missing"))
    assert scaling_due(bare, BLOCK, NOW)
    assert not scaling_due(armed(replace(bare, groups_followed=())), BLOCK, NOW)


def test_the_order_of_groups_and_facts_without_weight_change_nothing(environment):
    two = replace(environment, groups=(Group(auto_scaling_group="x"), Group(auto_scaling_group="y")))
    turned = replace(two, groups=two.groups[::-1], name="other", extend_by_days=7)
    assert fingerprint(two, BLOCK) == fingerprint(turned, replace(BLOCK, owner_id="999988887777"))


def test_a_boundary_is_checked_from_the_moment_that_was_noted(environment):
    waiting = armed(environment, check_at=NOW)
    assert not scaling_due(waiting, BLOCK, NOW - timedelta(seconds=1))
    assert scaling_due(waiting, BLOCK, NOW)


@pytest.mark.parametrize(
    ("sizes", "wrong"), [([None], False), ([2, 2], False), ([None, 1], True), ([3, 2], True), ([], False)]
)
def test_groups_that_want_more_than_was_bought_are_reported(environment, sizes, wrong):
    groups = tuple(Group(auto_scaling_group=f"g{i}", instances=size) for i, size in enumerate(sizes))
    text = overbooked(replace(environment, groups=groups), BLOCK)
    assert (text is not None) == wrong
    assert text is None or "cr-0a1 has 4" in text
    assert overbooked(replace(environment, groups=groups), replace(BLOCK, instance_count=None)) is None
