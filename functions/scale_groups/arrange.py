"""Makes the groups of one block match its calendar: read everything, plan each group, write what differs, read it back."""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, TypeAlias

from botocore.exceptions import BotoCoreError, ClientError

from blockkeeper.aws import ec2
from blockkeeper.aws.auto_scaling import HANDLER_TAG, OWN_HOOK, OWN_VALUE, AutoScaling
from blockkeeper.aws.environments import list_environments
from blockkeeper.aws.group_errors import GroupBusyError, GroupChangingError, GroupMissingError, GroupRefusedError
from blockkeeper.aws.look import Look, Service
from blockkeeper.domain.calendar import (
    MISSING_FOR,
    SETTLED,
    Action,
    GroupBlock,
    GroupFacts,
    Plan,
    action_names,
    plan_changes,
    plan_group,
    stale_scale_down,
)
from blockkeeper.domain.environment import Environment, Group, Kind, parse_environment
from blockkeeper.domain.instants import format_instant
from blockkeeper.domain.reservation import Reservation, UnreadableReservationError

NO_GROUP = "is no Auto Scaling group of this account and Region (correct auto_scaling_group)"
_NOT_FOUND = "InvalidCapacityReservationId"
# EKS and Batch carry out a change within a minute or two.
CHANGE_TAKES = timedelta(minutes=1)

# What stops one group and no other. EC2's own errors are about another block that the group follows, or about an instance type.
_ONE_GROUPS_OWN = (GroupBusyError, GroupRefusedError, UnreadableReservationError, ClientError, BotoCoreError)

Step: TypeAlias = tuple[Callable[[], None], list[str]]
"""A write, and what it changes in words."""


@dataclass(slots=True)
class Arranged:
    """One group afterwards.

    Attributes:
        arranged: everything that was planned stands, and was read back.
        absent: the account has no such group.
        pending: the service is carrying out a change, ours or another; the next look sees whether it stands.
        busy: the service asked for patience; the same may be tried again at once.
        check_at, look_at: as in `Plan`.
        missing, missed: as in `Plan`.
        problems: what a person must mend, in words that begin with the group's name.
    """

    group: str
    arranged: bool = False
    absent: bool = False
    pending: bool = False
    busy: bool = False
    sizes: str | None = None
    instances: int | None = None
    instances_left: int = 0
    missing: int = 0
    missed: bool = False
    actions: tuple[Action, ...] = ()
    check_at: datetime | None = None
    look_at: datetime | None = None
    changes: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def problem(self, text: str) -> None:
        """Add what a person must mend."""
        self.problems.append(f"{self.group}: {text}")

    def planned(self, plan: Plan) -> None:
        """Take over what a plan says beside its writes."""
        self.actions, self.check_at, self.look_at = plan.actions, plan.check_at, plan.look_at
        self.instances_left, self.missing, self.missed = plan.instances_left, plan.missing, plan.missed
        self.notes += plan.notes
        for finding in plan.findings:
            self.problem(finding)

    def come_by(self, at: datetime) -> None:
        """Look again at this time at the latest."""
        self.check_at = min(self.check_at or at, at)
        self.look_at = min(self.look_at or at, at)

    def as_json(self) -> dict[str, Any]:
        """The workflow's output for this group."""
        return {
            "group": self.group,
            "arranged": self.arranged,
            "sizes": self.sizes,
            "instances": self.instances,
            "actions": [
                {"name": action.name, "at": format_instant(action.at), "sizes": str(action.sizes)}
                for action in self.actions
            ],
            "problems": self.problems,
            "notes": self.notes,
        }


@dataclass(slots=True)
class Followed:
    """What a group follows: its blocks, the longest terminate hook that a policy wants, and policies that are at odds."""

    blocks: list[GroupBlock] = field(default_factory=list)
    hook: timedelta | None = None
    conflicts: list[str] = field(default_factory=list)


class Services:
    """Who looks after the groups of an account and Region, each made when a record names such a group."""

    def __init__(self, region: str, account: str) -> None:
        self._region, self._account = region, account
        self.scaling = AutoScaling(region, account)

    def of(self, kind: Kind) -> Service:
        """The service of a kind that has no scheduled actions; imported here, since most records name no such group."""
        if kind is Kind.NODE_GROUP:
            from blockkeeper.aws.eks import NodeGroups

            return NodeGroups(self._region, self._account, self.scaling)
        from blockkeeper.aws.batch import ComputeEnvironments

        return ComputeEnvironments(self._region, self._account)

    def have(self, group: Group) -> bool:
        """Whether the account has a group, however it is."""
        if group.kind is Kind.AUTO_SCALING_GROUP:
            return group.label in self.scaling.groups([group.label])
        try:
            self.of(group.kind).look(group)
        except GroupMissingError:
            return False
        except GroupRefusedError:
            return True
        return True


