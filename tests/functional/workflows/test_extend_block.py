"""extend-block, run with the real handlers against the market: every way out, and nothing bought twice."""

from datetime import timedelta
from itertools import pairwise

import pytest

from .conftest import END, START

DAY = timedelta(days=1)
HOUR = timedelta(hours=1)


def ends(live, execution, state, status):
    """The execution ended in `state`, and the record says `status`."""
    live.world.run_until_idle()
    assert execution.path[-1] == state, execution.path
    assert live.record()["status"] == status
    return execution


def test_a_block_is_extended_without_asking_when_the_policy_says_so(live):
    execution = live.block().enrol().extend()
    ends(live, execution, "Extension confirmed", "EXTENDED")
    assert execution.status == "SUCCEEDED"
    assert live.end() == END + DAY
    assert len(live.orders()) == len(live.bought()) == 1
    assert live.record()["end_time"] == "2026-05-05T11:30:00Z"
    assert live.purchase()["state"] == "BOUGHT"
    assert str(live.reserved()) == live.purchase()["upfront_fee"] == "3986.69"
    assert live.told() == [("Extension Purchased", "purchased"), ("Extension Confirmed", "confirmed")]


def test_case_b47_a_dry_run_goes_all_the_way_and_buys_nothing(dry):
    execution = dry.block().enrol().extend()
    ends(dry, execution, "Dry run finished", "ACTIVE")
    assert (dry.orders(), dry.bought(), dry.end(), dry.purchase()) == ([], [], END, None)
    rehearsed = [call for call in dry.world.market.calls if call.operation == "PurchaseCapacityBlockExtension"]
    assert [call.error for call in rehearsed] == ["DryRunOperation"]


def test_case_b47_no_budget_means_nothing_is_bought(live_without_budget):
    story = live_without_budget
    execution = story.block().enrol().extend()
    ends(story, execution, "Over budget", "ERROR")
    assert "MonthlyLimit" in story.record()["error"]
    assert (execution.status, story.orders()) == ("FAILED", [])


@pytest.mark.parametrize("kind", ["timeout_after", "lost_answer", "error_after"])
def test_case_b17_a_lost_answer_is_looked_up_never_sent_again(live, kind):
    live.world.market.faults.add(kind=kind, operation="PurchaseCapacityBlockExtension")
    execution = live.block().enrol().extend()
    ends(live, execution, "Extension confirmed", "EXTENDED")
    assert execution.path.count("Buy once") == 2
    assert len(live.orders()) == len(live.bought()) == 1
    assert live.purchase()["state"] == "BOUGHT"


def test_case_b17_an_error_without_effect_stays_unknown_and_calls_a_person(live):
    live.world.market.faults.add(kind="error_before", operation="PurchaseCapacityBlockExtension")
    execution = live.block().enrol().extend()
    ends(live, execution, "Outcome unknown", "ERROR")
    assert execution.status == "FAILED"
    assert (len(live.orders()), live.bought()) == (1, [])
    assert live.purchase()["state"] == "UNKNOWN"
    assert live.reserved() > 0  # the money may be spent, so the budget keeps it
    assert live.told()[-1] == ("Extension Failed", "unknown")


@pytest.mark.parametrize("when", ["before", "after"])
def test_cases_b17_b26_a_buyer_that_dies_is_run_again_and_buys_once(live, when):
    live.world.engine.crash("BuyExtension", when=when, error="Sandbox.Timedout")
    execution = live.block().enrol().extend()
    ends(live, execution, "Extension confirmed", "EXTENDED")
    assert len(live.orders()) == len(live.bought()) == 1


def test_a_clear_refusal_gives_the_money_back_and_is_tried_again(live):
    live.world.market.faults.add(kind="denied", operation="PurchaseCapacityBlockExtension")
    execution = live.block().enrol().extend()
    ends(live, execution, "Extension confirmed", "EXTENDED")
    assert [call.error for call in live.orders()] == ["UnauthorizedOperation", None]
    assert str(live.reserved()) == "3986.69"
    assert ("Extension Failed", "refused") in live.told()


