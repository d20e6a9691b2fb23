"""The environment record: what a team enrols, and what Blockkeeper may do for it.

The first nine fields are those of AWS's sample Capacity Block Manager, whose clients must work unchanged.
Shape and ranges are checked by ``schemas/environment.schema.json`` at the edge; this module gives the checked record a type.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from typing import Any

from blockkeeper.domain.durations import extension_hours
from blockkeeper.domain.instants import parse_instant
from blockkeeper.domain.money import parse_usd


class Status(StrEnum):
    """`status` of an environment record."""

    PENDING = "PENDING"
    ACTIVE = "ACTIVE"
    NO_ACTION_REQUIRED = "NO_ACTION_REQUIRED"
    EXTENSION_APPROVAL_REQUIRED = "EXTENSION_APPROVAL_REQUIRED"
    EXTENSION_PAYMENT_PENDING = "EXTENSION_PAYMENT_PENDING"
    EXTENDED = "EXTENDED"
    EXTENSION_UNAVAILABLE = "EXTENSION_UNAVAILABLE"
    EXTENSION_REJECTED = "EXTENSION_REJECTED"
    EXPIRING = "EXPIRING"
    EXPIRED = "EXPIRED"
    ERROR = "ERROR"


class OnTimeout(StrEnum):
    """What no answer means."""

    REJECT = "reject"
    APPROVE = "approve"


DEFAULT_REMINDER_HOURS = (24, 6, 2)
UTC_ZONE = "UTC"


class Kind(StrEnum):
    """What a group is; the values are the record's own field names."""

    AUTO_SCALING_GROUP = "auto_scaling_group"
    NODE_GROUP = "eks_nodegroup"
    COMPUTE_ENVIRONMENT = "batch_compute_environment"


@dataclass(frozen=True, slots=True)
class Group:
    """What follows the block: an Auto Scaling group, an EKS managed node group, or a compute environment of Batch.

    Attributes:
        instances: size while the block runs; None means all of the block's instances.
        drain_minutes: how long the workload needs to drain before its instances go.
        terminate_hook_minutes: heartbeat of the terminate lifecycle hook that Blockkeeper puts on an Auto Scaling group, with the
            tag that Node Termination Handler looks for; None leaves both to the team.
    """

    auto_scaling_group: str | None = None
    eks_cluster: str | None = None
    eks_nodegroup: str | None = None
    batch_compute_environment: str | None = None
    instances: int | None = None
    drain_minutes: int = 0
    terminate_hook_minutes: int | None = None

    @property
    def kind(self) -> Kind:
        """Which of the three it is; the schema lets a record name one."""
        if self.auto_scaling_group:
            return Kind.AUTO_SCALING_GROUP
        return Kind.NODE_GROUP if self.eks_nodegroup else Kind.COMPUTE_ENVIRONMENT

    @property
    def label(self) -> str:
        """Its name, unique among its kind: a node group's is ``cluster/node group``."""
        if self.kind is Kind.NODE_GROUP:
            return f"{self.eks_cluster}/{self.eks_nodegroup}"
        return self.auto_scaling_group or self.batch_compute_environment or ""


@dataclass(frozen=True, slots=True)
class Replacement:
    """Policy for a new block when no extension is to be had.

    Attributes:
        max_gap_hours: longest time between the old block's end and the new one's start.
        availability_zones: the only zones that a new block may be in, best first; empty means any, the old block's first.
        subnets: subnets for the groups, in whatever zones; those of the new block's zone are used.
    """

    max_gap_hours: int
    max_upfront_fee: Decimal
    availability_zones: tuple[str, ...] = ()
    subnets: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Environment:
    """One enrolled block and its policy. Times are aware UTC, money is Decimal USD, a missing value is None.

    `end_time`, `state`, `instance_count` and `owner_id` mirror EC2; EC2 is the truth (design rule 3).
    `groups_armed` is the fingerprint of what scale-groups last arranged (``domain/calendar.py``), `groups_check_at` the
    boundary after which it looks again, `groups_error` what keeps a group from following the block, `groups_followed` the Auto
    Scaling groups that it arranged, so that one which is taken off the record is left as it was found.
    `extension_outcome` is what extend-block last said of an end: ``{end_date, outcome}``; `replacement` what replace-block last
    said: ``{end_date, outcome, reason}`` and, once there is a new block, ``reservation_id`` and ``environment``, its record.
    `replaces` is the block in whose place this one was bought; its groups follow this one from `groups_from` on.
    `version` counts writes: a write names the version it read, so that none is lost.
    """

    pk: str
    name: str
    capacity_block_id: str
    region: str
    instance_type: str
    end_time: datetime | None
    extend_by_days: int
    extension_lookahead_days: int
    require_approval: bool
    approvers: tuple[str, ...] = ()
    quorum: int = 1
    four_eyes: bool = True
    enrolled_by: str | None = None
    reminder_hours: tuple[int, ...] = DEFAULT_REMINDER_HOURS
    escalate_to: tuple[str, ...] = ()
    escalate_hours: int | None = None
    on_timeout: OnTimeout = OnTimeout.REJECT
    time_zone: str = UTC_ZONE
    max_upfront_fee: Decimal | None = None
    extend_until: datetime | None = None
    fallback_days: tuple[int, ...] = ()
    replace: Replacement | None = None
    groups: tuple[Group, ...] = ()
    team: str | None = None
    status: Status = Status.PENDING
    error: str | None = None
    updated_at: datetime | None = None
    state: str | None = None
    instance_count: int | None = None
    owner_id: str | None = None
    start_time: datetime | None = None
    groups_armed: str | None = None
    groups_check_at: datetime | None = None
    groups_error: str | None = None
    groups_followed: tuple[str, ...] = ()
    extension_outcome: Mapping[str, Any] | None = None
    replacement: Mapping[str, Any] | None = None
    replaces: str | None = None
    groups_from: datetime | None = None
    version: int = 0

    @property
    def has_groups(self) -> bool:
        """Whether there are groups to arrange: those that it names, and those that it named and that may still be armed."""
        return bool(self.groups or self.groups_followed) or self.groups_armed is not None

    @property
    def wanted_hours(self) -> int:
        """Hours of the wanted extension."""
        return extension_hours(self.extend_by_days)

    @property
    def fallback_hours(self) -> tuple[int, ...]:
        """Hours of the shorter lengths to try when the wanted one is not to be had, in order."""
        return tuple(extension_hours(days, "fallback_days") for days in self.fallback_days)


