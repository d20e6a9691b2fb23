"""Every order comes to its true end by itself, whoever died meanwhile; and what was reserved and not spent is given back."""

from datetime import timedelta
from decimal import Decimal

import pytest
from faults.rules import People, broken_rules

from blockkeeper.aws import ledger
from blockkeeper.domain.budget import Limits
from blockkeeper.domain.ledger import Claim, PurchaseState
from blockkeeper.domain.offering import Offering
from local.engine.call_faults import Site
from local.engine.errors import StateError
from local.engine.world import ACCOUNT

from .conftest import END, Story, a_story
from .test_detect_expiry import sweep
from .test_replace_block import KEY as BLOCK_KEY
from .test_replace_block import PlanB

MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
FEE = Decimal("3986.69")
KEY = "cr-0a1#2026-05-04T11:30:00Z"
INTENT = Site("BuyExtension", "dynamodb", "TransactWriteItems", 1)
ORDER = Site("BuyExtension", "ec2", "PurchaseCapacityBlockExtension", 1)
OK = ("SUCCEEDED", None)
UNTIL = "2026-05-05T13:00:00Z"


@pytest.fixture
def plan_b():
    with a_story() as world:
        yield PlanB(world)


@pytest.fixture
def late_payments(monkeypatch):
    """EC2 takes a payment, or gives it up, 15 minutes later than its documents say: T - 20 minutes."""
    monkeypatch.setattr("local.market.rules.EXTENSION_PAYMENT_CLOSES", timedelta(minutes=20))


def stopped(story, site, kind):
    """The buyer dies at a call, and its workflow with it: nobody looks any more."""
    story.world.call_faults.plan(kind, site, "attempt")
    execution = story.extend()
    story.world.run_for(timedelta(seconds=1))
    story.world.engine.stop(execution)
    return story


def swept(story):
    execution = sweep(story)
    return execution.status, execution.error


def counted(story, metric):
    """Whether the metric was written above zero since the last look."""
    text = story.world.logs.getvalue()
    story.world.logs.seek(0)
    story.world.logs.truncate()
    return f'"{metric}":[1' in text.replace(" ", "")


# ---------------------------------------------------------------- Payments after the workflow has given up


@pytest.mark.usefixtures("late_payments")
@pytest.mark.parametrize("workflow", ["ended", "died"])
def test_case_b03_a_payment_that_fails_after_the_last_moment_gives_the_fee_back(live, workflow):
    live.world.run_until(END - 5 * HOUR)
    execution = live.block(payment={"minutes": 600}).enrol().extend()
    if workflow == "died":
        live.world.run_for(5 * MINUTE)
        live.world.engine.stop(execution)
    live.world.run_until(END - 25 * MINUTE)
    assert swept(live) == OK
    assert (execution.error, live.purchase().get("ec2_status")) == (
        "PaymentFailed" if workflow == "ended" else None,
        None,
    )
    assert live.reserved() == FEE
    live.world.run_until(END - 19 * MINUTE)
    assert swept(live) == OK
    entry = live.purchase()
    assert (entry["state"], entry["ec2_status"], entry["ec2_fee"]) == ("BOUGHT", "payment-failed", "0")
    assert live.reserved() == 0
    assert "bought" not in live.item("unresolved", "cr-0a1")
    before = live.items("purchase"), live.items("budget")
    assert swept(live) == OK
    assert (live.items("purchase"), live.items("budget")) == before


@pytest.mark.usefixtures("late_payments")
def test_a_payment_that_fails_late_lets_a_waiting_plan_b_go_on(plan_b):
    """The extension's workflow is gone; plan B waits beside its order, and buys once EC2 has given the payment up."""
    plan_b.world.run_until(END - 5 * HOUR)
    plan_b.without_extension(supply=[{"start": "2026-05-04T20:00:00Z"}])
    block = plan_b.world.market.blocks.get("cr-0a1", "us-east-1")
    block.offering.available, block.payment.minutes = True, 600
    execution = plan_b.extend()
    plan_b.world.run_for(5 * MINUTE)
    plan_b.world.engine.stop(execution)
    plan_b.world.run_until(END - 2 * HOUR)
    waiting = plan_b.replace()
    plan_b.world.run_until(END - 22 * MINUTE)
    assert (plan_b.purchases(), waiting.status) == ([], "RUNNING")
    plan_b.world.run_until(END - 19 * MINUTE)
    assert swept(plan_b) == OK
    plan_b.world.run_for(HOUR)
    assert len(plan_b.purchases()) == 1
    assert plan_b.item("purchase", BLOCK_KEY)["state"] == "BOUGHT"


