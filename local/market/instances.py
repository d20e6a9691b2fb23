"""Instances that groups launch into blocks: their slots, their end, and the calls that show them."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from local.market import events, rules
from local.market.blocks import Block, tag_list
from local.market.caller import Caller
from local.market.errors import MarketError, dry_run
from local.market.listing import ec2_page, matching

if TYPE_CHECKING:
    from local.market.market import Market

_SHOWN_AFTER_END = timedelta(hours=1)
_STATE_CODES = {"pending": 0, "running": 16, "shutting-down": 32, "terminated": 48}
_BLOCK_TYPES = {
    "p6-b300.48xlarge": 8,
    "p6-b200.48xlarge": 8,
    "p5en.48xlarge": 8,
    "p5e.48xlarge": 8,
    "p5.48xlarge": 8,
    "p5.4xlarge": 1,
    "p4de.24xlarge": 8,
    "p4d.24xlarge": 8,
    "trn2.48xlarge": 16,
    "trn2.3xlarge": 1,
    "trn1.32xlarge": 16,
}
"""Instance types sold as blocks, and their accelerators."""
VCPUS = {
    "p6-b300.48xlarge": 192,
    "p6-b200.48xlarge": 192,
    "p5en.48xlarge": 192,
    "p5e.48xlarge": 192,
    "p5.48xlarge": 192,
    "p5.4xlarge": 16,
    "p4de.24xlarge": 96,
    "p4d.24xlarge": 96,
    "trn2.48xlarge": 192,
    "trn2.3xlarge": 12,
    "trn1.32xlarge": 128,
}


@dataclass
class Instance:
    """One instance; `block` None means On-Demand."""

    instance_id: str
    account: str
    region: str
    instance_type: str
    availability_zone: str
    launched: datetime
    group: str
    block: Block | None
    tags: dict[str, str] = field(default_factory=dict)
    state: str = "running"
    ended: datetime | None = None

    @property
    def arn(self) -> str:
        return f"arn:aws:ec2:{self.region}:{self.account}:instance/{self.instance_id}"


class Instances:
    """All instances, and who takes a block's slots."""

    def __init__(self, market: "Market") -> None:
        self._market = market
        self._all: dict[str, Instance] = {}

    def operations(self) -> dict[str, Any]:
        return {"DescribeInstances": self._describe, "DescribeInstanceTypes": self._describe_types}

    def launch(self, instance: Instance) -> None:
        self._all[instance.instance_id] = instance

    def end(self, instance: Instance) -> None:
        """Terminate; the slot is free again some minutes later."""
        if instance.state == "terminated":
            return
        instance.state = "terminated"
        instance.ended = self._market.now
        if (block := instance.block) is not None:
            self._market.agenda.plan(
                self._market.now + rules.SLOT_SCRUB, lambda: self._market.groups.block_changed(block)
            )

    def running_in(self, block: Block) -> list[Instance]:
        return [each for each in self._all.values() if each.block is block and each.state == "running"]

    def accounts_in(self, block: Block) -> frozenset[str]:
        """The accounts that run instances in a block."""
        return frozenset(each.account for each in self.running_in(block))

    def slots_taken(self, block: Block) -> int:
        """Slots in use or still being scrubbed."""
        scrubbed = self._market.now - rules.SLOT_SCRUB
        return sum(
            1 for each in self._all.values() if each.block is block and (each.ended is None or each.ended > scrubbed)
        )

    def warn_interruption(self, block: Block) -> None:
        """Announce each instance's end, ten minutes before it."""
        assert block.termination is not None  # noqa: S101 - only a block with an end plans this
        for each in self.running_in(block):
            detail = {
                "instance-id": each.instance_id,
                "instance-action": "terminate",
                "instance-termination-time": events.instant_text(block.termination),
                "availability-zone-id": block.availability_zone_id,
                "instance-lifecycle": "capacity-block",
            }
            self._market.emit(
                "aws.ec2", events.INTERRUPTION_WARNING, Caller(each.account, each.region), [each.arn], detail
            )

    def terminate_block(self, block: Block) -> None:
        """EC2 takes back the block: whatever runs in it ends now, hooks and protection notwithstanding."""
        doomed = self.running_in(block)
        for each in doomed:
            self.end(each)
        self._market.groups.reclaimed(doomed)

    def _describe(self, params: dict[str, Any], caller: Caller) -> dict[str, Any]:
        gone = self._market.now - _SHOWN_AFTER_END
        mine = {
            key: each
            for key, each in sorted(self._all.items())
            if (each.account, each.region) == caller and (each.ended is None or each.ended > gone)
        }
        wanted = params.get("InstanceIds")
        for each in wanted or ():
            if each not in mine:
                raise MarketError("InvalidInstanceID.NotFound", f"The instance ID '{each}' does not exist")
        found = matching([mine[key] for key in wanted or mine], params.get("Filters"), _FILTERS)
        page, token = ec2_page(found, params)
        if params.get("DryRun"):
            raise dry_run()
        answer: dict[str, Any] = {"Reservations": [_as_ec2_reservation(each) for each in page]}
        return answer if token is None else {**answer, "NextToken": token}

    @staticmethod
    def _describe_types(params: dict[str, Any], _: Caller) -> dict[str, Any]:
        wanted = params.get("InstanceTypes") or list(_BLOCK_TYPES)
        if unknown := [each for each in wanted if each not in _BLOCK_TYPES]:
            raise MarketError("InvalidInstanceType", f"The following supplied instance types do not exist: {unknown}")
        facts = {
            "instance-type": lambda name: name,
            "supported-usage-class": lambda _: ["on-demand", "capacity-block"],
        }
        page, token = ec2_page(matching(wanted, params.get("Filters"), facts), params)
        answer: dict[str, Any] = {"InstanceTypes": [_as_type(name) for name in page]}
        return answer if token is None else {**answer, "NextToken": token}


