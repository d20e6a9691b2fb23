"""Checks of an Auto Scaling group, days before its block starts or ends: what it launches by, where, and how it drains.

Sources: EC2 Auto Scaling User Guide, "Use Capacity Blocks for machine learning workloads", "Target Capacity Reservations",
"Use distribution segments", "Suspend and resume processes"; EC2 User Guide, "Launch instances using Capacity Blocks"; AWS Node
Termination Handler, README ("Queue Processor").
"""

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from blockkeeper.domain.calendar import NEEDED_PROCESSES, GroupBlock
from blockkeeper.domain.deadlines import Deadlines
from blockkeeper.domain.doctor import Check, Finding, Severity, finding
from blockkeeper.domain.instants import format_instant
from blockkeeper.domain.reservation import CAPACITY_BLOCK, Reservation

HANDLER_TAG = "aws-node-termination-handler/managed"
_CLUSTER_TAG_PREFIX = "kubernetes.io/cluster/"
_FLOATING = frozenset({"$Latest", "$Default"})
_MINUTE = timedelta(minutes=1)
# What the handler's own documents set up.
_USUAL_HOOK = timedelta(minutes=5)
# A start that the sweep has to make up for is made up for within its schedule; an hour leaves room for a rare one.
_GROWN_AFTER = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class LaunchTemplate:
    """The version of a launch template that a group launches by.

    Attributes:
        version: as the group names it: a number, `$Latest` or `$Default`.
        image_platform: PlatformDetails of its AMI; None when the template names none, or by a parameter of Systems Manager.
    """

    template_id: str
    version: str
    instance_type: str | None = None
    market_type: str | None = None
    reservation_id: str | None = None
    resource_group: str | None = None
    image_id: str | None = None
    image_platform: str | None = None


@dataclass(frozen=True, slots=True)
class Subnet:
    """A subnet of a group."""

    subnet_id: str
    zone: str
    zone_id: str


@dataclass(frozen=True, slots=True)
class Hook:
    """A terminating lifecycle hook; `target` is the ARN that it notifies itself, without EventBridge."""

    name: str
    heartbeat: timedelta
    target: str | None = None


@dataclass(frozen=True, slots=True)
class QueueRule:
    """An enabled EventBridge rule that hands a group's terminate actions to an SQS queue; `queue_exists` None: not looked at."""

    name: str
    queue: str
    queue_exists: bool | None = None


@dataclass(frozen=True, slots=True)
class GroupSetup:
    """An Auto Scaling group as far as it matters for its blocks.

    Attributes:
        template: None when it has none, or when its version does not exist (`template_named` says which).
        reservation_ids, resource_groups: the target on the group itself, which wins over the template's.
        grouped: reservation ids in the resource groups that group or template target.
        segments: target capacity types of the mixed instances policy's distribution segments.
        types: instance types that the mixed instances policy names in place of the template's.
        tags: key to whether it is copied to instances.
        node_group: cluster and name of the EKS managed node group that it is beneath; then EKS drains its nodes.
        compute_environment: it is no Auto Scaling group but a compute environment of Batch.
    """

    name: str
    region: str
    minimum: int = 0
    maximum: int = 0
    desired: int = 0
    template: LaunchTemplate | None = None
    template_named: str | None = None
    launch_configuration: str | None = None
    mixed: bool = False
    segments: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    reservation_ids: tuple[str, ...] = ()
    resource_groups: tuple[str, ...] = ()
    grouped: frozenset[str] = frozenset()
    subnets: tuple[Subnet, ...] = ()
    zones: tuple[str, ...] = ()
    hooks: tuple[Hook, ...] = ()
    protected: bool = False
    suspended: frozenset[str] = frozenset()
    warm_pool: bool = False
    tags: Mapping[str, bool] = field(default_factory=dict)
    handler_rules: tuple[QueueRule, ...] = ()
    node_group: tuple[str, str] | None = None
    compute_environment: bool = False

    @property
    def quoted(self) -> str:
        """Its name as one word of a shell: remedies are there to be pasted."""
        return shlex.quote(self.name)

    @property
    def kubernetes(self) -> bool:
        """Whether its instances are self-managed Kubernetes nodes: EKS wants this tag on their instances."""
        return self.node_group is None and any(key.startswith(_CLUSTER_TAG_PREFIX) for key in self.tags)


