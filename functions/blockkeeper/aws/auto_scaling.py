"""Auto Scaling groups and their scheduled actions in one account and Region.

What AWS refuses is refused here before the call, since stand-ins for AWS accept it (case B46). Writes say what stands afterwards,
so each may be repeated. Source: Amazon EC2 Auto Scaling API reference; User Guide, "Scheduled scaling".
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

from blockkeeper.aws.clients import client
from blockkeeper.aws.group_errors import BUSY_CODES, GroupBusyError, GroupRefusedError, refusals
from blockkeeper.domain.calendar import Action, GroupFacts, Sizes, in_waves
from blockkeeper.domain.instants import format_instant

# BatchPutScheduledUpdateGroupAction, BatchDeleteScheduledAction and DescribeScheduledActions take 50 names at most.
MOST_IN_A_BATCH = 50
DEFAULT_HEARTBEAT_SECONDS = 3600
TERMINATING = "autoscaling:EC2_INSTANCE_TERMINATING"
NODE_GROUP_TAG = "eks:nodegroup-name"
# Put on by `terminate_hook_minutes`, and taken away with it.
OWN_HOOK = "blockkeeper-terminate"
# Node Termination Handler in queue mode minds instances that carry it, with any value (its README); ours says who put it there.
HANDLER_TAG, OWN_VALUE = "aws-node-termination-handler/managed", "blockkeeper"


class AutoScaling:
    """Auto Scaling in one account and Region. Every call raises GroupBusyError or GroupRefusedError."""

    def __init__(self, region: str, account: str) -> None:
        self._client = client("autoscaling", region, account)

    def groups(self, names: Iterable[str]) -> dict[str, GroupFacts]:
        """The groups that exist, by name, with their hooks (DescribeAutoScalingGroups, DescribeLifecycleHooks)."""
        groups = {}
        for batch in _batches(sorted(set(names))):
            with refusals():
                pages = self._client.get_paginator("describe_auto_scaling_groups").paginate(AutoScalingGroupNames=batch)
                for entry in (entry for page in pages for entry in page["AutoScalingGroups"]):
                    name = entry["AutoScalingGroupName"]
                    hooks = self._client.describe_lifecycle_hooks(AutoScalingGroupName=name)["LifecycleHooks"]
                    facts = _facts(entry, hooks)
                    if facts.instances < entry["DesiredCapacity"]:
                        facts = replace(facts, launch_failure=self._launch_failure(name))
                    groups[name] = facts
        return groups

    def _launch_failure(self, group: str) -> str | None:
        """What Auto Scaling says about its last launch, if that failed (DescribeScalingActivities, newest first)."""
        answer = self._client.describe_scaling_activities(AutoScalingGroupName=group, MaxRecords=20)
        for activity in answer["Activities"]:
            if activity["Description"].startswith("Launching"):
                return activity.get("StatusMessage") if activity["StatusCode"] == "Failed" else None
        return None

    def actions(self, group: str) -> list[Action]:
        """All scheduled actions of a group that are still to run, other people's too (DescribeScheduledActions, every page)."""
        return [_action(entry) for entry in self._entries(AutoScalingGroupName=group)]

    def groups_with(self, action_names: Sequence[str]) -> set[str]:
        """Names of all groups that have a scheduled action of one of these names (at most 50)."""
        return {entry["AutoScalingGroupName"] for entry in self._entries(ScheduledActionNames=list(action_names))}

    def put(self, group: GroupFacts, puts: Sequence[Action], standing: Iterable[Action], now: datetime) -> None:
        """Make or overwrite scheduled actions of a group.

        Args:
            standing: the group's actions that stand now, since start times are unique within a group.

        Raises:
            GroupRefusedError: AWS refuses an action, or would; each is named. A 200 answer can hold refusals, too.
            GroupBusyError: some may be written, some not; make the call again.
        """
        for action in puts:
            _check(action, now)
        for batch in (batch for wave in in_waves(puts, standing) for batch in _batches(wave)):
            requests = [
                {
                    "ScheduledActionName": action.name,
                    "StartTime": action.at,
                    "MinSize": action.sizes.minimum,
                    "MaxSize": action.sizes.maximum,
                    "DesiredCapacity": action.sizes.desired,
                }
                for action in batch
            ]
            with refusals():
                answer = self._client.batch_put_scheduled_update_group_action(
                    AutoScalingGroupName=group.name, ScheduledUpdateGroupActions=requests
                )
            _raise_failed(answer.get("FailedScheduledUpdateGroupActions") or [])

    def delete(self, group: GroupFacts, names: Sequence[str]) -> None:
        """Delete scheduled actions of a group by name. One that has just run is gone already, which is as good."""
        for batch in _batches(names):
            with refusals():
                answer = self._client.batch_delete_scheduled_action(
                    AutoScalingGroupName=group.name, ScheduledActionNames=batch
                )
            failed = answer.get("FailedScheduledActions") or []
            _raise_failed([each for each in failed if "not found" not in each.get("ErrorMessage", "")])

    def set_sizes(self, group: GroupFacts, sizes: Sizes) -> None:
        """Set a group's sizes at once (UpdateAutoScalingGroup)."""
        _check_sizes(f"group {group.name}", sizes)
        with refusals():
            self._client.update_auto_scaling_group(
                AutoScalingGroupName=group.name,
                MinSize=sizes.minimum,
                MaxSize=sizes.maximum,
                DesiredCapacity=sizes.desired,
            )

    def put_hook(self, group: GroupFacts, heartbeat: timedelta) -> None:
        """Make or change our terminate hook, and tag the group for Node Termination Handler unless it has the tag already.

        An instance whose handler says nothing goes on when the heartbeat is over (CONTINUE), as the handler's README has it.
        """
        with refusals():
            self._client.put_lifecycle_hook(
                LifecycleHookName=OWN_HOOK,
                AutoScalingGroupName=group.name,
                LifecycleTransition=TERMINATING,
                HeartbeatTimeout=int(heartbeat.total_seconds()),
                DefaultResult="CONTINUE",
            )
            if group.handler_tag is None:
                self._client.create_or_update_tags(
                    Tags=[{**_tag(group), "Value": OWN_VALUE, "PropagateAtLaunch": True}]
                )

    def remove_hook(self, group: GroupFacts) -> None:
        """Take our terminate hook away, and the tag if it is ours."""
        with refusals():
            if group.own_hook is not None:
                self._client.delete_lifecycle_hook(LifecycleHookName=OWN_HOOK, AutoScalingGroupName=group.name)
            if group.handler_tag == OWN_VALUE:
                self._client.delete_tags(Tags=[_tag(group)])

    def _entries(self, **which: Any) -> list[dict[str, Any]]:
        with refusals():
            pages = self._client.get_paginator("describe_scheduled_actions").paginate(**which)
            return [entry for page in pages for entry in page["ScheduledUpdateGroupActions"]]


