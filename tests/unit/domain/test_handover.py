"""A group changes only when it is clear what it launches into, and what it will."""

from datetime import timedelta

import pytest

from blockkeeper.domain.enrolment import KEPT_FIELDS
from blockkeeper.domain.handover import (
    NewHome,
    NotClearError,
    changed_target,
    new_pks,
    new_record,
    subnets_for,
    template_of,
)

from .builders import END

HOME = NewHome("cr-0a1", "cr-0n1", "us-east-1b", END + timedelta(hours=1))


def data(**fields):
    return {
        "InstanceType": "p5.48xlarge",
        "InstanceMarketOptions": {"MarketType": "capacity-block"},
        "CapacityReservationSpecification": {"CapacityReservationTarget": {"CapacityReservationId": "cr-0a1"}},
    } | fields


def group(**fields):
    return {"LaunchTemplate": {"LaunchTemplateId": "lt-1", "Version": "3"}, "Tags": []} | fields


def target(**fields):
    return {"CapacityReservationSpecification": {"CapacityReservationTarget": fields}}


def test_the_target_alone_is_changed():
    kept = {"CapacityReservationPreference": "capacity-reservations-only"}
    given = data(
        CapacityReservationSpecification=kept | {"CapacityReservationTarget": {"CapacityReservationId": "cr-0a1"}}
    )
    changed = {"CapacityReservationTarget": {"CapacityReservationId": "cr-0n1"}}
    assert changed_target(given, HOME) == {"CapacityReservationSpecification": kept | changed}
    assert changed_target(data(**target(CapacityReservationId="cr-0n1")), HOME) is None, "it is there already"


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        (target(CapacityReservationId="cr-0x9"), "is for cr-0x9, not for cr-0a1"),
        (target(CapacityReservationResourceGroupArn="arn:aws:rg"), "is for arn:aws:rg"),
        ({"CapacityReservationSpecification": {}}, "is for no reservation"),
        ({"InstanceMarketOptions": {"MarketType": "spot"}}, "has MarketType spot"),
        ({"InstanceMarketOptions": None}, "has MarketType on-demand"),
        ({"Placement": {"AvailabilityZone": "us-east-1a"}}, "bound to zone us-east-1a"),
        ({"NetworkInterfaces": [{"SubnetId": "subnet-a"}]}, "names a subnet"),
    ],
)
def test_a_template_that_is_not_clear(fields, text):
    with pytest.raises(NotClearError, match=text):
        changed_target(data(**fields), HOME)


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"Tags": [{"Key": "eks:nodegroup-name", "Value": "p5"}]}, "EKS managed node group p5"),
        ({"MixedInstancesPolicy": {"LaunchTemplate": {}}}, "mixed instances policy"),
        (target(CapacityReservationIds=["cr-0a1"]), "overrides its launch template"),
        ({"LaunchTemplate": None, "LaunchConfigurationName": "old"}, "no launch template"),
    ],
)
def test_a_group_that_is_not_clear(fields, text):
    with pytest.raises(NotClearError, match=text):
        template_of(group(**fields))


def test_the_version_that_a_group_uses():
    assert template_of(group()) == ("lt-1", "3")
    assert template_of(group(LaunchTemplate={"LaunchTemplateId": "lt-1"})) == ("lt-1", "$Default")


def subnet(zone, tags=None, vpc="vpc-1", name=None):
    shown = [{"Key": key, "Value": value} for key, value in (tags or {}).items()]
    shown += [{"Key": "Name", "Value": f"net-{zone}"}, {"Key": "aws:cloudformation:logical-id", "Value": zone}]
    return {"SubnetId": name or f"subnet-{zone}", "VpcId": vpc, "AvailabilityZone": f"us-east-1{zone}", "Tags": shown}


PRIVATE = {"tier": "private"}


@pytest.mark.parametrize(
    ("present", "named", "others", "chosen"),
    [
        ([subnet("a"), subnet("b")], [], [], ["subnet-b"]),
        ([subnet("a")], [subnet("b"), subnet("c")], [], ["subnet-b"]),
        ([subnet("a", PRIVATE)], [], [subnet("b", PRIVATE), subnet("b", name="subnet-x")], ["subnet-b"]),
        ([subnet("a")], [], [subnet("b")], None),
        ([subnet("a", PRIVATE)], [], [subnet("b", PRIVATE | {"more": "1"})], None),
        ([subnet("a", PRIVATE)], [], [subnet("b", PRIVATE, vpc="vpc-2")], None),
        ([subnet("a", PRIVATE), subnet("c", {"tier": "public"})], [], [subnet("b", PRIVATE)], None),
        ([subnet("a")], [subnet("b", vpc="vpc-2")], [], None),
        ([], [subnet("b")], [], None),
    ],
)
def test_subnets_of_the_new_zone(present, named, others, chosen):
    if chosen is None:
        with pytest.raises(NotClearError, match=r"replace\.subnets"):
            subnets_for(present, named, others, "us-east-1b")
    else:
        assert subnets_for(present, named, others, "us-east-1b") == chosen


def test_names_of_the_new_record():
    assert next(new_pks("train", END, "cr-0n1")) == "train-20260504"
    assert next(new_pks("train-20260427", END, "cr-0n1")) == "train-20260504", "a replacement of a replacement"
    assert list(new_pks("train", END, "cr-0n1"))[1] == "train-cr-0n1"
    assert all(len(pk) == 128 for pk in new_pks("x" * 128, END, "cr-0123456789abcdef0"))


def test_the_policy_is_copied_and_nothing_else():
    policy = {"name": "Training", "team": "vision", "approvers": ["ann@example.com"], "replace": {"max_gap_hours": 24}}
    old = policy | {"PK": "train", "capacity_block_id": "cr-0a1"} | dict.fromkeys(KEPT_FIELDS, "old")
    record = new_record(
        old, "train-20260504", HOME, end=END + timedelta(days=2), groups_from=END - timedelta(minutes=25), now=END
    )
    assert record == policy | {
        "PK": "train-20260504",
        "capacity_block_id": "cr-0n1",
        "end_time": "2026-05-06T11:30:00Z",
        "replaces": "cr-0a1",
        "groups_from": "2026-05-04T11:05:00Z",
        "status": "PENDING",
        "updated_at": "2026-05-04T11:30:00Z",
        "version": 1,
    }
