"""Extensions of a block: offerings, the purchase, and the payment that decides it.

Source: EC2 User Guide "Extend Capacity Blocks".
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from local.market import rules
from local.market.blocks import Block, zone_type
from local.market.caller import Caller
from local.market.errors import MarketError, dry_run, invalid_parameter
from local.market.listing import ec2_page, matching

if TYPE_CHECKING:
    from local.market.market import Market

_SEARCH = "DescribeCapacityBlockExtensionOfferings"
_PURCHASE = "PurchaseCapacityBlockExtension"


@dataclass(frozen=True)
class ExtensionOffering:
    """An extension that EC2 would sell: valid while the block ends at `start` and the fee stands."""

    offering_id: str
    block: Block
    hours: int
    start: datetime
    asked_hours: int
    fee: str

    @property
    def end(self) -> datetime:
        return self.start + timedelta(hours=self.hours)


@dataclass
class Extension:
    """A bought extension."""

    offering: ExtensionOffering
    purchased: datetime
    status: str = "payment-pending"


class Extensions:
    """All offerings ever shown and all extensions ever bought."""

    def __init__(self, market: "Market") -> None:
        self._market = market
        self._offerings: dict[str, ExtensionOffering] = {}
        self._bought: list[Extension] = []
        self.history_lags = timedelta(0)
        """How long after a purchase the history shows it."""

    def operations(self) -> dict[str, Any]:
        return {
            _SEARCH: self._search,
            _PURCHASE: self._purchase,
            "DescribeCapacityBlockExtensionHistory": self._history,
        }

    def of(self, reservation_id: str) -> list[Extension]:
        """What was bought for a reservation, oldest first."""
        return [each for each in self._bought if each.offering.block.reservation_id == reservation_id]

    # -- search

    def _search(self, params: dict[str, Any], caller: Caller) -> dict[str, Any]:
        hours = params["CapacityBlockExtensionDurationHours"]
        block = self._market.blocks.find(params["CapacityReservationId"], caller)
        if hours not in rules.LEGAL_HOURS:
            raise invalid_parameter(
                f"The duration {hours} hours is not valid: 1 to 14 days in whole days, or up to 182 days in whole weeks."
            )
        self._check_extendable(block, caller)
        page, token = ec2_page(self._offered(block, hours, caller), params)
        if params.get("DryRun"):
            raise dry_run()
        answer: dict[str, Any] = {"CapacityBlockExtensionOfferings": [_as_offering(each) for each in page]}
        return answer if token is None else {**answer, "NextToken": token}

    def _check_extendable(self, block: Block, caller: Caller) -> None:
        """Refuse what EC2 refuses. AWS documents the rules but no codes; these are EC2's general ones."""
        if not block.is_capacity_block or block.end is None:
            raise invalid_parameter(f"The capacity reservation '{block.reservation_id}' is not a Capacity Block.")
        if block.owner_id != caller.account:
            raise MarketError("OperationNotPermitted", "Only the owner of a Capacity Block can extend it.", 403)
        if block.state not in ("active", "scheduled"):
            raise MarketError(
                "IncorrectState", f"'{block.reservation_id}' is {block.state}; only an active or scheduled one extends."
            )
        if any(each.status == "payment-pending" for each in self.of(block.reservation_id)):
            raise MarketError("IncorrectState", f"'{block.reservation_id}' has an extension whose payment is pending.")
        left = block.end - self._market.now
        if not rules.EXTENSION_CLOSES <= left <= rules.EXTENSION_OPENS:
            raise MarketError(
                "IncorrectState",
                f"'{block.reservation_id}' ends at {block.end:%Y-%m-%dT%H:%M:%SZ}; extend it from 56 days to 1 hour before.",
            )

    def _offered(self, block: Block, hours: int, caller: Caller) -> list[ExtensionOffering]:
        if (
            self._market.strikes("empty_offerings", _SEARCH, caller, block.reservation_id)
            or not block.offering.available
        ):
            return []
        if block.offering.hours is not None and hours not in block.offering.hours:
            return []
        self._change_price(_SEARCH, block, caller)
        other = self._market.strikes("other_durations", _SEARCH, caller, block.reservation_id)
        offered_hours = hours + other.hours if other else hours
        fee = block.fee(offered_hours)
        return [] if fee is None else [self._offering(block, offered_hours, hours, rules.fee_text(fee))]

    def _change_price(self, operation: str, block: Block, caller: Caller) -> None:
        change = self._market.strikes("price_change", operation, caller, block.reservation_id)
        if change is None:
            return
        if change.value is not None:
            block.offering.fee = change.value
        elif change.percent is not None:
            factor = 1 + change.percent / 100
            if block.offering.fee is not None:
                block.offering.fee *= factor
            elif block.hourly_rate is not None:
                block.hourly_rate *= factor

    def _offering(self, block: Block, hours: int, asked_hours: int, fee: str) -> ExtensionOffering:
        assert block.end is not None  # noqa: S101 - checked by _check_extendable
        for known in self._offerings.values():
            if known.block is block and (known.hours, known.start, known.fee) == (hours, block.end, fee):
                return known
        offering = ExtensionOffering(self._market.identifier("cbe"), block, hours, block.end, asked_hours, fee)
        self._offerings[offering.offering_id] = offering
        return offering

    # -- purchase

    def _purchase(self, params: dict[str, Any], caller: Caller) -> dict[str, Any]:
        block = self._market.blocks.find(params["CapacityReservationId"], caller)
        offering = self._named(params["CapacityBlockExtensionOfferingId"], block)
        self._check_extendable(block, caller)
        self._change_price(_PURCHASE, block, caller)
        self._check_stands(offering)
        if params.get("DryRun"):
            raise dry_run()
        extension = Extension(offering, self._market.now)
        self._bought.append(extension)
        self._plan_payment(extension, caller)
        return {"CapacityBlockExtensions": [_as_extension(extension)]}

    def _named(self, offering_id: str, block: Block) -> ExtensionOffering:
        if not offering_id.startswith("cbe-"):
            raise MarketError(
                "InvalidCapacityBlockOfferingIdMalformed", f"The offering id '{offering_id}' is malformed."
            )
        offering = self._offerings.get(offering_id)
        if offering is None or offering.block is not block:
            raise MarketError("InvalidCapacityBlockOfferingIdNotFound", f"The offering '{offering_id}' was not found.")
        return offering

    def _check_stands(self, offering: ExtensionOffering) -> None:
        block = offering.block
        fee = block.fee(offering.hours)
        if (
            offering.start != block.end
            or not block.offering.available
            or fee is None
            or rules.fee_text(fee) != offering.fee
        ):
            raise MarketError(
                "InvalidCapacityBlockOfferingIdExpired",
                f"The offering '{offering.offering_id}' is no longer available.",
            )

    def _plan_payment(self, extension: Extension, caller: Caller) -> None:
        block = extension.offering.block
        pays_at = extension.purchased + timedelta(minutes=block.payment.minutes)
        latest = min(
            extension.purchased + rules.PAYMENT_TAKES_AT_MOST, extension.offering.start - rules.EXTENSION_PAYMENT_CLOSES
        )
        fault = self._market.strikes("payment_failure", _PURCHASE, caller, block.reservation_id)
        succeeds = fault is None and block.payment.outcome == "payment-succeeded" and pays_at <= latest
        self._market.agenda.plan(
            min(pays_at, latest), lambda: self._paid(extension) if succeeds else self._payment_failed(extension)
        )

    def _paid(self, extension: Extension) -> None:
        extension.status = "payment-succeeded"
        block, end = extension.offering.block, extension.offering.end
        later = timedelta(minutes=block.payment.end_moves_after_minutes)
        self._market.agenda.plan(self._market.now + later, lambda: self._market.blocks.move_end(block, end))

    @staticmethod
    def _payment_failed(extension: Extension) -> None:
        extension.status = "payment-failed"

    # -- history

    def _history(self, params: dict[str, Any], caller: Caller) -> dict[str, Any]:
        wanted = params.get("CapacityReservationIds") or []
        for each in wanted:
            self._market.blocks.find(each, caller)
        mine = [
            each
            for each in self._bought
            if each.purchased + self.history_lags <= self._market.now
            and each.offering.block.owner_id == caller.account
            and each.offering.block.region == caller.region
            and (not wanted or each.offering.block.reservation_id in wanted)
        ]
        page, token = ec2_page(matching(mine, params.get("Filters"), _HISTORY_FILTERS), params)
        if params.get("DryRun"):
            raise dry_run()
        answer: dict[str, Any] = {"CapacityBlockExtensions": [_as_extension(each) for each in page]}
        return answer if token is None else {**answer, "NextToken": token}


