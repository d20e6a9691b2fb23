"""scale-groups on its state machine, against a market in which groups launch and drain by the clock.

The block of 4 instances runs from 2026-05-03 11:30 to 2026-05-04 11:30 UTC.
"""

import json
from datetime import timedelta
from pathlib import Path

import pytest

from local.engine.world import ACCOUNT, REGION

from .conftest import END, NOW, START, at, problems

# So long a service that stays busy is tried again.
BUSY = timedelta(minutes=6)


def test_start_and_end_are_armed_told_and_noted(story):
    story.block()
    story.group()
    story.enrol()
    execution = story.run()
    assert execution.status == "SUCCEEDED"
    assert story.armed() == {START: (at(11, 35, day=3), 4), END: (at(10, 53), 0)}
    assert execution.output["groups"][0]["actions"] == [
        {"name": START, "at": "2026-05-03T11:35:00Z", "sizes": "0/4/4"},
        {"name": END, "at": "2026-05-04T10:53:00Z", "sizes": "0/0/0"},
    ]
    (told,) = story.told()
    assert told["end_date"] == "2026-05-04T11:30:00Z"
    assert told["changes"] == execution.output["changes"]
    assert story.record()["groups_armed"]
    assert "groups_error" not in story.record()


def test_case_b10_a_second_run_with_nothing_changed_writes_nothing(story):
    story.block()
    story.group()
    story.enrol()
    story.run()
    version, writes = story.record()["version"], story.writes()
    again = story.run()
    assert again.output["changes"] == []
    assert story.writes() == writes
    assert story.record()["version"] == version
    assert len(story.told()) == 1


def test_the_group_follows_the_block_from_start_to_end_and_is_empty_before_ec2_kills(story):
    story.block()
    story.group(lifecycle_hooks=[{"name": "drain-nodes", "heartbeat_seconds": 1200}])
    story.enrol()
    story.run()
    story.world.run_until(at(11, 34, day=3))
    assert story.instances() == 0
    story.world.run_until(at(11, 40, day=3))
    assert (story.sizes(), story.instances()) == ((0, 4, 4), 4)
    story.world.run_until(at(10, 32))
    assert story.sizes() == (0, 4, 4)
    story.world.run_until(at(10, 34))
    assert story.sizes() == (0, 0, 0)
    story.world.run_until(at(10, 58))
    assert story.instances() == 0, "two minutes before EC2 starts to terminate"
    assert story.armed() == {}


def test_case_b10_a_moved_end_moves_the_action_and_leaves_others_alone(story):
    story.block()
    story.group()
    story.enrol()
    story.run()
    story.scaling.put_scheduled_update_group_action(
        AutoScalingGroupName="train", ScheduledActionName="nightly-backup", StartTime=at(2, 0), DesiredCapacity=1
    )
    story.world.run_until(at(0, 0))
    block = story.market.blocks.get("cr-0a1", REGION)
    block.end = at(11, 30, day=5)
    story.market.blocks.plan(block)
    story.run()
    assert {name: time for name, (time, _) in story.armed().items()} == {
        END: at(10, 53, day=5),
        "nightly-backup": at(2, 0),
    }
    story.world.run_until(at(11, 0))
    assert story.instances() > 0


def test_case_b10_the_actions_of_a_block_that_is_not_enrolled_any_more_are_deleted(story):
    story.block()
    story.group()
    story.enrol()
    story.run()
    story.leave()
    gone = story.run()
    assert gone.status == "SUCCEEDED"
    assert story.armed() == {}
    assert gone.output["changes"] == [f"train: {END} deleted", f"train: {START} deleted"]


def test_case_b10_a_group_that_is_taken_off_the_record_is_disarmed(story):
    story.block()
    story.group("x")
    story.group("y")
    story.enrol(groups=["x", "y"])
    story.run()
    story.enrol(groups=["y"])
    story.run()
    assert story.armed("x") == {}
    assert set(story.armed("y")) == {START, END}


def test_case_b08_protection_and_suspension_are_found_and_the_rest_is_armed(story):
    story.block()
    story.group("x", protects_new_instances=True)
    story.group("y", suspended_processes=["ScheduledActions"])
    story.enrol(groups=["x", "y"])
    execution = story.run()
    assert execution.status == "SUCCEEDED"
    assert set(story.armed("x")) == set(story.armed("y")) == {START, END}
    error = story.record()["groups_error"]
    assert "x: it protects instances from scale in" in error
    assert "y: its processes ScheduledActions are suspended" in error
    assert story.record()["error"] == error


