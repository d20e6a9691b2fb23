"""The Auto Scaling calls on groups, their instances, hooks, processes and tags (scheduled actions are in `schedules`)."""

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from local.market.caller import Caller
from local.market.errors import MarketError, validation_error
from local.market.groups import PROCESSES, Group, Hook, Member
from local.market.listing import matching, scaling_page

if TYPE_CHECKING:
    from local.market.market import Market

_HEARTBEAT_BOUNDS = (30, 7200)
_KEPT_SETTINGS = (
    "DefaultCooldown",
    "HealthCheckGracePeriod",
    "HealthCheckType",
    "LaunchConfigurationName",
    "LaunchTemplate",
    "MixedInstancesPolicy",
    "PlacementGroup",
    "TerminationPolicies",
    "VPCZoneIdentifier",
    "CapacityReservationSpecification",
    "Context",
)


class ScalingApi:
    """Auto Scaling's door."""

    def __init__(self, market: "Market") -> None:
        self._market = market

    def operations(self) -> dict[str, Any]:
        return {
            "CreateAutoScalingGroup": self._create,
            "UpdateAutoScalingGroup": self._update,
            "DeleteAutoScalingGroup": self._delete,
            "SetDesiredCapacity": self._set_desired,
            "DescribeAutoScalingGroups": self._describe_groups,
            "DescribeAutoScalingInstances": self._describe_instances,
            "DescribeScalingActivities": self._describe_activities,
            "SetInstanceProtection": self._protect,
            "TerminateInstanceInAutoScalingGroup": self._terminate,
            "PutLifecycleHook": self._put_hook,
            "DescribeLifecycleHooks": self._describe_hooks,
            "DeleteLifecycleHook": self._delete_hook,
            "CompleteLifecycleAction": self._complete,
            "RecordLifecycleActionHeartbeat": self._heartbeat,
            "SuspendProcesses": self._suspend,
            "ResumeProcesses": self._resume,
            "CreateOrUpdateTags": self._tag,
            "DeleteTags": self._untag,
            "DescribeTags": self._describe_tags,
        }

    def _group(self, name: str | None, caller: Caller) -> Group:
        group = self._market.groups.get(caller.account, caller.region, name or "")
        if group is None:
            raise validation_error(f"AutoScalingGroup name not found - no such group: {name}")
        return group

    # -- groups

    def _create(self, params: dict[str, Any], caller: Caller) -> dict[str, Any]:
        name = params["AutoScalingGroupName"]
        if self._market.groups.get(caller.account, caller.region, name) is not None:
            raise MarketError(
                "AlreadyExists",
                f"AutoScalingGroup by this name already exists - A group with the name {name} already exists",
            )
        minimum, maximum = params["MinSize"], params["MaxSize"]
        desired = params.get("DesiredCapacity", minimum)
        _check_sizes(minimum, maximum, desired)
        zones = list(params.get("AvailabilityZones", []))
        if not zones and not params.get("VPCZoneIdentifier"):
            raise validation_error("At least one Availability Zone or VPC Subnet is required.")
        group = Group(
            name=name,
            account=caller.account,
            region=caller.region,
            minimum=minimum,
            maximum=maximum,
            desired=desired,
            zones=zones or self._market.templates.zones(params["VPCZoneIdentifier"]) or [f"{caller.region}a"],
            created=self._market.now,
            reservation_ids=_reservation_ids(params),
            tags=[_stored_tag({**tag, "ResourceId": name}) for tag in params.get("Tags", [])],
            protects_new=params.get("NewInstancesProtectedFromScaleIn", False),
            settings={key: params[key] for key in _KEPT_SETTINGS if key in params},
        )
        for spec in params.get("LifecycleHookSpecificationList", []):
            _put_hook(group, spec)
        self._market.groups.add(group)
        return {}

    def _update(self, params: dict[str, Any], caller: Caller) -> dict[str, Any]:
        group = self._group(params["AutoScalingGroupName"], caller)
        minimum = params.get("MinSize", group.minimum)
        maximum = params.get("MaxSize", group.maximum)
        if minimum > maximum:
            raise validation_error(f"Max bound, {maximum}, must be greater than or equal to min bound, {minimum}")
        dragged = max(minimum, min(maximum, group.desired))
        desired = params.get("DesiredCapacity", dragged)
        _check_sizes(minimum, maximum, desired)
        group.protects_new = params.get("NewInstancesProtectedFromScaleIn", group.protects_new)
        group.zones = params.get("AvailabilityZones", group.zones)
        if "VPCZoneIdentifier" in params:
            group.zones = self._market.templates.zones(params["VPCZoneIdentifier"]) or group.zones
        group.settings |= {key: params[key] for key in _KEPT_SETTINGS if key in params}
        if "CapacityReservationSpecification" in params:
            group.reservation_ids = _reservation_ids(params)
        cause = f"a user request update of AutoScalingGroup constraints to min: {minimum}, max: {maximum}, desired: {desired}"
        self._market.groups.resize(group, minimum, maximum, desired, cause)
        return {}

    def _set_desired(self, params: dict[str, Any], caller: Caller) -> dict[str, Any]:
        group = self._group(params["AutoScalingGroupName"], caller)
        desired = params["DesiredCapacity"]
        if desired > group.maximum:
            raise validation_error(
                f"New SetDesiredCapacity value {desired} is above max value {group.maximum} for the AutoScalingGroup."
            )
        if desired < group.minimum:
            raise validation_error(
                f"New SetDesiredCapacity value {desired} is below min value {group.minimum} for the AutoScalingGroup."
            )
        cause = "a user request explicitly set group desired capacity"
        self._market.groups.resize(group, group.minimum, group.maximum, desired, cause)
        return {}

    def _delete(self, params: dict[str, Any], caller: Caller) -> dict[str, Any]:
        group = self._group(params["AutoScalingGroupName"], caller)
        if group.members and not params.get("ForceDelete"):
            raise MarketError(
                "ResourceInUse",
                "You cannot delete an AutoScalingGroup while there are instances still in the group.",
            )
        for member in group.members:
            self._market.instances.end(member.instance)
        group.deleted = True
        del self._market.groups.by_key[group.account, group.region, group.name]
        return {}

    def _describe_groups(self, params: dict[str, Any], caller: Caller) -> dict[str, Any]:
        names = params.get("AutoScalingGroupNames")
        groups = [group for group in self._market.groups.of(*caller) if not names or group.name in names]
        page, token = scaling_page(matching(groups, params.get("Filters"), _GROUP_FILTERS), params)
        return _with_token({"AutoScalingGroups": [_as_group(group) for group in page]}, token)

    def _describe_instances(self, params: dict[str, Any], caller: Caller) -> dict[str, Any]:
        wanted = params.get("InstanceIds")
        members = [
            (group, member)
            for group in self._market.groups.of(*caller)
            for member in group.members
            if not wanted or member.instance.instance_id in wanted
        ]
        page, token = scaling_page(members, params)
        shown = [{**_as_member(member), "AutoScalingGroupName": group.name} for group, member in page]
        return _with_token(
            {"AutoScalingInstances": [{**each, "HealthStatus": each["HealthStatus"].upper()} for each in shown]}, token
        )

    def _describe_activities(self, params: dict[str, Any], caller: Caller) -> dict[str, Any]:
        name = params.get("AutoScalingGroupName")
        groups = [self._group(name, caller)] if name else self._market.groups.of(*caller)
        wanted = params.get("ActivityIds")
        activities = [
            each for group in groups for each in group.activities if not wanted or each["ActivityId"] in wanted
        ]
        activities.sort(key=lambda each: each["StartTime"], reverse=True)
        page, token = scaling_page(activities, params, default=100)
        return _with_token({"Activities": page}, token)

    # -- instances

    def _protect(self, params: dict[str, Any], caller: Caller) -> dict[str, Any]:
        group = self._group(params["AutoScalingGroupName"], caller)
        for instance_id in params["InstanceIds"]:
            _member(group, instance_id).protected = params["ProtectedFromScaleIn"]
        return {}

    def _terminate(self, params: dict[str, Any], caller: Caller) -> dict[str, Any]:
        for group in self._market.groups.of(*caller):
            for member in group.members:
                if member.instance.instance_id == params["InstanceId"]:
                    return self._terminate_member(group, member, decrement=params["ShouldDecrementDesiredCapacity"])
        raise validation_error(
            f"Instance Id not found - No managed instance found for instance ID: {params['InstanceId']}"
        )

    def _terminate_member(self, group: Group, member: Member, *, decrement: bool) -> dict[str, Any]:
        if decrement:
            if group.desired - 1 < group.minimum:
                raise validation_error(
                    f"Currently, desiredSize equals minSize ({group.minimum}). "
                    "Terminating instance without replacement will violate group's min size constraint."
                )
            group.desired -= 1
        self._market.groups.terminate(group, member, "a user request took an instance out of service.")
        activity = group.activities[0]
        self._market.groups.reconcile(group, "")
        return {"Activity": activity}

    # -- hooks

    def _put_hook(self, params: dict[str, Any], caller: Caller) -> dict[str, Any]:
        _put_hook(self._group(params["AutoScalingGroupName"], caller), params)
        return {}

    def _describe_hooks(self, params: dict[str, Any], caller: Caller) -> dict[str, Any]:
        group = self._group(params["AutoScalingGroupName"], caller)
        names = params.get("LifecycleHookNames")
        return {
            "LifecycleHooks": [
                _as_hook(group, hook) for hook in group.hooks.values() if not names or hook.name in names
            ]
        }

    def _delete_hook(self, params: dict[str, Any], caller: Caller) -> dict[str, Any]:
        group = self._group(params["AutoScalingGroupName"], caller)
        if group.hooks.pop(params["LifecycleHookName"], None) is None:
            raise validation_error(f"No Lifecycle Hook found with name {params['LifecycleHookName']}")
        return {}

    def _held(self, params: dict[str, Any], caller: Caller) -> tuple[Group, Member, str]:
        group = self._group(params["AutoScalingGroupName"], caller)
        hook, token, instance_id = (
            params.get(key) for key in ("LifecycleHookName", "LifecycleActionToken", "InstanceId")
        )
        for member in group.members:
            waiting = member.waiting.get(hook or "")
            if waiting is not None and (
                token == waiting.token or (token is None and instance_id == member.instance.instance_id)
            ):
                return group, member, waiting.hook.name
        raise validation_error(f"No active Lifecycle Action found with instance ID {instance_id} or token {token}")

    def _complete(self, params: dict[str, Any], caller: Caller) -> dict[str, Any]:
        if params["LifecycleActionResult"] not in ("CONTINUE", "ABANDON"):
            raise validation_error("Lifecycle action result must be one of: CONTINUE, ABANDON")
        group, member, hook_name = self._held(params, caller)
        self._market.groups.complete(group, member, hook_name, params["LifecycleActionResult"])
        return {}

    def _heartbeat(self, params: dict[str, Any], caller: Caller) -> dict[str, Any]:
        self._market.groups.heartbeat(*self._held(params, caller))
        return {}

    # -- processes

    def _suspend(self, params: dict[str, Any], caller: Caller) -> dict[str, Any]:
        group = self._group(params["AutoScalingGroupName"], caller)
        for process in _processes(params):
            group.suspended.setdefault(process, f"User suspended at {self._market.now:%Y-%m-%dT%H:%M:%SZ}")
        return {}

    def _resume(self, params: dict[str, Any], caller: Caller) -> dict[str, Any]:
        group = self._group(params["AutoScalingGroupName"], caller)
        for process in _processes(params):
            group.suspended.pop(process, None)
        self._market.groups.reconcile(group, "")
        return {}

    # -- tags

    def _tag(self, params: dict[str, Any], caller: Caller) -> dict[str, Any]:
        for tag in params["Tags"]:
            group = self._group(tag.get("ResourceId"), caller)
            group.tags = [each for each in group.tags if each["Key"] != tag["Key"]] + [_stored_tag(tag)]
        return {}

    def _untag(self, params: dict[str, Any], caller: Caller) -> dict[str, Any]:
        for tag in params["Tags"]:
            group = self._group(tag.get("ResourceId"), caller)
            group.tags = [each for each in group.tags if each["Key"] != tag["Key"]]
        return {}

    def _describe_tags(self, params: dict[str, Any], caller: Caller) -> dict[str, Any]:
        tags = [tag for group in self._market.groups.of(*caller) for tag in group.tags]
        page, token = scaling_page(matching(tags, params.get("Filters"), _TAG_FILTERS), params)
        return _with_token({"Tags": page}, token)