def _facts(offering: ExtensionOffering) -> dict[str, Any]:
    block = offering.block
    return {
        "CapacityBlockExtensionOfferingId": offering.offering_id,
        "InstanceType": block.instance_type,
        "InstanceCount": block.instance_count,
        "AvailabilityZone": block.availability_zone,
        "AvailabilityZoneId": block.availability_zone_id,
        "CapacityBlockExtensionStartDate": offering.start,
        "CapacityBlockExtensionEndDate": offering.end,
        "CapacityBlockExtensionDurationHours": offering.hours,
        "UpfrontFee": offering.fee,
        "CurrencyCode": "USD",
        "ZoneType": zone_type(block.availability_zone, block.region),
    }


def _as_offering(offering: ExtensionOffering) -> dict[str, Any]:
    return {**_facts(offering), "StartDate": offering.block.start, "Tenancy": "default"}


def _as_extension(extension: Extension) -> dict[str, Any]:
    return {
        **_facts(extension.offering),
        "CapacityReservationId": extension.offering.block.reservation_id,
        "CapacityBlockExtensionStatus": extension.status,
        "CapacityBlockExtensionPurchaseDate": extension.purchased,
    }


_HISTORY_FILTERS: dict[str, Any] = {
    "availability-zone": lambda e: e.offering.block.availability_zone,
    "availability-zone-id": lambda e: e.offering.block.availability_zone_id,
    "capacity-block-extension-offering-id": lambda e: e.offering.offering_id,
    "capacity-block-extension-status": lambda e: e.status,
    "capacity-reservation-id": lambda e: e.offering.block.reservation_id,
    "instance-type": lambda e: e.offering.block.instance_type,
}
