"""Auto Scaling groups: how they launch into blocks, shrink through lifecycle hooks, and lose what EC2 takes back.

Sources: EC2 Auto Scaling User Guide "Use Capacity Blocks", "Troubleshoot: instance launch failure", "Instance scale-in protection",
"Suspend and resume processes", "Lifecycle hooks".
"""

import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from local.market.blocks import Block
from local.market.caller import Caller
from local.market.events import instant_text
from local.market.instances import Instance

if TYPE_CHECKING:
    from local.market.market import Market
    from local.market.schedules import ScheduledAction

PROCESSES = (
    "Launch",
    "Terminate",
    "AddToLoadBalancer",
    "AlarmNotification",
    "AZRebalance",
    "HealthCheck",
    "InstanceRefresh",
    "ReplaceUnhealthy",
    "ScheduledActions",
)
TERMINATING = "autoscaling:EC2_INSTANCE_TERMINATING"
LAUNCHING = "autoscaling:EC2_INSTANCE_LAUNCHING"

_ACTIVITIES_KEPT = 500
_HOOK_WAITS_AT_MOST = timedelta(hours=48)
NOT_ACTIVE = "Your Capacity Block reservation {} is not active yet. Launching EC2 instance failed."
NO_CAPACITY = (
    "The requested reservation does not have sufficient compatible and available capacity for this request. "
    "Launching EC2 instance failed."
)
PROTECTED = "Could not scale to desired capacity because all remaining instances are protected from scale in."
_RECLAIMED = (
    "an instance was taken out of service in response to an EC2 health check "
    "that indicated it had been terminated or stopped."
)


@dataclass
class Hook:
    """A lifecycle hook. Whoever listens to it lets the instance go on `answered_after`; None means that nobody listens."""

    name: str
    transition: str
    heartbeat: timedelta
    default_result: str = "ABANDON"
    metadata: str | None = None
    target_arn: str | None = None
    role_arn: str | None = None
    answered_after: timedelta | None = None


@dataclass
class Waiting:
    """An instance held by a hook."""

    hook: Hook
    token: str
    until: datetime
    latest: datetime


@dataclass
class Member:
    """An instance in its group."""

    instance: Instance
    lifecycle: str
    protected: bool
    waiting: dict[str, Waiting] = field(default_factory=dict)

    @property
    def counts(self) -> bool:
        """Whether it counts towards the desired capacity."""
        return self.lifecycle in ("Pending", "Pending:Wait", "InService")


@dataclass
class Group:
    """An Auto Scaling group; `reservation_ids` override what its launch template launches into (neither: On-Demand)."""

    name: str
    account: str
    region: str
    minimum: int
    maximum: int
    desired: int
    zones: list[str]
    created: datetime
    reservation_ids: list[str] = field(default_factory=list)
    tags: list[dict[str, Any]] = field(default_factory=list)
    hooks: dict[str, Hook] = field(default_factory=dict)
    suspended: dict[str, str] = field(default_factory=dict)
    protects_new: bool = False
    settings: dict[str, Any] = field(default_factory=dict)
    members: list[Member] = field(default_factory=list)
    activities: list[dict[str, Any]] = field(default_factory=list)
    schedule: dict[str, "ScheduledAction"] = field(default_factory=dict)
    deleted: bool = False

    @property
    def arn(self) -> str:
        unique = uuid.uuid5(uuid.NAMESPACE_OID, f"{self.account}/{self.region}/{self.name}")
        prefix = f"arn:aws:autoscaling:{self.region}:{self.account}:autoScalingGroup"
        return f"{prefix}:{unique}:autoScalingGroupName/{self.name}"

    def size(self) -> int:
        return sum(1 for member in self.members if member.counts)


