"""New blocks: what is on offer, and buying one. Source: EC2 User Guide "Find and purchase Capacity Blocks"."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from local.market import rules
from local.market.blocks import Block, as_capacity_block, zone_type
from local.market.caller import Caller
from local.market.errors import MarketError, dry_run, invalid_parameter
from local.market.listing import ec2_page

if TYPE_CHECKING:
    from local.market.market import Market

_SEARCH = "DescribeCapacityBlockOfferings"
_PURCHASE = "PurchaseCapacityBlock"
_NEAR = timedelta(hours=23)
"""How much shorter or longer than asked an offering may be; AWS says "slightly" (the span is our choice)."""


@dataclass
class Supply:
    """Capacity that EC2 would sell as a new block: up to `instances` of a type in one zone, for one span of time."""

    region: str
    availability_zone: str
    instance_type: str
    instances: int
    start: datetime
    end: datetime
    hourly_rate: Decimal
    fee: Decimal | None = None
    ultraserver: str | None = None


@dataclass(frozen=True)
class BlockOffering:
    """A new block that EC2 showed to a caller."""

    offering_id: str
    supply: Supply
    count: int
    fee: str
    account: str


class Offerings:
    """The supply of new blocks, and what was shown of it."""

    def __init__(self, market: "Market") -> None:
        self._market = market
        self.supply: list[Supply] = []
        self._shown: dict[str, BlockOffering] = {}
        self.shown_after = timedelta(0)
        """How long after a purchase EC2 shows the new block."""

    def operations(self) -> dict[str, Any]:
        return {_SEARCH: self._search, _PURCHASE: self._purchase}

    # -- search

    def _search(self, params: dict[str, Any], caller: Caller) -> dict[str, Any]:
        hours = params["CapacityDurationHours"]
        if hours not in rules.LEGAL_HOURS:
            raise invalid_parameter(f"CapacityDurationHours {hours} is not valid.")
        ultraserver = params.get("UltraserverType")
        if (params.get("InstanceType") is None) == (ultraserver is None):
            raise invalid_parameter("Specify one of InstanceType and UltraserverType.")
        count = params.get("UltraserverCount" if ultraserver else "InstanceCount", 1)
        if not ultraserver and count not in rules.BLOCK_INSTANCE_COUNTS:
            raise invalid_parameter(f"InstanceCount {count} is not valid: 1, 2, 4, 8, 16, 32 or 64.")
        found = [s for s in self.supply if self._fits(s, params, caller, hours, count)]
        if self._market.strikes("empty_offerings", _SEARCH, caller):
            found = []
        factor = self._price_factor(_SEARCH, caller)
        for each in found:
            _scale(each, factor)
        shown = [self._offering(each, count, caller) for each in sorted(found, key=lambda s: s.start)]
        page, token = ec2_page(shown[: rules.BLOCK_OFFERINGS_PER_SEARCH], params)
        if params.get("DryRun"):
            raise dry_run()
        answer: dict[str, Any] = {"CapacityBlockOfferings": [_as_offering(each) for each in page]}
        return answer if token is None else {**answer, "NextToken": token}

    def _fits(self, supply: Supply, params: dict[str, Any], caller: Caller, hours: int, count: int) -> bool:
        starts_from = params.get("StartDateRange", self._market.now)
        ends_by = params.get("EndDateRange")
        return (
            supply.region == caller.region
            and supply.instance_type == params.get("InstanceType", supply.instance_type)
            and supply.ultraserver == params.get("UltraserverType")
            and supply.instances >= count
            and supply.start >= starts_from
            and supply.start > self._market.now
            and (ends_by is None or supply.end <= ends_by)
            and abs(supply.end - supply.start - timedelta(hours=hours)) <= _NEAR
            and (
                bool(params.get("AllAvailabilityZones"))
                or zone_type(supply.availability_zone, supply.region) != "local-zone"
            )
        )

    def _price_factor(self, operation: str, caller: Caller) -> Decimal:
        change = self._market.strikes("price_change", operation, caller)
        return Decimal(1) if change is None or change.percent is None else 1 + change.percent / 100

    def _offering(self, supply: Supply, count: int, caller: Caller) -> BlockOffering:
        fee = rules.fee_text(_fee(supply, count))
        for known in self._shown.values():
            if known.supply is supply and (known.count, known.fee, known.account) == (count, fee, caller.account):
                return known
        offering = BlockOffering(self._market.identifier("cb"), supply, count, fee, caller.account)
        self._shown[offering.offering_id] = offering
        return offering

    # -- purchase

    def _purchase(self, params: dict[str, Any], caller: Caller) -> dict[str, Any]:
        offering_id = params["CapacityBlockOfferingId"]
        if not offering_id.startswith("cb-"):
            raise MarketError(
                "InvalidCapacityBlockOfferingIdMalformed", f"The offering id '{offering_id}' is malformed."
            )
        offering = self._shown.get(offering_id)
        if offering is None or (offering.account, offering.supply.region) != caller:
            raise MarketError("InvalidCapacityBlockOfferingIdNotFound", f"The offering '{offering_id}' was not found.")
        if params["InstancePlatform"] not in rules.BLOCK_PLATFORMS:
            raise invalid_parameter(
                f"InstancePlatform '{params['InstancePlatform']}' is not supported for Capacity Blocks."
            )
        supply = offering.supply
        _scale(supply, self._price_factor(_PURCHASE, caller))
        gone = supply.instances < offering.count or supply.start <= self._market.now
        if gone or rules.fee_text(_fee(supply, offering.count)) != offering.fee:
            raise MarketError(
                "InvalidCapacityBlockOfferingIdExpired", f"The offering '{offering_id}' is no longer available."
            )
        if params.get("DryRun"):
            raise dry_run()
        supply.instances -= offering.count
        block = self._new_block(offering, params, caller)
        self._market.blocks.add(block)
        self._plan_payment(block, caller)
        return {
            "CapacityReservation": self._market.blocks.as_reservation(block),
            "CapacityBlocks": [as_capacity_block(block)],
        }

    def _new_block(self, offering: BlockOffering, params: dict[str, Any], caller: Caller) -> Block:
        supply = offering.supply
        tags = {
            tag["Key"]: tag["Value"] for spec in params.get("TagSpecifications", []) for tag in spec.get("Tags", [])
        }
        return Block(
            reservation_id=self._market.identifier("cr"),
            region=caller.region,
            owner_id=caller.account,
            instance_type=supply.instance_type,
            instance_count=offering.count,
            availability_zone=supply.availability_zone,
            start=supply.start,
            end=supply.end,
            created=self._market.now,
            state="payment-pending",
            platform=params["InstancePlatform"],
            tags=tags,
            ultraserver=supply.ultraserver,
            hourly_rate=supply.hourly_rate,
            shown_from=self._market.now + self.shown_after,
        )

    def _plan_payment(self, block: Block, caller: Caller) -> None:
        pays_at = self._market.now + timedelta(minutes=block.payment.minutes)
        latest = min(self._market.now + rules.PAYMENT_TAKES_AT_MOST, block.start - rules.BLOCK_PAYMENT_CLOSES)
        fails = self._market.strikes("payment_failure", _PURCHASE, caller) is not None or pays_at > latest

        def decided() -> None:
            block.state = "payment-failed" if fails else "scheduled"
            self._market.blocks.plan(block)

        self._market.agenda.plan(min(pays_at, latest), decided)


def _fee(supply: Supply, count: int) -> Decimal:
    if supply.fee is not None:
        return supply.fee
    hours = Decimal((supply.end - supply.start) // timedelta(minutes=1)) / 60
    return supply.hourly_rate * hours * count


def _scale(supply: Supply, factor: Decimal) -> None:
    supply.hourly_rate *= factor
    if supply.fee is not None:
        supply.fee *= factor


def _as_offering(offering: BlockOffering) -> dict[str, Any]:
    supply = offering.supply
    hours, rest = divmod(supply.end - supply.start, timedelta(hours=1))
    shown: dict[str, Any] = {
        "CapacityBlockOfferingId": offering.offering_id,
        "InstanceType": supply.instance_type,
        "AvailabilityZone": supply.availability_zone,
        "InstanceCount": offering.count,
        "StartDate": supply.start,
        "EndDate": supply.end,
        "CapacityBlockDurationHours": hours,
        "CapacityBlockDurationMinutes": rest // timedelta(minutes=1),
        "UpfrontFee": offering.fee,
        "CurrencyCode": "USD",
        "Tenancy": "default",
        "ZoneType": zone_type(supply.availability_zone, supply.region),
    }
    if supply.ultraserver:
        shown |= {"UltraserverType": supply.ultraserver, "UltraserverCount": offering.count}
    return shown