def _as_type(name: str) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "InstanceType": name,
        "CurrentGeneration": True,
        "VCpuInfo": {"DefaultVCpus": VCPUS[name]},
        "SupportedUsageClasses": ["on-demand", "capacity-block"],
    }
    if name.startswith("p"):
        shown["GpuInfo"] = {"Gpus": [{"Count": _BLOCK_TYPES[name], "Manufacturer": "NVIDIA"}]}
    else:
        shown["NeuronInfo"] = {"NeuronDevices": [{"Count": _BLOCK_TYPES[name]}]}
    return shown


def _as_ec2_reservation(instance: Instance) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "InstanceId": instance.instance_id,
        "InstanceType": instance.instance_type,
        "LaunchTime": instance.launched,
        "Placement": {"AvailabilityZone": instance.availability_zone, "Tenancy": "default"},
        "State": {"Code": _STATE_CODES[instance.state], "Name": instance.state},
        "Tags": tag_list(instance.tags),
    }
    if instance.block is not None:
        shown["CapacityReservationId"] = instance.block.reservation_id
        shown["InstanceLifecycle"] = "capacity-block"
    return {"ReservationId": "r-" + instance.instance_id[2:], "OwnerId": instance.account, "Instances": [shown]}


_FILTERS: dict[str, Any] = {
    "instance-id": lambda i: i.instance_id,
    "instance-type": lambda i: i.instance_type,
    "instance-state-name": lambda i: i.state,
    "instance-state-code": lambda i: str(_STATE_CODES[i.state]),
    "instance-lifecycle": lambda i: None if i.block is None else "capacity-block",
    "availability-zone": lambda i: i.availability_zone,
    "capacity-reservation-id": lambda i: None if i.block is None else i.block.reservation_id,
    "tag-key": lambda i: list(i.tags),
    "tag:": lambda i: list(i.tags.items()),
}
