"""What scale-groups does between sweeps: each boundary is checked, misses are made up for, hooks are put and taken away."""

from datetime import timedelta
from itertools import pairwise

import pytest

from local.engine.world import ACCOUNT, REGION

from .conftest import END, START, at, problems

HOOK, TAG = "blockkeeper-terminate", "aws-node-termination-handler/managed"


def metrics(story, name):
    lines = story.world.logs.getvalue().splitlines()
    return [line for line in lines if f'"{name}":' in line and f'"{name}":[0.0]' not in line]


def test_case_b29_a_policy_that_raises_desired_after_our_zero_is_met_within_minutes(live):
    live.block()
    live.group(lifecycle_hooks=[{"name": "drain-nodes", "heartbeat_seconds": 1200}])
    live.enrol()
    live.world.run_until(at(10, 34))
    assert live.sizes() == (0, 0, 0)
    live.scaling.update_auto_scaling_group(AutoScalingGroupName="train", MaxSize=2, DesiredCapacity=2)
    live.world.run_until(at(10, 37))
    assert live.sizes() == (0, 0, 0)
    assert any("sizes set from 0/2/2 to 0/0/0" in text for told in live.told() for text in told["changes"])


def test_case_b08_a_missed_scale_in_is_made_up_for_and_what_is_left_is_seen_at_t_35(live):
    live.block()
    live.group(suspended_processes=["ScheduledActions"])
    live.enrol()
    live.world.run_until(at(10, 52))
    assert live.instances() == 4
    live.world.run_until(at(10, 57))
    assert (live.sizes(), live.instances()) == ((0, 0, 0), 0)
    assert metrics(live, "BoundariesMissed"), "alarmed"


def test_case_b08_the_real_instance_count_is_looked_at_35_minutes_before_the_end(live):
    live.block()
    live.group(protects_new_instances=True)
    live.enrol()
    live.world.run_until(at(10, 54))
    assert not metrics(live, "InstancesLeftAtEnd")
    live.world.run_until(at(10, 56))
    assert metrics(live, "InstancesLeftAtEnd")
    assert "4 instances are still there" in live.record()["groups_error"]


def test_a_warm_pool_is_found_days_before(story):
    story.block()
    story.group(warm_pool=True)
    story.enrol()
    assert any("it has a warm pool" in problem for problem in problems(story.run()))
    assert set(story.armed()) == {START, END}


def test_instances_that_could_not_be_launched_are_asked_for_again_at_growing_pauses_and_reported(story, monkeypatch):
    story.block()
    story.group("other", max=1, desired=1)
    story.group()
    story.enrol(groups=[{"auto_scaling_group": "train", "instances": 4}])
    # Auto Scaling has given up: it does not try by itself when a slot gets free.
    monkeypatch.setattr(story.market.groups, "block_changed", lambda _block: story.market.groups.reconcile(other, ""))
    other = story.market.groups.get(ACCOUNT, REGION, "other")
    story.run()
    story.world.run_until(at(11, 34, day=3))
    story.market.groups.reconcile(other, "")
    execution = story.run(until=at(13, 0, day=3))
    story.world.run_until(at(11, 44, day=3))
    assert (story.instances("other"), story.instances()) == (1, 3)
    assert "groups_error" not in story.record(), "a slot may still be scrubbed"
    story.world.run_until(at(12, 10, day=3))
    assert (
        "train: 1 of its 4 instances are missing: The requested reservation does not" in story.record()["groups_error"]
    )
    assert metrics(story, "InstancesMissing")
    tries = [call.at for call in story.market.calls if call.operation == "UpdateAutoScalingGroup"]
    pauses = [later - earlier for earlier, later in pairwise(tries)]
    assert pauses == sorted(pauses)
    assert pauses[-1] >= timedelta(minutes=10)
    story.scaling.update_auto_scaling_group(AutoScalingGroupName="other", MinSize=0, MaxSize=0, DesiredCapacity=0)
    story.world.run_until(at(13, 0, day=3))
    assert story.instances() == 4
    assert execution.status == "SUCCEEDED"
    story.run()
    assert "groups_error" not in story.record()


def hooks(story, group="train"):
    found = story.scaling.describe_lifecycle_hooks(AutoScalingGroupName=group)["LifecycleHooks"]
    return {hook["LifecycleHookName"]: (hook["HeartbeatTimeout"], hook["DefaultResult"]) for hook in found}


def tags(story, group="train"):
    (found,) = story.scaling.describe_auto_scaling_groups(AutoScalingGroupNames=[group])["AutoScalingGroups"]
    return {tag["Key"]: (tag["Value"], tag["PropagateAtLaunch"]) for tag in found["Tags"]}


