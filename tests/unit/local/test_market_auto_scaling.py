"""Auto Scaling over blocks. Case B46: what moto accepts and AWS refuses is refused here."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

START = datetime(2026, 5, 1, tzinfo=UTC)
DRAIN = datetime(2026, 5, 4, 10, 35, tzinfo=UTC)


def group(scaling: Any, name: str = "train") -> dict[str, Any]:
    (found,) = scaling.describe_auto_scaling_groups(AutoScalingGroupNames=[name])["AutoScalingGroups"]
    return dict(found)


def states(scaling: Any, name: str = "train") -> list[str]:
    return sorted(each["LifecycleState"] for each in group(scaling, name)["Instances"])


def activities(scaling: Any) -> list[dict[str, Any]]:
    return list(scaling.describe_scaling_activities(AutoScalingGroupName="train")["Activities"])


def put(scaling: Any, name: str = "a", **params: Any) -> None:
    scaling.put_scheduled_update_group_action(
        **{
            "AutoScalingGroupName": "train",
            "ScheduledActionName": name,
            "StartTime": DRAIN,
            "MinSize": 0,
            "MaxSize": 0,
            **params,
        }
    )


def actions(scaling: Any) -> list[str]:
    found = scaling.describe_scheduled_actions(AutoScalingGroupName="train")
    return [each["ScheduledActionName"] for each in found["ScheduledUpdateGroupActions"]]


# -- scheduled actions: what is refused


@pytest.mark.parametrize(
    ("params", "code"),
    [
        ({"StartTime": START - timedelta(seconds=1)}, "ValidationError"),
        ({"MinSize": 2, "MaxSize": 1}, "ValidationError"),
        ({"DesiredCapacity": 1}, "ValidationError"),
        ({"MinSize": 2, "MaxSize": 4, "DesiredCapacity": 1}, "ValidationError"),
        ({"AutoScalingGroupName": "nobody"}, "ValidationError"),
        ({"EndTime": DRAIN}, "ValidationError"),
        ({"Recurrence": "every day"}, "ValidationError"),
        ({"Recurrence": "0 3 * * *", "TimeZone": "Mars/Base"}, "ValidationError"),
        ({"Time": DRAIN + timedelta(hours=1)}, "ValidationError"),
    ],
)
def test_refused_scheduled_actions_case_b46(
    scaling: Any, load: Any, refused: Any, params: dict[str, Any], code: str
) -> None:
    load({}, groups=({},))
    assert refused(put, scaling=scaling, **params) == code
    assert actions(scaling) == []


def test_an_action_without_sizes_or_time_is_refused(scaling: Any, load: Any, refused: Any) -> None:
    load({}, groups=({},))
    call = scaling.put_scheduled_update_group_action
    assert refused(call, AutoScalingGroupName="train", ScheduledActionName="a", StartTime=DRAIN) == "ValidationError"
    assert refused(call, AutoScalingGroupName="train", ScheduledActionName="a", MinSize=0) == "ValidationError"


def test_a_start_time_is_used_once_in_a_group(scaling: Any, load: Any, refused: Any) -> None:
    load({}, groups=({}, {"name": "other"}))
    put(scaling, "a")
    assert refused(put, scaling=scaling, name="b") == "AlreadyExists"
    put(scaling, "b", AutoScalingGroupName="other")
    put(scaling, "a", MaxSize=2)
    assert actions(scaling) == ["a"], "the same name is overwritten"


def test_at_most_125_actions(scaling: Any, load: Any, refused: Any) -> None:
    load({}, groups=({},))
    for n in range(125):
        put(scaling, f"a{n}", StartTime=DRAIN + timedelta(minutes=n))
    assert refused(put, scaling=scaling, name="one more", StartTime=DRAIN - timedelta(minutes=1)) == "LimitExceeded"
    pages = list(scaling.get_paginator("describe_scheduled_actions").paginate(AutoScalingGroupName="train"))
    assert [len(page["ScheduledUpdateGroupActions"]) for page in pages] == [50, 50, 25]


def test_a_batch_says_which_failed(scaling: Any, load: Any, refused: Any) -> None:
    load({}, groups=({},))
    call = scaling.batch_put_scheduled_update_group_action
    good = {"ScheduledActionName": "good", "StartTime": DRAIN, "MinSize": 0, "MaxSize": 0, "DesiredCapacity": 0}
    failed = call(
        AutoScalingGroupName="train",
        ScheduledUpdateGroupActions=[
            good,
            good | {"ScheduledActionName": "same time"},
            good | {"ScheduledActionName": "past", "StartTime": START - timedelta(days=1)},
        ],
    )["FailedScheduledUpdateGroupActions"]
    assert [(each["ScheduledActionName"], each["ErrorCode"]) for each in failed] == [
        ("same time", "AlreadyExists"),
        ("past", "ValidationError"),
    ]
    assert actions(scaling) == ["good"]
    many = [good | {"ScheduledActionName": f"a{n}", "StartTime": DRAIN + timedelta(minutes=n)} for n in range(51)]
    assert refused(call, AutoScalingGroupName="train", ScheduledUpdateGroupActions=many) == "ValidationError"
    assert refused(call, AutoScalingGroupName="nobody", ScheduledUpdateGroupActions=[good]) == "ValidationError"
    gone = scaling.batch_delete_scheduled_action(AutoScalingGroupName="train", ScheduledActionNames=["good", "unknown"])
    assert [each["ScheduledActionName"] for each in gone["FailedScheduledActions"]] == ["unknown"]
    assert actions(scaling) == []


def test_deleting_an_unknown_action_is_refused_and_describing_it_ignored(scaling: Any, load: Any, refused: Any) -> None:
    load({}, groups=({},))
    put(scaling)
    call = scaling.delete_scheduled_action
    assert refused(call, AutoScalingGroupName="train", ScheduledActionName="b") == "ValidationError"
    found = scaling.describe_scheduled_actions(AutoScalingGroupName="train", ScheduledActionNames=["b", "a"])
    (action,) = found["ScheduledUpdateGroupActions"]
    assert (action["StartTime"], action["MinSize"], action["MaxSize"]) == (DRAIN, 0, 0)
    assert "DesiredCapacity" not in action
    call(AutoScalingGroupName="train", ScheduledActionName="a")
    assert actions(scaling) == []


# -- scheduled actions: their run


def test_an_action_runs_when_due_and_is_gone(scaling: Any, load: Any, at: Any) -> None:
    load({}, groups=({"min": 2, "desired": 2},))
    put(scaling, DesiredCapacity=0)
    at("2026-05-04T10:34")
    assert states(scaling) == ["InService", "InService"]
    assert actions(scaling) == ["a"]
    at("2026-05-04T10:35")
    assert states(scaling) == []
    assert actions(scaling) == []
    found = group(scaling)
    assert (found["MinSize"], found["MaxSize"], found["DesiredCapacity"]) == (0, 0, 0)
    cause = activities(scaling)[0]["Cause"]
    assert "a scheduled action update of AutoScalingGroup constraints to min: 0, max: 0, desired: 0" in cause
    assert "changing the desired capacity from 2 to 0" in cause


def test_sizes_left_out_stay_and_drag_the_desired_capacity(scaling: Any, load: Any, at: Any) -> None:
    load({}, groups=({"desired": 3},))
    put(scaling, StartTime=START + timedelta(hours=1), MinSize=-1, MaxSize=2)
    at("2026-05-01T01:00")
    found = group(scaling)
    assert (found["MinSize"], found["MaxSize"], found["DesiredCapacity"]) == (0, 2, 2)


def test_an_action_that_does_not_fit_at_its_time_fails(scaling: Any, load: Any, at: Any) -> None:
    load({}, groups=({"min": 1, "desired": 2},))
    scaling.put_scheduled_update_group_action(
        AutoScalingGroupName="train", ScheduledActionName="a", StartTime=DRAIN, DesiredCapacity=0
    )
    at("2026-05-04T10:35")
    assert group(scaling)["DesiredCapacity"] == 2, "MinSize is 1: to reach 0 it must be sent too"
    assert activities(scaling)[0]["StatusCode"] == "Failed"


def test_a_suspended_process_runs_no_action_case_b08(scaling: Any, load: Any, at: Any) -> None:
    load({}, groups=({"desired": 2, "suspended_processes": ["ScheduledActions"]},))
    put(scaling, DesiredCapacity=0)
    at("2026-05-04T10:40")
    assert states(scaling) == ["InService", "InService"]
    assert [each["ProcessName"] for each in group(scaling)["SuspendedProcesses"]] == ["ScheduledActions"]


def test_an_overwritten_action_runs_at_its_new_time_only_case_b10(scaling: Any, load: Any, at: Any) -> None:
    load({"end": "2026-05-05T11:30:00Z"}, groups=({"desired": 2},))
    put(scaling, DesiredCapacity=0)
    put(scaling, DesiredCapacity=0, StartTime=DRAIN + timedelta(days=1))
    at("2026-05-04T12:00")
    assert len(states(scaling)) == 2
    at("2026-05-05T10:35")
    assert states(scaling) == []


def test_a_recurring_action_runs_again_in_its_zone(scaling: Any, load: Any, at: Any) -> None:
    load({}, groups=({},))
    scaling.put_scheduled_update_group_action(
        AutoScalingGroupName="train",
        ScheduledActionName="up",
        Recurrence="30 8 * * 1-5",
        TimeZone="Europe/Berlin",
        DesiredCapacity=1,
    )
    (action,) = scaling.describe_scheduled_actions()["ScheduledUpdateGroupActions"]
    assert action["StartTime"] == datetime(2026, 5, 1, 6, 30, tzinfo=UTC)
    at("2026-05-01T06:30")
    assert group(scaling)["DesiredCapacity"] == 1
    (action,) = scaling.describe_scheduled_actions()["ScheduledUpdateGroupActions"]
    assert action["StartTime"] == datetime(2026, 5, 4, 6, 30, tzinfo=UTC), "Monday"


# -- instances and blocks


def test_a_launch_before_the_start_fails_and_comes_true_at_the_start_case_b36(scaling: Any, load: Any, at: Any) -> None:
    load({"start": "2026-05-02T11:30:00Z"}, groups=({"desired": 4},))
    assert states(scaling) == []
    assert activities(scaling)[0]["StatusMessage"] == (
        "Your Capacity Block reservation cr-0a1 is not active yet. Launching EC2 instance failed."
    )
    at("2026-05-02T11:30")
    assert states(scaling) == ["InService"] * 4


def test_a_full_block_launches_no_more_until_a_slot_is_scrubbed(scaling: Any, load: Any, at: Any) -> None:
    load({}, groups=({"desired": 3}, {"name": "other", "desired": 2}))
    assert (len(states(scaling)), len(states(scaling, "other"))) == (3, 1)
    scaling.set_desired_capacity(AutoScalingGroupName="train", DesiredCapacity=1)
    assert len(states(scaling, "other")) == 1
    found = scaling.describe_scaling_activities(AutoScalingGroupName="other")["Activities"]
    assert "does not have sufficient compatible and available capacity" in found[0]["StatusMessage"]
    at("2026-05-01T00:05")
    assert len(states(scaling, "other")) == 2


@pytest.mark.parametrize(
    "wrong", [{"availability_zone": "us-east-1b"}, {"reservation_id": "cr-0ff"}, {"owner_id": "777788889999"}]
)
def test_a_group_that_does_not_match_the_block_launches_nothing(load: Any, market: Any, wrong: dict[str, str]) -> None:
    load({}, groups=({"desired": 1, **wrong},))
    (only,) = market.groups.by_key.values()
    assert only.members == []
    assert only.activities[0]["StatusCode"] == "Failed"


def test_ec2_takes_the_block_back_30_minutes_before_the_end_case_b31(
    scaling: Any, ec2: Any, load: Any, at: Any
) -> None:
    load({}, groups=({"min": 2, "desired": 2, "lifecycle_hooks": [{"name": "drain", "heartbeat_seconds": 3600}]},))
    at("2026-05-04T10:59")
    assert len(states(scaling)) == 2
    at("2026-05-04T11:00")
    assert states(scaling) == [], "no hook holds what EC2 takes back"
    latest = activities(scaling)
    assert latest[0]["StatusCode"] == "Failed", "and the group tries to replace it"
    assert "EC2 health check that indicated it had been terminated or stopped" in latest[1]["Cause"]
    terminated = ec2.describe_instances(Filters=[{"Name": "instance-state-name", "Values": ["terminated"]}])[
        "Reservations"
    ]
    assert len(terminated) == 2
    scaling.set_desired_capacity(AutoScalingGroupName="train", DesiredCapacity=3)
    assert states(scaling) == [], "nothing launches into the last 30 minutes"


def test_a_terminating_hook_holds_an_instance_for_its_heartbeat(scaling: Any, load: Any, at: Any, market: Any) -> None:
    load({}, groups=({"desired": 2, "lifecycle_hooks": [{"name": "drain", "heartbeat_seconds": 1200}]},))
    scaling.set_desired_capacity(AutoScalingGroupName="train", DesiredCapacity=0)
    assert states(scaling) == ["Terminating:Wait"] * 2
    announced = [
        event["detail"] for event in market.events if event["detail-type"] == "EC2 Instance-terminate Lifecycle Action"
    ]
    assert len(announced) == 2
    scaling.complete_lifecycle_action(
        AutoScalingGroupName="train",
        LifecycleHookName="drain",
        LifecycleActionResult="CONTINUE",
        LifecycleActionToken=announced[0]["LifecycleActionToken"],
    )
    assert states(scaling) == ["Terminating:Wait"]
    at("2026-05-01T00:19")
    scaling.record_lifecycle_action_heartbeat(
        AutoScalingGroupName="train", LifecycleHookName="drain", InstanceId=announced[1]["EC2InstanceId"]
    )
    at("2026-05-01T00:38")
    assert states(scaling) == ["Terminating:Wait"]
    at("2026-05-01T00:39")
    assert states(scaling) == []


def test_a_launching_hook_holds_and_abandons(scaling: Any, load: Any, at: Any) -> None:
    load({}, groups=({},))
    scaling.put_lifecycle_hook(
        AutoScalingGroupName="train",
        LifecycleHookName="boot",
        LifecycleTransition="autoscaling:EC2_INSTANCE_LAUNCHING",
        HeartbeatTimeout=60,
    )
    scaling.set_desired_capacity(AutoScalingGroupName="train", DesiredCapacity=1)
    assert states(scaling) == ["Pending:Wait"]
    first = group(scaling)["Instances"][0]["InstanceId"]
    at("2026-05-01T00:01")
    assert group(scaling)["Instances"][0]["InstanceId"] != first
    second = group(scaling)["Instances"][0]["InstanceId"]
    scaling.complete_lifecycle_action(
        AutoScalingGroupName="train", LifecycleHookName="boot", LifecycleActionResult="CONTINUE", InstanceId=second
    )
    assert states(scaling) == ["InService"]


def test_hooks_can_be_read_and_deleted(scaling: Any, load: Any, refused: Any) -> None:
    load({}, groups=({"lifecycle_hooks": [{"name": "drain", "heartbeat_seconds": 1200}]},))
    (hook,) = scaling.describe_lifecycle_hooks(AutoScalingGroupName="train")["LifecycleHooks"]
    assert (hook["HeartbeatTimeout"], hook["DefaultResult"], hook["GlobalTimeout"]) == (1200, "ABANDON", 120_000)
    call = scaling.put_lifecycle_hook
    assert (
        refused(call, AutoScalingGroupName="train", LifecycleHookName="drain", HeartbeatTimeout=29) == "ValidationError"
    )
    scaling.delete_lifecycle_hook(AutoScalingGroupName="train", LifecycleHookName="drain")
    assert scaling.describe_lifecycle_hooks(AutoScalingGroupName="train")["LifecycleHooks"] == []


def test_protected_instances_stay_while_desired_falls(scaling: Any, load: Any) -> None:
    load({}, groups=({"desired": 2, "protects_new_instances": True},))
    scaling.set_desired_capacity(AutoScalingGroupName="train", DesiredCapacity=0)
    assert states(scaling) == ["InService"] * 2
    assert group(scaling)["DesiredCapacity"] == 0
    assert "protected from scale in" in activities(scaling)[0]["StatusMessage"]
    ids = [each["InstanceId"] for each in group(scaling)["Instances"]]
    scaling.set_instance_protection(AutoScalingGroupName="train", InstanceIds=ids, ProtectedFromScaleIn=False)
    scaling.set_desired_capacity(AutoScalingGroupName="train", DesiredCapacity=0)
    assert states(scaling) == []


@pytest.mark.parametrize(("process", "desired", "left"), [("Launch", 3, 1), ("Terminate", 0, 1)])
def test_suspended_launch_and_terminate(scaling: Any, load: Any, process: str, desired: int, left: int) -> None:
    load({}, groups=({"desired": 1},))
    scaling.suspend_processes(AutoScalingGroupName="train", ScalingProcesses=[process])
    scaling.set_desired_capacity(AutoScalingGroupName="train", DesiredCapacity=desired)
    assert len(states(scaling)) == left
    scaling.resume_processes(AutoScalingGroupName="train")
    assert len(states(scaling)) == desired


# -- groups


def test_create_update_and_delete(scaling: Any, load: Any, refused: Any) -> None:
    load({})
    new = {
        "AutoScalingGroupName": "new",
        "MinSize": 0,
        "MaxSize": 4,
        "DesiredCapacity": 1,
        "AvailabilityZones": ["us-east-1a"],
        "CapacityReservationSpecification": {
            "CapacityReservationPreference": "capacity-reservations-only",
            "CapacityReservationTarget": {"CapacityReservationIds": ["cr-0a1"]},
        },
        "Tags": [{"Key": "team", "Value": "nlp", "PropagateAtLaunch": True}],
    }
    scaling.create_auto_scaling_group(**new)
    assert refused(scaling.create_auto_scaling_group, **new) == "AlreadyExists"
    assert states(scaling, "new") == ["InService"]
    update = scaling.update_auto_scaling_group
    update(AutoScalingGroupName="new", MinSize=2)
    assert group(scaling, "new")["DesiredCapacity"] == 2, "dragged along"
    assert refused(update, AutoScalingGroupName="new", MaxSize=1) == "ValidationError"
    assert refused(update, AutoScalingGroupName="new", DesiredCapacity=5) == "ValidationError"
    assert refused(update, AutoScalingGroupName="nobody", MaxSize=1) == "ValidationError"
    call = scaling.set_desired_capacity
    assert refused(call, AutoScalingGroupName="new", DesiredCapacity=5) == "ValidationError"
    assert refused(call, AutoScalingGroupName="new", DesiredCapacity=1) == "ValidationError"
    found = scaling.describe_auto_scaling_groups(Filters=[{"Name": "tag:team", "Values": ["nlp"]}])["AutoScalingGroups"]
    assert [each["AutoScalingGroupName"] for each in found] == ["new"]
    assert refused(scaling.delete_auto_scaling_group, AutoScalingGroupName="new") == "ResourceInUse"
    scaling.delete_auto_scaling_group(AutoScalingGroupName="new", ForceDelete=True)
    assert scaling.describe_auto_scaling_groups()["AutoScalingGroups"] == []


def test_groups_come_in_pages_and_unknown_names_are_ignored(scaling: Any, load: Any) -> None:
    load({}, groups=tuple({"name": f"g{n:03}"} for n in range(120)))
    pages = list(scaling.get_paginator("describe_auto_scaling_groups").paginate())
    assert [len(page["AutoScalingGroups"]) for page in pages] == [50, 50, 20]
    assert scaling.describe_auto_scaling_groups(AutoScalingGroupNames=["nobody"])["AutoScalingGroups"] == []


def test_tags(scaling: Any, load: Any) -> None:
    load({}, groups=({"tags": {"team": "nlp"}},))
    tag = {"ResourceId": "train", "ResourceType": "auto-scaling-group", "Key": "eks:nodegroup-name"}
    scaling.create_or_update_tags(Tags=[tag | {"Value": "ng", "PropagateAtLaunch": False}])
    assert [each["Key"] for each in scaling.describe_tags()["Tags"]] == ["team", "eks:nodegroup-name"]
    scaling.delete_tags(Tags=[tag])
    assert [each["Key"] for each in scaling.describe_tags()["Tags"]] == ["team"]


def test_instances_can_be_seen_and_terminated(scaling: Any, ec2: Any, load: Any) -> None:
    load({}, groups=({"desired": 2},))
    first, second = scaling.describe_auto_scaling_instances()["AutoScalingInstances"]
    assert (first["AutoScalingGroupName"], first["LifecycleState"], first["HealthStatus"]) == (
        "train",
        "InService",
        "HEALTHY",
    )
    (shown,) = ec2.describe_instances(InstanceIds=[first["InstanceId"]])["Reservations"][0]["Instances"]
    assert (shown["CapacityReservationId"], shown["InstanceLifecycle"]) == ("cr-0a1", "capacity-block")
    scaling.terminate_instance_in_auto_scaling_group(
        InstanceId=first["InstanceId"], ShouldDecrementDesiredCapacity=True
    )
    assert group(scaling)["DesiredCapacity"] == 1
    scaling.terminate_instance_in_auto_scaling_group(
        InstanceId=second["InstanceId"], ShouldDecrementDesiredCapacity=False
    )
    (left,) = scaling.describe_auto_scaling_instances()["AutoScalingInstances"]
    assert left["InstanceId"] not in {first["InstanceId"], second["InstanceId"]}


def test_block_types(ec2: Any) -> None:
    block_types = ec2.describe_instance_types(Filters=[{"Name": "supported-usage-class", "Values": ["capacity-block"]}])
    assert "p5en.48xlarge" in {each["InstanceType"] for each in block_types["InstanceTypes"]}
