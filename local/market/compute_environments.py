"""AWS Batch compute environments on EC2 that launch into Capacity Blocks: the calls that show and resize them.

Batch sets the desired vCPUs by itself: what its queues ask for, within minimum and maximum. Jobs that run keep their instances when
the maximum falls. An update takes half a minute; until it is over Batch refuses another. Sources: Batch User Guide, "Perform
scaling updates" and "Error message when you update the desiredvCpus setting".
"""

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from local.market.caller import Caller
from local.market.errors import MarketError
from local.market.groups import Group
from local.market.instances import VCPUS

if TYPE_CHECKING:
    from local.market.market import Market

_UPDATE_TAKES = timedelta(seconds=30)
_SIZES = {"minvCpus", "maxvCpus", "desiredvCpus"}


@dataclass
class ComputeEnvironment:
    """A managed compute environment; `asked` is what its queues ask for and `running` what jobs use, in vCPUs."""

    name: str
    instance_type: str
    group: Group
    minimum: int
    maximum: int
    asked: int = 0
    running: int = 0
    status: str = "VALID"
    kind: str = "EC2"

    @property
    def desired(self) -> int:
        return max(self.minimum, self.running)


class ComputeEnvironments:
    """All compute environments."""

    def __init__(self, market: "Market") -> None:
        self._market = market
        self.by_key: dict[tuple[str, str, str], ComputeEnvironment] = {}

    def operations(self) -> dict[str, Any]:
        return {"DescribeComputeEnvironments": self._describe, "UpdateComputeEnvironment": self._update}

    def knows(self, params: dict[str, Any], caller: Caller) -> bool:
        """Whether a call names a compute environment of the market's."""
        names = params.get("computeEnvironments") or [params.get("computeEnvironment", "")]
        return any((*caller, _name(each)) in self.by_key for each in names)

    def add(self, environment: ComputeEnvironment) -> None:
        group = environment.group
        self.by_key[group.account, group.region, environment.name] = environment
        self._market.groups.add(group)
        self._follow(environment)

    def ask(self, environment: ComputeEnvironment, vcpus: int) -> None:
        """Let the queues ask for so many vCPUs; jobs that are over give theirs back."""
        environment.asked = vcpus
        environment.running = min(vcpus, max(environment.maximum, environment.running))
        self._follow(environment)

    def _follow(self, environment: ComputeEnvironment) -> None:
        environment.running = min(environment.asked, max(environment.maximum, environment.running))
        instances = -(-environment.desired // VCPUS[environment.instance_type])
        cause = "a user request update of AutoScalingGroup constraints"
        self._market.groups.resize(environment.group, 0, max(instances, environment.group.maximum), instances, cause)

    # -- calls

    def _describe(self, params: dict[str, Any], caller: Caller) -> dict[str, Any]:
        wanted = {_name(each) for each in params.get("computeEnvironments") or ()}
        found = [
            each for key, each in sorted(self.by_key.items()) if key[:2] == caller and (not wanted or key[2] in wanted)
        ]
        return {"computeEnvironments": [_as_environment(each) for each in found]}

    def _update(self, params: dict[str, Any], caller: Caller) -> dict[str, Any]:
        environment = self.by_key.get((*caller, _name(params["computeEnvironment"])))
        if environment is None:
            raise MarketError("ClientException", f"Object does not exist: {params['computeEnvironment']}")
        if environment.status == "UPDATING":
            raise MarketError("ClientException", "Cannot update, resource is being modified.")
        sizes = params.get("computeResources") or {}
        if unknown := (params.keys() - {"computeEnvironment", "computeResources"}) | (sizes.keys() - _SIZES):
            raise MarketError("ClientException", f"the market makes scaling updates only, not of {sorted(unknown)}")
        minimum, maximum = sizes.get("minvCpus", environment.minimum), sizes.get("maxvCpus", environment.maximum)
        if not 0 <= minimum <= maximum:
            raise MarketError("ClientException", f"minvCpus {minimum} must be from 0 to maxvCpus {maximum}")
        if "desiredvCpus" in sizes and not environment.desired <= sizes["desiredvCpus"] <= maximum:
            raise MarketError(
                "ClientException",
                "Manually scaling down compute environment is not supported. Disconnecting job queues from compute environment will"
                " cause it to scale-down to minvCpus.",
            )
        environment.status = "UPDATING"

        def carried_out() -> None:
            environment.status = "VALID"
            environment.minimum, environment.maximum = minimum, maximum
            environment.running = max(environment.running, sizes.get("desiredvCpus", 0))
            self._follow(environment)

        self._market.agenda.plan(self._market.now + _UPDATE_TAKES, carried_out)
        return {"computeEnvironmentName": environment.name, "computeEnvironmentArn": arn(environment)}


def arn(environment: ComputeEnvironment) -> str:
    """The compute environment's ARN."""
    group = environment.group
    return f"arn:aws:batch:{group.region}:{group.account}:compute-environment/{environment.name}"


def _name(reference: str) -> str:
    return reference.rpartition("/")[2]


def _template(group: Group) -> dict[str, str]:
    """The group's launch template in Batch's spelling."""
    named = group.settings.get("LaunchTemplate", {})
    return {f"{key[0].lower()}{key[1:]}": value for key, value in named.items()}


def _as_environment(environment: ComputeEnvironment) -> dict[str, Any]:
    return {
        "computeEnvironmentName": environment.name,
        "computeEnvironmentArn": arn(environment),
        "type": "MANAGED",
        "state": "ENABLED",
        "status": environment.status,
        "statusReason": "ComputeEnvironment Healthy",
        "computeResources": {
            "type": environment.kind,
            "minvCpus": environment.minimum,
            "maxvCpus": environment.maximum,
            "desiredvCpus": environment.desired,
            "instanceTypes": [environment.instance_type],
            "launchTemplate": _template(environment.group),
            "subnets": [each for each in environment.group.settings.get("VPCZoneIdentifier", "").split(",") if each],
        },
    }
