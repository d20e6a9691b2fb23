from datetime import timedelta

import pytest

from blockkeeper.domain.calendar import fingerprint
from blockkeeper.domain.environment import Status, parse_environment
from blockkeeper.domain.expiry import Action, decide
from blockkeeper.domain.sweep import Target, sweep

from .builders import ACCOUNT, END, MARGIN, entry, environment, record, reservation

HOUR = timedelta(hours=1)


def at(before_end, block=None, account=ACCOUNT, *, owner_swept=False, **fields):
    return decide(
        environment(**fields),
        block or reservation(),
        account=account,
        payment_margin=MARGIN,
        now=END - before_end,
        owner_swept=owner_swept,
    )


def test_not_due_before_the_look_ahead():
    decision = at(49 * HOUR)
    assert (decision.action, decision.status) == (Action.NONE, Status.NO_ACTION_REQUIRED)
    assert decision.reason == "due from 2026-05-02T11:30:00Z"


def test_due_within_the_look_ahead():
    decision = at(48 * HOUR)
    assert (decision.action, decision.status) == (Action.EXTEND, Status.ACTIVE)


def test_the_workflow_keeps_the_word_while_the_block_is_due():
    decision = at(20 * HOUR, status="EXTENSION_REJECTED", error="rejected by ann")
    assert (decision.status, decision.error) == (Status.EXTENSION_REJECTED, "rejected by ann")


def test_a_moved_end_starts_afresh():
    moved = reservation(EndDate=END + timedelta(days=7))
    assert at(HOUR, moved, status="EXTENSION_REJECTED").status is Status.NO_ACTION_REQUIRED


def test_an_extended_block_stays_extended_until_it_is_due_again():
    assert at(100 * HOUR, status="EXTENDED").status is Status.EXTENDED
    assert at(40 * HOUR, status="EXTENDED").status is Status.ACTIVE


@pytest.mark.parametrize("status", ["EXTENSION_PAYMENT_PENDING", "EXTENSION_APPROVAL_REQUIRED"])
def test_case_b03_a_sweep_leaves_an_extension_alone_that_a_person_started_early(status):
    assert at(100 * HOUR, status=status).status is Status(status)


def test_case_b02_forty_minutes_before_the_end_nothing_is_searched_and_the_groups_drain():
    decision = at(timedelta(minutes=40))
    assert (decision.action, decision.status) == (Action.DRAIN, Status.EXPIRING)
    assert decision.reason.startswith("too late to extend: the last moment to decide was 2026-05-04T08:30:00Z")


def test_an_order_that_waits_for_payment_is_left_alone_even_late():
    assert at(2 * HOUR, status="EXTENSION_PAYMENT_PENDING").status is Status.EXTENSION_PAYMENT_PENDING


def test_case_b34_an_unknown_state_buys_nothing_and_is_reported():
    decision = at(20 * HOUR, reservation(State="something-new"))
    assert (decision.action, decision.status) == (Action.NONE, Status.ERROR)
    assert "unknown state 'something-new'" in decision.error


@pytest.mark.parametrize("state", ["payment-pending", "pending", "assessing"])
def test_a_block_that_is_not_ready_waits(state):
    assert at(20 * HOUR, reservation(State=state)).status is Status.PENDING


@pytest.mark.parametrize(
    ("state", "status"), [("expired", Status.EXPIRED), ("cancelled", Status.ERROR), ("payment-failed", Status.ERROR)]
)
def test_case_b34_an_end_state_ends_it(state, status):
    assert at(20 * HOUR, reservation(State=state)).status is status


def test_only_the_owner_extends():
    decision = at(20 * HOUR, reservation(OwnerId="444455556666"))
    assert (decision.action, decision.status) == (Action.NONE, Status.NO_ACTION_REQUIRED)
    assert "owned by account 444455556666" in decision.error


@pytest.mark.parametrize("fields", [{"max_upfront_fee": None}, {"approvers": []}])
def test_case_b16_a_policy_with_a_gap_is_left_to_the_workflow_which_tells_people(fields):
    decision = at(20 * HOUR, **fields)
    assert (decision.action, decision.status) == (Action.EXTEND, Status.ACTIVE)


def test_the_view_of_an_account_that_the_block_is_shared_with_leaves_the_owners_word():
    shared = reservation(OwnerId="444455556666")
    known = {"state": "active", "status": "EXPIRING", "error": "too late"}
    decision = at(2 * HOUR, shared, owner_swept=True, **known)
    assert (decision.status, decision.error) == (Status.EXPIRING, "too late")
    nobodys = at(2 * HOUR, shared, **known)
    assert (nobodys.status, nobodys.error) == (
        Status.NO_ACTION_REQUIRED,
        "the block is owned by account 444455556666; only its owner can extend it",
    )


def test_no_extension_past_extend_until():
    assert at(20 * HOUR, extend_until="2026-05-05T11:29:00Z").action is Action.NONE
    assert at(20 * HOUR, extend_until="2026-05-05T11:30:00Z").action is Action.EXTEND