def test_a_purchase_that_is_always_refused_ends_in_failure(live):
    live.world.market.faults.add(kind="denied", operation="PurchaseCapacityBlockExtension", times=None)
    execution = live.block().enrol().extend()
    ends(live, execution, "Purchase refused", "ERROR")
    assert execution.status == "FAILED"
    assert live.reserved() == 0
    assert live.told().count(("Extension Failed", "refused")) == 1


def test_case_b11_no_offering_is_looked_for_again_until_the_last_moment(live):
    execution = live.block(offering={"available": False}).enrol().extend()
    ends(live, execution, "No extension offered", "EXTENSION_UNAVAILABLE")
    assert execution.status == "SUCCEEDED"
    assert execution.path.count("Search offerings") > 5
    assert live.told() == [("Extension Failed", "no_offering")]
    assert START + DAY < live.world.now() < END - 2 * HOUR


def test_case_b11_an_offering_that_comes_later_is_bought(live):
    live.world.market.faults.add(kind="empty_offerings", operation="DescribeCapacityBlockExtensionOfferings", times=2)
    execution = live.block().enrol().extend()
    ends(live, execution, "Extension confirmed", "EXTENDED")
    assert execution.path.count("Search offerings") == 3


def test_case_b11_another_length_than_asked_is_not_bought(live):
    live.world.market.faults.add(
        kind="other_durations", operation="DescribeCapacityBlockExtensionOfferings", times=None
    )
    execution = live.block().enrol().extend()
    ends(live, execution, "No extension offered", "EXTENSION_UNAVAILABLE")
    assert live.orders() == []


def test_case_b11_too_dear_is_never_bought_and_a_raised_ceiling_counts_at_the_next_look(live):
    execution = live.block().enrol(max_upfront_fee="3986.68").extend()
    live.world.run_for(HOUR)
    assert "above max_upfront_fee 3,986.68 USD" in live.record()["error"]
    live.enrol(max_upfront_fee="3986.69")
    ends(live, execution, "Extension confirmed", "EXTENDED")


def test_case_b11_always_too_dear_is_never_bought(live):
    execution = live.block().enrol(max_upfront_fee="100").extend()
    ends(live, execution, "Extension too dear", "EXTENSION_UNAVAILABLE")
    assert live.orders() == []


def test_an_unreadable_fee_is_never_bought(live, monkeypatch):
    monkeypatch.setattr("local.market.rules.fee_text", lambda _fee: "1,000")
    execution = live.block().enrol().extend()
    ends(live, execution, "Offering not readable", "EXTENSION_UNAVAILABLE")
    assert (execution.status, live.orders()) == ("FAILED", [])


def test_case_b03_bought_but_not_paid_leaves_the_old_end(live):
    live.block(payment={"minutes": 60, "outcome": "payment-failed"})
    execution = live.enrol().extend()
    ends(live, execution, "Payment failed", "ERROR")
    assert execution.status == "FAILED"
    assert (live.end(), len(live.orders())) == (END, 1)
    assert live.told() == [("Extension Purchased", "purchased"), ("Extension Failed", "payment_failed")]


def test_case_b03_paid_is_not_extended_until_ec2_has_moved_the_end(live):
    live.block(payment={"minutes": 20, "outcome": "payment-succeeded", "end_moves_after_minutes": 90})
    execution = live.enrol().extend()
    live.world.run_for(timedelta(minutes=60))
    assert live.record()["status"] == "EXTENSION_PAYMENT_PENDING"
    assert live.record()["end_time"] == "2026-05-04T11:30:00Z"
    ends(live, execution, "Extension confirmed", "EXTENDED")


def test_case_b20_extended_by_hand_before_we_looked(live):
    live.block().enrol()
    live.buy_by_hand()
    live.world.run_for(HOUR)
    execution = live.extend()
    ends(live, execution, "Superseded", "NO_ACTION_REQUIRED")
    assert (execution.status, len(live.bought())) == ("SUCCEEDED", 1)
    assert live.record()["end_time"] == "2026-05-05T11:30:00Z"


