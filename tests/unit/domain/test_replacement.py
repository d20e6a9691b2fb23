"""When a block is replaced, and every rule before a new one is bought."""

from datetime import timedelta
from decimal import Decimal

import pytest

from blockkeeper.domain.instants import format_instant
from blockkeeper.domain.ledger import Step
from blockkeeper.domain.new_block import BlockReconciliation, NewBlock
from blockkeeper.domain.next_move import Move
from blockkeeper.domain.outcome import Outcome
from blockkeeper.domain.replacement import (
    REPLACED_AFTER,
    block_refusal,
    replacement_due,
    replacement_move,
    search_until,
    to_be_replaced,
)

from .builders import END, environment, reservation

HOUR, DAY, MINUTE = timedelta(hours=1), timedelta(days=1), timedelta(minutes=1)
MARGIN = 2 * HOUR
DECIDE_BY = END - 3 * HOUR
NOW = DECIDE_BY
LEDGER = "cr-0a1#2026-05-04T11:30:00Z#block"
REPLACE = {"max_gap_hours": 24, "max_upfront_fee": "9000"}
AT_END = format_instant(END)


def record(**fields):
    return environment(**{"extend_by_days": 2, "replace": REPLACE, "require_approval": True} | fields)


def block(**fields):
    given = {"offering_id": "cb-1", "zone": "us-east-1b", "start": END + HOUR, "end": END + 49 * HOUR}
    return NewBlock(**given | {"fee": Decimal("7724.21")} | fields)


def old(**fields):
    return reservation(InstancePlatform="Linux/UNIX", **fields)


def approval(**fields):
    return {
        "status": "APPROVED",
        "what": "block",
        "reservation_id": "cr-0a1",
        "current_end": AT_END,
        "new_start": format_instant(END + HOUR),
        "new_end": format_instant(END + 49 * HOUR),
        "availability_zone": "us-east-1b",
        "ceiling": "7724.21",
    } | fields


def refused(given=None, *, offered=None, held=None, now=NOW, live=True, **fields):
    no = block_refusal(
        record(**fields),
        approval() if given is None else given or None,
        offered or block(),
        held or old(),
        end=END,
        payment_margin=MARGIN,
        ledger_id=LEDGER,
        now=now,
        live=live,
    )
    # Too late is an outcome of its own; every other rule that says no is not_allowed.
    assert no is None or (no.outcome is Outcome.TOO_LATE) == no.reason.startswith("too late")
    return None if no is None else no.reason


# ---------------------------------------------------------------- When


@pytest.mark.parametrize("outcome", [None, *Outcome])
def test_after_which_ends_a_block_is_replaced(outcome):
    assert to_be_replaced(record(), END, outcome) is (outcome is None or outcome in REPLACED_AFTER)
    assert not to_be_replaced(record(replace=None), END, outcome)


def test_a_persons_no_and_the_policys_no_are_final():
    kept = {Outcome.REJECTED, Outcome.NOT_ALLOWED, Outcome.OVER_BUDGET, Outcome.UNKNOWN, Outcome.PAYMENT_FAILED}
    assert not kept & REPLACED_AFTER


@pytest.mark.parametrize(
    ("said", "due"),
    [
        (None, True),
        ({"end_date": AT_END, "outcome": "no_offering"}, False),
        ({"end_date": AT_END, "outcome": "replaced"}, False),
        ({"end_date": AT_END, "outcome": "offered"}, True),
        ({"end_date": "2026-04-27T11:30:00Z", "outcome": "replaced"}, True),
    ],
)
def test_what_was_said_of_this_end_is_the_last_word(said, due):
    assert to_be_replaced(record(replacement=said), END, None) is due


def test_extend_until_forbids_a_new_block_too():
    assert not to_be_replaced(record(extend_until="2026-05-05T00:00:00Z"), END, None)


@pytest.mark.parametrize(
    ("now", "due"),
    [
        (DECIDE_BY - MINUTE, False),
        (DECIDE_BY, True),
        (END + 24 * HOUR - 126 * MINUTE, True),
        (END + 24 * HOUR - 125 * MINUTE, False),
    ],
)
def test_a_sweep_starts_it_between_the_last_extension_and_the_last_block(now, due):
    assert replacement_due(record(), END, DECIDE_BY, MARGIN, now) is due
    assert search_until(record(), END, MARGIN) == END + 24 * HOUR - 125 * MINUTE


@pytest.mark.parametrize(("end", "due"), [(AT_END, False), ("2026-04-27T11:30:00Z", True)])
def test_only_the_word_on_this_end_counts(end, due):
    rejected = {"end_date": end, "outcome": "rejected"}
    assert replacement_due(record(extension_outcome=rejected), END, DECIDE_BY, MARGIN, NOW) is due


# ---------------------------------------------------------------- What next