@pytest.mark.usefixtures("late_payments")
def test_a_payment_that_is_taken_after_the_last_moment_is_kept(live):
    live.world.run_until(END - 5 * HOUR)
    execution = live.block(payment={"minutes": 275, "end_moves_after_minutes": 0}).enrol(extend_until=UNTIL).extend()
    live.world.run_until(END - 24 * MINUTE)
    assert execution.error == "PaymentFailed"
    assert live.end() == END + DAY
    assert swept(live) == OK
    assert (live.purchase()["ec2_status"], live.purchase()["ec2_fee"]) == ("payment-succeeded", "3986.69")
    assert live.reserved() == FEE


# ---------------------------------------------------------------- Orders whose workflow is gone


def test_case_b26_an_intent_that_a_crash_left_behind_gives_its_fee_back_when_nobody_can_be_at_it(live):
    stopped(live.block().enrol(), INTENT, "crash_after")
    live.world.run_for(14 * MINUTE)
    assert swept(live) == OK
    assert (live.purchase()["state"], live.reserved() > 0) == ("INTENT", True)
    live.world.run_for(2 * MINUTE)
    live.world.calls.clear()
    assert swept(live) == OK
    assert (live.purchase()["state"], live.reserved()) == ("REFUSED", 0)
    assert "stopped before" in live.purchase()["reason"]
    assert not [call for call in live.world.calls if (call.caller, call.service) == ("SettleOrders", "ec2")]
    # The same approval or none, another attempt: nothing stands in its way.
    live.extend("cr-0a1-20260504T1130Z-again")
    live.world.run_until_idle()
    assert (live.purchase()["state"], len(live.orders())) == ("BOUGHT", 1)


@pytest.mark.parametrize(("kind", "becomes"), [("crash_before", "UNKNOWN"), ("crash_after", "BOUGHT")])
def test_cases_b17_b26_a_sent_order_whose_workflow_is_gone_is_looked_up(live, kind, becomes):
    stopped(live.block(payment={"minutes": 120}).enrol(), ORDER, kind)
    assert live.purchase()["state"] == "SENT"
    live.world.run_for(16 * MINUTE)
    assert swept(live) == OK
    assert live.purchase()["state"] == becomes
    assert live.reserved() == FEE
    held = live.item("unresolved", "cr-0a1")
    assert (held.get("ledger_id"), held.get("bought")) == ((KEY, None) if becomes == "UNKNOWN" else (None, KEY))
    live.world.run_for(2 * HOUR)
    assert swept(live) == OK
    assert live.purchase().get("ec2_status") == (None if becomes == "UNKNOWN" else "payment-succeeded")
    assert len(live.orders()) == (becomes == "BOUGHT")


def test_case_b17_an_unknown_order_that_ec2_shows_hours_later_is_adopted_and_its_alarm_ends(live):
    live.world.market.extensions.history_lags = 3 * HOUR
    live.world.market.faults.add(kind="lost_answer", operation="PurchaseCapacityBlockExtension")
    execution = live.block(payment={"minutes": 200}).enrol().extend()
    live.world.run_for(2 * HOUR)
    assert (execution.error, live.purchase()["state"]) == ("OutcomeUnknown", "UNKNOWN")
    counted(live, "PurchaseUnknown")
    assert (swept(live), counted(live, "PurchaseUnknown")) == (OK, True)
    live.world.run_for(HOUR)
    assert swept(live) == OK
    assert live.purchase()["state"] == "BOUGHT"
    assert live.purchase()["reason"] == "EC2 shows our order as payment-pending"
    assert '"order settled"' in live.world.logs.getvalue()
    counted(live, "PurchaseUnknown")
    assert (swept(live), counted(live, "PurchaseUnknown")) == (OK, False)
    live.world.run_for(HOUR)
    assert swept(live) == OK
    assert live.purchase()["ec2_status"] == "payment-succeeded"


