from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

import pytest

from blockkeeper.domain.deadlines import Deadlines
from blockkeeper.domain.extension import Stage, extension_from, parse_extensions, progress
from blockkeeper.domain.ledger import Purchase, PurchaseState, Step, reconcile, settlement
from blockkeeper.domain.next_move import Move, next_move, pause
from blockkeeper.domain.offering import Offering
from blockkeeper.domain.outcome import CONSEQUENCES, Outcome
from blockkeeper.domain.purchase_policy import refusal

from .builders import ACCOUNT, END, environment, extension, reservation

NEW_END = END + timedelta(days=1)
NOW = END - timedelta(hours=20)


def bought(state):
    return Purchase(state, "cbe-1", Decimal("10283.50"), NEW_END)


def history(*entries):
    return parse_extensions(entries, "cr-0a1")


@pytest.mark.parametrize(
    ("purchase", "entries", "end", "step"),
    [
        (None, [], END, Step.ORDER),
        (bought(PurchaseState.INTENT), [], END, Step.ORDER),
        (bought(PurchaseState.REFUSED), [], END, Step.ORDER),
        # Sent, and EC2 shows nothing: never sent again.
        (bought(PurchaseState.SENT), [], END, Step.UNKNOWN),
        (bought(PurchaseState.UNKNOWN), [], END, Step.UNKNOWN),
        (bought(PurchaseState.SENT), [extension()], END, Step.ADOPT),
        (
            bought(PurchaseState.UNKNOWN),
            [extension(CapacityBlockExtensionStatus="payment-succeeded")],
            NEW_END,
            Step.ADOPT,
        ),
        (bought(PurchaseState.BOUGHT), [], END, Step.ADOPT),
        (bought(PurchaseState.SENT), [], NEW_END, Step.ADOPT),
        (
            bought(PurchaseState.BOUGHT),
            [extension(CapacityBlockExtensionStatus="payment-failed")],
            END,
            Step.PAYMENT_FAILED,
        ),
        # Somebody else was there first.
        (None, [extension()], END, Step.SUPERSEDED),
        (None, [], NEW_END, Step.SUPERSEDED),
        (bought(PurchaseState.INTENT), [extension()], END, Step.SUPERSEDED),
        (bought(PurchaseState.SENT), [extension(CapacityBlockExtensionOfferingId="cbe-9")], END, Step.SUPERSEDED),
        # Their failed payment leaves the way open; so does an extension from an earlier end.
        (None, [extension(CapacityBlockExtensionStatus="payment-failed")], END, Step.ORDER),
        (None, [extension(CapacityBlockExtensionStartDate=END - timedelta(days=1))], END, Step.ORDER),
        # Somebody else's failed payment says nothing about our order.
        (
            bought(PurchaseState.SENT),
            [extension(CapacityBlockExtensionOfferingId="cbe-9", CapacityBlockExtensionStatus="payment-failed")],
            END,
            Step.UNKNOWN,
        ),
    ],
)
def test_cases_b17_b20_b26_the_ledger_is_compared_with_ec2_before_anything_is_ordered(purchase, entries, end, step):
    assert reconcile(purchase, history(*entries), reservation(EndDate=end), END).step is step


def test_case_b18_a_history_that_cannot_be_understood_is_an_error_not_an_empty_one():
    with pytest.raises(KeyError):
        history({"CapacityReservationId": "cr-0a1"})


@pytest.mark.parametrize(
    ("status", "end", "before_end", "stage"),
    [
        ("payment-pending", END, timedelta(hours=20), Stage.PENDING),
        # Case B03: paid, but EC2 has not moved the end: not an extension yet.
        ("payment-succeeded", END, timedelta(hours=20), Stage.PAID),
        ("payment-succeeded", NEW_END, timedelta(hours=20), Stage.CONFIRMED),
        ("payment-pending", NEW_END, timedelta(hours=20), Stage.CONFIRMED),
        ("payment-failed", END, timedelta(hours=20), Stage.FAILED),
        ("payment-pending", END, timedelta(minutes=35), Stage.FAILED),
        ("something-new", END, timedelta(hours=20), Stage.PENDING),
        (None, END, timedelta(hours=20), Stage.PENDING),
    ],
)
def test_cases_b03_b34_an_extension_counts_when_ec2_has_moved_the_end(status, end, before_end, stage):
    extensions = history(extension(CapacityBlockExtensionStatus=status)) if status else ()
    pay_by = Deadlines(END).pay_by
    found = progress(extension_from(extensions, END), reservation(EndDate=end), END, pay_by, END - before_end)
    assert found.stage is stage


