"""Money is read exactly or not at all, and no word about an order, EC2's or a person's, sends one that may have been taken."""

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blockkeeper.domain.extension import Stage, parse_extensions, progress
from blockkeeper.domain.ledger import (
    LIVES,
    LOOKED_FOR,
    Claim,
    Purchase,
    PurchaseState,
    Step,
    contradiction,
    left_behind,
    reconcile,
    settlement,
)
from blockkeeper.domain.money import UnreadableFeeError, format_usd, parse_usd
from blockkeeper.domain.offering import lengths

from .builders import END, environment, extension, reservation

DAY = timedelta(days=1)
SENT_AT = END - 20 * timedelta(hours=1)


@given(st.decimals(min_value=0, max_value=999_999_999_999, places=6))
def test_an_amount_is_read_exactly(amount):
    assert parse_usd(f"{amount:f}") == amount
    assert format_usd(amount).endswith(" USD")


@given(st.one_of(st.text(), st.floats(), st.integers(), st.none(), st.decimals().map(str)))
def test_whatever_is_not_plain_digits_is_no_amount(text):
    try:
        amount = parse_usd(text)
    except UnreadableFeeError:
        return
    assert isinstance(text, str)
    assert set(text) <= set("0123456789.")
    assert amount == Decimal(text) >= 0


def test_lengths_in_order_the_approved_one_first_and_each_once():
    record = environment(extend_by_days=7, fallback_days=[3, 1, 3], require_approval=False)
    assert lengths(record) == (168, 72, 24)
    assert lengths(record, 72) == (72, 168, 24)
    # What the record no longer asks for is not searched, approved or not.
    assert lengths(record, 48) == (168, 72, 24)


STATES = st.sampled_from(list(PurchaseState))
OFFERINGS = st.sampled_from(["cbe-1", "cbe-2"])
STATUSES = st.sampled_from(["payment-pending", "payment-failed", "payment-succeeded"])
HISTORIES = st.lists(st.tuples(OFFERINGS, STATUSES, st.sampled_from([END - DAY, END])), max_size=4)
ENDS = st.sampled_from([END, END + DAY, END + 2 * DAY])


def world(state, history, end):
    purchase = Purchase(state, "cbe-1", Decimal(100), END + DAY, sent_at=SENT_AT)
    entries = [
        extension(
            CapacityBlockExtensionOfferingId=offering,
            CapacityBlockExtensionStatus=status,
            CapacityBlockExtensionStartDate=starts,
        )
        for offering, status, starts in history
    ]
    return purchase, parse_extensions(entries, "cr-0a1"), reservation(EndDate=end)


AGES = st.timedeltas(timedelta(0), 3 * DAY)


@given(STATES, HISTORIES, ENDS, AGES)
def test_cases_b17_b26_what_may_have_been_taken_is_never_ordered_again_nor_settled_as_refused(state, history, end, age):
    purchase, extensions, block = world(state, history, end)
    step = reconcile(purchase, extensions, block, END).step
    ours = [status for offering, status, starts in history if offering == "cbe-1" and starts == END]
    if state in {PurchaseState.SENT, PurchaseState.UNKNOWN, PurchaseState.BOUGHT} or end != END:
        assert step is not Step.ORDER
    settled = settlement(purchase, extensions, block, END, SENT_AT + age)
    if settled is None:
        return
    assert state in {PurchaseState.SENT, PurchaseState.UNKNOWN, PurchaseState.BOUGHT}
    if ours or state is PurchaseState.BOUGHT:
        assert settled.state is PurchaseState.BOUGHT
    if state is PurchaseState.BOUGHT:
        assert settled.payment is not None
    if settled.payment is not None:
        assert settled.payment.status in {"payment-failed", "payment-succeeded"} & set(ours)
    if settled.state is PurchaseState.REFUSED:
        # While our call may be on its way, somebody else's paid extension proves nothing.
        assert age >= LIVES
        assert any(
            (offering, status, starts) == ("cbe-2", "payment-succeeded", END) for offering, status, starts in history
        )


@given(STATES, HISTORIES, ENDS, AGES)
def test_cases_b03_b17_what_is_settled_once_is_not_settled_again(state, history, end, age):
    purchase, extensions, block = world(state, history, end)
    settled = settlement(purchase, extensions, block, END, SENT_AT + age)
    if settled is not None:
        after = replace(purchase, state=settled.state, payment=settled.payment and settled.payment.status)
        again = settlement(after, extensions, block, END, SENT_AT + 2 * age)
        assert again is None
        assert left_behind(after, SENT_AT + 9 * DAY) is None


@given(STATES, AGES)
def test_case_b26_what_was_not_sent_is_refused_and_what_was_sent_unknown_once_nobody_can_be_at_it(state, age):
    purchase = Purchase(state, "cbe-1", Decimal(100), END + DAY, sent_at=SENT_AT)
    if state is PurchaseState.INTENT:
        purchase = replace(purchase, sent_at=None, intended_at=SENT_AT)
    becomes = {PurchaseState.INTENT: PurchaseState.REFUSED, PurchaseState.SENT: PurchaseState.UNKNOWN}
    left = left_behind(purchase, SENT_AT + age)
    assert (left and left.state) == (becomes.get(state) if age >= LIVES else None)


@given(STATES, HISTORIES, ENDS, AGES, st.sampled_from(list(Claim)), st.booleans())
def test_a_persons_word_counts_only_where_ec2_does_not_speak_against_it(state, history, end, age, claim, ec2_knows):
    purchase, extensions, block = world(state, history, end)
    evidence = settlement(purchase, extensions, block, END, SENT_AT + age)
    no = contradiction(claim, purchase, evidence, ec2_knows=ec2_knows, now=SENT_AT + age)
    if no is not None:
        return
    assert state in {PurchaseState.SENT, PurchaseState.UNKNOWN}
    if claim is Claim.NOT_BOUGHT:
        assert evidence is None or evidence.state is PurchaseState.REFUSED
        assert evidence is not None or age >= LOOKED_FOR
    else:
        assert evidence is None or evidence.state is PurchaseState.BOUGHT
        assert evidence is not None or not ec2_knows


@pytest.mark.parametrize(
    ("minutes_before_end", "stage"), [(60, Stage.PAID), (35, Stage.OVERDUE), (1, Stage.OVERDUE), (0, Stage.FAILED)]
)
def test_case_b03_paid_and_not_moved_is_overdue_from_the_last_moment_of_payment(minutes_before_end, stage):
    (paid,) = parse_extensions([extension(CapacityBlockExtensionStatus="payment-succeeded")], "cr-0a1")
    now = END - timedelta(minutes=minutes_before_end)
    assert progress(paid, reservation(), END, END - timedelta(minutes=35), now).stage is stage