class Groups:
    """All groups, and what makes them grow and shrink."""

    def __init__(self, market: "Market") -> None:
        self._market = market
        self.by_key: dict[tuple[str, str, str], Group] = {}

    def add(self, group: Group) -> None:
        self.by_key[group.account, group.region, group.name] = group
        self.reconcile(
            group,
            f"a user request created an AutoScalingGroup changing the desired capacity from 0 to {group.desired}.",
        )

    def get(self, account: str, region: str, name: str) -> Group | None:
        return self.by_key.get((account, region, name))

    def of(self, account: str, region: str) -> list[Group]:
        return [group for key, group in sorted(self.by_key.items()) if key[:2] == (account, region)]

    def targets(self, group: Group) -> list[str]:
        """The blocks that a group launches into: its own setting, or that of its launch template; none means On-Demand."""
        if group.reservation_ids:
            return group.reservation_ids
        target = self._market.templates.target(
            group.settings.get("LaunchTemplate"), Caller(group.account, group.region)
        )
        return [] if target is None else [target]

    # -- what changes a group

    def resize(self, group: Group, minimum: int, maximum: int, desired: int, cause: str) -> None:
        """Set the sizes and let the group follow; `cause` is the first half of the activity's Cause."""
        before = group.desired
        group.minimum, group.maximum, group.desired = minimum, maximum, desired
        changing = "" if before == desired else f" changing the desired capacity from {before} to {desired}"
        self.reconcile(group, f"{cause}{changing}.")

    def block_changed(self, block: Block) -> None:
        """A block started, was extended, or has a free slot: its groups try again."""
        for group in list(self.by_key.values()):
            if group.region == block.region and block.reservation_id in self.targets(group):
                self.reconcile(group, "")

    def reclaimed(self, instances: Iterable[Instance]) -> None:
        """EC2 ended these: their groups notice, and try to replace them."""
        ended = {each.instance_id for each in instances}
        for group in list(self.by_key.values()):
            lost = [member for member in group.members if member.instance.instance_id in ended]
            if not lost or "HealthCheck" in group.suspended:
                continue
            for member in lost:
                group.members.remove(member)
                self.record(
                    group, f"Terminating EC2 instance: {member.instance.instance_id}", f"At {self._text()} {_RECLAIMED}"
                )
            if "ReplaceUnhealthy" not in group.suspended:
                self.reconcile(group, "")

    # -- following the desired capacity

    def reconcile(self, group: Group, cause: str) -> None:
        """Launch or terminate until the group has its desired capacity, as far as blocks, hooks and processes let it."""
        if group.deleted:
            return
        missing = group.desired - group.size()
        opening = f"At {self._text()} {cause}  " if cause else ""
        if missing > 0 and "Launch" not in group.suspended:
            self._launch(group, missing, opening)
        elif missing < 0 and "Terminate" not in group.suspended:
            self._shrink(group, -missing, opening)

    def _launch(self, group: Group, count: int, opening: str) -> None:
        size = group.size()
        why = (
            f"{opening}At {self._text()} an instance was started in response to a difference between desired and actual capacity, "
            f"increasing the capacity from {size} to {size + count}."
        )
        for _ in range(count):
            block, refusal = self._slot(group)
            if refusal is not None:
                self.record(
                    group,
                    f"Launching a new EC2 instance.  Status Reason: {refusal}",
                    why,
                    status="Failed",
                    message=refusal,
                )
                return
            self._launch_one(group, block, why)

    def _slot(self, group: Group) -> tuple[Block | None, str | None]:
        """A block with a free slot, or why there is none."""
        targets = self.targets(group)
        if not targets:
            return None, None
        refusal = NO_CAPACITY
        for reservation_id in targets:
            block = self._market.blocks.get(reservation_id, group.region)
            if block is None:
                continue
            if block.state in ("scheduled", "payment-pending"):
                refusal = NOT_ACTIVE.format(reservation_id)
            elif (
                block.takes_launches(self._market.now)
                and self._market.blocks.available(block) > 0
                and block.availability_zone in group.zones
                and (group.account == block.owner_id or group.account in block.shared_with)
            ):
                return block, None
        return None, refusal

    def _launch_one(self, group: Group, block: Block | None, why: str) -> None:
        tags = {tag["Key"]: tag["Value"] for tag in group.tags if tag.get("PropagateAtLaunch")}
        instance = Instance(
            instance_id=self._market.identifier("i"),
            account=group.account,
            region=group.region,
            instance_type=block.instance_type if block else group.settings.get("InstanceType", "m7i.large"),
            availability_zone=block.availability_zone if block else group.zones[0],
            launched=self._market.now,
            group=group.name,
            block=block,
            tags={**tags, "aws:autoscaling:groupName": group.name},
        )
        self._market.instances.launch(instance)
        member = Member(instance, "InService", group.protects_new)
        group.members.append(member)
        self.record(group, f"Launching a new EC2 instance: {instance.instance_id}", why)
        self._hold(group, member, LAUNCHING, "Pending:Wait")

    def _shrink(self, group: Group, count: int, opening: str) -> None:
        size = group.size()
        victims = [member for member in group.members if member.counts and not member.protected][:count]
        why = (
            f"{opening}At {self._text()} an instance was taken out of service in response to a difference between desired and "
            f"actual capacity, shrinking the capacity from {size} to {size - len(victims)}."
        )
        for member in victims:
            self.terminate(group, member, why)
        if len(victims) < count:
            self.record(group, PROTECTED, why, status="Failed", message=PROTECTED)

    def terminate(self, group: Group, member: Member, why: str) -> None:
        """Take an instance out, through its group's terminating hooks."""
        self.record(group, f"Terminating EC2 instance: {member.instance.instance_id}", why)
        if not self._hold(group, member, TERMINATING, "Terminating:Wait"):
            self._gone(group, member)

    def _gone(self, group: Group, member: Member) -> None:
        if member in group.members:
            group.members.remove(member)
        self._market.instances.end(member.instance)

    # -- lifecycle hooks

    def _hold(self, group: Group, member: Member, transition: str, lifecycle: str) -> bool:
        hooks = [hook for hook in group.hooks.values() if hook.transition == transition]
        for hook in hooks:
            now = self._market.now
            token = str(uuid.uuid5(uuid.NAMESPACE_OID, f"{member.instance.instance_id}/{hook.name}/{transition}"))
            latest = now + min(_HOOK_WAITS_AT_MOST, 100 * hook.heartbeat)
            member.waiting[hook.name] = Waiting(hook, token, now + hook.heartbeat, latest)
            member.lifecycle = lifecycle
            self._plan_timeout(group, member, hook.name)
            self._plan_answer(group, member, hook)
            self._announce_hook(group, member, hook, token)
        return bool(hooks)

    def _plan_timeout(self, group: Group, member: Member, hook_name: str) -> None:
        waiting = member.waiting[hook_name]
        until = waiting.until

        def timed_out() -> None:
            if member.waiting.get(hook_name) is waiting and waiting.until == until:
                self.complete(group, member, hook_name, waiting.hook.default_result)

        self._market.agenda.plan(until, timed_out)

    def _plan_answer(self, group: Group, member: Member, hook: Hook) -> None:
        waiting = member.waiting[hook.name]

        def answered() -> None:
            if member.waiting.get(hook.name) is waiting:
                self.complete(group, member, hook.name, "CONTINUE")

        if hook.answered_after is not None:
            self._market.agenda.plan(self._market.now + hook.answered_after, answered)

    def heartbeat(self, group: Group, member: Member, hook_name: str) -> None:
        """Let a held instance wait once more."""
        waiting = member.waiting[hook_name]
        waiting.until = min(self._market.now + waiting.hook.heartbeat, waiting.latest)
        self._plan_timeout(group, member, hook_name)

    def complete(self, group: Group, member: Member, hook_name: str, result: str) -> None:
        """End one hook's hold; the last one lets the instance go on. ABANDON at launch ends the instance."""
        del member.waiting[hook_name]
        if member.lifecycle == "Terminating:Wait":
            if not member.waiting:
                self._gone(group, member)
        elif result == "ABANDON":
            self._gone(group, member)
            self.reconcile(group, "")
        elif not member.waiting:
            member.lifecycle = "InService"

    def _announce_hook(self, group: Group, member: Member, hook: Hook, token: str) -> None:
        verb = "terminate" if hook.transition == TERMINATING else "launch"
        detail = {
            "LifecycleActionToken": token,
            "AutoScalingGroupName": group.name,
            "LifecycleHookName": hook.name,
            "EC2InstanceId": member.instance.instance_id,
            "LifecycleTransition": hook.transition,
        }
        detail_type = f"EC2 Instance-{verb} Lifecycle Action"
        self._market.emit("aws.autoscaling", detail_type, Caller(group.account, group.region), [group.arn], detail)

    # -- activities

    def record(
        self, group: Group, description: str, cause: str, *, status: str = "Successful", message: str | None = None
    ) -> None:
        """Write a scaling activity."""
        now = self._market.now
        activity: dict[str, Any] = {
            "ActivityId": str(uuid.uuid5(uuid.NAMESPACE_OID, f"activity/{self._market.number()}")),
            "AutoScalingGroupName": group.name,
            "AutoScalingGroupARN": group.arn,
            "Description": description,
            "Cause": cause,
            "StartTime": now,
            "EndTime": now,
            "StatusCode": status,
            "Progress": 100,
            "Details": "{}",
        }
        if message is not None:
            activity["StatusMessage"] = message
        group.activities.insert(0, activity)
        del group.activities[_ACTIVITIES_KEPT:]

    def _text(self) -> str:
        return instant_text(self._market.now)