OFFERING = Offering("cbe-1", 24, NEW_END, Decimal("10283.50"))
APPROVAL = {
    "status": "APPROVED",
    "reservation_id": "cr-0a1",
    "current_end": "2026-05-04T11:30:00Z",
    "new_end": "2026-05-05T11:30:00Z",
    "ceiling": "10283.50",
}


def refused(approval=APPROVAL, now=NOW, **fields):
    no = refusal(
        environment(**fields),
        approval,
        OFFERING,
        reservation_id="cr-0a1",
        deadlines=Deadlines(END),
        ledger_id="cr-0a1#end",
        now=now,
    )
    # Too late is an outcome of its own; every other rule that says no is not_allowed.
    assert no is None or (no.outcome is Outcome.TOO_LATE) == no.reason.startswith("too late")
    return None if no is None else no.reason


def test_a_length_that_the_record_does_not_ask_for_is_refused():
    assert "no longer asks for 24 hours" in refused(extend_by_days=2)
    assert refused(extend_by_days=2, fallback_days=[1]) is None


def test_a_yes_to_a_question_of_a_dry_run_moves_no_money():
    assert "dry-run" in refused(APPROVAL | {"dry_run": True})
    assert refused(APPROVAL | {"dry_run": False}) is None


def test_a_quorum_that_was_raised_since_binds():
    one, two = {"votes": {"ann@example.com": "approve"}}, {"votes": {"ann@example.com": "approve", "bob@x": "approve"}}
    approvers = ["ann@example.com", "bob@x"]
    assert "quorum is 2 now, and 1 said yes" in refused(APPROVAL | one, quorum=2, approvers=approvers)
    assert refused(APPROVAL | two, quorum=2, approvers=approvers) is None
    assert refused(APPROVAL | one | {"decided_by": "policy:on_timeout"}, quorum=2, approvers=approvers) is None


def test_what_policy_and_approval_allow_is_allowed():
    assert refused() is None
    assert refused(None, require_approval=False) is None
    assert refused(APPROVAL | {"used_for": "cr-0a1#end"}) is None


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"status": "OPEN"}, "OPEN, not APPROVED"),
        ({"what": "block"}, "for a new block, not for an extension"),
        ({"status": True}, "True, not APPROVED"),
        ({"status": "approved"}, "not APPROVED"),
        ({"reservation_id": "cr-0b2"}, "another block"),
        ({"current_end": "2026-05-03T11:30:00Z"}, "another block, end"),
        ({"new_end": "2026-05-06T11:30:00Z"}, "another block, end or new end"),
        ({"ceiling": "10283.49"}, "more than the approved"),
        ({"ceiling": "free"}, "cannot be read"),
        ({"used_for": "cr-0a1#another-end"}, "used for another purchase"),
    ],
)
def test_case_b16_a_yes_is_bound_to_what_was_asked_and_used_once(change, text):
    assert text in refused(APPROVAL | change)


@pytest.mark.parametrize(
    ("kwargs", "text"),
    [
        ({"approval": None}, "there is no approval"),
        ({"max_upfront_fee": None}, "max_upfront_fee is not set"),
        ({"max_upfront_fee": "10283.49"}, "above max_upfront_fee"),
        ({"extend_until": "2026-05-05T11:29:59Z"}, "past extend_until"),
        ({"capacity_block_id": "cr-0b2"}, "the record is for cr-0b2"),
        ({"now": END - timedelta(hours=3)}, "too late"),
        ({"now": END - timedelta(days=57)}, "too early"),
        ({"approvers": []}, "nobody could say yes"),
        # A text is no permission to go without a person.
        ({"approval": None, "require_approval": "false"}, "there is no approval"),
    ],
)
def test_cases_b11_b16_every_gap_in_the_policy_means_no(kwargs, text):
    assert text in refused(**kwargs)


def move(now=NOW, purchase=None, entries=(), block=None, **fields):
    block = block or reservation()
    return next_move(
        environment(**fields),
        block,
        reconcile(purchase, history(*entries), block, END),
        Deadlines(END),
        account=ACCOUNT,
        now=now,
    )


def test_the_next_move_is_to_search_while_nothing_stands_in_the_way():
    assert move().move is Move.SEARCH


