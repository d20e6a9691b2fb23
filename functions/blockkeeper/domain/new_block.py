"""A new Capacity Block in place of one that cannot be extended: which offering fits, and what became of an order.

Source of the fields: DescribeCapacityBlockOfferings. An offering has no fixed expiry; whoever comes first has it (EC2 User Guide,
"Find and purchase Capacity Blocks"). Why these rules: docs/adr/009-plan-b.md.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Any

from blockkeeper.domain.extension import FAILED, SUCCEEDED, Extension, extension_from
from blockkeeper.domain.instants import format_instant
from blockkeeper.domain.ledger import SENT_STATES, Purchase, PurchaseState, Settlement, Step
from blockkeeper.domain.money import CURRENCY, UnreadableFeeError, format_usd, parse_usd
from blockkeeper.domain.offering import Found, Offering
from blockkeeper.domain.reservation import PURCHASE_TAG, Reservation, parse_reservation

# Of what a new block costs at most so much may lie before the old block's end, where its groups do not use it yet.
WASTE = 4
# Offerings are somewhat shorter or longer than asked for ("Find and purchase Capacity Blocks"); a day more is another length.
NEARLY = timedelta(hours=24)

# EC2 may show a payment's outcome some time after it.
LAG = timedelta(hours=1)

PAID_STATES = frozenset({"scheduled", "active"})
UNPAID_STATES = frozenset({"payment-failed", "failed", "cancelled"})


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a new block must be like.

    Attributes:
        hours: length to ask for.
        old_zone: where the old block is; None when EC2 does not show it.
        old_end: when the old block ends.
        earliest_start: a block that starts sooner could not be decided on and paid in time.
        latest_start: the policy's longest gap after `old_end`.
        end_by: no block past this moment; None is no limit.
        zones: the only zones allowed, best first; empty means any.
        ceiling: most that may be paid, USD.
    """

    instance_type: str
    instance_count: int
    hours: int
    old_zone: str | None
    old_end: datetime
    earliest_start: datetime
    latest_start: datetime
    end_by: datetime | None
    zones: tuple[str, ...]
    ceiling: Decimal

    @property
    def search_from(self) -> datetime:
        """No offering that starts sooner can fit (StartDateRange of the search)."""
        length = timedelta(hours=self.hours) + NEARLY
        return max(self.earliest_start, self.old_end - length / WASTE)

    def misfit(self, block: "NewBlock") -> str | None:
        """Why a block does not fit, in words; None when it does. Its fee is another matter."""
        length = block.end - block.start
        if abs(length - timedelta(hours=self.hours)) >= NEARLY:
            return f"it lasts {length}, and {self.hours} hours were asked for"
        if self.zones and block.zone not in self.zones:
            return f"zone {block.zone} is not in replace.availability_zones"
        if block.start < self.earliest_start:
            return f"it starts at {format_instant(block.start)}, too soon to be decided on and paid"
        if block.start > self.latest_start:
            return f"it starts at {format_instant(block.start)}, later than max_gap_hours allows"
        if (self.old_end - block.start) * WASTE > length:
            return f"it starts at {format_instant(block.start)}, so more than a quarter of it would lie unused"
        if self.end_by is not None and block.end > self.end_by:
            return f"it ends at {format_instant(block.end)}, past extend_until {format_instant(self.end_by)}"
        return None

    def rank(self, block: "NewBlock") -> tuple[int, timedelta, Decimal, str]:
        """Order of preference: zone, then the start nearest to the old block's end, then the fee."""
        best = self.zones or ((self.old_zone,) if self.old_zone else ())
        place = best.index(block.zone) if block.zone in best else len(best)
        return place, abs(block.start - self.old_end), block.fee, block.offering_id


@dataclass(frozen=True, slots=True)
class NewBlock:
    """A block that EC2 offers. `fee` is the whole upfront fee in USD, `hours` its real length, rounded down."""

    offering_id: str
    zone: str
    start: datetime
    end: datetime
    fee: Decimal

    @property
    def hours(self) -> int:
        """Length in whole hours."""
        return (self.end - self.start) // timedelta(hours=1)

    @property
    def offering(self) -> Offering:
        """The same, as the ledger writes it."""
        return Offering(self.offering_id, self.hours, self.end, self.fee)


