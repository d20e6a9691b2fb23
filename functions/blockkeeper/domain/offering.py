"""Extension offerings: which one, if any, may be bought.

Source of the fields: DescribeCapacityBlockExtensionOfferings. An empty list is a normal answer: capacity is not guaranteed.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Any

from blockkeeper.domain.environment import Environment
from blockkeeper.domain.instants import format_instant
from blockkeeper.domain.money import CURRENCY, UnreadableFeeError, format_usd, parse_usd


@dataclass(frozen=True, slots=True)
class Offering:
    """One extension that EC2 offers. `fee` is the total upfront fee in USD; `new_end` is the block's end with it."""

    offering_id: str
    hours: int
    new_end: datetime
    fee: Decimal


class Found(StrEnum):
    """What a search came to."""

    OFFERED = "offered"
    NO_OFFERING = "no_offering"
    TOO_DEAR = "too_dear"
    UNREADABLE = "unreadable_offering"


def lengths(environment: Environment, approved_hours: int | None = None) -> tuple[int, ...]:
    """Hours of the extensions to search for, in order, each a call to EC2: what was approved, what is wanted, the shorter ones.

    Each of `fallback_days` is searched only when none before it is to be had. A length that the record no longer asks for is not
    bought, approved or not.
    """
    wanted = (environment.wanted_hours, *environment.fallback_hours)
    return tuple(dict.fromkeys([*(hours for hours in wanted if hours == approved_hours), *wanted]))


@dataclass(frozen=True, slots=True)
class Choice:
    """The offering to buy, or why there is none, in words a person can read. A too dear one is shown too."""

    found: Found
    offering: Offering | None
    reason: str


def choose_offering(
    entries: Iterable[Mapping[str, Any]], *, hours: int, current_end: datetime, ceiling: Decimal
) -> Choice:
    """The cheapest offering of exactly the wanted length, in our currency, that starts at the block's end.

    Args:
        entries: `CapacityBlockExtensionOfferings` as EC2 answers them. Their order means nothing (case B11).
        hours: wanted length.
        current_end: the block's EndDate; an offering that starts at another time is for another end.
        ceiling: most that may be paid, USD.
    """
    offerings, unreadable = [], []
    for entry in entries:
        if entry.get("CapacityBlockExtensionDurationHours") != hours:
            continue
        try:
            offering = _parse(entry)
        except (UnreadableFeeError, KeyError, AttributeError) as error:
            unreadable.append(str(error))
            continue
        starts = entry.get("CapacityBlockExtensionStartDate")
        if starts is not None and abs(starts - current_end) > timedelta(minutes=1):
            continue
        if offering.new_end <= current_end:
            unreadable.append(
                f"{offering.offering_id} ends at {format_instant(offering.new_end)}, before the block does"
            )
            continue
        offerings.append(offering)
    if not offerings:
        if unreadable:
            return Choice(
                Found.UNREADABLE, None, f"an offering could not be read, so nothing is bought: {unreadable[0]}"
            )
        return Choice(Found.NO_OFFERING, None, f"EC2 offers no extension of {hours} hours")
    cheapest = min(offerings, key=lambda offering: (offering.fee, offering.offering_id))
    if cheapest.fee > ceiling:
        return Choice(
            Found.TOO_DEAR,
            cheapest,
            f"the cheapest extension costs {format_usd(cheapest.fee)}, above max_upfront_fee {format_usd(ceiling)}; "
            "raise max_upfront_fee to allow it",
        )
    return Choice(Found.OFFERED, cheapest, f"{hours} hours for {format_usd(cheapest.fee)}")


def _parse(entry: Mapping[str, Any]) -> Offering:
    if entry["CurrencyCode"] != CURRENCY:
        raise UnreadableFeeError(f"CurrencyCode is {entry['CurrencyCode']}; only {CURRENCY} is bought")
    return Offering(
        offering_id=entry["CapacityBlockExtensionOfferingId"],
        hours=entry["CapacityBlockExtensionDurationHours"],
        new_end=entry["CapacityBlockExtensionEndDate"].astimezone(UTC),
        fee=parse_usd(entry["UpfrontFee"]),
    )
