"""EKS managed node groups: their sizes go through EKS, never through the Auto Scaling group beneath (case B29).

Source: EKS API reference, UpdateNodegroupConfig and DescribeNodegroup; EKS User Guide, "Create a managed node group with Capacity
Blocks for ML".
"""

from dataclasses import replace
from typing import Any

from botocore.exceptions import ClientError

from blockkeeper.aws.auto_scaling import AutoScaling
from blockkeeper.aws.clients import client
from blockkeeper.aws.group_errors import GroupChangingError, GroupRefusedError, refusals
from blockkeeper.aws.look import Look
from blockkeeper.domain.calendar import GroupFacts, Sizes
from blockkeeper.domain.environment import Group, Kind

# EKS arms it on the Auto Scaling group of a node group with capacity type CAPACITY_BLOCK, and asks to leave it alone.
OWN_SCALE_DOWN = "Amazon EKS Node Group Capacity Scaledown Before Reservation End"
_SETTLED = frozenset({"ACTIVE", "DEGRADED"})
_CHANGING = frozenset({"CREATING", "UPDATING"})


class NodeGroups:
    """Managed node groups of one account and Region. Every call raises GroupBusyError or GroupRefusedError."""

    def __init__(self, region: str, account: str, scaling: AutoScaling) -> None:
        self._client = client("eks", region, account)
        self._scaling = scaling

    def look(self, group: Group) -> Look:
        """The node group, with the instances and hooks of the Auto Scaling groups beneath it.

        Minimum and maximum are EKS's; the desired size is what the groups beneath really have, since EKS's own can be out of date
        (API reference, NodegroupScalingConfig).
        """
        with refusals():
            answer = self._client.describe_nodegroup(clusterName=group.eks_cluster, nodegroupName=group.eks_nodegroup)
        node_group = answer["nodegroup"]
        status = node_group["status"]
        if status not in _SETTLED | _CHANGING:
            raise GroupRefusedError(
                f"EKS shows it as {status} (look at the node group's health issues in the EKS console)"
            )
        names = [each["name"] for each in (node_group.get("resources") or {}).get("autoScalingGroups") or []]
        beneath = list(self._scaling.groups(names).values()) if names else []
        armed = [action.at for name in names for action in self._scaling.actions(name) if action.name == OWN_SCALE_DOWN]
        return Look(
            facts=_facts(group, node_group["scalingConfig"], beneath),
            changing=f"EKS shows it as {status}" if status in _CHANGING else None,
            scale_down_at=min(armed, default=None),
        )

    def set_sizes(self, group: Group, sizes: Sizes) -> None:
        """Set minimum, maximum and desired size (UpdateNodegroupConfig). EKS carries it out within minutes and drains by itself.

        Raises:
            GroupChangingError: another update of the node group is in progress.
        """
        try:
            with refusals():
                self._client.update_nodegroup_config(
                    clusterName=group.eks_cluster,
                    nodegroupName=group.eks_nodegroup,
                    scalingConfig={
                        "minSize": sizes.minimum,
                        "maxSize": sizes.maximum,
                        "desiredSize": sizes.desired,
                    },
                )
        except GroupRefusedError as error:
            cause = error.__cause__
            if isinstance(cause, ClientError) and cause.response["Error"]["Code"] == "ResourceInUseException":
                raise GroupChangingError(str(error)) from error
            raise


def _facts(group: Group, config: dict[str, Any], beneath: list[GroupFacts]) -> GroupFacts:
    desired = sum(each.sizes.desired or 0 for each in beneath) if beneath else config["desiredSize"]
    sizes = Sizes(config["minSize"], config["maxSize"], desired)
    longest = max(beneath, key=lambda each: (each.longest_hook, each.name), default=GroupFacts(group.label, sizes))
    return replace(
        longest,
        name=group.label,
        sizes=sizes,
        instances=sum(each.instances for each in beneath),
        protected=any(each.protected for each in beneath),
        suspended=frozenset().union(*(each.suspended for each in beneath)),
        warm_pool=any(each.warm_pool for each in beneath),
        launch_failure=next((each.launch_failure for each in beneath if each.launch_failure), None),
        eks_nodegroup=None,
        kind=Kind.NODE_GROUP,
    )