def test_case_b08_suspended_actions_do_not_keep_the_group_from_being_emptied(story):
    story.block()
    story.group(suspended_processes=["ScheduledActions"])
    story.enrol()
    story.run()
    story.world.run_until(at(11, 33, day=3))
    story.run()
    assert story.sizes() == (0, 4, 4), "the block is active, so the size is set at once"
    story.world.run_until(at(10, 53))
    story.run()
    assert story.sizes() == (0, 0, 0)
    story.world.run_until(at(10, 59))
    assert story.instances() == 0


def test_case_b08_instances_that_outlive_the_scale_in_are_reported(story):
    story.block()
    story.group(protects_new_instances=True)
    story.enrol()
    story.run()
    story.world.run_until(at(10, 55))
    late = story.run()
    assert story.sizes() == (0, 0, 0)
    assert any("4 instances are still there" in problem for problem in problems(late))
    assert "4 instances are still there" in story.record()["groups_error"]


def test_case_b29_a_group_that_grows_again_is_emptied_again(story):
    story.block()
    story.group()
    story.enrol()
    story.run()
    story.world.run_until(at(10, 54))
    story.scaling.update_auto_scaling_group(AutoScalingGroupName="train", MaxSize=2, DesiredCapacity=2)
    story.world.run_until(at(10, 56))
    again = story.run()
    assert story.sizes() == (0, 0, 0)
    assert "train: sizes set from 0/2/2 to 0/0/0" in again.output["changes"]
    assert any("after the scale-in for cr-0a1" in problem for problem in problems(again))
    fine = story.run()
    assert problems(fine) == []
    assert "groups_error" not in story.record()
    assert "error" not in story.record()


def test_case_b29_an_eks_node_group_and_a_missing_group_are_refused_and_the_others_go_on(story):
    story.block()
    story.group()
    story.group("eks-nodes", tags={"eks:nodegroup-name": "gpu"})
    story.enrol(groups=["eks-nodes", "nowhere", "train", {"eks_cluster": "ml", "eks_nodegroup": "gpu"}])
    execution = story.run()
    assert set(story.armed()) == {START, END}
    assert story.armed("eks-nodes") == {}
    error = story.record()["groups_error"]
    assert "eks-nodes: belongs to the EKS managed node group gpu" in error
    assert "nowhere: is no Auto Scaling group" in error
    assert "ml/gpu: DescribeNodegroup: ResourceNotFoundException" in error
    assert [group["arranged"] for group in execution.output["groups"]] == [False, False, True, False]
    assert "groups_armed" not in story.record(), "so the next sweep tries again"


def test_case_b31_nothing_is_started_into_a_dying_block(story):
    story.block(start="2026-05-02T11:30:00Z")
    story.group()
    story.enrol()
    story.world.run_until(at(10, 45))
    story.run()
    assert story.sizes() == (0, 0, 0)
    assert story.instances() == 0


def test_case_b32_the_end_of_one_block_leaves_the_others_share(story):
    story.block(instance_count=2)
    story.block("cr-0b2", instance_count=3, end="2026-05-06T11:30:00Z")
    story.group()
    story.market.groups.get(ACCOUNT, REGION, "train").reservation_ids.extend(["cr-0a1", "cr-0b2"])
    story.enrol("a")
    story.enrol("b", capacity_block_id="cr-0b2")
    story.run("a")
    assert len(story.armed()) == 4
    assert story.run("b", "cr-0b2").output["changes"] == [], "either record arranges the whole group"
    story.world.run_until(at(0, 0))
    assert story.sizes() == (0, 5, 5)
    story.world.run_until(at(10, 59))
    assert story.sizes() == (0, 3, 3)


def test_case_b32_every_group_of_a_block_is_armed(story):
    story.block()
    story.group("x")
    story.group("y")
    story.enrol(groups=[{"auto_scaling_group": "x", "instances": 3}, {"auto_scaling_group": "y", "instances": 1}])
    story.run()
    assert story.armed("x") == {START: (at(11, 35, day=3), 3), END: (at(10, 53), 0)}
    assert story.armed("y") == {START: (at(11, 35, day=3), 1), END: (at(10, 53), 0)}