def look_at_group(setup: GroupSetup, blocks: Sequence[GroupBlock], subject: str, now: datetime) -> Iterator[Finding]:
    """All checks of one group.

    Args:
        blocks: every block that it follows and that has not ended.
    """
    yield from look_at_launches(setup, blocks, subject)
    yield from sizes(setup, blocks, subject, now)
    yield from lifecycle_hooks(setup, blocks, subject, now)
    yield from standing_in_the_way(setup, subject)
    yield from termination_handler(setup, blocks, subject)


def look_at_launches(setup: GroupSetup, blocks: Sequence[GroupBlock], subject: str) -> Iterator[Finding]:
    """What a group launches by, and where."""
    yield from launch_source(setup, subject)
    if setup.template is not None:
        yield from template_version(setup, setup.template, subject)
        yield from image_platform(setup.template, blocks, subject)
        yield from instance_type(setup, setup.template, blocks, subject)
        yield from (mixed_instances if setup.mixed else market_type)(setup, setup.template, subject)
        yield from reservation_target(setup, setup.template, blocks, subject)
    yield from subnet_zone(setup, blocks, subject)


def group_missing(name: str, region: str, subject: str) -> Finding:
    """No account that sees the block has the group."""
    remedy = f"create it, or correct the record: `aws autoscaling describe-auto-scaling-groups --region {region}` lists what is"
    return finding(Check.GROUP_MISSING, subject, f"there is no Auto Scaling group {name} in {region}", remedy)


def launch_source(setup: GroupSetup, subject: str) -> Iterator[Finding]:
    """A launch template that exists."""
    if setup.launch_configuration is not None:
        problem = f"it launches by launch configuration {setup.launch_configuration}"
        remedy = (
            f"make a launch template (`aws ec2 create-launch-template`), then {_point(setup, 'NAME', '1', by='Name')}"
        )
        yield finding(Check.LAUNCH_CONFIGURATION, subject, problem, remedy)
    elif setup.template is None:
        named = setup.template_named or "none at all"
        problem = f"its launch template is {named}, which does not exist"
        remedy = f"name one that does: {_point(setup, 'NAME', '1', by='Name')}"
        yield finding(Check.TEMPLATE_MISSING, subject, problem, remedy)


def template_version(setup: GroupSetup, template: LaunchTemplate, subject: str) -> Iterator[Finding]:
    """A fixed version for as long as the block lasts."""
    if template.version in _FLOATING:
        problem = f"it launches by version {template.version} of {template.template_id}"
        remedy = f"pin a number: {_point(setup, template.template_id, 'NUMBER')}"
        yield finding(Check.TEMPLATE_VERSION, subject, problem, remedy, Severity.WARNING)


def market_type(setup: GroupSetup, template: LaunchTemplate, subject: str) -> Iterator[Finding]:
    """Market type capacity-block (case B36)."""
    if template.market_type != CAPACITY_BLOCK:
        problem = f"market type of {_named(template)} is {template.market_type or 'not set'}, not capacity-block"
        remedy = _new_version(setup, template, {"InstanceMarketOptions": {"MarketType": CAPACITY_BLOCK}})
        yield finding(Check.MARKET_TYPE, subject, problem, remedy)


