"""Capacity reservations and blocks: their states, their calendar, and the four calls that read them."""

import re
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from local.market import events, rules
from local.market.caller import Caller
from local.market.errors import MarketError, dry_run
from local.market.listing import ec2_page, matching

if TYPE_CHECKING:
    from local.market.market import Market

LIFECYCLE = ("payment-pending", "scheduled", "active", "expired")
"""The states that the clock changes; a block in any other stays in it."""

_WELL_FORMED = re.compile(r"cr-[0-9A-Za-z-]+")
_SYSTEM_TAG = "aws:ec2capacityreservation:"


@dataclass
class Offering:
    """Which extensions EC2 would sell for a block; `fee` None means rate x hours x instances, `hours` None means any length."""

    available: bool = True
    fee: Decimal | None = None
    hours: frozenset[int] | None = None


@dataclass
class Payment:
    """How long paying takes, how it ends, and how much later EndDate moves."""

    minutes: float = 20
    outcome: str = "payment-succeeded"
    end_moves_after_minutes: float = 3


@dataclass
class Block:
    """A capacity reservation; `reservation_type` other than `capacity-block`, or None, makes it an ordinary or an odd one."""

    reservation_id: str
    region: str
    owner_id: str
    instance_type: str
    instance_count: int
    availability_zone: str
    start: datetime
    end: datetime | None
    created: datetime
    state: str
    availability_zone_id: str = ""
    reservation_type: str | None = "capacity-block"
    platform: str = "Linux/UNIX"
    tags: dict[str, str] = field(default_factory=dict)
    ultraserver: str | None = None
    hourly_rate: Decimal | None = None
    offering: Offering = field(default_factory=Offering)
    payment: Payment = field(default_factory=Payment)
    delivered_after: timedelta = timedelta(0)
    shared_with: frozenset[str] = frozenset()
    expired_at: datetime | None = None
    shown_from: datetime | None = None
    """Before it no call shows the block; None when every call does."""
    calendar: int = 0
    """Counts re-plannings: an event planned for an older calendar is void."""

    @property
    def arn(self) -> str:
        return f"arn:aws:ec2:{self.region}:{self.owner_id}:capacity-reservation/{self.reservation_id}"

    @property
    def block_id(self) -> str:
        return "cb-" + self.reservation_id.removeprefix("cr-")

    @property
    def is_capacity_block(self) -> bool:
        return self.reservation_type == "capacity-block"

    @property
    def termination(self) -> datetime | None:
        """When EC2 starts to terminate the block's instances."""
        if self.end is None or not self.is_capacity_block:
            return None
        return self.end - (rules.ULTRASERVER_TERMINATION if self.ultraserver else rules.TERMINATION)

    def takes_launches(self, now: datetime) -> bool:
        """Whether an instance can launch into it (slots apart)."""
        return self.state == "active" and (self.termination is None or now < self.termination)

    def fee(self, hours: int) -> Decimal | None:
        """The upfront fee of an extension; None when neither a fee nor a rate is known."""
        if self.offering.fee is not None:
            return self.offering.fee
        return None if self.hourly_rate is None else self.hourly_rate * hours * self.instance_count