@pytest.mark.parametrize("outcome", ["payment-succeeded", "payment-failed"])
def test_an_order_of_a_new_block_whose_workflow_is_gone_is_found_by_its_tag(plan_b, outcome):
    if outcome == "payment-failed":
        plan_b.world.market.faults.add(kind="payment_failure", operation="PurchaseCapacityBlock")
    plan_b.without_extension(group=False)
    site = ORDER._replace(caller="BuyBlock", operation="PurchaseCapacityBlock")
    plan_b.world.call_faults.plan("crash_after", site, "attempt")
    execution = plan_b.replace()
    plan_b.world.run_for(timedelta(seconds=1))
    plan_b.world.engine.stop(execution)
    assert plan_b.item("purchase", BLOCK_KEY)["state"] == "SENT"
    plan_b.world.run_for(2 * HOUR)
    assert swept(plan_b) == OK
    entry = plan_b.item("purchase", BLOCK_KEY)
    assert (entry["state"], entry["ec2_status"]) == ("BOUGHT", outcome)
    assert (plan_b.reserved() > 0) == (outcome == "payment-succeeded")
    assert plan_b.item("unresolved", "cr-0a1").get("bought") == (BLOCK_KEY if outcome == "payment-succeeded" else None)


def test_case_b20_an_unknown_order_is_refused_once_somebody_elses_from_the_same_end_is_paid(live):
    stopped(live.block().enrol(), ORDER, "crash_before")
    live.world.run_for(16 * MINUTE)
    assert (swept(live), live.purchase()["state"]) == (OK, "UNKNOWN")
    # At another price it is another offering.
    live.world.market.blocks.get("cr-0a1", "us-east-1").hourly_rate *= 2
    live.buy_by_hand()
    live.world.run_for(HOUR)
    assert swept(live) == OK
    assert (live.purchase()["state"], live.reserved()) == ("REFUSED", 0)


# ---------------------------------------------------------------- What people hear of it


def confirmations(story):
    return [
        event["detail"]
        for event in story.world.events
        if event["detail-type"] in ("Extension Confirmed", "Replacement Confirmed")
    ]


def test_cases_b03_b17_an_unknown_order_that_is_paid_after_all_moves_the_groups_and_is_told_once(live):
    live.world.market.extensions.history_lags = 3 * HOUR
    live.world.market.faults.add(kind="lost_answer", operation="PurchaseCapacityBlockExtension")
    live.block(payment={"minutes": 200, "end_moves_after_minutes": 10})
    place = {"region": "us-east-1", "availability_zone": "us-east-1a", "reservation_id": "cr-0a1"}
    live.world.market.load_fleet({"groups": [{"name": "nodes", "min": 0, "max": 4, "desired": 4} | place]})
    live.enrol(groups=[{"auto_scaling_group": "nodes"}], extend_until=UNTIL)
    sweep(live)
    assert live.extend().error is None
    live.world.run_for(2 * HOUR)
    assert live.told()[-1] == ("Extension Failed", "unknown")
    live.world.run_for(2 * HOUR)
    for _ in range(2):
        sweep(live)
        live.world.run_for(5 * MINUTE)
    (told,) = confirmations(live)
    assert (told["end_date"], told["end"]) == ("2026-05-04T11:30:00Z", "2026-05-05T11:30:00Z")
    assert "after all; what was told before was: unknown" in told["reason"]
    assert [mail.subject for mail in live.world.mails() if "now runs until" in mail.subject]
    assert live.record()["end_time"] == "2026-05-05T11:30:00Z"
    assert live.scheduled_actions("nodes")["blockkeeper-cr-0a1-end"] == END + DAY - 37 * MINUTE
    assert live.purchase()["ec2_status"] == "payment-succeeded"