def test_a_terminate_hook_is_put_with_the_handlers_tag_and_taken_away_with_the_option(story):
    story.block()
    story.group()
    story.enrol(groups=[{"auto_scaling_group": "train", "terminate_hook_minutes": 20}])
    story.run()
    assert hooks(story) == {HOOK: (1200, "CONTINUE")}
    assert tags(story) == {TAG: ("blockkeeper", True)}
    assert story.armed()[END][0] == at(10, 33), "the lead has room for it"
    before = story.writes()
    assert story.run().output["changes"] == []
    assert story.writes() == before
    story.enrol(groups=[{"auto_scaling_group": "train", "terminate_hook_minutes": 10}])
    story.run()
    assert hooks(story) == {HOOK: (600, "CONTINUE")}
    assert story.armed()[END][0] == at(10, 43)
    story.enrol(groups=["train"])
    story.run()
    assert (hooks(story), tags(story)) == ({}, {})
    assert story.armed()[END][0] == at(10, 53)


def test_the_teams_own_hook_and_tag_stay(story):
    story.block()
    story.group(lifecycle_hooks=[{"name": "mine", "heartbeat_seconds": 1800}], tags={TAG: "yes"})
    story.enrol(groups=[{"auto_scaling_group": "train", "terminate_hook_minutes": 10}])
    story.run()
    assert set(hooks(story)) == {HOOK, "mine"}
    assert story.armed()[END][0] == at(10, 23), "the longest counts"
    story.enrol(groups=["train"])
    story.run()
    assert set(hooks(story)) == {"mine"}
    assert tags(story) == {TAG: ("yes", True)}


def test_a_group_that_is_taken_off_the_record_loses_our_hook(story):
    story.block()
    story.group("x")
    story.group("y")
    story.enrol(groups=[{"auto_scaling_group": "x", "terminate_hook_minutes": 10}, "y"])
    story.run()
    record = story.record()
    assert record["groups_followed"] == ["x", "y"]
    story.enrol(groups=["y"], groups_followed=["x", "y"])
    story.run()
    assert (hooks(story, "x"), story.armed("x")) == ({}, {})
    assert story.record()["groups_followed"] == ["y"]


@pytest.mark.usefixtures("no_pauses")
def test_a_tag_whose_deletion_failed_after_the_hooks_goes_in_the_next_run(story):
    story.block()
    story.group()
    story.enrol(groups=[{"auto_scaling_group": "train", "terminate_hook_minutes": 10}])
    story.run()
    story.enrol(groups=["train"])
    story.market.faults.add(kind="denied", operation="DeleteTags", times=1)
    story.run()
    assert (hooks(story), tags(story)) == ({}, {TAG: ("blockkeeper", True)})
    story.run()
    assert tags(story) == {}


def test_case_b08_a_hook_that_comes_after_the_end_was_armed_is_seen_in_time_for_it(live):
    live.block()
    live.group()
    live.enrol()
    live.world.run_until(at(20, 0, day=3))
    live.scaling.put_lifecycle_hook(
        LifecycleHookName="drain",
        AutoScalingGroupName="train",
        LifecycleTransition="autoscaling:EC2_INSTANCE_TERMINATING",
        HeartbeatTimeout=3600,
    )
    live.world.run_until(at(9, 50))
    # T - 30 min - the hook's hour - 2 min - 5 min; it was 10:53 before.
    assert live.armed()[END][0] == at(9, 53)


@pytest.mark.usefixtures("no_pauses")
def test_a_hook_that_may_not_be_put_keeps_nothing_else_from_being_armed(story):
    story.block()
    story.group()
    story.enrol(groups=[{"auto_scaling_group": "train", "terminate_hook_minutes": 10}])
    story.market.faults.add(kind="denied", operation="PutLifecycleHook", times=None)
    execution = story.run()
    assert any("PutLifecycleHook: AccessDenied" in problem for problem in problems(execution))
    assert set(story.armed()) == {START, END}
    assert "groups_armed" not in story.record()


@pytest.mark.parametrize(("kind", "told"), [("p6e-gb200.36xlarge", True), ("p5.48xlarge", False)])
def test_a_block_of_karpenters_is_recognised_by_its_tag_and_reported_where_it_drains_too_late(live, kind, told):
    live.block(instance_type=kind, tags={"karpenter.sh/discovery": "ml"})
    live.enrol(groups=[], instance_type=kind, extend_until="2026-05-04T12:00:00Z")
    live.world.run_until(at(11, 15, day=3))
    assert ("tagged for Karpenter" in live.record().get("error", "")) == told
    assert live.world.executions("ScaleGroupsWorkflow") == []


def test_a_group_of_a_karpenter_block_is_arranged_and_the_run_says_so(story):
    story.block(tags={"karpenter.sh/discovery": "ml"})
    story.group()
    story.enrol()
    (group,) = story.run().output["groups"]
    assert group["notes"] == ["cr-0a1 is tagged for Karpenter, whose nodes follow by themselves"]
    assert set(story.armed()) == {START, END}