def _check_sizes(minimum: int, maximum: int, desired: int) -> None:
    if minimum < 0 or minimum > maximum:
        raise validation_error(f"Max bound, {maximum}, must be greater than or equal to min bound, {minimum}")
    if not minimum <= desired <= maximum:
        raise validation_error(
            f"Desired capacity:{desired} must be between the specified min size:{minimum} and max size:{maximum}"
        )


def _reservation_ids(params: dict[str, Any]) -> list[str]:
    ids = (
        params.get("CapacityReservationSpecification", {})
        .get("CapacityReservationTarget", {})
        .get("CapacityReservationIds", [])
    )
    if len(ids) > 1:
        raise validation_error("You can specify only one Capacity Reservation ID.")
    return list(ids)


def _processes(params: dict[str, Any]) -> list[str]:
    processes = list(params.get("ScalingProcesses") or PROCESSES)
    if unknown := [each for each in processes if each not in PROCESSES]:
        raise validation_error(f"Invalid scaling process: {', '.join(unknown)}")
    return processes


def _member(group: Group, instance_id: str) -> Member:
    for member in group.members:
        if member.instance.instance_id == instance_id:
            return member
    raise validation_error(f"The instance {instance_id} is not part of Auto Scaling group {group.name}.")


def _put_hook(group: Group, params: dict[str, Any]) -> None:
    heartbeat = params.get("HeartbeatTimeout", 3600)
    low, high = _HEARTBEAT_BOUNDS
    if not low <= heartbeat <= high:
        raise validation_error(f"HeartbeatTimeout is {heartbeat}; it must be from {low} to {high} seconds")
    name = params["LifecycleHookName"]
    known = group.hooks.get(name)
    transition = params.get("LifecycleTransition") or (known.transition if known else None)
    if transition is None:
        raise validation_error("LifecycleTransition is required to create a lifecycle hook")
    group.hooks[name] = Hook(
        name,
        transition,
        timedelta(seconds=heartbeat),
        params.get("DefaultResult", "ABANDON"),
        params.get("NotificationMetadata"),
        params.get("NotificationTargetARN"),
        params.get("RoleARN"),
    )


