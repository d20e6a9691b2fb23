"""Checks of an EKS managed node group, and of the Auto Scaling group beneath it.

Source: EKS User Guide, "Create a managed node group with Capacity Blocks for ML": capacity type CAPACITY_BLOCK, a launch template
that names the block, subnets of its zone only. EKS drains the nodes itself, so that hooks and handlers are left to it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from blockkeeper.domain.calendar import GroupBlock
from blockkeeper.domain.doctor import Check, Finding, Severity, finding
from blockkeeper.domain.doctor_groups import GroupSetup, look_at_launches, standing_in_the_way

CAPACITY_TYPE = "CAPACITY_BLOCK"


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """A node group.

    Attributes:
        capacity_type: None when EKS shows none.
        issues: health issues as EKS words them, code first.
        beneath: its Auto Scaling groups.
    """

    cluster: str
    name: str
    region: str
    capacity_type: str | None = CAPACITY_TYPE
    issues: tuple[str, ...] = ()
    beneath: tuple[GroupSetup, ...] = ()


def look_at_node_group(node_group: NodeGroup, blocks: Sequence[GroupBlock], subject: str) -> Iterator[Finding]:
    """All checks of one node group."""
    where = f"--region {node_group.region} --cluster-name {node_group.cluster}"
    if node_group.capacity_type != CAPACITY_TYPE:
        problem = f"its capacity type is {node_group.capacity_type or 'not shown'}, not {CAPACITY_TYPE}"
        remedy = (
            f"make the node group anew: `aws eks create-nodegroup {where} --capacity-type {CAPACITY_TYPE} ...`, since EKS"
            " changes no capacity type"
        )
        yield finding(Check.CAPACITY_TYPE, subject, problem, remedy)
    if node_group.issues:
        remedy = f"`aws eks describe-nodegroup {where} --nodegroup-name {node_group.name} --query nodegroup.health`"
        yield finding(Check.NODE_GROUP_HEALTH, subject, "; ".join(node_group.issues), remedy, Severity.WARNING)
    for setup in node_group.beneath:
        yield from look_at_launches(setup, blocks, subject)
        yield from standing_in_the_way(setup, subject)


def node_group_missing(cluster: str, name: str, region: str, subject: str) -> Finding:
    """No account that sees the block has the node group."""
    remedy = f"create it, or correct the record: `aws eks list-nodegroups --region {region} --cluster-name {cluster}` lists what is"
    return finding(
        Check.GROUP_MISSING, subject, f"there is no node group {name} of cluster {cluster} in {region}", remedy
    )