def _tag(group: GroupFacts) -> dict[str, str]:
    return {"ResourceId": group.name, "ResourceType": "auto-scaling-group", "Key": HANDLER_TAG}


def _check(action: Action, now: datetime) -> None:
    if action.at <= now:
        raise GroupRefusedError(
            f"{action.name} would start at {format_instant(action.at)}, and it is {format_instant(now)}; Auto Scaling takes no"
            " start time in the past (set the sizes at once instead)"
        )
    _check_sizes(action.name, action.sizes)


def _check_sizes(what: str, sizes: Sizes) -> None:
    if None in (sizes.minimum, sizes.maximum, sizes.desired):
        raise GroupRefusedError(f"{what} has sizes {sizes}; minimum, maximum and desired are all needed")
    if not 0 <= (sizes.minimum or 0) <= (sizes.desired or 0) <= (sizes.maximum or 0):
        raise GroupRefusedError(f"{what} has sizes {sizes}; it must be 0 <= minimum <= desired <= maximum")


def _raise_failed(failed: Sequence[dict[str, Any]]) -> None:
    if not failed:
        return
    texts = [f"{each['ScheduledActionName']}: {each.get('ErrorCode')}: {each.get('ErrorMessage')}" for each in failed]
    kind = GroupBusyError if all(each.get("ErrorCode") in BUSY_CODES for each in failed) else GroupRefusedError
    raise kind("; ".join(texts))


def _action(entry: dict[str, Any]) -> Action:
    # `Time` is the older name of StartTime; a recurring action has its next run there.
    at = (entry.get("StartTime") or entry["Time"]).astimezone(UTC)
    sizes = Sizes(entry.get("MinSize"), entry.get("MaxSize"), entry.get("DesiredCapacity"))
    return Action(entry["ScheduledActionName"], at, sizes)


def _facts(entry: dict[str, Any], hooks: Iterable[dict[str, Any]]) -> GroupFacts:
    waits = {
        hook["LifecycleHookName"]: hook.get("HeartbeatTimeout") or DEFAULT_HEARTBEAT_SECONDS
        for hook in hooks
        if hook.get("LifecycleTransition") == TERMINATING
    }
    own_hook = waits.pop(OWN_HOOK, None)
    hook_name = max(waits, key=lambda name: (waits[name], name), default=None)
    instances = [each for each in entry.get("Instances") or [] if each.get("LifecycleState") != "Terminated"]
    tags = {tag["Key"]: tag.get("Value", "") for tag in entry.get("Tags") or []}
    return GroupFacts(
        name=entry["AutoScalingGroupName"],
        sizes=Sizes(entry["MinSize"], entry["MaxSize"], entry["DesiredCapacity"]),
        longest_hook=timedelta(seconds=waits[hook_name] if hook_name else 0),
        hook_name=hook_name,
        instances=len(instances),
        protected=bool(entry.get("NewInstancesProtectedFromScaleIn"))
        or any(each.get("ProtectedFromScaleIn") for each in instances),
        suspended=frozenset(each["ProcessName"] for each in entry.get("SuspendedProcesses") or []),
        warm_pool="WarmPoolConfiguration" in entry,
        eks_nodegroup=tags.get(NODE_GROUP_TAG),
        own_hook=None if own_hook is None else timedelta(seconds=own_hook),
        handler_tag=tags.get(HANDLER_TAG),
    )


def _batches(entries: Iterable[Any]) -> Iterator[list[Any]]:
    left = iter(entries)
    while batch := list(islice(left, MOST_IN_A_BATCH)):
        yield batch