@pytest.mark.parametrize(
    ("step", "fields", "held", "move", "outcome"),
    [
        (Step.ORDER, {}, {}, Move.SEARCH, None),
        (Step.ADOPT, {}, {"EndDate": END + DAY}, Move.RESUME, None),
        (Step.UNKNOWN, {"replace": None}, {}, Move.RESUME, None),
        (Step.PAYMENT_FAILED, {}, {}, Move.RESUME, None),
        (Step.ORDER, {}, {"EndDate": END + DAY}, Move.STOP, Outcome.SUPERSEDED),
        (Step.ORDER, {"capacity_block_id": "cr-0b2"}, {}, Move.STOP, Outcome.NOT_EXTENDABLE),
        (Step.ORDER, {}, {"OwnerId": "999999999999"}, Move.STOP, Outcome.NOT_EXTENDABLE),
        (Step.ORDER, {"replace": None}, {}, Move.STOP, Outcome.NOT_ALLOWED),
        (Step.ORDER, {"approvers": []}, {}, Move.STOP, Outcome.NOT_ALLOWED),
        (Step.SUPERSEDED, {}, {}, Move.WAIT, None),
        (Step.ORDER, {}, {"State": "payment-pending"}, Move.WAIT, None),
        (Step.ORDER, {}, {"State": "expired"}, Move.SEARCH, None),
    ],
)
def test_the_next_move(step, fields, held, move, outcome):
    next_ = replacement_move(
        record(**fields),
        old(**held),
        BlockReconciliation(step, "so"),
        end=END,
        account=old().owner_id,
        payment_margin=MARGIN,
        now=NOW,
        in_the_way=None,
    )
    assert (next_.move, next_.outcome) == (move, outcome)


@pytest.mark.parametrize(
    ("now", "in_the_way", "move"), [(END + DAY, None, Move.STOP), (NOW, "cr-0a1#2026-05-04T11:30:00Z", Move.WAIT)]
)
def test_too_late_or_blocked_by_another_order(now, in_the_way, move):
    found = BlockReconciliation(Step.ORDER, "nothing")
    facts = {"end": END, "account": old().owner_id, "payment_margin": MARGIN, "now": now, "in_the_way": in_the_way}
    assert replacement_move(record(), old(), found, **facts).move is move


# ---------------------------------------------------------------- Every rule before the order


def test_what_is_approved_may_be_bought():
    assert refused() is None
    assert refused(approval(ceiling="8000")) is None
    assert refused({}, require_approval=False) is None


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"replace": None}, "replace is not set"),
        ({"approvers": []}, "nobody could say yes"),
        ({"capacity_block_id": "cr-0b2"}, "the record is for cr-0b2"),
        ({"extend_by_days": 7}, "168 hours were asked for"),
        ({"replace": REPLACE | {"max_gap_hours": 0}}, "later than max_gap_hours"),
        ({"replace": REPLACE | {"max_upfront_fee": "7724.20"}}, "above replace.max_upfront_fee"),
        ({"replace": REPLACE | {"availability_zones": ["us-east-1a"]}}, "not in replace.availability_zones"),
        ({"extend_until": "2026-05-06T00:00:00Z"}, "past extend_until"),
        (
            {"now": END},
            "too late: the last moment to decide on the block of 2026-05-04T12:30:00Z was 2026-05-04T10:25:00Z",
        ),
        ({"held": old(InstanceType="u-p6e-gb200x72")}, "UltraServer"),
        ({"held": reservation()}, "InstancePlatform"),
        ({"offered": block(start=END - DAY, end=END + DAY), "now": END - 5 * DAY}, "would lie unused"),
    ],
)
def test_a_rule_that_says_no(fields, text):
    assert text in (refused(**fields) or "allowed")


@pytest.mark.parametrize(
    "fields",
    [
        {"status": "OPEN"},
        {"status": True},
        {"status": "approved"},
        {"what": "extension"},
        {"what": None},
        {"reservation_id": "cr-0b2"},
        {"current_end": "2026-05-05T11:30:00Z"},
        {"new_start": "2026-05-04T12:31:00Z"},
        {"new_start": None},
        {"new_end": "2026-05-07T11:30:00Z"},
        {"availability_zone": "us-east-1a"},
        {"ceiling": "7724.20"},
        {"ceiling": None},
        {"used_for": "cr-0a1#2026-05-04T11:30:00Z"},
        {"dry_run": True},
    ],
)
def test_case_b16_a_yes_to_anything_else_is_none(fields):
    assert refused(approval(**fields)) is not None


def test_a_quorum_that_was_raised_since_binds():
    one = approval(votes={"ann@example.com": "approve"})
    assert "quorum is 2 now" in (refused(one, quorum=2) or "")
    assert refused(one, quorum=1) is None


def test_case_b16_no_yes_is_none():
    assert "there is no approval" in (refused({}) or "")


def test_a_rehearsal_may_use_a_rehearsed_yes():
    assert refused(approval(dry_run=True), live=False) is None