def test_case_b17_a_new_block_that_ec2_shows_after_its_workflow_has_ended_is_enrolled_and_taken_into_use(
    plan_b, monkeypatch
):
    """EC2's answer is lost, and for two hours no list shows the block."""
    plan_b.world.market.faults.add(kind="lost_answer", operation="PurchaseCapacityBlock")
    blocks, hidden = plan_b.world.market.blocks, [True]
    visible = blocks.visible
    monkeypatch.setattr(
        blocks,
        "visible",
        lambda caller: [each for each in visible(caller) if not (hidden[0] and "blockkeeper:purchase" in each.tags)],
    )
    plan_b.without_extension()
    execution = plan_b.replace()
    plan_b.world.run_for(2 * HOUR)
    assert (execution.error, plan_b.said(), plan_b.item("purchase", BLOCK_KEY)["state"]) == (
        "OutcomeUnknown",
        "unknown",
        "UNKNOWN",
    )
    hidden[0] = False
    for _ in range(2):
        sweep(plan_b)
    assert plan_b.item("purchase", BLOCK_KEY)["ec2_status"] == "payment-succeeded"
    plan_b.world.run_for(30 * MINUTE)
    found = [each for each in plan_b.world.executions("ReplaceBlock") if each.name.endswith("-replace-found")]
    assert len(found) == 1
    (block,) = plan_b.new_blocks()
    assert block.reservation_id in {record["capacity_block_id"] for record in plan_b.items("environment")}
    assert len(plan_b.purchases()) == 1
    plan_b.world.run_until(END + 3 * HOUR)
    assert found[0].output["outcome"] == "replaced"
    assert plan_b.group()["AvailabilityZones"] == ["us-east-1b"]


# ---------------------------------------------------------------- One thing never stops the others


def test_without_open_orders_it_costs_one_query(live):
    live.block().enrol().extend()
    live.world.run_until_idle()
    assert live.purchase()["ec2_status"] == "payment-succeeded"
    live.world.calls.clear()
    assert swept(live) == OK
    made = [(call.service, call.operation) for call in live.world.calls if call.caller == "SettleOrders"]
    assert made == [("dynamodb", "Query")]


def test_an_order_that_cannot_be_read_stops_neither_the_others_nor_the_sweep(live):
    stopped(live.block().enrol(), INTENT, "crash_after")
    entry = {k: v for k, v in live.purchase().items() if k != "kind"} | {"budgets": ["2026-05"], "duration_hours": 24}
    live.put("purchase", entry | {"id": "cr-0000#2026-05-04T11:30:00Z", "upfront_fee": "many"})
    live.put("purchase", entry | {"id": "cr-0001#tomorrow", "state": "UNKNOWN"})
    # One of another account and one of another Region are theirs to settle.
    live.put("purchase", entry | {"id": "cr-0002#2026-05-04T11:30:00Z", "account": "444455556666"})
    live.put("purchase", entry | {"id": "cr-0003#2026-05-04T11:30:00Z", "region": "us-west-2"})
    live.world.run_for(16 * MINUTE)
    assert swept(live) == OK
    states = {entry["id"].split("#")[0]: entry["state"] for entry in live.items("purchase")}
    assert states == {
        "cr-0000": "INTENT",
        "cr-0001": "UNKNOWN",
        "cr-0002": "INTENT",
        "cr-0003": "INTENT",
        "cr-0a1": "REFUSED",
    }
    assert '"Unreadable":[2' in live.world.logs.getvalue().replace(" ", "")


def test_an_order_of_a_block_that_ec2_has_forgotten_waits_for_a_person(live):
    stopped(live.block().enrol(), ORDER, "crash_before")
    live.world.run_until(END + live.world.market.blocks.forgotten_after + DAY)
    assert swept(live) == OK
    assert live.purchase()["state"] == "UNKNOWN"


def test_case_b18_orders_that_cannot_be_settled_never_stop_the_sweep_and_are_named(live):
    live.block().enrol()
    live.world.run_until(END - 30 * HOUR)
    live.world.engine.crash("SettleOrders", when="before", times=None)
    execution = sweep(live)
    live.world.run_for(MINUTE)
    assert [started.name for started in live.world.executions("ExtendBlock")] == ["cr-0a1-20260504T1130Z"]
    assert (execution.status, execution.error) == ("FAILED", "TargetsNotSwept")
    assert "orders not settled: Lambda.Unknown" in execution.cause
    live.world.engine.calm()
    assert swept(live) == OK