def _stored_tag(tag: dict[str, Any]) -> dict[str, Any]:
    return {
        "ResourceId": tag["ResourceId"],
        "ResourceType": "auto-scaling-group",
        "Key": tag["Key"],
        "Value": tag.get("Value", ""),
        "PropagateAtLaunch": tag.get("PropagateAtLaunch", False),
    }


def _as_group(group: Group) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "DefaultCooldown": 300,
        "HealthCheckType": "EC2",
        "HealthCheckGracePeriod": 0,
        "TerminationPolicies": ["Default"],
        "VPCZoneIdentifier": "",
        **{key: value for key, value in group.settings.items() if key != "InstanceType"},
        "AutoScalingGroupName": group.name,
        "AutoScalingGroupARN": group.arn,
        "MinSize": group.minimum,
        "MaxSize": group.maximum,
        "DesiredCapacity": group.desired,
        "AvailabilityZones": group.zones,
        "LoadBalancerNames": [],
        "TargetGroupARNs": [],
        "Instances": [_as_member(member) for member in group.members],
        "CreatedTime": group.created,
        "SuspendedProcesses": [
            {"ProcessName": process, "SuspensionReason": reason} for process, reason in sorted(group.suspended.items())
        ],
        "EnabledMetrics": [],
        "Tags": group.tags,
        "NewInstancesProtectedFromScaleIn": group.protects_new,
    }
    if group.reservation_ids:
        shown.setdefault(
            "CapacityReservationSpecification",
            {
                "CapacityReservationPreference": "capacity-reservations-only",
                "CapacityReservationTarget": {"CapacityReservationIds": group.reservation_ids},
            },
        )
    return shown