def mixed_instances(setup: GroupSetup, _template: LaunchTemplate, subject: str) -> Iterator[Finding]:
    """With a mixed instances policy: distribution segments and a resource group."""
    if CAPACITY_BLOCK not in setup.segments:
        problem = "it has a mixed instances policy whose distribution segments do not name capacity-block"
    elif not setup.resource_groups:
        problem = "its distribution segments name capacity-block, and it targets no resource group"
    else:
        return
    remedy = (
        "drop the policy, or let DistributionSegments name capacity-block and CapacityReservationSpecification a resource group"
        f" that holds the block: {update_command(setup)} --mixed-instances-policy ... --capacity-reservation-specification ...`"
    )
    yield finding(Check.MIXED_INSTANCES, subject, problem, remedy)


def instance_type(
    setup: GroupSetup, template: LaunchTemplate, blocks: Sequence[GroupBlock], subject: str
) -> Iterator[Finding]:
    """The block's own instance type."""
    types = setup.types or ((template.instance_type,) if template.instance_type else ())
    for reservation in _reservations(blocks):
        if reservation.instance_type not in types:
            launched = ", ".join(types) or "no single type"
            problem = f"it launches {launched}; {reservation.reservation_id} is of {reservation.instance_type}"
            remedy = _new_version(setup, template, {"InstanceType": reservation.instance_type})
            yield finding(Check.INSTANCE_TYPE, subject, problem, remedy)


def image_platform(template: LaunchTemplate, blocks: Sequence[GroupBlock], subject: str) -> Iterator[Finding]:
    """An AMI of the block's platform."""
    for reservation in _reservations(blocks):
        if template.image_id is None or reservation.platform is None:
            continue
        if template.image_platform is None:
            problem = (
                f"{_named(template)} names its AMI as {template.image_id}, whose platform cannot be seen;"
                f" {reservation.reservation_id} is for {reservation.platform}"
            )
            remedy = f"see that it is an AMI of {reservation.platform}, or name the AMI by its id"
            yield finding(Check.PLATFORM, subject, problem, remedy, Severity.UNKNOWN)
        elif template.image_platform != reservation.platform:
            problem = (
                f"AMI {template.image_id} of {_named(template)} is {template.image_platform};"
                f" {reservation.reservation_id} is for {reservation.platform}"
            )
            remedy = f"use an AMI of {reservation.platform} in a new version of {template.template_id}"
            yield finding(Check.PLATFORM, subject, problem, remedy)


def reservation_target(
    setup: GroupSetup, template: LaunchTemplate, blocks: Sequence[GroupBlock], subject: str
) -> Iterator[Finding]:
    """The block as target, by its id or by a resource group that holds it; the group's own target wins over the template's."""
    on_group = bool(setup.reservation_ids or setup.resource_groups)
    ids = setup.reservation_ids if on_group else tuple(filter(None, [template.reservation_id]))
    groups = setup.resource_groups if on_group else tuple(filter(None, [template.resource_group]))
    reached = {*ids, *setup.grouped}
    followed = {block.reservation.reservation_id for block in blocks}
    for reservation in _reservations(blocks):
        if reservation.reservation_id in reached:
            continue
        # One block after another on one group: it targets one of them, and must be pointed at the next when that one ends.
        later = bool(reached & followed)
        named = " and ".join([*ids, *groups]) or "nothing"
        problem = (
            f"{'it' if on_group else _named(template)} targets {named}; {reservation.reservation_id} is not reached"
        )
        if groups:
            arn = f"arn:aws:ec2:{setup.region}:{reservation.owner_id}:capacity-reservation/{reservation.reservation_id}"
            remedy = f"`aws resource-groups group-resources --region {setup.region} --group {groups[0]} --resource-arns {arn}`"
        elif on_group:
            spec = {"CapacityReservationTarget": {"CapacityReservationIds": [reservation.reservation_id]}}
            remedy = f"{update_command(setup)} --capacity-reservation-specification '{json.dumps(spec)}'`"
        else:
            target = {"CapacityReservationTarget": {"CapacityReservationId": reservation.reservation_id}}
            remedy = _new_version(setup, template, {"CapacityReservationSpecification": target})
        if later:
            remedy = f"when the block before it ends, or put both into one resource group now: {remedy}"
        yield finding(Check.RESERVATION_TARGET, subject, problem, remedy, Severity.WARNING if later else Severity.ERROR)