def test_case_b20_a_foreign_order_that_waits_for_payment_is_waited_for(live):
    live.block().enrol()
    live.buy_by_hand()
    execution = live.extend()
    ends(live, execution, "Superseded", "NO_ACTION_REQUIRED")
    assert "Wait and look again" in execution.path
    assert len(live.bought()) == 1


def test_case_b20_a_foreign_order_that_fails_leaves_the_way_to_ours(live):
    live.block(payment={"minutes": 10, "outcome": "payment-failed"}).enrol()
    live.buy_by_hand()
    execution = live.extend()
    live.world.run_for(timedelta(minutes=12))
    live.world.market.blocks.get("cr-0a1", "us-east-1").payment.outcome = "payment-succeeded"
    ends(live, execution, "Extension confirmed", "EXTENDED")
    assert [extension.status for extension in live.bought()] == ["payment-failed", "payment-succeeded"]


def test_case_b18_a_read_that_fails_is_tried_again_and_buys_nothing_meanwhile(live):
    live.world.market.faults.add(kind="denied", operation="DescribeCapacityReservations", times=12)
    execution = live.block().enrol().extend()
    ends(live, execution, "Extension confirmed", "EXTENDED")
    assert ("Extension Failed", "failed") in live.told()
    assert len(live.orders()) == 1


def test_a_block_that_can_never_be_read_ends_in_failure(live):
    live.world.market.faults.add(kind="denied", operation="DescribeCapacityReservations", times=None)
    execution = live.block().enrol().extend()
    ends(live, execution, "Extension failed", "ERROR")
    assert (execution.status, live.orders()) == ("FAILED", [])
    assert live.told() == [("Extension Failed", "failed")]


def test_case_b43_throttled_searches_back_off(live):
    live.world.market.faults.add(kind="describe_limit", operation="DescribeCapacityBlockExtensionOfferings", times=3)
    live.world.market.faults.add(kind="throttle", operation="DescribeCapacityBlockExtensionHistory", times=4)
    execution = live.block().enrol().extend()
    ends(live, execution, "Extension confirmed", "EXTENDED")


def test_payment_that_cannot_be_read_is_read_again(live):
    execution = live.block().enrol().extend()
    live.world.run_for(timedelta(seconds=30))
    live.world.market.faults.add(kind="denied", operation="DescribeCapacityBlockExtensionHistory", times=8)
    ends(live, execution, "Extension confirmed", "EXTENDED")


@pytest.mark.parametrize(
    ("fields", "state", "status"),
    [
        ({"max_upfront_fee": None}, "Purchase not allowed", "ERROR"),
        ({"approvers": [], "require_approval": True}, "Purchase not allowed", "ERROR"),
        ({"extend_until": "2026-05-05T11:00:00Z"}, "Purchase not allowed", "ERROR"),
    ],
)
def test_a_policy_that_does_not_allow_it_buys_nothing(live, fields, state, status):
    execution = live.block().enrol(**fields).extend()
    ends(live, execution, state, status)
    assert live.orders() == []
    assert live.record()["error"]


def test_a_record_that_is_for_another_block_buys_nothing_and_stays_as_it_is(live):
    execution = live.block().enrol(capacity_block_id="cr-0b2").extend()
    live.world.run_until_idle()
    assert (execution.path[-1], live.orders()) == ("Nothing to extend", [])
    assert live.told() == [("Extension Failed", "not_extendable")]
    assert "status" not in live.record()


def test_case_b34_a_block_in_an_unknown_state_is_left(live):
    execution = live.block(state="something-new").enrol().extend()
    ends(live, execution, "Nothing to extend", "ERROR")
    assert "something-new" in live.record()["error"]
    assert live.orders() == []


def test_a_record_that_is_gone_buys_nothing(live):
    execution = live.block().extend()
    live.world.run_until_idle()
    assert execution.path[-1] == "Nothing to extend"
    assert live.orders() == []


def test_too_late_is_said_once_and_buys_nothing(live):
    live.block().enrol()
    live.world.run_until(END - 3 * HOUR)
    execution = live.extend()
    ends(live, execution, "Too late to extend", "EXPIRING")
    assert (execution.status, live.orders()) == ("SUCCEEDED", [])
    assert live.told() == [("Block Expiring", "too_late")]


