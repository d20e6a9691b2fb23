"""From the old block to the new one: the new record, and what must change for a group to launch into the new block.

A group changes only when it is clear what it launches into now and what it will: everything else is left to a person, who is told
exactly what to do (docs/adr/009-plan-b.md). Sources: EC2 Auto Scaling User Guide, "Use Capacity Blocks"; EC2 User Guide, "Launch
instances into Capacity Blocks".
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from blockkeeper.domain.enrolment import KEPT_FIELDS
from blockkeeper.domain.environment import Status
from blockkeeper.domain.instants import format_instant

LONGEST_PK = 128
NODE_GROUP_TAG = "eks:nodegroup-name"
_DATE = re.compile(r"-\d{8}$")

Record = dict[str, Any]


class NotClearError(Exception):
    """A group must not be changed by us; the message says why."""


@dataclass(frozen=True, slots=True)
class NewHome:
    """The block that groups move to.

    Attributes:
        old_id: the reservation that they launch into until now.
    """

    old_id: str
    reservation_id: str
    zone: str
    start: datetime

    @property
    def remedy(self) -> str:
        """What a person does instead."""
        return (
            f"before {format_instant(self.start)} give the group a launch template version with MarketType capacity-block and "
            f"CapacityReservationTarget {self.reservation_id}, and a subnet in {self.zone}"
        )


# ---------------------------------------------------------------- The new record


def new_pks(pk: str, start: datetime, reservation_id: str) -> Iterator[str]:
    """Names for the new record, best first: the old one's with the day of the new start, then with the reservation's id."""
    base = _DATE.sub("", pk)
    for ending in (f"-{start:%Y%m%d}", f"-{reservation_id}"):
        yield base[: LONGEST_PK - len(ending)] + ending


def new_record(
    old: Mapping[str, Any], pk: str, home: NewHome, *, end: datetime, groups_from: datetime, now: datetime
) -> Record:
    """The record of the new block: the old one's whole policy, and nothing of what EC2 or we said of the old block.

    Args:
        old: the old record in its JSON form.
        end: EC2's EndDate of the new block.
        groups_from: from when its groups follow the new block (`Deadlines.groups_from`).
    """
    policy = {name: value for name, value in old.items() if name not in KEPT_FIELDS}
    return {
        **policy,
        "PK": pk,
        "capacity_block_id": home.reservation_id,
        "end_time": format_instant(end),
        "replaces": home.old_id,
        "groups_from": format_instant(groups_from),
        "status": Status.PENDING.value,
        "updated_at": format_instant(now),
        "version": 1,
    }


# ---------------------------------------------------------------- A group


def template_of(group: Mapping[str, Any]) -> tuple[str, str]:
    """Id and version of the launch template of a group.

    Args:
        group: its entry of DescribeAutoScalingGroups.

    Raises:
        NotClearError: something else than a launch template says what the group launches.
    """
    tags = {tag.get("Key"): tag.get("Value") for tag in group.get("Tags") or []}
    if node_group := tags.get(NODE_GROUP_TAG):
        raise NotClearError(f"it belongs to the EKS managed node group {node_group}, whose launch template EKS keeps")
    if group.get("MixedInstancesPolicy"):
        raise NotClearError("it has a mixed instances policy")
    target = (group.get("CapacityReservationSpecification") or {}).get("CapacityReservationTarget")
    if target:
        raise NotClearError("its own CapacityReservationSpecification overrides its launch template")
    template = group.get("LaunchTemplate") or {}
    if not template.get("LaunchTemplateId"):
        raise NotClearError("it has no launch template")
    return template["LaunchTemplateId"], template.get("Version") or "$Default"


def changed_target(data: Mapping[str, Any], home: NewHome) -> Record | None:
    """The launch data that a new version changes; None when the version launches into the new block already.

    Args:
        data: LaunchTemplateData of the version that the group uses now.

    Raises:
        NotClearError: the version does not launch into the old block, or is bound to a zone.
    """
    specification = data.get("CapacityReservationSpecification") or {}
    target = specification.get("CapacityReservationTarget") or {}
    present = target.get("CapacityReservationId")
    if present == home.reservation_id:
        return None
    if present != home.old_id:
        shown = present or target.get("CapacityReservationResourceGroupArn") or "no reservation"
        raise NotClearError(f"its launch template is for {shown}, not for {home.old_id}")
    market = (data.get("InstanceMarketOptions") or {}).get("MarketType")
    if market != "capacity-block":
        raise NotClearError(f"its launch template has MarketType {market or 'on-demand'}, not capacity-block")
    zone = (data.get("Placement") or {}).get("AvailabilityZone")
    if zone not in (None, home.zone):
        raise NotClearError(f"its launch template is bound to zone {zone}")
    if any(each.get("SubnetId") for each in data.get("NetworkInterfaces") or []):
        raise NotClearError("its launch template names a subnet in its network interfaces")
    changed = {**specification, "CapacityReservationTarget": {"CapacityReservationId": home.reservation_id}}
    return {"CapacityReservationSpecification": changed}


def subnets_for(
    present: Sequence[Mapping[str, Any]],
    named: Iterable[Mapping[str, Any]],
    others: Iterable[Mapping[str, Any]],
    zone: str,
) -> list[str]:
    """Ids of the subnets that a group launches into when its block is in `zone`.

    Args:
        present: the group's own subnets, as DescribeSubnets shows them.
        named: those that the policy names (`replace.subnets`).
        others: subnets of the same VPC in the zone.

    Raises:
        NotClearError: neither is one of its own there, nor named, nor do others carry exactly its subnets' tags.
    """
    vpcs = {subnet["VpcId"] for subnet in present}
    stay = sorted(subnet["SubnetId"] for subnet in present if subnet["AvailabilityZone"] == zone)
    if stay:
        return stay
    chosen = sorted(
        subnet["SubnetId"] for subnet in named if subnet["AvailabilityZone"] == zone and subnet["VpcId"] in vpcs
    )
    if chosen:
        return chosen
    kinds = {_tags(subnet) for subnet in present}
    if len(kinds) == 1 and (kind := next(iter(kinds))):
        alike = sorted(subnet["SubnetId"] for subnet in others if _tags(subnet) == kind and subnet["VpcId"] in vpcs)
        if alike:
            return alike
    raise NotClearError(f"it is not clear which subnet of {zone} it belongs into (name it in replace.subnets)")


def _tags(subnet: Mapping[str, Any]) -> frozenset[tuple[str, str]]:
    """What a subnet is for: its tags without its own name and AWS's, which are each subnet's own."""
    tags = ((tag["Key"], tag.get("Value", "")) for tag in subnet.get("Tags") or [])
    return frozenset((key, value) for key, value in tags if key != "Name" and not key.startswith("aws:"))