def subnet_zone(setup: GroupSetup, blocks: Sequence[GroupBlock], subject: str) -> Iterator[Finding]:
    """Only subnets in the block's zone, by zone id: a zone's name means another zone in another account."""
    for reservation in _reservations(blocks):
        zone = reservation.availability_zone_id or reservation.availability_zone
        there = (
            {each.subnet_id: each.zone_id if reservation.availability_zone_id else each.zone for each in setup.subnets}
            if setup.subnets
            else {name: name for name in setup.zones}
        )
        wanted = zone if setup.subnets else reservation.availability_zone
        if wanted is None or not there:
            continue
        others = [f"{name} ({place})" if name != place else name for name, place in there.items() if place != wanted]
        if not others:
            continue
        right = [name for name, place in there.items() if place == wanted]
        problem = f"{reservation.reservation_id} is in {wanted}; the group also launches in {', '.join(others)}"
        if not right:
            problem = f"{reservation.reservation_id} is in {wanted}; the group launches in {', '.join(others)} only"
        identifier = ",".join(right) if right and setup.subnets else f"SUBNET_IN_{wanted}"
        remedy = f"{update_command(setup)} --vpc-zone-identifier {identifier}`"
        if setup.compute_environment:
            remedy = f"{update_command(setup)} --compute-resources subnets={identifier}`"
        if setup.node_group is not None:
            remedy = f"make the node group anew with --subnets {identifier}: EKS changes no subnets"
        yield finding(Check.SUBNET_ZONE, subject, problem, remedy)


def sizes(setup: GroupSetup, blocks: Sequence[GroupBlock], subject: str, now: datetime) -> Iterator[Finding]:
    """Instances against the blocks that are there now."""
    active = [block for block in blocks if block.reservation.state == "active"]
    waiting = [block for block in blocks if not block.reservation.ended and block not in active]
    elsewhere = any(kind != CAPACITY_BLOCK for kind in setup.segments)
    if elsewhere:
        return
    level = sum(block.size or 0 for block in active)
    names = ", ".join(block.reservation.reservation_id for block in active or waiting)
    if active and all(block.size is not None for block in active) and setup.desired > level:
        problem = f"it wants {setup.desired} instances; {names} gives it {level}"
        remedy = f"{update_command(setup)} --max-size {level} --desired-capacity {level}`"
        yield finding(Check.GROUP_SIZE, subject, problem, remedy, Severity.WARNING)
    elif setup.maximum < (settled := sum(block.size or 0 for block in active if _settled(setup, block, now))):
        problem = f"its maximum is {setup.maximum}; {names} gives it {settled}"
        remedy = f"{update_command(setup)} --max-size {settled}`; if it falls again, look for what else sets its sizes"
        yield finding(Check.GROUP_SIZE, subject, problem, remedy, Severity.WARNING)
    elif waiting and not active and setup.desired > 0:
        problem = f"it wants {setup.desired} instances, and {names} has not started"
        remedy = f"{update_command(setup)} --min-size 0 --desired-capacity 0`; it grows by itself when the block starts"
        yield finding(Check.GROUP_SIZE, subject, problem, remedy, Severity.WARNING)