def parse_environment(record: Mapping[str, Any], default_approvers: tuple[str, ...] = ()) -> Environment:
    """Give a checked record its type.

    Args:
        record: the JSON form, as the API takes and answers it; fees are strings, times are ISO 8601, `PK` is the id.
            Fields that Blockkeeper itself keeps (`state`, `owner_id`, ...) may be there too.
        default_approvers: who is asked when the record names nobody; the stack's `ApproverEmails`.

    Raises:
        ValueError: a value that the schema would refuse. Records are checked when they are enrolled, so this means that somebody
            wrote to the table by other ways; the caller reports the record and goes on with the others.
        KeyError: a required field is missing.
    """
    replace = record.get("replace")
    return Environment(
        pk=record["PK"],
        name=record["name"],
        capacity_block_id=record["capacity_block_id"],
        region=record["region"],
        instance_type=record["instance_type"],
        end_time=_instant(record.get("end_time")),
        extend_by_days=int(record["extend_by_days"]),
        extension_lookahead_days=int(record["extension_lookahead_days"]),
        # Anything but a plain false asks a person: a string "false" is no permission (case B16).
        require_approval=record.get("require_approval") is not False,
        approvers=tuple(record.get("approvers") or default_approvers),
        quorum=int(record.get("quorum") or 1),
        four_eyes=record.get("four_eyes") is not False,
        enrolled_by=record.get("enrolled_by"),
        reminder_hours=tuple(int(hours) for hours in record.get("reminder_hours", DEFAULT_REMINDER_HOURS)),
        escalate_to=tuple(record.get("escalate_to") or ()),
        escalate_hours=None if record.get("escalate_hours") is None else int(record["escalate_hours"]),
        # Only the exact word spends money without a person (case B16).
        on_timeout=OnTimeout.APPROVE if record.get("on_timeout") == OnTimeout.APPROVE else OnTimeout.REJECT,
        time_zone=record.get("time_zone") or UTC_ZONE,
        max_upfront_fee=None if record.get("max_upfront_fee") is None else parse_usd(record["max_upfront_fee"]),
        extend_until=_instant(record.get("extend_until")),
        fallback_days=tuple(int(days) for days in record.get("fallback_days") or ()),
        replace=None if replace is None else _replacement(replace),
        groups=tuple(_group(group) for group in record.get("groups") or ()),
        team=record.get("team"),
        status=Status(record.get("status") or Status.PENDING),
        error=record.get("error"),
        updated_at=_instant(record.get("updated_at")),
        state=record.get("state"),
        instance_count=None if record.get("instance_count") is None else int(record["instance_count"]),
        owner_id=record.get("owner_id"),
        start_time=_instant(record.get("start_time")),
        groups_armed=record.get("groups_armed"),
        groups_check_at=_instant(record.get("groups_check_at")),
        groups_error=record.get("groups_error"),
        groups_followed=tuple(record.get("groups_followed") or ()),
        extension_outcome=record.get("extension_outcome"),
        replacement=record.get("replacement"),
        replaces=record.get("replaces"),
        groups_from=_instant(record.get("groups_from")),
        version=int(record.get("version") or 0),
    )


def _replacement(policy: Mapping[str, Any]) -> Replacement:
    return Replacement(
        max_gap_hours=int(policy["max_gap_hours"]),
        max_upfront_fee=parse_usd(policy["max_upfront_fee"]),
        availability_zones=tuple(policy.get("availability_zones") or ()),
        subnets=tuple(policy.get("subnets") or ()),
    )


def _group(group: Mapping[str, Any]) -> Group:
    return Group(
        auto_scaling_group=group.get("auto_scaling_group"),
        eks_cluster=group.get("eks_cluster"),
        eks_nodegroup=group.get("eks_nodegroup"),
        batch_compute_environment=group.get("batch_compute_environment"),
        instances=None if group.get("instances") is None else int(group["instances"]),
        drain_minutes=int(group.get("drain_minutes") or 0),
        terminate_hook_minutes=None
        if group.get("terminate_hook_minutes") is None
        else int(group["terminate_hook_minutes"]),
    )


def _instant(text: str | None) -> datetime | None:
    return None if text is None else parse_instant(text)