def test_case_b18_when_ec2_cannot_be_read_nothing_is_settled(live):
    # Of the purchase itself no event comes, which would start a sweep.
    live.world.market.faults.add(kind="drop_event", times=None)
    stopped(live.block().enrol(), ORDER, "crash_after")
    live.world.run_for(16 * MINUTE)
    live.world.market.faults.add(kind="denied", operation="DescribeCapacityBlockExtensionHistory", times=1)
    assert swept(live) == OK
    assert live.purchase()["state"] == "SENT"
    assert "UnauthorizedOperation" in live.world.logs.getvalue()
    live.world.market.faults.add(kind="denied", operation="DescribeCapacityReservations", times=50)
    assert sweep(live).status != "SUCCEEDED"
    live.world.market.faults.clear()
    assert live.purchase()["state"] == "SENT"
    live.world.run_for(5 * MINUTE)
    assert swept(live) == OK
    assert live.purchase()["state"] == "BOUGHT"


# ---------------------------------------------------------------- Beside a buyer, a person and itself


def settle(story, now=None):
    """One more run of the function, at a time that its clock may be ahead of."""
    place = {"account": ACCOUNT, "region": "us-east-1"}
    return story.world.invoke("SettleOrders", place | {"now": f"{now or story.world.now():%Y-%m-%dT%H:%M:%SZ}"})


def sites(story, caller):
    return list(dict.fromkeys(call.site for call in story.world.calls if call.caller == caller))


def told_truly(story):
    """What the ledger says is what EC2 took, and the budget has reserved exactly that."""
    people = People(policies={"train": {k: v for k, v in story.record().items() if k not in {"id", "kind"}}})
    return broken_rules(story, people, final=True, tended=True)


COURSES = {
    "taken": {},
    "refused": {"kind": "price_change", "operation": "PurchaseCapacityBlockExtension", "percent": "5"},
    "lost": {"kind": "lost_answer", "operation": "PurchaseCapacityBlockExtension"},
    "never arrived": {"kind": "error_before", "operation": "PurchaseCapacityBlockExtension"},
    "unpaid": {"kind": "payment_failure", "operation": "PurchaseCapacityBlockExtension"},
}


def course(fault, *, at=None):
    """The whole way of an extension; just before the buyer's call `at` orders are settled, by a clock that is an hour ahead."""
    with a_story() as world:
        story = Story(world)
        if fault:
            world.market.faults.add(**fault)
        if at is not None:
            world.call_faults.plan("overtaken", at, "attempt", lambda: settle(story, world.now() + HOUR))
        story.block(payment={"minutes": 5}).enrol(max_upfront_fee="4500").extend()
        world.run_for(2 * HOUR)
        sweep(story)
        return sites(story, "BuyExtension"), told_truly(story), story.purchase()["state"], story.reserved()


@pytest.mark.parametrize("name", COURSES)
def test_orders_are_settled_at_any_moment_of_a_buyer_and_nothing_else_comes_of_it(name):
    calls, wrong, state, reserved = course(COURSES[name])
    assert wrong == []
    # From its INTENT on there is something to settle.
    after = calls[calls.index(INTENT) + 1 :]
    assert len(after) > 1
    for site in after:
        assert course(COURSES[name], at=site)[1:] == ([], state, reserved), str(site)


@pytest.fixture
def own_table(live, monkeypatch):
    (monkeypatch.setenv("TABLE_NAME", live._table), monkeypatch.setenv("ACCOUNT_ID", ACCOUNT))
    return live


def retried(story, order_again):
    """A person says that it was not bought, or the stale INTENT is released, and another attempt takes its place."""
    read = ledger.read(KEY)
    if read.state is PurchaseState.INTENT:
        ledger.release(KEY, read, "stopped", story.world.now())
    else:
        ledger.resolve(KEY, read, Claim.NOT_BOUGHT, who="arn:ann", reason="case 1", now=story.world.now())
    offering = Offering("cbe-other", 24, END + DAY, Decimal(100))
    intent = ledger.Intent("train", "cr-0a1", ACCOUNT, "us-east-1", END, offering, None, None)
    limits = Limits(Decimal(50000))
    intended = ledger.intend(KEY, intent, ledger.read(KEY), limits, story.world.now())
    if order_again:
        ledger.mark_sent(KEY, intended, story.world.now())