class Blocks:
    """Every account's reservations."""

    def __init__(self, market: "Market") -> None:
        self._market = market
        self._by_id: dict[tuple[str, str], Block] = {}
        self.forgotten_after = timedelta(days=7)
        """How long an expired reservation can still be read; EC2 forgets it some time later (the span is our choice)."""

    def operations(self) -> dict[str, Any]:
        return {
            "DescribeCapacityReservations": self._describe_reservations,
            "DescribeCapacityBlocks": self._describe_blocks,
            "DescribeCapacityBlockStatus": self._describe_status,
        }

    def add(self, block: Block) -> None:
        """Take a block in and plan its life."""
        key = (block.region, block.reservation_id)
        if key in self._by_id:
            raise ValueError(f"reservation {block.reservation_id} is in {block.region} already")
        block.availability_zone_id = block.availability_zone_id or zone_id(block.availability_zone, block.region)
        self._by_id[key] = block
        self.plan(block)

    def all(self) -> list[Block]:
        return list(self._by_id.values())

    def get(self, reservation_id: str, region: str) -> Block | None:
        return self._by_id.get((region, reservation_id))

    def visible(self, caller: Caller) -> list[Block]:
        """What the caller's account owns or shares in the Region, expired ones only for a while."""
        gone = self._market.now - self.forgotten_after
        return [
            block
            for (region, _), block in sorted(self._by_id.items())
            if region == caller.region
            and (block.owner_id == caller.account or caller.account in block.shared_with)
            and (block.expired_at is None or block.expired_at > gone)
            and (block.shown_from is None or block.shown_from <= self._market.now)
        ]

    def find(self, reservation_id: str, caller: Caller) -> Block:
        """The reservation that the caller names.

        Raises:
            MarketError: InvalidCapacityReservationId.Malformed or .NotFound.
        """
        if not _WELL_FORMED.fullmatch(reservation_id):
            raise MarketError(
                "InvalidCapacityReservationId.Malformed", f'Invalid id: "{reservation_id}" (expecting "cr-...")'
            )
        for block in self.visible(caller):
            if block.reservation_id == reservation_id:
                return block
        raise MarketError(
            "InvalidCapacityReservationId.NotFound", f"The capacity reservation '{reservation_id}' does not exist."
        )

    # -- calendar

    def plan(self, block: Block) -> None:
        """Plan the block's events from now on; what was planned before is void."""
        block.calendar += 1
        if (
            not block.is_capacity_block
            or block.state not in LIFECYCLE
            or block.end is None
            or block.termination is None
        ):
            return
        if block.state == "scheduled":
            self._plan(block, block.start + block.delivered_after, self._activate)
        if block.state in ("scheduled", "active"):
            self._plan(block, block.end - rules.EXPIRATION_WARNING, self._warn)
            self._plan(block, block.termination - rules.INTERRUPTION_WARNING, self._market.instances.warn_interruption)
            self._plan(block, block.termination, self._market.instances.terminate_block)
            self._plan(block, block.end, self._expire)

    def _plan(self, block: Block, at: datetime, happens: Any) -> None:
        if at <= self._market.now:
            return
        calendar = block.calendar
        self._market.agenda.plan(at, lambda: happens(block) if block.calendar == calendar else None)

    def _activate(self, block: Block) -> None:
        block.state = "active"
        self._announce(block, events.DELIVERED, frozenset())
        self._market.groups.block_changed(block)

    def _warn(self, block: Block) -> None:
        self._announce(block, events.EXPIRATION_WARNING, self._market.instances.accounts_in(block))

    def _expire(self, block: Block) -> None:
        block.state = "expired"
        block.expired_at = self._market.now

    def _announce(self, block: Block, detail_type: str, consumers: frozenset[str]) -> None:
        assert block.end is not None  # noqa: S101 - only blocks with a calendar announce
        detail = {"capacity-reservation-id": block.reservation_id, "end-date": events.instant_text(block.end)}
        for account in sorted({block.owner_id} | consumers):
            self._market.emit("aws.ec2", detail_type, Caller(account, block.region), [block.arn], detail)

    def move_end(self, block: Block, end: datetime) -> None:
        """Let EndDate move, and plan the rest of the block's life anew."""
        block.end = end
        block.expired_at = None
        if block.state == "expired":
            block.state = "active"
        self.plan(block)
        self._market.groups.block_changed(block)
        self._market.node_groups.block_changed(block.reservation_id)

    # -- calls

    def _describe_reservations(self, params: dict[str, Any], caller: Caller) -> dict[str, Any]:
        wanted = params.get("CapacityReservationIds")
        blocks = [self.find(each, caller) for each in wanted] if wanted else self.visible(caller)
        blocks = matching(blocks, params.get("Filters"), _RESERVATION_FILTERS)
        page, token = ec2_page(blocks, params)
        if params.get("DryRun"):
            raise dry_run()
        return _with_token({"CapacityReservations": [self.as_reservation(block) for block in page]}, token)

    def _describe_blocks(self, params: dict[str, Any], caller: Caller) -> dict[str, Any]:
        blocks = matching(self._capacity_blocks(params, caller), params.get("Filters"), _BLOCK_FILTERS)
        page, token = ec2_page(blocks, params)
        if params.get("DryRun"):
            raise dry_run()
        return _with_token({"CapacityBlocks": [as_capacity_block(block) for block in page]}, token)

    def _describe_status(self, params: dict[str, Any], caller: Caller) -> dict[str, Any]:
        blocks = matching(
            self._capacity_blocks(params, caller), params.get("Filters"), {"interconnect-status": lambda _: "ok"}
        )
        page, token = ec2_page(blocks, params)
        if params.get("DryRun"):
            raise dry_run()
        return _with_token({"CapacityBlockStatuses": [self._status(block) for block in page]}, token)

    def _capacity_blocks(self, params: dict[str, Any], caller: Caller) -> list[Block]:
        blocks = [block for block in self.visible(caller) if block.is_capacity_block]
        wanted = params.get("CapacityBlockIds")
        if not wanted:
            return blocks
        by_id = {block.block_id: block for block in blocks}
        for each in wanted:
            if each not in by_id:  # code by analogy with reservations; AWS documents none
                raise MarketError("InvalidCapacityBlockId.NotFound", f"The capacity block '{each}' does not exist.")
        return [by_id[each] for each in wanted]

    def _status(self, block: Block) -> dict[str, Any]:
        total = self.total(block)
        available = self.available(block)
        counts = {
            "TotalCapacity": total,
            "TotalAvailableCapacity": available,
            "TotalUnavailableCapacity": total - available,
        }
        return {
            "CapacityBlockId": block.block_id,
            "InterconnectStatus": "ok",
            **counts,
            "CapacityReservationStatuses": [{"CapacityReservationId": block.reservation_id, **counts}],
        }

    def total(self, block: Block) -> int:
        """TotalInstanceCount: 0 before a block starts and after it ended."""
        return block.instance_count if block.state == "active" or not block.is_capacity_block else 0

    def available(self, block: Block) -> int:
        """AvailableInstanceCount: 0 unless active, without the slots in use or still being scrubbed."""
        return max(0, self.total(block) - self._market.instances.slots_taken(block)) if block.state == "active" else 0

    def as_reservation(self, block: Block) -> dict[str, Any]:
        """The block as DescribeCapacityReservations shows it."""
        shown: dict[str, Any] = {
            "CapacityReservationId": block.reservation_id,
            "OwnerId": block.owner_id,
            "CapacityReservationArn": block.arn,
            "AvailabilityZoneId": block.availability_zone_id,
            "InstanceType": block.instance_type,
            "InstancePlatform": block.platform,
            "AvailabilityZone": block.availability_zone,
            "Tenancy": "default",
            "TotalInstanceCount": self.total(block),
            "AvailableInstanceCount": self.available(block),
            "EbsOptimized": False,
            "EphemeralStorage": False,
            "State": block.state,
            "StartDate": block.start,
            "EndDateType": _end_date_type(block),
            "InstanceMatchCriteria": "targeted" if block.is_capacity_block else "open",
            "CreateDate": block.created,
            "Tags": tag_list(_tags(block)),
            "CapacityAllocations": [],
        }
        if block.end is not None:
            shown["EndDate"] = block.end
        if block.reservation_type is not None:
            shown["ReservationType"] = block.reservation_type
        if block.is_capacity_block:
            shown["CapacityBlockId"] = block.block_id
        if block.ultraserver:
            shown["LaunchStatus"] = "launchable" if block.takes_launches(self._market.now) else "unlaunchable"
        return shown