TARGET = Target(ACCOUNT, "us-east-1", home=True)


def swept(entries, records, now=END - 20 * HOUR):
    return sweep(
        TARGET,
        entries,
        records,
        leftovers=(),
        payment_margin=MARGIN,
        default_approvers=(),
        period=timedelta(minutes=15),
        now=now,
    )


def test_case_b14_other_reservations_are_skipped_and_counted_and_odd_ones_stop_nothing():
    default = {"ReservationType": "default", "EndDateType": "limited", "EndDate": END, "CapacityReservationId": "cr-d"}
    untyped = {key: value for key, value in entry(CapacityReservationId="cr-u").items() if key != "ReservationType"}
    endless = {key: value for key, value in entry(CapacityReservationId="cr-e").items() if key != "EndDate"}
    future = {"CapacityReservationId": "cr-f", "State": "assessing", "ReservationType": "default"}
    result = swept([default, untyped, endless, future, entry()], [record()])
    assert [start["name"] for start in result.starts] == ["cr-0a1-20260504T1130Z"]
    assert result.skipped == 3
    assert result.unreadable == ["reservation cr-e has no EndDate"]


def test_a_bad_record_stops_nothing():
    result = swept([entry()], [{"PK": "broken", "region": "us-east-1"}, record()])
    assert len(result.starts) == 1
    assert result.unreadable[0].startswith("record broken")


def test_no_write_for_a_block_whose_facts_did_not_change():
    first = swept([entry()], [record()], now=END - 49 * HOUR)
    assert len(first.writes) == 1
    mirrored = record(**first.writes[0].changes, status=first.writes[0].status)
    assert swept([entry()], [mirrored], now=END - 49 * HOUR).writes == []


def test_only_what_differs_is_written():
    known = record(state="active", start_time="2026-04-27T11:30:00Z", instance_count=4, owner_id=ACCOUNT)
    moved = entry(EndDate=END + timedelta(days=1))
    assert swept([moved], [known], now=END - 49 * HOUR).writes[0].changes == {"end_time": "2026-05-05T11:30:00Z"}


def test_case_b10_groups_are_rearmed_when_the_end_moved_and_only_then():
    policy = record(groups=[{"auto_scaling_group": "train"}])
    armed = fingerprint(parse_environment(policy), reservation())
    grouped = policy | {"groups_armed": armed}
    assert swept([entry()], [grouped], now=END - 49 * HOUR).starts == []
    moved = swept([entry(EndDate=END + timedelta(days=1))], [grouped], now=END - 49 * HOUR)
    assert [start["workflow"] for start in moved.starts] == ["scale-groups"]


def test_groups_that_a_record_names_no_more_are_let_go():
    forgotten = record(groups_armed="something")
    assert [start["workflow"] for start in swept([entry()], [forgotten], now=END - 49 * HOUR).starts] == [
        "scale-groups"
    ]


def test_what_keeps_a_group_from_following_stays_on_the_record():
    result = swept([entry()], [record(groups_error="train: no such group")], now=END - 49 * HOUR)
    assert result.writes[0].error == "train: no such group"


def test_a_block_that_does_not_exist_is_an_error_with_a_remedy():
    result = swept([], [record()])
    assert result.writes[0].status is Status.ERROR
    assert "no such Capacity Block in us-east-1 (correct capacity_block_id or region" in result.writes[0].error


def test_an_expired_block_that_ec2_forgot_is_expired():
    assert swept([], [record()], now=END + HOUR).writes[0].status is Status.EXPIRED


def test_another_accounts_sweep_does_not_miss_our_blocks():
    away = Target("444455556666", "us-east-1", home=False)
    result = sweep(
        away,
        [],
        [record(owner_id=ACCOUNT)],
        leftovers=(),
        payment_margin=MARGIN,
        default_approvers=(),
        period=timedelta(minutes=15),
        now=END,
    )
    assert result.writes == []


@pytest.mark.parametrize(
    ("outcome", "before", "told"),
    [
        ("unknown", "2026-05-04T11:30:00Z", True),
        ("payment_failed", "2026-05-04T11:30:00Z", True),
        # Its workflow goes on, or has told it itself.
        ("purchased", "2026-05-04T11:30:00Z", False),
        ("confirmed", "2026-05-04T11:30:00Z", False),
        ("no_offering", "2026-05-04T11:30:00Z", False),
        # What was said of another end.
        ("unknown", "2026-05-03T11:30:00Z", False),
    ],
)
def test_case_b03_an_end_that_moves_after_all_is_told_when_its_workflow_is_over(outcome, before, told):
    said = record(extension_outcome={"end_date": before, "outcome": outcome})
    (write,) = swept([entry(EndDate=END + timedelta(days=1))], [said]).writes
    if not told:
        assert write.event is None
        return
    kind, facts = write.event
    assert (kind, facts["outcome"], facts["end_date"], facts["end"]) == (
        "Extension Confirmed",
        "confirmed",
        "2026-05-04T11:30:00Z",
        "2026-05-05T11:30:00Z",
    )
    assert outcome.replace("_", " ") in facts["reason"]
    # The record says the new end then, and nothing more is told.
    later = said | {"end_time": "2026-05-05T11:30:00Z"}
    assert all(write.event is None for write in swept([entry(EndDate=END + timedelta(days=1))], [later]).writes)