def lifecycle_hooks(setup: GroupSetup, blocks: Sequence[GroupBlock], subject: str, now: datetime) -> Iterator[Finding]:
    """A terminating hook that is long enough for the drain, and leaves the block some use (case B08)."""
    longest = max(setup.hooks, key=lambda hook: (hook.heartbeat, hook.name), default=None)
    for block in blocks:
        reservation = block.reservation
        deadlines = Deadlines(end=reservation.end, ultraserver=reservation.ultraserver)
        # While the block runs only what is left of it counts, unless its scale-in has come and gone.
        runs = reservation.state == "active" and setup.desired > 0
        start = max(reservation.start or now, now) if runs else reservation.start or now
        if longest is not None and longest.heartbeat >= block.drain and deadlines.drain_at(longest.heartbeat) <= start:
            problem = (
                f"lifecycle hook {longest.name} may wait {_seconds(longest)} s, longer than {reservation.reservation_id} leaves"
                f" until EC2 terminates its instances at {format_instant(deadlines.terminates_at)}"
            )
            yield finding(
                Check.LIFECYCLE_HOOK, subject, problem, _put_hook(setup, longest.name, int(_USUAL_HOOK.total_seconds()))
            )
        minutes = int(block.drain / _MINUTE)
        if not block.drain or (longest is not None and longest.heartbeat >= block.drain):
            continue
        name = longest.name if longest else "drain"
        has = (
            "it has no terminating lifecycle hook"
            if longest is None
            else f"its longest hook {name} waits {_seconds(longest)} s"
        )
        problem = f"drain_minutes is {minutes} for {reservation.reservation_id}, and {has}"
        remedy = _put_hook(setup, name, minutes * 60) + " (30 to 7200 s; a handler may send heartbeats for longer)"
        yield finding(Check.LIFECYCLE_HOOK, subject, problem, remedy, Severity.WARNING)


def standing_in_the_way(setup: GroupSetup, subject: str) -> Iterator[Finding]:
    """Scale-in protection, suspended processes, warm pool (case B08)."""
    group = f"--region {setup.region} --auto-scaling-group-name {setup.quoted}"
    if setup.protected:
        remedy = (
            f"{update_command(setup)} --no-new-instances-protected-from-scale-in`, and for those that run `aws autoscaling"
            f" set-instance-protection {group} --no-protected-from-scale-in --instance-ids ...`"
        )
        yield finding(Check.SCALE_IN_PROTECTION, subject, "it protects instances from scale-in", remedy)
    if suspended := sorted(setup.suspended & NEEDED_PROCESSES):
        remedy = f"`aws autoscaling resume-processes {group} --scaling-processes {' '.join(suspended)}`"
        yield finding(Check.SUSPENDED_PROCESSES, subject, f"suspended: {', '.join(suspended)}", remedy)
    if setup.warm_pool:
        remedy = f"`aws autoscaling delete-warm-pool {group}`"
        yield finding(Check.WARM_POOL, subject, "it has a warm pool", remedy)


def termination_handler(setup: GroupSetup, blocks: Sequence[GroupBlock], subject: str) -> Iterator[Finding]:
    """What AWS Node Termination Handler needs in queue mode, on groups of self-managed Kubernetes nodes.

    It knows no Capacity Block event: only a terminate hook's message starts its drain.
    """
    if not setup.kubernetes:
        return
    if not setup.hooks:
        problem = "its nodes have no terminating lifecycle hook, so that nobody drains them"
        drain = max([_USUAL_HOOK, *(block.drain for block in blocks)])
        remedy = _put_hook(setup, "drain", int(drain.total_seconds()))
        yield finding(Check.TERMINATION_HANDLER, subject, problem, remedy, Severity.WARNING)
    if not setup.tags.get(HANDLER_TAG):
        there = "is not copied to instances" if HANDLER_TAG in setup.tags else "is missing"
        remedy = (
            f"`aws autoscaling create-or-update-tags --region {setup.region} --tags ResourceId={setup.quoted},"
            f"ResourceType=auto-scaling-group,Key={HANDLER_TAG},Value=,PropagateAtLaunch=true`"
        )
        problem = f"tag {HANDLER_TAG} {there}"
        yield finding(Check.TERMINATION_HANDLER, subject, problem, remedy, Severity.WARNING)
    if any((hook.target or "").startswith("arn:aws:sqs:") for hook in setup.hooks):
        return
    if not setup.handler_rules:
        problem = "no enabled EventBridge rule hands its terminate actions to an SQS queue"
        pattern = {"source": ["aws.autoscaling"], "detail-type": ["EC2 Instance-terminate Lifecycle Action"]}
        remedy = (
            f"`aws events put-rule --region {setup.region} --name drain-nodes --event-pattern '{json.dumps(pattern)}'`, then"
            f" `aws events put-targets --region {setup.region} --rule drain-nodes --targets Id=1,Arn=QUEUE_ARN`"
        )
        yield finding(Check.TERMINATION_HANDLER, subject, problem, remedy, Severity.WARNING)
    elif all(rule.queue_exists is False for rule in setup.handler_rules):
        named = ", ".join(f"{rule.name} to {rule.queue}" for rule in setup.handler_rules)
        remedy = "create the queue that the handler reads, or let the rule name the one that it does read"
        yield finding(
            Check.TERMINATION_HANDLER, subject, f"the queue does not exist: {named}", remedy, Severity.WARNING
        )