def as_capacity_block(block: Block) -> dict[str, Any]:
    """The block as DescribeCapacityBlocks shows it."""
    shown: dict[str, Any] = {
        "CapacityBlockId": block.block_id,
        "AvailabilityZone": block.availability_zone,
        "AvailabilityZoneId": block.availability_zone_id,
        "CapacityReservationIds": [block.reservation_id],
        "StartDate": block.start,
        "CreateDate": block.created,
        "State": block.state,
        "Tags": tag_list(_tags(block)),
    }
    if block.end is not None:
        shown["EndDate"] = block.end
    if block.ultraserver:
        shown["UltraserverType"] = block.ultraserver
    return shown


def _tags(block: Block) -> dict[str, str]:
    if not block.is_capacity_block:
        return block.tags
    return {
        **block.tags,
        f"{_SYSTEM_TAG}incrementalRequestedQuantity": str(block.instance_count),
        f"{_SYSTEM_TAG}capacityReservationType": "capacity-block",
    }


def tag_list(tags: dict[str, str]) -> list[dict[str, str]]:
    """Tags as EC2 lists them."""
    return [{"Key": key, "Value": value} for key, value in sorted(tags.items())]


def zone_id(zone: str, region: str) -> str:
    """An availability zone id for a zone's name: `us-east-1b` is `use1-az2` here (AWS shuffles them for each account)."""
    geography, *directions, number = region.split("-")
    directions_short = "".join(
        "".join(re.findall("north|south|east|west|central", d)) and _short(d) for d in directions
    )
    return f"{geography}{directions_short}{number}-az{ord(zone[-1]) - ord('a') + 1}"


