"""EKS managed node groups on Capacity Blocks: the calls that show and resize them, and the Auto Scaling group beneath each.

Sources: EKS API reference, NodegroupScalingConfig and UpdateNodegroupConfig; EKS User Guide, "Create a managed node group with
Capacity Blocks for ML". An update takes a minute, and until it is over EKS refuses another. AWS does not say whether EKS moves its
own scale-in after an extension; here it stays unless `moves_scale_down` is set.
"""

import uuid
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from local.market.caller import Caller
from local.market.errors import MarketError
from local.market.groups import TERMINATING, Group, Hook

if TYPE_CHECKING:
    from local.market.market import Market

OWN_SCALE_DOWN = "Amazon EKS Node Group Capacity Scaledown Before Reservation End"
_OWN_LEAD = timedelta(minutes=40)
_OWN_HOOK = "Terminate-LC-Hook"
_OWN_HEARTBEAT = timedelta(minutes=30)
_DRAIN_TAKES = timedelta(minutes=3)
_UPDATE_TAKES = timedelta(minutes=1)


@dataclass
class NodeGroup:
    """A node group; `update` is the id of the one in progress."""

    cluster: str
    name: str
    group: Group
    created: datetime
    capacity_type: str = "CAPACITY_BLOCK"
    status: str = "ACTIVE"
    minimum: int = 0
    maximum: int = 1
    desired: int = 0
    update: str | None = None
    updates: list[dict[str, Any]] = field(default_factory=list)


class NodeGroups:
    """All node groups."""

    def __init__(self, market: "Market") -> None:
        self._market = market
        self.by_key: dict[tuple[str, str, str, str], NodeGroup] = {}
        self.moves_scale_down = False

    def operations(self) -> dict[str, Any]:
        return {"DescribeNodegroup": self._describe, "UpdateNodegroupConfig": self._update}

    def knows(self, params: dict[str, Any], caller: Caller) -> bool:
        """Whether a call is about a node group of the market's."""
        return (*caller, params.get("clusterName", ""), params.get("nodegroupName", "")) in self.by_key

    def add(self, cluster: str, name: str, group: Group, sizes: tuple[int, int, int]) -> NodeGroup:
        """Make a node group with an Auto Scaling group beneath it, as EKS does."""
        group.tags += [
            {
                "ResourceId": group.name,
                "ResourceType": "auto-scaling-group",
                "Key": key,
                "Value": value,
                "PropagateAtLaunch": True,
            }
            for key, value in (("eks:cluster-name", cluster), ("eks:nodegroup-name", name))
        ]
        group.hooks[_OWN_HOOK] = Hook(_OWN_HOOK, TERMINATING, _OWN_HEARTBEAT, "CONTINUE", answered_after=_DRAIN_TAKES)
        node_group = NodeGroup(cluster, name, group, self._market.now)
        node_group.minimum, node_group.maximum, node_group.desired = sizes
        group.minimum, group.maximum, group.desired = sizes
        self.by_key[group.account, group.region, cluster, name] = node_group
        self._market.groups.add(group)
        self._arm(node_group)
        return node_group

    def block_changed(self, reservation_id: str) -> None:
        """A block's end moved."""
        for node_group in self.by_key.values():
            if self.moves_scale_down and reservation_id in self._market.groups.targets(node_group.group):
                self._arm(node_group)

    def _arm(self, node_group: NodeGroup) -> None:
        group = node_group.group
        for reservation_id in self._market.groups.targets(group):
            block = self._market.blocks.get(reservation_id, group.region)
            if block is not None and block.end is not None and block.end - _OWN_LEAD > self._market.now:
                self._market.schedules.put(
                    group,
                    {
                        "ScheduledActionName": OWN_SCALE_DOWN,
                        "StartTime": block.end - _OWN_LEAD,
                        "MinSize": 0,
                        "DesiredCapacity": 0,
                    },
                )

    # -- calls

    def _found(self, params: dict[str, Any], caller: Caller) -> NodeGroup:
        node_group = self.by_key.get((*caller, params["clusterName"], params["nodegroupName"]))
        if node_group is None:
            raise MarketError(
                "ResourceNotFoundException", f"No node group found for name: {params['nodegroupName']}.", 404
            )
        return node_group

    def _describe(self, params: dict[str, Any], caller: Caller) -> dict[str, Any]:
        return {"nodegroup": _as_node_group(self._found(params, caller))}

    def _update(self, params: dict[str, Any], caller: Caller) -> dict[str, Any]:
        node_group = self._found(params, caller)
        if node_group.update is not None:
            raise MarketError(
                "ResourceInUseException",
                f"Nodegroup {node_group.name} currently has update {node_group.update} in progress",
                409,
            )
        if unknown := params.keys() - {"clusterName", "nodegroupName", "scalingConfig", "clientRequestToken"}:
            raise MarketError(
                "InvalidParameterException", f"the market changes scalingConfig only, not {sorted(unknown)}"
            )
        sizes = params.get("scalingConfig") or {}
        minimum = sizes.get("minSize", node_group.minimum)
        maximum = sizes.get("maxSize", node_group.maximum)
        desired = sizes.get("desiredSize", node_group.desired)
        if minimum > desired:
            raise MarketError(
                "InvalidParameterException", f"Minimum capacity {minimum} can't be greater than desired size {desired}"
            )
        if desired > maximum:
            raise MarketError(
                "InvalidParameterException", f"desired capacity {desired} can't be greater than max size {maximum}"
            )
        node_group.update, node_group.status = (
            str(uuid.uuid5(uuid.NAMESPACE_OID, f"update/{self._market.number()}")),
            "UPDATING",
        )
        update = {
            "id": node_group.update,
            "status": "InProgress",
            "type": "ConfigUpdate",
            "params": [
                {"type": kind, "value": str(value)}
                for kind, value in (("MinSize", minimum), ("MaxSize", maximum), ("DesiredSize", desired))
            ],
            "createdAt": self._market.now,
            "errors": [],
        }
        node_group.updates.append(update)

        def carried_out() -> None:
            node_group.update, node_group.status, update["status"] = None, "ACTIVE", "Successful"
            node_group.minimum, node_group.maximum, node_group.desired = minimum, maximum, desired
            cause = f"a user request update of AutoScalingGroup constraints to min: {minimum}, max: {maximum}, desired: {desired}"
            self._market.groups.resize(node_group.group, minimum, maximum, desired, cause)

        self._market.agenda.plan(self._market.now + _UPDATE_TAKES, carried_out)
        return {"update": dict(update)}


def _as_node_group(node_group: NodeGroup) -> dict[str, Any]:
    group = node_group.group
    unique = group.arn.split(":")[6]
    return {
        "nodegroupName": node_group.name,
        "nodegroupArn": f"arn:aws:eks:{group.region}:{group.account}:nodegroup/{node_group.cluster}/{node_group.name}/{unique}",
        "clusterName": node_group.cluster,
        "createdAt": node_group.created,
        "status": node_group.status,
        "capacityType": node_group.capacity_type,
        "scalingConfig": {
            "minSize": node_group.minimum,
            "maxSize": node_group.maximum,
            "desiredSize": node_group.desired,
        },
        "resources": {"autoScalingGroups": [{"name": group.name}]},
        "health": {"issues": []},
        "tags": {},
    }