def test_groups_that_want_more_than_was_bought_are_reported(story):
    story.block()
    story.group("x")
    story.group("y")
    story.enrol(groups=["x", "y"])
    story.run()
    assert "groups want 8 instances and cr-0a1 has 4" in story.record()["groups_error"]


def test_case_b32_a_group_whose_other_block_cannot_be_read_keeps_what_is_armed(story):
    story.block()
    story.group()
    story.enrol()
    story.run()
    before = story.armed()
    story.enrol("broken", capacity_block_id="cr-0b2", extend_by_days="many")
    story.world.market.blocks.get("cr-0a1", REGION).end = at(11, 30, day=5)
    execution = story.run()
    assert story.armed() == before
    assert any("record broken names this group and cannot be read" in problem for problem in problems(execution))


def test_an_unreadable_record_of_a_group_with_a_longer_name_holds_nothing_up(story):
    story.block()
    story.group()
    story.enrol()
    story.enrol("broken", groups=["train-2", "my.train"], capacity_block_id="cr-0b2", extend_by_days="many")
    assert problems(story.run()) == []
    assert set(story.armed()) == {START, END}


def test_a_group_whose_other_block_ec2_does_not_tell_stops_no_other_group(story):
    story.block()
    story.block("cr-0b2")
    story.group("x")
    story.group("y")
    story.enrol(groups=["x", "y"])
    story.enrol("other", groups=[{"auto_scaling_group": "x", "instances": 1}], capacity_block_id="cr-0b2")
    fault = {"operation": "DescribeCapacityReservations", "reservation_id": "cr-0b2"}
    story.market.faults.add(kind="denied", times=None, **fault)
    execution = story.run()
    assert (story.armed("x"), set(story.armed("y"))) == ({}, {START, END})
    story.market.faults.clear()
    story.world.run_for(BUSY)
    assert execution.status == "SUCCEEDED"
    assert START in story.armed("x")


def test_another_ones_action_may_begin_with_our_prefix(story):
    story.block()
    story.group()
    story.enrol()
    name = "blockkeeper-nightly-backup"
    story.scaling.put_scheduled_update_group_action(
        AutoScalingGroupName="train", ScheduledActionName=name, StartTime=at(3, 0, day=3), DesiredCapacity=0
    )
    story.run()
    assert set(story.armed()) == {START, END, name}


def test_case_b36_the_size_is_set_as_soon_as_the_block_is_there(story):
    story.block(delivered_after_minutes=4)
    story.group()
    story.enrol()
    story.run()
    story.world.run_until(at(11, 31, day=3))
    story.run()
    assert story.sizes() == (0, 0, 0), "not yet: the block is still scheduled at 11:33"
    story.world.run_until(at(11, 34, day=3))
    story.run()
    assert story.instances() == 4
    activities = story.scaling.describe_scaling_activities(AutoScalingGroupName="train")["Activities"]
    assert {activity["StatusCode"] for activity in activities} == {"Successful"}, "no launch failed"


def test_case_b36_ec2s_event_makes_it_sooner(story):
    story.market.faults.clear()
    story.block(delivered_after_minutes=2)
    story.group()
    story.enrol()
    story.run()
    story.world.run_until(at(11, 34, day=3))
    assert story.instances() == 4


def test_counts_that_are_still_zero_are_taken_from_the_size_tag(story):
    story.block()
    story.group()
    story.enrol()
    story.run()
    assert story.armed()[START] == (at(11, 35, day=3), 4)


@pytest.mark.usefixtures("no_pauses")
def test_a_busy_service_is_tried_again(story):
    story.block()
    story.group()
    story.enrol()
    story.market.faults.add(kind="throttle", operation="BatchPutScheduledUpdateGroupAction", times=6)
    execution = story.run()
    assert execution.status == "SUCCEEDED"
    assert set(story.armed()) == {START, END}


@pytest.mark.usefixtures("no_pauses")
def test_a_service_that_stays_busy_ends_in_fail_and_the_other_group_is_done(story):
    story.block()
    story.group("x")
    story.group("y", suspended_processes=["ScheduledActions"])
    story.enrol(groups=["x", "y"])
    story.world.run_until(at(11, 31, day=3))
    story.market.faults.add(kind="throttle", operation="UpdateAutoScalingGroup", times=None)
    execution = story.run()
    story.world.run_for(BUSY)
    assert execution.status == "FAILED"
    assert execution.error == "GroupBusyError"
    assert set(story.armed("x")) == {END}
    assert set(story.armed("y")) == {END}
    assert len(story.told()) == 1, "what was written is told, once"
    assert "groups_armed" not in story.record()