@pytest.mark.parametrize(
    ("kwargs", "wanted", "outcome"),
    [
        ({"purchase": bought(PurchaseState.SENT)}, Move.RESUME, None),
        ({"purchase": bought(PurchaseState.BOUGHT), "now": END - timedelta(hours=1)}, Move.RESUME, None),
        # Case B20: extended by hand, or being paid for by somebody else.
        ({"block": reservation(EndDate=NEW_END)}, Move.STOP, Outcome.SUPERSEDED),
        ({"entries": [extension()]}, Move.WAIT, None),
        ({"block": reservation(State="payment-pending")}, Move.WAIT, None),
        ({"block": reservation(State="something-new")}, Move.STOP, Outcome.NOT_EXTENDABLE),
        ({"block": reservation(OwnerId="444455556666")}, Move.STOP, Outcome.NOT_EXTENDABLE),
        ({"capacity_block_id": "cr-0b2"}, Move.STOP, Outcome.NOT_EXTENDABLE),
        ({"max_upfront_fee": None}, Move.STOP, Outcome.NOT_ALLOWED),
        ({"now": END - timedelta(hours=3)}, Move.STOP, Outcome.TOO_LATE),
    ],
)
def test_every_other_next_move(kwargs, wanted, outcome):
    found = move(**kwargs)
    assert (found.move, found.outcome) == (wanted, outcome)


def test_case_b37_pauses_grow_shrink_towards_the_end_and_stay_few():
    deadlines, now, turn = Deadlines(END), END - timedelta(days=56), 0
    while now < deadlines.decide_by:
        wait = pause(turn, deadlines.decide_by, now)
        assert timedelta(minutes=5) <= wait <= timedelta(hours=6)
        now, turn = now + wait, turn + 1
    # About 30 history events a turn; Step Functions allows 25,000.
    assert turn * 30 < 25_000
    assert now < deadlines.order_by


def test_every_outcome_has_a_status_and_an_event():
    assert set(CONSEQUENCES) == set(Outcome)


def test_somebody_elses_failed_payment_says_nothing_about_our_order():
    foreign = history(
        extension(CapacityBlockExtensionOfferingId="cbe-9", CapacityBlockExtensionStatus="payment-failed")
    )
    assert extension_from(foreign, END).status == "payment-failed"
    assert extension_from(foreign, END, "cbe-1") is None


@pytest.mark.parametrize("status", ["payment-pending", "payment-failed", "payment-succeeded"])
@pytest.mark.parametrize(("minutes", "ours"), [(0, True), (15, True), (16, False), (None, True)])
def test_case_b20_the_same_offering_bought_by_hand_later_than_any_call_of_ours_is_not_ours(minutes, ours, status):
    sent = replace(bought(PurchaseState.UNKNOWN), sent_at=NOW)
    when = None if minutes is None else NOW + timedelta(minutes=minutes)
    shown = extension(CapacityBlockExtensionStatus=status, CapacityBlockExtensionPurchaseDate=when)
    entries = parse_extensions([shown], "cr-0a1")
    settled = settlement(sent, entries, reservation(), END, NOW + timedelta(hours=1))
    step = reconcile(sent, entries, reservation(), END).step
    if ours:
        assert settled.state is PurchaseState.BOUGHT
        assert step is (Step.PAYMENT_FAILED if status == "payment-failed" else Step.ADOPT)
    else:
        assert (settled and settled.state) == (PurchaseState.REFUSED if status == "payment-succeeded" else None)
        assert step is (Step.UNKNOWN if status == "payment-failed" else Step.SUPERSEDED)


@pytest.mark.parametrize(
    ("sent", "now", "tells"),
    [
        (NOW, NOW + timedelta(minutes=14), True),
        (NOW, NOW + timedelta(minutes=15), False),
        (NOW, END - timedelta(minutes=1), False),
        (NOW, END, True),
    ],
)
def test_case_b20_an_end_that_moved_long_after_our_call_tells_nothing_while_the_history_may_be_behind(sent, now, tells):
    purchase = replace(bought(PurchaseState.UNKNOWN), sent_at=sent)
    settled = settlement(purchase, (), reservation(EndDate=NEW_END), END, now)
    assert (settled and settled.state) == (PurchaseState.BOUGHT if tells else None)


@pytest.mark.parametrize("state", [PurchaseState.SENT, PurchaseState.UNKNOWN])
def test_ours_failed_in_payment_and_was_taken_even_when_somebody_else_extended_afterwards(state):
    ours = extension(CapacityBlockExtensionStatus="payment-failed")
    theirs = extension(CapacityBlockExtensionOfferingId="cbe-9", CapacityBlockExtensionStatus="payment-succeeded")
    for entries in ([ours, theirs], [theirs, ours]):
        settled = settlement(bought(state), parse_extensions(entries, "cr-0a1"), reservation(EndDate=NEW_END), END, NOW)
        assert (settled.state, settled.reason) == (PurchaseState.BOUGHT, "EC2 shows our order as payment-failed")
        assert settled.payment.status == "payment-failed"