def test_case_b47_a_replay_of_an_old_execution_buys_nothing(live):
    live.block().enrol().extend()
    live.world.run_until_idle()
    again = live.extend(name="a-replay")
    live.world.run_until_idle()
    assert again.path[-1] == "Extension confirmed"  # it finds what was bought, and says so
    assert len(live.orders()) == len(live.bought()) == 1


def test_case_b25_the_next_end_is_a_new_purchase(live):
    live.block().enrol().extend()
    live.world.run_until_idle()
    second = live.extend(name="cr-0a1-20260505T1130Z", end="2026-05-05T11:30:00Z")
    ends(live, second, "Extension confirmed", "EXTENDED")
    assert live.end() == END + 2 * DAY
    assert len(live.orders()) == 2


def test_two_runs_at_once_buy_once(live):
    live.block().enrol()
    first, second = live.extend(), live.extend(name="by-hand")
    live.world.run_until_idle()
    assert {first.path[-1], second.path[-1]} <= {"Extension confirmed", "Superseded"}
    assert len(live.orders()) == len(live.bought()) == 1


def test_a_redriven_execution_buys_once(live):
    live.world.engine.crash("Scale the groups", when="before", error="States.TaskFailed")
    execution = live.block().enrol().extend()
    live.world.run_until_idle()
    assert execution.path[-1] == "Groups not scaled"
    live.world.engine.redrive(execution)
    live.world.run_until_idle()
    assert len(live.orders()) == len(live.bought()) == 1


def test_two_blocks_that_together_exceed_the_limit_only_one_is_bought(live_with_room_for_one):
    story = live_with_room_for_one
    story.block().block("cr-0b2").enrol().enrol("other", capacity_block_id="cr-0b2")
    story.extend()
    other = {"environment": "other", "reservation_id": "cr-0b2", "account": "123456789012", "region": "us-east-1"}
    story.world.start("ExtendBlock", other | {"end_date": "2026-05-04T11:30:00Z"}, "cr-0b2-20260504T1130Z")
    story.world.run_until_idle()
    assert len(story.orders()) == 1
    assert len(story.bought()) + len(story.bought("cr-0b2")) == 1


def test_case_b20_somebody_buys_between_our_search_and_our_order(live):
    live.world.engine.crash("BuyExtension", when="before")
    execution = live.block().enrol().extend()
    live.world.run_for(timedelta(seconds=30))
    live.buy_by_hand()
    ends(live, execution, "Superseded", "NO_ACTION_REQUIRED")
    assert len(live.bought()) == 1
    assert live.purchase() is None


def test_a_search_that_fails_for_long_is_tried_again_later(live):
    for nth in range(1, 7):
        live.world.engine.crash("SearchOfferings", nth, when="before")
    execution = live.block().enrol().extend()
    ends(live, execution, "Extension confirmed", "EXTENDED")
    assert ("Extension Failed", "failed") in live.told()


@pytest.mark.parametrize(("first", "state"), [(1, "Record the purchase"), (2, "Record the outcome")])
def test_what_cannot_be_recorded_is_tried_again(live, first, state):
    live.world.engine.crash("RecordExtension", first, when="before")
    execution = live.block().enrol().extend()
    ends(live, execution, "Extension confirmed", "EXTENDED")
    assert execution.path.count(state) == 1


def test_a_purchase_that_cannot_be_recorded_is_followed_all_the_same(live):
    for nth in range(1, 7):
        live.world.engine.crash("RecordExtension", nth, when="before")
    execution = live.block().enrol().extend()
    ends(live, execution, "Extension confirmed", "EXTENDED")


def test_a_miss_that_cannot_be_recorded_does_not_stop_the_search(live):
    live.world.market.faults.add(kind="empty_offerings", operation="DescribeCapacityBlockExtensionOfferings")
    for nth in range(1, 7):
        live.world.engine.crash("RecordExtension", nth, when="before")
    execution = live.block().enrol().extend()
    ends(live, execution, "Extension confirmed", "EXTENDED")