class Enrolled:
    """The enrolled blocks of a Region as an account sees them now, by the groups that follow them."""

    def __init__(self, region: str, account: str, now: datetime) -> None:
        self._region, self._account, self.now = region, account, now
        self._blocks: dict[str, Reservation | None] = {}
        self._vcpus: dict[str, int] = {}
        self._environments: list[Environment] = []
        self._unreadable: list[dict[str, Any]] = []
        for record in list_environments():
            if record.get("region") == region:
                try:
                    self._environments.append(parse_environment(record))
                except (KeyError, ValueError, TypeError, AttributeError):
                    self._unreadable.append(record)

    def block(self, environment: Environment) -> Reservation | None:
        """A record's block, read once; None when the account does not see it, or not any more.

        Raises:
            ClientError: EC2 could not be read; that is never "nothing there" (design rule 4).
            UnreadableReservationError: EC2's entry lacks something, or a block of this account is gone before its end.
        """
        reservation_id = environment.capacity_block_id
        if reservation_id not in self._blocks:
            self._blocks[reservation_id] = _read_or_none(reservation_id, self._region, self._account)
        reservation = self._blocks[reservation_id]
        lasts = environment.end_time is not None and self.now < environment.end_time
        if reservation is None and lasts and environment.owner_id == self._account:
            raise UnreadableReservationError(
                f"EC2 does not show {reservation_id} (record {environment.pk}), which ends at"
                f" {format_instant(environment.end_time or self.now)}; what is armed stays armed (correct capacity_block_id,"
                " or delete the record)"
            )
        return reservation

    @property
    def unreadable_blocks(self) -> set[str]:
        """Ids of blocks whose records cannot be read: their actions are not ours to judge."""
        return {str(record.get("capacity_block_id")) for record in self._unreadable}

    def followed_by(self, kind: Kind, label: str) -> Followed:
        """What a group follows, over all records. Where two records name it for one block, the first one's share counts.

        Raises:
            ClientError: a block, or an instance type, could not be read.
            UnreadableReservationError: one of them cannot be read, so the group's sizes over time are unknown.
        """
        name = re.compile(rf"(?<![\w.-]){re.escape(label.rpartition('/')[2])}(?![\w.-])")
        for record in self._unreadable:
            if name.search(str(record.get("groups"))):
                raise UnreadableReservationError(
                    f"record {record['PK']} names this group and cannot be read; what is armed stays armed"
                    " (mend or delete the record)"
                )
        followed, first = Followed(), dict[str, str]()
        for environment in self._environments:
            for each in environment.groups:
                if (each.kind, each.label) != (kind, label):
                    continue
                if each.terminate_hook_minutes is not None:
                    followed.hook = max(followed.hook or timedelta(0), timedelta(minutes=each.terminate_hook_minutes))
                if (reservation := self.block(environment)) is None:
                    continue
                pk = first.setdefault(reservation.reservation_id, environment.pk)
                if pk != environment.pk:
                    followed.conflicts.append(
                        f"records {pk} and {environment.pk} both name it for {reservation.reservation_id};"
                        f" the share of {pk} counts (take it off one of them)"
                    )
                    continue
                unit = self._vcpus_of(reservation) if kind is Kind.COMPUTE_ENVIRONMENT else 1
                drain = timedelta(minutes=each.drain_minutes)
                followed.blocks.append(GroupBlock(reservation, each.instances, drain, unit, environment.groups_from))
        return followed

    def _vcpus_of(self, reservation: Reservation) -> int:
        name = reservation.instance_type
        if name not in self._vcpus:
            self._vcpus[name] = ec2.vcpus(name, self._region, self._account)
        return self._vcpus[name]


def _read_or_none(reservation_id: str, region: str, account: str) -> Reservation | None:
    try:
        return ec2.read_block(reservation_id, region, account)
    except ec2.BlockNotFoundError:
        return None
    except ClientError as error:
        if error.response["Error"]["Code"].startswith(_NOT_FOUND):
            return None
        raise


def arrange_all(
    environment: Environment | None,
    reservation_id: str,
    left: Sequence[str],
    enrolled: Enrolled,
    services: Services,
) -> list[Arranged]:
    """Arrange every group of a record, and every group that still has something of ours for its block; no bad one stops another.

    Args:
        environment: the record; None when it is not enrolled any more: then the block's actions are deleted.
        reservation_id: the block that the run was started for; the record may name another by now.
        left: Auto Scaling groups that a record which is gone had named for the block.

    Raises:
        ClientError, GroupBusyError, GroupRefusedError: something could not be read; nothing was written.
    """
    policy, scaling, now = environment.groups if environment else (), services.scaling, enrolled.now
    ids = sorted({reservation_id, *([environment.capacity_block_id] if environment else [])})
    named = {group.label for group in policy if group.kind is Kind.AUTO_SCALING_GROUP}
    names = named | set(left) | set(environment.groups_followed if environment else ())
    names |= scaling.groups_with([name for each in ids for name in action_names(each)])
    groups = scaling.groups(names)
    results = [
        _arrange(groups[name], enrolled, scaling, now) if name in groups else _refused(name, NO_GROUP, absent=True)
        for name in sorted(names)
        if name in groups or name in named
    ]
    looked_at = (group for group in policy if group.kind is not Kind.AUTO_SCALING_GROUP)
    return results + [_arrange_by_looking(group, enrolled, services.of(group.kind)) for group in looked_at]