def _as_member(member: Member) -> dict[str, Any]:
    return {
        "InstanceId": member.instance.instance_id,
        "InstanceType": member.instance.instance_type,
        "AvailabilityZone": member.instance.availability_zone,
        "LifecycleState": member.lifecycle,
        "HealthStatus": "Healthy",
        "ProtectedFromScaleIn": member.protected,
    }


def _as_hook(group: Group, hook: Hook) -> dict[str, Any]:
    heartbeat = int(hook.heartbeat.total_seconds())
    shown: dict[str, Any] = {
        "LifecycleHookName": hook.name,
        "AutoScalingGroupName": group.name,
        "LifecycleTransition": hook.transition,
        "HeartbeatTimeout": heartbeat,
        "GlobalTimeout": min(172_800, 100 * heartbeat),
        "DefaultResult": hook.default_result,
    }
    optional = {
        "NotificationMetadata": hook.metadata,
        "NotificationTargetARN": hook.target_arn,
        "RoleARN": hook.role_arn,
    }
    return shown | {key: value for key, value in optional.items() if value is not None}


def _with_token(answer: dict[str, Any], token: str | None) -> dict[str, Any]:
    return answer if token is None else {**answer, "NextToken": token}


_GROUP_FILTERS: dict[str, Any] = {
    "tag-key": lambda g: [tag["Key"] for tag in g.tags],
    "tag-value": lambda g: [tag["Value"] for tag in g.tags],
    "tag:": lambda g: [(tag["Key"], tag["Value"]) for tag in g.tags],
}
_TAG_FILTERS: dict[str, Any] = {
    "auto-scaling-group": lambda t: t["ResourceId"],
    "key": lambda t: t["Key"],
    "value": lambda t: t["Value"],
    "propagate-at-launch": lambda t: str(t["PropagateAtLaunch"]).lower(),
}