def _settled(setup: GroupSetup, block: GroupBlock, now: datetime) -> bool:
    """Whether the block's start is long enough ago for the group to have grown, and its drain still to come."""
    reservation = block.reservation
    if reservation.start is None or now < reservation.start + _GROWN_AFTER:
        return False
    longest = max((hook.heartbeat for hook in setup.hooks), default=timedelta(0))
    return now < Deadlines(end=reservation.end, ultraserver=reservation.ultraserver).drain_at(longest, block.drain)


def _reservations(blocks: Sequence[GroupBlock]) -> list[Reservation]:
    return [block.reservation for block in blocks]


def _named(template: LaunchTemplate) -> str:
    return f"{template.template_id} version {template.version}"


def _seconds(hook: Hook) -> int:
    return int(hook.heartbeat.total_seconds())


def update_command(setup: GroupSetup) -> str:
    """The beginning of the command that changes the group; what is to be changed, and a closing backtick, go behind it."""
    if setup.compute_environment:
        return f"`aws batch update-compute-environment --region {setup.region} --compute-environment {setup.quoted}"
    return (
        f"`aws autoscaling update-auto-scaling-group --region {setup.region} --auto-scaling-group-name {setup.quoted}"
    )


def _point(setup: GroupSetup, template: str, version: str, by: str = "Id") -> str:
    """The command that lets the group launch by a version of a template."""
    if setup.compute_environment:
        named = f"launchTemplate={{launchTemplate{by}={template},version={version}}}"
        return f"{update_command(setup)} --compute-resources '{named}'`"
    if setup.node_group is None:
        return f"{update_command(setup)} --launch-template LaunchTemplate{by}={template},Version={version}`"
    cluster, name = map(shlex.quote, setup.node_group)
    return (
        f"`aws eks update-nodegroup-version --region {setup.region} --cluster-name {cluster} --nodegroup-name {name}"
        f" --launch-template {by.lower()}={template},version={version}` while its size is 0"
    )


def _put_hook(setup: GroupSetup, name: str, seconds: int) -> str:
    return (
        f"`aws autoscaling put-lifecycle-hook --region {setup.region} --auto-scaling-group-name {setup.quoted}"
        f" --lifecycle-hook-name {name} --lifecycle-transition autoscaling:EC2_INSTANCE_TERMINATING"
        f" --heartbeat-timeout {min(seconds, 7200)} --default-result CONTINUE`"
    )


def _new_version(setup: GroupSetup, template: LaunchTemplate, changed: Mapping[str, Any]) -> str:
    return (
        f"`aws ec2 create-launch-template-version --region {setup.region} --launch-template-id {template.template_id}"
        f" --source-version '{template.version}' --launch-template-data '{json.dumps(changed)}'`, then"
        f" {_point(setup, template.template_id, 'NEW')}"
    )
