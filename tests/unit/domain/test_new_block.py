"""Which new block fits in place of an old one, and what became of an order."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blockkeeper.domain.extension import parse_extensions
from blockkeeper.domain.ledger import Purchase, PurchaseState, Step
from blockkeeper.domain.new_block import (
    BlockStage,
    Wanted,
    block_progress,
    block_settlement,
    bought_block,
    choose_block,
    reconcile_block,
)
from blockkeeper.domain.offering import Found
from blockkeeper.domain.reservation import UnreadableReservationError

from .builders import END, entry, extension, reservation

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
NOW = END - 3 * HOUR
TAG = "cr-0a1#2026-05-04T11:30:00Z#block"


def wanted(**fields):
    return Wanted(
        **{
            "instance_type": "p5.48xlarge",
            "instance_count": 4,
            "hours": 48,
            "old_zone": "us-east-1a",
            "old_end": END,
            "earliest_start": NOW + 125 * timedelta(minutes=1),
            "latest_start": END + 24 * HOUR,
            "end_by": None,
            "zones": (),
            "ceiling": Decimal(10_000),
        }
        | fields
    )


def offered(start=END + HOUR, hours=48, **fields):
    """An entry of DescribeCapacityBlockOfferings."""
    return {
        "CapacityBlockOfferingId": "cb-1",
        "InstanceType": "p5.48xlarge",
        "InstanceCount": 4,
        "AvailabilityZone": "us-east-1b",
        "StartDate": start,
        "EndDate": start + timedelta(hours=hours),
        "UpfrontFee": "7724.21",
        "CurrencyCode": "USD",
    } | fields


def test_an_offering_that_fits():
    choice = choose_block([offered()], wanted())
    assert (choice.found, choice.block.offering_id, choice.block.hours) == (Found.OFFERED, "cb-1", 48)
    assert choice.block.fee == Decimal("7724.21")


@pytest.mark.parametrize(
    "fields",
    [
        {"InstanceType": "p5e.48xlarge"},
        {"InstanceCount": 8},
        {"UltraserverType": "u-p6e-gb200x72"},
        {"start": END + 25 * HOUR},
        {"start": NOW + 2 * HOUR},
        {"hours": 24},
        {"hours": 72},
    ],
)
def test_an_offering_that_does_not_fit(fields):
    choice = choose_block([offered(**fields)], wanted())
    assert (choice.found, choice.block) == (Found.NO_OFFERING, None)


@pytest.mark.parametrize(("early", "fits"), [(12 * HOUR, True), (12 * HOUR + timedelta(minutes=1), False)])
def test_at_most_a_quarter_may_lie_before_the_old_end(early, fits):
    wish = wanted(earliest_start=END - 5 * DAY)
    found = choose_block([offered(start=END - early)], wish).found
    assert found == (Found.OFFERED if fits else Found.NO_OFFERING)
    assert wish.search_from <= END - 12 * HOUR


def test_only_the_zones_of_the_policy_and_the_best_first():
    entries = [
        offered(CapacityBlockOfferingId=f"cb-{zone}", AvailabilityZone=f"us-east-1{zone}", start=END + hours * HOUR)
        for zone, hours in [("a", 1), ("b", 2), ("c", 3)]
    ]
    assert choose_block(entries, wanted(zones=("us-east-1c", "us-east-1b"))).block.zone == "us-east-1c"
    assert choose_block(entries[:1], wanted(zones=("us-east-1c",))).found is Found.NO_OFFERING


def test_the_old_zone_then_the_smallest_gap_then_the_fee():
    entries = [
        offered(CapacityBlockOfferingId="cb-far", AvailabilityZone="us-east-1a", start=END + 20 * HOUR),
        offered(CapacityBlockOfferingId="cb-dear", UpfrontFee="9000"),
        offered(CapacityBlockOfferingId="cb-cheap", UpfrontFee="8000"),
        offered(CapacityBlockOfferingId="cb-later", UpfrontFee="1", start=END + 2 * HOUR),
    ]
    order = []
    while entries:
        best = choose_block(entries, wanted()).block.offering_id
        order.append(best)
        entries = [each for each in entries if each["CapacityBlockOfferingId"] != best]
    assert order == ["cb-far", "cb-cheap", "cb-dear", "cb-later"]


def test_what_people_said_yes_to_goes_first():
    entries = [offered(CapacityBlockOfferingId="cb-better", AvailabilityZone="us-east-1a"), offered()]
    chosen = choose_block(entries, wanted(), lambda block: block.offering_id == "cb-1")
    assert chosen.block.offering_id == "cb-1"


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        ({"UpfrontFee": "10000.01"}, Found.TOO_DEAR),
        ({"UpfrontFee": "10,000"}, Found.UNREADABLE),
        ({"UpfrontFee": None}, Found.UNREADABLE),
        ({"CurrencyCode": "EUR"}, Found.UNREADABLE),
        ({"StartDate": None}, Found.UNREADABLE),
    ],
)
def test_a_fee_above_the_ceiling_or_unreadable_is_never_bought(fields, found):
    assert choose_block([offered(**fields)], wanted()).found is found


def test_extend_until_holds_for_a_new_block_too():
    assert choose_block([offered()], wanted(end_by=END + 2 * DAY)).found is Found.NO_OFFERING
    assert choose_block([offered()], wanted(end_by=END + 3 * DAY)).found is Found.OFFERED


@given(
    st.lists(
        st.builds(
            lambda start, hours, fee, zone, count: offered(
                start=END + timedelta(minutes=start),
                hours=hours,
                UpfrontFee=str(fee),
                AvailabilityZone=f"us-east-1{zone}",
                InstanceCount=count,
                CapacityBlockOfferingId=f"cb-{start}-{hours}-{fee}-{zone}-{count}",
            ),
            st.integers(-3000, 3000),
            st.integers(20, 80),
            st.integers(0, 20_000),
            st.sampled_from("abc"),
            st.sampled_from([4, 8]),
        ),
        max_size=8,
    ),
    st.sampled_from([(), ("us-east-1b",), ("us-east-1c", "us-east-1a")]),
    st.integers(0, 48),
)
def test_what_is_chosen_keeps_every_rule_whatever_is_offered(entries, zones, gap):
    wish = wanted(zones=zones, latest_start=END + gap * HOUR)
    choice = choose_block(entries, wish)
    assert choose_block(entries[::-1], wish) == choice, "EC2's order means nothing (case B11)"
    if choice.found is not Found.OFFERED:
        return
    block = choice.block
    source = next(each for each in entries if each["CapacityBlockOfferingId"] == block.offering_id)
    assert source["InstanceCount"] == 4
    assert block.fee <= 10_000
    assert wish.earliest_start <= block.start <= END + gap * HOUR
    assert block.end > END
    assert (END - block.start) * 4 <= block.end - block.start
    assert not zones or block.zone in zones
    assert abs(block.end - block.start - 48 * HOUR) < DAY


# ---------------------------------------------------------------- What became of an order


def bought(**fields):
    return entry(CapacityReservationId="cr-0n1", Tags=[{"Key": "blockkeeper:purchase", "Value": TAG}]) | fields


def order(state):
    return Purchase(state, "cb-1", Decimal("7724.21"), END + 2 * DAY)


def test_a_block_is_known_by_its_tag_alone():
    assert bought_block([entry(), bought()], TAG, "us-east-1").reservation_id == "cr-0n1"
    assert bought_block([entry()], TAG, "us-east-1") is None
    both = [bought(State="payment-failed"), bought(CapacityReservationId="cr-0n2")]
    assert bought_block(both, TAG, "us-east-1").reservation_id == "cr-0n2"


def test_a_block_that_cannot_be_read_is_not_nothing():
    with pytest.raises(UnreadableReservationError):
        bought_block([bought(EndDate=None)], TAG, "us-east-1")


SENT, BOUGHT, UNKNOWN = PurchaseState.SENT, PurchaseState.BOUGHT, PurchaseState.UNKNOWN


@pytest.mark.parametrize(
    ("purchase", "state", "step"),
    [
        (None, None, Step.ORDER),
        (PurchaseState.INTENT, None, Step.ORDER),
        (PurchaseState.REFUSED, None, Step.ORDER),
        (SENT, None, Step.UNKNOWN),
        (UNKNOWN, None, Step.UNKNOWN),
        (BOUGHT, None, Step.ADOPT),
        (SENT, "payment-pending", Step.ADOPT),
        (UNKNOWN, "scheduled", Step.ADOPT),
        (None, "active", Step.ADOPT),
        (BOUGHT, "payment-failed", Step.PAYMENT_FAILED),
    ],
)
def test_only_what_was_never_sent_is_ordered(purchase, state, step):
    block = None if state is None else reservation(CapacityReservationId="cr-0n1", State=state)
    entry_ = None if purchase is None else order(purchase)
    assert reconcile_block(entry_, block, (), END).step is step


@pytest.mark.parametrize(
    ("status", "step"),
    [
        ("payment-pending", Step.SUPERSEDED),
        ("payment-succeeded", Step.SUPERSEDED),
        ("payment-failed", Step.ORDER),
    ],
)
def test_who_has_an_extension_needs_no_other_block(status, step):
    history = parse_extensions([extension(CapacityBlockExtensionStatus=status)], "cr-0a1")
    assert reconcile_block(None, None, history, END).step is step


@pytest.mark.parametrize(
    ("purchase", "state", "payment"),
    [
        (SENT, "payment-pending", None),
        (UNKNOWN, "payment-failed", "payment-failed"),
        (UNKNOWN, "scheduled", "payment-succeeded"),
        (BOUGHT, "active", "payment-succeeded"),
        # It was active before, and only what is paid becomes active.
        (BOUGHT, "expired", "payment-succeeded"),
        (UNKNOWN, "something-new", None),
    ],
)
def test_case_b34_what_ec2_shows_of_a_new_block_settles_its_order(purchase, state, payment):
    block = reservation(CapacityReservationId="cr-0n1", State=state)
    settled = block_settlement(order(purchase), block)
    assert (settled.state, settled.payment and settled.payment.status) == (BOUGHT, payment)


@pytest.mark.parametrize(
    ("purchase", "state"),
    [
        (order(SENT), None),
        (order(BOUGHT), None),
        (order(BOUGHT), "payment-pending"),
        (order(BOUGHT), "something-new"),
        (order(PurchaseState.REFUSED), "active"),
        (replace(order(BOUGHT), payment="payment-succeeded"), "payment-failed"),
    ],
)
def test_case_b34_what_tells_nothing_new_settles_nothing(purchase, state):
    block = None if state is None else reservation(CapacityReservationId="cr-0n1", State=state)
    assert block_settlement(purchase, block) is None


PAY_BY = datetime(2026, 5, 4, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("state", "at", "stage"),
    [
        ("scheduled", PAY_BY - HOUR, BlockStage.PAID),
        ("active", PAY_BY + DAY, BlockStage.PAID),
        ("payment-pending", PAY_BY, BlockStage.PENDING),
        ("payment-pending", PAY_BY + HOUR, BlockStage.LOST),
        ("payment-failed", PAY_BY - HOUR, BlockStage.FAILED),
        (None, PAY_BY, BlockStage.PENDING),
        (None, PAY_BY + HOUR, BlockStage.LOST),
    ],
)
def test_how_far_a_block_has_come(state, at, stage):
    block = None if state is None else reservation(CapacityReservationId="cr-0n1", State=state)
    assert block_progress(block, PAY_BY, at)[0] is stage