def test_an_action_that_does_not_stand_after_it_was_written_is_no_success(story):
    story.block()
    story.group()
    story.enrol()
    story.market.schedules.put = lambda *_: None
    execution = story.run()
    story.world.run_for(BUSY)
    assert execution.error == "GroupBusyError"
    assert f"train: does not show what was written: {START}, {END}" in execution.cause
    assert "groups_armed" not in story.record()


def test_sizes_that_do_not_stand_after_they_were_set_are_no_success(story):
    story.block()
    story.group()
    story.enrol()
    story.world.run_until(at(11, 31, day=3))
    story.market.groups.resize = lambda *_: None
    execution = story.run()
    story.world.run_for(BUSY)
    assert execution.error == "GroupBusyError"
    assert "train: shows sizes 0/0/0 after 0/4/4 were set" in execution.cause


def test_a_refusal_inside_an_answer_of_200_is_seen_and_names_the_action(story, monkeypatch):
    story.block()
    story.group()
    story.enrol()
    monkeypatch.setattr("local.market.schedules.ACTIONS_PER_GROUP", 1)
    execution = story.run()
    assert execution.status == "SUCCEEDED"
    assert any(f"{END}: LimitExceeded" in problem for problem in problems(execution))
    assert "groups_armed" not in story.record()


def test_where_others_have_taken_every_place_the_sizes_are_set_at_each_boundary(story):
    story.block()
    story.group()
    story.enrol()
    for number in range(125):
        story.scaling.put_scheduled_update_group_action(
            AutoScalingGroupName="train",
            ScheduledActionName=f"other-{number}",
            StartTime=at(0, 0, day=20) + timedelta(minutes=number),
            DesiredCapacity=0,
        )
    execution = story.run()
    assert any("2 of its 2 scheduled actions do not fit beside 125 of others" in text for text in problems(execution))
    assert len([name for name in story.armed() if name.startswith("other-")]) == 50, "the first page"
    story.world.run_until(at(11, 25, day=3))
    story.run(until=at(11, 42, day=3))
    story.world.run_until(at(11, 42, day=3))
    assert story.instances() == 4
    story.world.run_until(at(10, 45))
    story.run(until=at(11, 2))
    story.world.run_until(at(10, 59))
    assert story.instances() == 0


def test_case_b18_a_read_that_fails_is_not_nothing_there(story):
    story.block()
    story.group()
    story.enrol()
    story.run()
    before, record = story.armed(), story.record()
    story.market.faults.add(kind="denied", operation="DescribeCapacityReservations", times=None)
    execution = story.run()
    story.world.run_for(BUSY)
    assert execution.status == "FAILED"
    assert execution.path[-1] == "Groups not arranged"
    assert story.armed() == before
    assert story.record() == record


def test_a_block_that_vanishes_before_its_end_keeps_its_actions(story):
    story.block()
    story.group()
    story.enrol(end_time="2026-05-04T11:30:00Z")
    story.run()
    before = story.armed()
    story.enrol(end_time="2026-05-04T11:30:00Z", capacity_block_id="cr-0gone")
    execution = story.run()
    assert execution.error == "UnreadableReservationError"
    assert story.armed() == before


def test_another_error_on_the_record_is_not_overwritten(story):
    story.block()
    story.enrol(groups=["nowhere"], error="no approver")
    story.run()
    assert story.record()["error"] == "no approver"
    assert "nowhere" in story.record()["groups_error"]


def test_the_sample_input_of_the_workflow_is_accepted(story):
    given = json.loads((Path(__file__).parents[3] / "events" / "scale-groups.json").read_text("utf-8"))
    execution = story.world.start("ScaleGroupsWorkflow", given, "sample")
    story.world.run_until(NOW + timedelta(minutes=1))
    assert execution.status == "SUCCEEDED"
    assert execution.output == {
        "environment": given["environment"],
        "reservation_id": given["reservation_id"],
        "changes": [],
        "groups": [],
    }