def test_an_outcome_that_cannot_be_recorded_ends_in_failure(live):
    for nth in range(2, 8):
        live.world.engine.crash("RecordExtension", nth, when="before")
    execution = live.block().enrol().extend()
    live.world.run_until_idle()
    assert (execution.path[-1], execution.error) == ("Outcome not recorded", "OutcomeNotRecorded")
    assert len(live.bought()) == 1


def test_a_shorter_length_of_the_policy_is_bought_when_the_wanted_one_is_not_offered(live):
    execution = live.block(offering={"available": True, "hours": [24, 48]})
    execution = live.enrol(extend_by_days=7, fallback_days=[3, 2, 1]).extend()
    ends(live, execution, "Extension confirmed", "EXTENDED")
    assert live.end() == END + 2 * DAY


def test_past_the_last_moment_a_block_expires_once(live):
    live.block(offering={"available": False}).enrol().extend()
    live.world.run_until(END - 3 * HOUR - timedelta(minutes=1))
    for _ in range(6):
        live.world.start("DetectExpiry", {})
        live.world.run_for(timedelta(minutes=1))
    assert live.record()["status"] == "EXPIRING"
    assert [detail_type for detail_type, _ in live.told()].count("Block Expiring") == 1


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"end_date": "tomorrow"}, "end_date"),
        ({"account": 111122223333}, "account is"),
        ({"reservation_id": "cb-0a1"}, "copy CapacityReservationId"),
        ({"surprise": True}, "surprise"),
    ],
)
def test_a_malformed_input_is_refused_at_once_with_field_rule_and_remedy(live, change, text):
    block = {"environment": "train", "reservation_id": "cr-0a1", "account": "123456789012", "region": "us-east-1"}
    execution = live.world.start("ExtendBlock", block | {"end_date": "2026-05-04T11:30:00Z"} | change)
    live.world.run_until_idle()
    assert (execution.path[-1], execution.error) == ("Input refused", "InputRefused")
    assert text in execution.cause
    assert live.world.now() - START < timedelta(minutes=1)


def test_what_became_of_an_old_end_is_not_written_over_the_next_ones_word(live):
    live.block().enrol(end_time="2026-05-05T11:30:00Z", status="EXTENSION_APPROVAL_REQUIRED")
    block = {"environment": "train", "reservation_id": "cr-0a1", "account": "123456789012", "region": "us-east-1"}
    event = {"block": block | {"end_date": "2026-05-04T11:30:00Z"}, "outcome": "confirmed", "reason": "moved"}
    answer = live.world.invoke(
        "RecordExtension", event | {"end": "2026-05-05T11:30:00Z", "now": "2026-05-03T11:30:00Z"}
    )
    assert answer["published"] is True
    assert live.record()["status"] == "EXTENSION_APPROVAL_REQUIRED"


def test_all_lengths_are_searched_again_at_growing_pauses_until_the_last_moment(live):
    """From three days before the last moment to decide, 2026-05-04T08:30:00Z, until within five minutes of it."""
    live.block(offering={"available": False}).enrol(extend_by_days=3, fallback_days=[2, 1])
    execution = live.extend()
    live.world.run_until_idle()
    assert execution.path[-1] == "No extension offered"
    calls = [call for call in live.world.market.calls if call.operation == "DescribeCapacityBlockExtensionOfferings"]
    hours = [call.params["CapacityBlockExtensionDurationHours"] for call in calls]
    assert hours == [72, 48, 24] * (len(hours) // 3), "shorter ones each time, the wanted one first"
    times = [call.at for call in calls[::3]]
    pauses = [later - earlier for earlier, later in pairwise(times)]
    assert pauses[:6] == [timedelta(minutes=minutes) for minutes in (15, 30, 60, 120, 240, 360)]
    turn = pauses.index(max(pauses)) + pauses.count(max(pauses))
    assert pauses[:turn] == sorted(pauses[:turn])
    assert pauses[turn:] == sorted(pauses[turn:], reverse=True), "and shorter again towards the end"
    assert min(pauses) >= timedelta(minutes=5)
    assert END - 3 * HOUR - timedelta(minutes=5) <= times[-1] < END - 3 * HOUR