def elsewhere(environment: Environment, absent: Collection[str], region: str, others: Iterable[str]) -> set[str]:
    """Those of a record's groups that are absent here and that another account has which sees the block, too.

    The groups of a shared block are in the account that uses it, and that account arranges them. One that cannot be read has none.
    """
    found: set[str] = set()
    for account in others if absent else ():
        with suppress(*_ONE_GROUPS_OWN):
            if _read_or_none(environment.capacity_block_id, region, account) is not None:
                services = Services(region, account)
                found |= {each.label for each in environment.groups if each.label in absent and services.have(each)}
    return found


def _refused(group: str, problem: str, *, absent: bool = False) -> Arranged:
    result = Arranged(group, absent=absent)
    result.problem(problem)
    return result


def _arrange(group: GroupFacts, enrolled: Enrolled, scaling: AutoScaling, now: datetime) -> Arranged:
    if group.eks_nodegroup is not None:
        return _refused(
            group.name,
            f"belongs to the EKS managed node group {group.eks_nodegroup}, and its sizes go through EKS"
            " (name eks_cluster and eks_nodegroup instead of auto_scaling_group)",
        )
    result = Arranged(group.name, sizes=str(group.sizes), instances=group.instances)
    kept = enrolled.unreadable_blocks
    try:
        followed = enrolled.followed_by(Kind.AUTO_SCALING_GROUP, group.name)
        standing = scaling.actions(group.name)
        others = {action.at for action in standing if not action.ours or action.reservation_id in kept}
        known = group if followed.hook is None else group.with_hook(OWN_HOOK, followed.hook)
        plan = plan_group(followed.blocks, known, others, now)
        puts, deletes = plan_changes(plan.actions, standing, kept)
        left = [action for action in standing if action.name not in deletes]
        steps = _hook_steps(group, followed.hook, scaling)
        if deletes:
            steps.append((lambda: scaling.delete(group, deletes), [f"{name} deleted" for name in deletes]))
        if puts:
            texts = [f"{action.name} at {format_instant(action.at)} sets {action.sizes}" for action in puts]
            steps.append((lambda: scaling.put(group, puts, left, now), texts))
        if (sizes := plan.sizes_now) is not None:
            steps.append((lambda: scaling.set_sizes(group, sizes), [_sizes_text(group, plan)]))
        _write(steps, result)
        if steps and (after := _read_back(plan, followed.hook, kept, scaling, result)) is not None:
            # What is still open is seen on what stands now: the instances may all be there.
            seen = after if followed.hook is None else after.with_hook(OWN_HOOK, followed.hook)
            later = plan_group(followed.blocks, seen, others, now)
            plan.check_at, plan.look_at = later.check_at, later.look_at
    except _ONE_GROUPS_OWN as error:
        result.busy = not isinstance(error, (GroupRefusedError, UnreadableReservationError))
        result.problem(str(error))
        return result
    result.arranged = True
    result.planned(plan)
    result.notes += [
        f"{block.reservation.reservation_id} is tagged for Karpenter, whose nodes follow by themselves"
        for block in followed.blocks
        if block.reservation.karpenter
    ]
    for conflict in followed.conflicts:
        result.problem(conflict)
    return result


def _sizes_text(group: GroupFacts, plan: Plan) -> str:
    if plan.sizes_now == group.sizes:
        return f"sizes {group.sizes} set again, since {group.instances} of {group.sizes.desired} instances are there"
    return f"sizes set from {group.sizes} to {plan.sizes_now}"


def _hook_steps(group: GroupFacts, wanted: timedelta | None, scaling: AutoScaling) -> list[Step]:
    """Writes that put our terminate hook and the tag, or take them away."""
    if wanted is not None and (group.own_hook != wanted or group.handler_tag is None):
        text = f"lifecycle hook {OWN_HOOK} of {wanted.total_seconds():.0f} s and tag {HANDLER_TAG} put"
        return [(lambda: scaling.put_hook(group, wanted), [text])]
    # The tag by itself: its deletion may have failed after the hook's.
    if wanted is None and (group.own_hook is not None or group.handler_tag == OWN_VALUE):
        return [(lambda: scaling.remove_hook(group), [f"lifecycle hook {OWN_HOOK} taken away"])]
    return []