def new_block(**fields):
    tags = [{"Key": "blockkeeper:purchase", "Value": "cr-0a1#2026-05-04T11:30:00Z#block"}]
    return entry(CapacityReservationId="cr-0n1", State="scheduled", Tags=tags) | fields


GIVEN_UP = {"end_date": "2026-05-04T11:30:00Z", "outcome": "unknown", "reason": "no answer"}


BEFORE, AT_THE_END = END - HOUR, END


@pytest.mark.parametrize(
    ("block", "said", "now", "started"),
    [
        ({}, {}, BEFORE, True),
        ({}, {"outcome": "payment_failed"}, BEFORE, True),
        # One that runs would have seen the payment, and have enrolled the block, long before both old end and new start.
        ({}, {"outcome": "purchased"}, BEFORE, False),
        ({}, {"outcome": "purchased"}, AT_THE_END, True),
        ({"StartDate": END + HOUR}, {"outcome": "purchased"}, AT_THE_END, False),
        ({"StartDate": END + HOUR}, {"outcome": "purchased"}, END + HOUR, True),
        ({"State": "active"}, {"outcome": "offered"}, END + HOUR, True),
        ({}, {"outcome": "not_enrolled"}, END + HOUR, False),
        ({}, {"outcome": "confirmed", "environment": "train-20260504"}, END + HOUR, False),
        ({}, {"end_date": "2026-05-03T11:30:00Z"}, BEFORE, False),
        ({}, {"end_date": "2026-05-03T11:30:00Z"}, AT_THE_END, True),
        ({"State": "payment-pending"}, {}, END + HOUR, False),
        ({"State": "payment-failed"}, {}, END + HOUR, False),
        ({"OwnerId": "444455556666"}, {}, END + HOUR, False),
        ({"Tags": []}, {}, END + HOUR, False),
        ({"Tags": [{"Key": "blockkeeper:purchase", "Value": "cr-0a1#soon#block"}]}, {}, END + HOUR, False),
        ({"Tags": [{"Key": "blockkeeper:purchase", "Value": "cr-0a1#2026-05-04T11:30:00Z"}]}, {}, END + HOUR, False),
    ],
)
def test_case_b17_a_new_block_that_is_paid_for_is_enrolled_after_all(block, said, now, started):
    records = [record(replacement=GIVEN_UP | said, status="EXPIRED")]
    starts = swept([entry(), new_block(**block)], records, now=now).starts
    wanted = {
        "environment": "train",
        "reservation_id": "cr-0a1",
        "account": ACCOUNT,
        "region": "us-east-1",
        "end_date": "2026-05-04T11:30:00Z",
    }
    found = {"workflow": "replace-block", "name": "cr-0a1-20260504T1130Z-replace-found", "input": wanted}
    assert [start for start in starts if start["workflow"] == "replace-block"] == ([found] if started else [])


@pytest.mark.parametrize(
    ("outcome", "now", "started"),
    [
        ("confirmed", END, ["cr-0a1-20260504T1130Z-replace-found"]),
        ("confirmed", BEFORE, []),
        ("replaced", END, []),
        ("groups_not_pointed", END, []),
    ],
)
def test_groups_are_pointed_at_a_new_block_after_all(outcome, now, started):
    """Who enrolled it was stopped before the handover."""
    said = GIVEN_UP | {"outcome": outcome, "environment": "next"}
    records = [record(replacement=said, status="EXPIRED"), record(PK="next", capacity_block_id="cr-0n1")]
    starts = swept([entry(), new_block()], records, now=now).starts
    assert [start["name"] for start in starts if start["workflow"] == "replace-block"] == started


def test_a_new_block_that_has_a_record_needs_nothing():
    records = [record(replacement=GIVEN_UP, status="EXPIRED"), record(PK="next", capacity_block_id="cr-0n1")]
    starts = swept([entry(), new_block()], records, now=END + HOUR).starts
    assert [start for start in starts if start["workflow"] == "replace-block"] == []


def test_a_record_whose_replacement_was_written_by_hand_stops_no_other():
    odd = record(PK="odd", replacement={"outcome": "unknown"})
    result = swept([entry(), new_block()], [odd, record(replacement=GIVEN_UP)], now=BEFORE)
    found = [start for start in result.starts if start["workflow"] == "replace-block"]
    assert [start["input"]["environment"] for start in found] == ["train"]