@pytest.mark.parametrize("order_again", [True, False])
@pytest.mark.parametrize(("site", "kind"), [(INTENT, "crash_after"), (ORDER, "crash_before"), (ORDER, "crash_after")])
def test_another_attempt_that_took_the_place_of_what_was_read_is_left_alone(own_table, site, kind, order_again):
    live = own_table
    live.world.market.faults.add(kind="drop_event", times=None)
    stopped(live.block().enrol(), site, kind)
    if kind == "crash_before":
        # Ours was never taken; somebody else's is, so that EC2 speaks against ours.
        live.world.market.blocks.get("cr-0a1", "us-east-1").hourly_rate *= 2
        live.buy_by_hand()
    live.world.run_for(20 * MINUTE)
    left = {k: v for k, v in live.purchase().items() if k != "kind"} | {"budgets": ["2026-05"], "duration_hours": 24}
    held = live.item("unresolved", "cr-0a1")
    live.world.calls.clear()
    settle(live)
    calls = sites(live, "SettleOrders")
    written = next(nth for nth, call in enumerate(calls) if call.operation == "TransactWriteItems")
    for call in calls[1 : written + 1]:
        live.put("purchase", left)
        live.put("budget", {"id": "2026-05", "reserved": int(FEE * 1_000_000)})
        live.put("unresolved", {k: v for k, v in (held or {"id": "cr-0a1"}).items() if k != "kind"})
        live.world.call_faults.plan("overtaken", call, "attempt", lambda: retried(live, order_again))
        settle(live)
        entry = live.purchase()
        assert (entry["state"], entry["offering_id"]) == ("SENT" if order_again else "INTENT", "cbe-other"), str(call)
        assert live.reserved() == 100
        assert live.item("unresolved", "cr-0a1").get("ledger_id") == (KEY if order_again else None)


@pytest.mark.parametrize(("site", "kind"), [(INTENT, "crash_after"), (ORDER, "crash_after")])
def test_two_that_settle_at_once_write_once(own_table, site, kind):
    live = own_table
    live.world.market.faults.add(kind="drop_event", times=None)
    stopped(live.block(payment={"minutes": 5, "outcome": "payment-failed"}).enrol(), site, kind)
    live.world.run_for(20 * MINUTE)
    left = {k: v for k, v in live.purchase().items() if k != "kind"} | {"budgets": ["2026-05"], "duration_hours": 24}
    held = live.item("unresolved", "cr-0a1")
    live.world.calls.clear()
    settle(live)
    for call in sites(live, "SettleOrders"):
        live.put("purchase", left)
        live.put("budget", {"id": "2026-05", "reserved": int(FEE * 1_000_000)})
        live.put("unresolved", {k: v for k, v in (held or {"id": "cr-0a1"}).items() if k != "kind"})
        live.world.call_faults.plan("overtaken", call, "attempt")
        settle(live)
        assert (live.reserved(), live.purchase()["state"]) == (0, "REFUSED" if site is INTENT else "BOUGHT")
        assert not {"ledger_id", "bought"} & (live.item("unresolved", "cr-0a1") or {}).keys()


@pytest.mark.parametrize("kind", ["crash_before", "crash_after"])
def test_settling_that_dies_at_any_of_its_calls_is_made_good_by_the_next(live, kind):
    live.world.market.faults.add(kind="drop_event", times=None)
    stopped(live.block(payment={"minutes": 5, "outcome": "payment-failed"}).enrol(), ORDER, "crash_after")
    live.world.run_for(20 * MINUTE)
    left = {k: v for k, v in live.purchase().items() if k != "kind"} | {"budgets": ["2026-05"], "duration_hours": 24}
    held = {k: v for k, v in live.item("unresolved", "cr-0a1").items() if k != "kind"}
    live.world.calls.clear()
    settle(live)
    for call in sites(live, "SettleOrders"):
        live.put("purchase", left)
        live.put("budget", {"id": "2026-05", "reserved": int(FEE * 1_000_000)})
        live.put("unresolved", held)
        live.world.call_faults.plan(kind, call, "attempt")
        with pytest.raises(StateError):
            settle(live)
        settle(live)
        assert (live.reserved(), live.purchase()["ec2_status"]) == (0, "payment-failed"), str(call)
        assert not {"ledger_id", "bought"} & live.item("unresolved", "cr-0a1").keys()