def _arrange_by_looking(group: Group, enrolled: Enrolled, service: Service) -> Arranged:
    """Arrange a group whose service has no scheduled actions: what is due is set now, and `look_at` says when to come again."""
    result, now = Arranged(group.label), enrolled.now
    try:
        followed = enrolled.followed_by(group.kind, group.label)
        look = service.look(group)
        result.sizes, result.instances = str(look.facts.sizes), look.facts.instances
        plan = plan_group(followed.blocks, look.facts, (), now)
        result.planned(plan)
        for conflict in followed.conflicts:
            result.problem(conflict)
        if stale := stale_scale_down(look.scale_down_at, followed.blocks, now):
            result.problem(stale)
            result.come_by((look.scale_down_at or now) + SETTLED)
        if plan.sizes_now is not None and look.changing is None:
            sizes, text = plan.sizes_now, _sizes_text(look.facts, plan)
            try:
                _write([(lambda: service.set_sizes(group, sizes), [text])], result)
            except GroupChangingError as error:
                look = replace(look, changing=str(error))
            else:
                look = service.look(group)
                result.sizes, result.instances = str(look.facts.sizes), look.facts.instances
        _note_pending(plan, look, result, now)
    except _ONE_GROUPS_OWN as error:
        result.absent = isinstance(error, GroupMissingError)
        result.busy = not isinstance(error, (GroupRefusedError, UnreadableReservationError))
        result.problem(str(error))
    return result


def _note_pending(plan: Plan, look: Look, result: Arranged, now: datetime) -> None:
    """Say whether what was planned stands: while the service is at it, nobody knows; a change without end is a problem."""
    sizes, wanted = look.facts.sizes, plan.sizes_now
    stands = wanted is None or all(
        want in (None, have)
        for want, have in zip(
            (wanted.minimum, wanted.maximum, wanted.desired), (sizes.minimum, sizes.maximum, sizes.desired), strict=True
        )
    )
    if look.changing is None and stands:
        result.arranged = True
        return
    result.come_by(now + CHANGE_TAKES)
    said = look.changing or f"shows sizes {sizes} after {wanted} were set"
    if wanted is not None and plan.unfinished_since is not None and now >= plan.unfinished_since + MISSING_FOR:
        since = format_instant(plan.unfinished_since)
        result.problem(
            f"its sizes are {sizes}; since {since} it should have {wanted}, but {said} (end what changes it)"
        )
        return
    result.pending = True
    result.notes.append(said)


def _write(steps: Iterable[Step], result: Arranged) -> None:
    """Take every step: one that fails does not keep an end from being armed, or a group from being emptied."""
    failed: list[Exception] = []
    for step, texts in steps:
        try:
            step()
        except (GroupBusyError, GroupRefusedError) as error:
            failed.append(error)
        else:
            result.changes += [f"{result.group}: {text}" for text in texts]
    if failed:
        raise next((error for error in failed if isinstance(error, GroupBusyError)), failed[0])


def _read_back(
    plan: Plan, hook: timedelta | None, kept: Collection[str], scaling: AutoScaling, result: Arranged
) -> GroupFacts | None:
    """Make sure that what was written stands, and answer the group as it is then.

    Raises:
        GroupBusyError: it does not (yet), so it is compared and written again.
    """
    puts, deletes = plan_changes(plan.actions, scaling.actions(result.group), kept)
    if puts or deletes:
        names = ", ".join([*(action.name for action in puts), *deletes])
        raise GroupBusyError(f"does not show what was written: {names}")
    after = scaling.groups([result.group]).get(result.group)
    if plan.sizes_now is not None:
        if after is None or after.sizes != plan.sizes_now:
            raise GroupBusyError(f"shows sizes {after and after.sizes} after {plan.sizes_now} were set")
        result.sizes, result.instances = str(after.sizes), after.instances
    if after is not None and after.own_hook != hook:
        raise GroupBusyError(f"does not show what was written: lifecycle hook {OWN_HOOK}")
    return after


def next_check(results: Iterable[Arranged]) -> datetime | None:
    """The first boundary after which a group must be looked at."""
    return min((result.check_at for result in results if result.check_at is not None), default=None)


def again(results: Iterable[Arranged], event: Mapping[str, Any], until: datetime) -> dict[str, Any] | None:
    """When to arrange the groups again, and with what input: the next look at any of them, if it is due before `until`."""
    looks = [result.look_at for result in results if result.look_at is not None]
    if not looks or min(looks) > until:
        return None
    given = {name: value for name, value in event.items() if name != "now"}
    return {"at": format_instant(min(looks)), "input": given}