@dataclass(frozen=True, slots=True)
class BlockChoice:
    """The block to buy, or why there is none, in words a person can read. A too dear one is shown too."""

    found: Found
    block: NewBlock | None
    reason: str


def choose_block(
    entries: Iterable[Mapping[str, Any]], wanted: Wanted, approved: Callable[[NewBlock], bool] | None = None
) -> BlockChoice:
    """The best of the offerings that fit.

    Args:
        entries: `CapacityBlockOfferings` as EC2 answers them; their order means nothing (case B11).
        approved: whether people said yes to a block; such a one goes before better ones that nobody was asked about.
    """
    blocks, unreadable = readable_blocks(entries, wanted)
    fitting = [block for block in blocks if wanted.misfit(block) is None]
    if not fitting:
        nearest = ""
        if blocks:
            nearest = (
                f" (it offers {len(blocks)} others; of the nearest: {wanted.misfit(min(blocks, key=wanted.rank))})"
            )
        if unreadable:
            text = f"an offering could not be read, so nothing is bought: {min(unreadable)}"
            return BlockChoice(Found.UNREADABLE, None, text)
        text = (
            f"EC2 offers no block of {wanted.instance_count} {wanted.instance_type} for {wanted.hours} hours that starts by "
            f"{format_instant(wanted.latest_start)}{nearest}"
        )
        return BlockChoice(Found.NO_OFFERING, None, text)
    affordable = [block for block in fitting if block.fee <= wanted.ceiling]
    if not affordable:
        cheapest = min(fitting, key=lambda block: (block.fee, block.offering_id))
        text = (
            f"the cheapest block costs {format_usd(cheapest.fee)}, above replace.max_upfront_fee {format_usd(wanted.ceiling)}; "
            "raise replace.max_upfront_fee to allow it"
        )
        return BlockChoice(Found.TOO_DEAR, cheapest, text)
    best = min(affordable, key=lambda block: (approved is not None and not approved(block), wanted.rank(block)))
    text = (
        f"{best.hours} hours in {best.zone} from {format_instant(best.start)} to {format_instant(best.end)} "
        f"for {format_usd(best.fee)}"
    )
    return BlockChoice(Found.OFFERED, best, text)


def readable_blocks(entries: Iterable[Mapping[str, Any]], wanted: Wanted) -> tuple[list[NewBlock], list[str]]:
    """The blocks of the wanted type and count, and what is wrong with those that cannot be read."""
    blocks, unreadable = [], []
    for entry in entries:
        if (entry.get("InstanceType"), entry.get("InstanceCount")) != (wanted.instance_type, wanted.instance_count):
            continue
        if entry.get("UltraserverType"):
            continue
        try:
            blocks.append(_parse(entry))
        except (UnreadableFeeError, KeyError, AttributeError) as error:
            unreadable.append(str(error))
    return blocks, unreadable


def _parse(entry: Mapping[str, Any]) -> NewBlock:
    if entry["CurrencyCode"] != CURRENCY:
        raise UnreadableFeeError(f"CurrencyCode is {entry['CurrencyCode']}; only {CURRENCY} is bought")
    return NewBlock(
        offering_id=entry["CapacityBlockOfferingId"],
        zone=entry["AvailabilityZone"],
        start=entry["StartDate"].astimezone(UTC),
        end=entry["EndDate"].astimezone(UTC),
        fee=parse_usd(entry["UpfrontFee"]),
    )


# ---------------------------------------------------------------- What became of an order


def bought_block(entries: Iterable[Mapping[str, Any]], tag: str, region: str) -> Reservation | None:
    """The block that an order of ours made, by the tag that the order set; one that is paid is preferred to one that is not.

    Args:
        entries: every entry of DescribeCapacityReservations, all pages.

    Raises:
        UnreadableReservationError: it is there and cannot be read; that is never "nothing there" (design rule 4).
    """
    ours = [
        parse_reservation(entry, region)
        for entry in entries
        if any(each.get("Key") == PURCHASE_TAG and each.get("Value") == tag for each in entry.get("Tags") or [])
    ]
    return min(ours, key=lambda block: (block.state in UNPAID_STATES, block.reservation_id), default=None)


