"""Makes the groups of one block match its calendar: read everything, plan each group, write what differs, read it back."""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, TypeAlias

from botocore.exceptions import ClientError

from blockkeeper.aws import ec2
from blockkeeper.aws.auto_scaling import AutoScaling, AutoScalingBusyError, AutoScalingRefusedError
from blockkeeper.aws.environments import list_environments
from blockkeeper.domain.calendar import Action, GroupBlock, GroupFacts, Plan, action_names, plan_changes, plan_group
from blockkeeper.domain.environment import Environment, parse_environment
from blockkeeper.domain.instants import format_instant
from blockkeeper.domain.reservation import Reservation, UnreadableReservationError

NO_GROUP = "is no Auto Scaling group of this account and Region (correct auto_scaling_group)"
EKS_SIZES = (
    "its sizes go through EKS, which Blockkeeper does not do yet"
    " (use aws eks update-nodegroup-config, or a plain Auto Scaling group)"
)
_NOT_FOUND = "InvalidCapacityReservationId"

Step: TypeAlias = tuple[Callable[[], None], list[str]]
"""A write, and what it changes in words."""


@dataclass(slots=True)
class Arranged:
    """One group afterwards.

    Attributes:
        arranged: everything that was planned stands, and was read back.
        busy: Auto Scaling asked for patience; the same may be tried again at once.
        problems: what a person must mend, in words that begin with the group's name.
    """

    group: str
    arranged: bool = False
    busy: bool = False
    sizes: str | None = None
    instances: int | None = None
    instances_left: int = 0
    actions: tuple[Action, ...] = ()
    check_at: datetime | None = None
    changes: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def problem(self, text: str) -> None:
        """Add what a person must mend."""
        self.problems.append(f"{self.group}: {text}")

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


class Enrolled:
    """The enrolled blocks of a Region as an account sees them now, by the groups that follow them."""

    def __init__(self, region: str, account: str, now: datetime) -> None:
        self._region, self._account, self._now = region, account, now
        self._blocks: dict[str, Reservation | None] = {}
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
        lasts = environment.end_time is not None and self._now < environment.end_time
        if reservation is None and lasts and environment.owner_id == self._account:
            raise UnreadableReservationError(
                f"EC2 does not show {reservation_id} (record {environment.pk}), which ends at"
                f" {format_instant(environment.end_time or self._now)}; what is armed stays armed (correct capacity_block_id,"
                " or delete the record)"
            )
        return reservation

    @property
    def unreadable_blocks(self) -> set[str]:
        """Ids of blocks whose records cannot be read: their actions are not ours to judge."""
        return {str(record.get("capacity_block_id")) for record in self._unreadable}

    def followed_by(self, group: str) -> list[GroupBlock]:
        """The blocks that a group follows.

        Raises:
            UnreadableReservationError: one of them cannot be read, so the group's sizes over time are unknown.
        """
        for record in self._unreadable:
            if group in str(record.get("groups")):
                raise UnreadableReservationError(
                    f"record {record['PK']} names this group and cannot be read; what is armed stays armed"
                    " (mend or delete the record)"
                )
        found: dict[str, GroupBlock] = {}
        for environment in self._environments:
            for each in environment.groups:
                if each.auto_scaling_group == group and (reservation := self.block(environment)) is not None:
                    drain = timedelta(minutes=each.drain_minutes)
                    found[reservation.reservation_id] = GroupBlock(reservation, each.instances, drain)
        return list(found.values())


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
    environment: Environment | None, reservation_id: str, enrolled: Enrolled, scaling: AutoScaling, now: datetime
) -> list[Arranged]:
    """Arrange every group of a record, and every group that still has actions for its block; one bad group stops no other.

    Args:
        environment: the record; None when it is not enrolled any more: then the block's actions are deleted.
        reservation_id: the block that the run was started for; the record may name another by now.

    Raises:
        ClientError, AutoScalingBusyError, AutoScalingRefusedError: something could not be read; nothing was written.
    """
    policy = environment.groups if environment else ()
    ids = sorted({reservation_id, *([environment.capacity_block_id] if environment else [])})
    names = {group.auto_scaling_group for group in policy if group.auto_scaling_group}
    names |= scaling.groups_with([name for each in ids for name in action_names(each)])
    groups = scaling.groups(names)
    results = [
        _arrange(groups[name], enrolled, scaling, now) if name in groups else _refused(name, NO_GROUP)
        for name in sorted(names)
    ]
    for group in policy:
        if not group.auto_scaling_group:
            named = f"{group.eks_cluster}/{group.eks_nodegroup}"
            results.append(_refused(named, f"is an EKS managed node group: {EKS_SIZES}"))
    return results