def _short(direction: str) -> str:
    return "".join(part[0] for part in re.findall("north|south|east|west|central", direction))


def zone_type(zone: str, region: str) -> str:
    """`availability-zone`, or `local-zone` for names such as `us-east-1-atl-2a`."""
    return "availability-zone" if re.fullmatch(re.escape(region) + "[a-z]", zone) else "local-zone"


def _end_date_type(block: Block) -> str:
    return "unlimited" if block.end is None else "limited"


def _with_token(answer: dict[str, Any], token: str | None) -> dict[str, Any]:
    return answer if token is None else {**answer, "NextToken": token}


def _iso(at: datetime | None) -> str | None:
    return None if at is None else at.strftime("%Y-%m-%dT%H:%M:%S.000Z")


_RESERVATION_FILTERS: dict[str, Any] = {
    "instance-type": lambda b: b.instance_type,
    "owner-id": lambda b: b.owner_id,
    "instance-platform": lambda b: b.platform,
    "availability-zone": lambda b: b.availability_zone,
    "tenancy": lambda _: "default",
    "outpost-arn": lambda _: None,
    "state": lambda b: b.state,
    "start-date": lambda b: _iso(b.start),
    "end-date": lambda b: _iso(b.end),
    "end-date-type": _end_date_type,
    "instance-match-criteria": lambda b: "targeted" if b.is_capacity_block else "open",
    "placement-group-arn": lambda _: None,
    "reservation-type": lambda b: b.reservation_type,  # documented in the user guide only
}
_BLOCK_FILTERS: dict[str, Any] = {
    "capacity-block-id": lambda b: b.block_id,
    "ultraserver-type": lambda b: b.ultraserver,
    "availability-zone": lambda b: b.availability_zone,
    "start-date": lambda b: _iso(b.start),
    "end-date": lambda b: _iso(b.end),
    "create-date": lambda b: _iso(b.created),
    "state": lambda b: b.state,
    "tags": lambda b: [f"{k}={v}" for k, v in b.tags.items()],
    "tag:": lambda b: list(b.tags.items()),
}