def old_block(entries: Iterable[Mapping[str, Any]], reservation_id: str, region: str) -> Reservation | None:
    """The block that is to be replaced; None when EC2 does not show it any more.

    Raises:
        UnreadableReservationError: its entry lacks what a block must have.
    """
    found = next((entry for entry in entries if entry.get("CapacityReservationId") == reservation_id), None)
    return None if found is None else parse_reservation(found, region)


@dataclass(frozen=True, slots=True)
class BlockReconciliation:
    """The next step, the block that our order made if EC2 shows it, and the reason in words."""

    step: Step
    reason: str
    block: Reservation | None = None


def reconcile_block(
    purchase: Purchase | None, bought: Reservation | None, extensions: Iterable[Extension], end: datetime
) -> BlockReconciliation:
    """Compare ledger and EC2 before a block is ordered; EC2 is the truth.

    Args:
        purchase: our ledger entry for this replacement, if any.
        bought: what EC2 shows under the entry's tag (`bought_block`).
        extensions: the old block's history: who has an extension needs no other block.
        end: the end that the replacement is for.
    """
    sent = purchase if purchase is not None and purchase.state in SENT_STATES else None
    if bought is not None:
        if bought.state in UNPAID_STATES:
            return BlockReconciliation(Step.PAYMENT_FAILED, f"EC2 shows our block as {bought.state}", bought)
        # The tag is ours alone, so this holds even for an entry that a restored table has lost.
        return BlockReconciliation(Step.ADOPT, f"EC2 shows our block {bought.reservation_id} as {bought.state}", bought)
    if sent is not None and sent.state is PurchaseState.BOUGHT:
        return BlockReconciliation(Step.ADOPT, "EC2 took our order; it does not show the block yet")
    if sent is not None:
        return BlockReconciliation(Step.UNKNOWN, "the order was sent and EC2 shows no block with its tag")
    extension = extension_from(extensions, end)
    if extension is not None and extension.status != FAILED:
        return BlockReconciliation(Step.SUPERSEDED, f"the old block is being extended: {extension.status}")
    return BlockReconciliation(Step.ORDER, "nothing was ordered in place of this block")


def block_settlement(purchase: Purchase, bought: Reservation | None) -> Settlement | None:
    """What EC2 shows of an order of a new block that was sent and is not settled; None when it does not tell, or tells nothing new.

    EC2 does not say what it charged for a block, so the payment has no fee: what was offered counts.

    Args:
        bought: what EC2 shows under the entry's tag (`bought_block`).
    """
    if bought is None or purchase.state not in SENT_STATES or purchase.payment is not None:
        return None
    # One that was not paid never becomes active, so it does not expire either.
    paid = bought.state in PAID_STATES or bought.state == "expired"
    status = SUCCEEDED if paid else FAILED if bought.state in UNPAID_STATES else None
    if purchase.state is PurchaseState.BOUGHT and status is None:
        return None
    start = bought.start or bought.end
    payment = None if status is None else Extension(purchase.offering_id, status, start, bought.end, fee=None)
    return Settlement(PurchaseState.BOUGHT, f"EC2 shows our block {bought.reservation_id} as {bought.state}", payment)


class BlockStage(StrEnum):
    """How far a bought block has come."""

    PENDING = "pending"
    PAID = "paid"
    FAILED = "failed"
    LOST = "lost"


def block_progress(bought: Reservation | None, pay_by: datetime, now: datetime) -> tuple[BlockStage, str]:
    """How far the block has come, and the reason in words; EC2's state decides.

    Args:
        bought: what EC2 shows under the order's tag.
        pay_by: EC2's last moment for the payment (`deadlines.pay_block_by`); what it shows may lag by `LAG`.
    """
    late = now >= pay_by + LAG
    if bought is None:
        if late:
            return BlockStage.LOST, "EC2 took the order and has never shown the block"
        return BlockStage.PENDING, "EC2 does not show the block yet"
    if bought.state in PAID_STATES:
        return BlockStage.PAID, f"EC2 shows {bought.reservation_id} as {bought.state}"
    if bought.state in UNPAID_STATES:
        return BlockStage.FAILED, f"EC2 could not take the payment: {bought.reservation_id} is {bought.state}"
    if late:
        text = f"{bought.reservation_id} was not paid by {format_instant(pay_by)} and is {bought.state}"
        return BlockStage.LOST, text
    return BlockStage.PENDING, f"EC2 shows {bought.reservation_id} as {bought.state}"