def _refused(group: str, problem: str) -> Arranged:
    result = Arranged(group)
    result.problem(problem)
    return result


def _arrange(group: GroupFacts, enrolled: Enrolled, scaling: AutoScaling, now: datetime) -> Arranged:
    if group.eks_nodegroup is not None:
        return _refused(group.name, f"belongs to the EKS managed node group {group.eks_nodegroup}: {EKS_SIZES}")
    result = Arranged(group.name, sizes=str(group.sizes), instances=group.instances)
    kept = enrolled.unreadable_blocks
    try:
        blocks = enrolled.followed_by(group.name)
        standing = scaling.actions(group.name)
        others = {action.at for action in standing if not action.ours or action.reservation_id in kept}
        plan = plan_group(blocks, group, others, now)
        puts, deletes = plan_changes(plan.actions, standing, kept)
        left = [action for action in standing if action.name not in deletes]
        steps: list[Step] = []
        if deletes:
            steps.append((lambda: scaling.delete(group, deletes), [f"{name} deleted" for name in deletes]))
        if puts:
            texts = [f"{action.name} at {format_instant(action.at)} sets {action.sizes}" for action in puts]
            steps.append((lambda: scaling.put(group, puts, left, now), texts))
        if (sizes := plan.sizes_now) is not None:
            steps.append((lambda: scaling.set_sizes(group, sizes), [f"sizes set from {group.sizes} to {sizes}"]))
        _write(steps, result)
        if steps:
            _read_back(plan, kept, scaling, result)
    except (AutoScalingBusyError, AutoScalingRefusedError, UnreadableReservationError) as error:
        result.busy = isinstance(error, AutoScalingBusyError)
        result.problem(str(error))
        return result
    result.arranged = True
    result.actions, result.check_at, result.instances_left = plan.actions, plan.check_at, plan.instances_left
    result.notes += plan.notes
    for finding in plan.findings:
        result.problem(finding)
    return result


def _write(steps: Iterable[Step], result: Arranged) -> None:
    """Take every step: one that fails does not keep an end from being armed, or a group from being emptied."""
    failed: list[Exception] = []
    for step, texts in steps:
        try:
            step()
        except (AutoScalingBusyError, AutoScalingRefusedError) as error:
            failed.append(error)
        else:
            result.changes += [f"{result.group}: {text}" for text in texts]
    if failed:
        raise next((error for error in failed if isinstance(error, AutoScalingBusyError)), failed[0])


def _read_back(plan: Plan, kept: Collection[str], scaling: AutoScaling, result: Arranged) -> None:
    """Make sure that what was written stands.

    Raises:
        AutoScalingBusyError: it does not (yet), so it is compared and written again.
    """
    puts, deletes = plan_changes(plan.actions, scaling.actions(result.group), kept)
    if puts or deletes:
        names = ", ".join([*(action.name for action in puts), *deletes])
        raise AutoScalingBusyError(f"does not show what was written: {names}")
    if plan.sizes_now is not None:
        after = scaling.groups([result.group]).get(result.group)
        if after is None or after.sizes != plan.sizes_now:
            raise AutoScalingBusyError(f"shows sizes {after and after.sizes} after {plan.sizes_now} were set")
        result.sizes, result.instances = str(after.sizes), after.instances


def next_check(results: Iterable[Arranged]) -> datetime | None:
    """The first boundary after which a group must be looked at."""
    return min((result.check_at for result in results if result.check_at is not None), default=None)
