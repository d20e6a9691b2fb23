"""An order whose outcome is not known blocks every further purchase for its block, until EC2 or a person tells its outcome."""

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

import pytest

from blockkeeper.aws import ledger, table
from blockkeeper.aws.order import order_once
from blockkeeper.aws.purchase import Answer, Order
from blockkeeper.domain.budget import Limits
from blockkeeper.domain.offering import Offering
from local.engine.world import ACCOUNT

from .conftest import END

MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
EARLIER = "cr-0a1#2026-05-03T11:30:00Z"


def unknown(story, entry_id=EARLIER, **fields):
    """An order of an earlier end of which EC2 shows nothing."""
    story.put(
        "purchase",
        {
            "id": entry_id,
            "state": "UNKNOWN",
            "environment": "train",
            "reservation_id": "cr-0a1",
            "account": ACCOUNT,
            "region": "us-east-1",
            "current_end": "2026-05-03T11:30:00Z",
            "new_end": "2026-05-05T11:30:00Z",
            "offering_id": "cbe-lost",
            "upfront_fee": "100",
            "budgets": ["2026-05"],
        }
        | fields,
    )
    story.put("budget", {"id": "2026-05", "reserved": 100_000_000})
    story.put("unresolved", {"id": "cr-0a1", "ledger_id": entry_id})
    return story


@pytest.mark.parametrize("entry_id", [EARLIER, "cr-0a1#2026-05-03T11:30:00Z#block"])
@pytest.mark.parametrize("approval", [True, False])
def test_case_b17_while_an_order_is_unknown_nothing_is_asked_or_bought_at_another_end(live, entry_id, approval):
    unknown(live.block().enrol(require_approval=approval), entry_id)
    execution = live.extend()
    live.world.run_until_idle()
    assert (execution.path[-1], live.orders(), live.links()) == ("Purchase not allowed", [], [])
    assert entry_id in live.record()["error"]
    assert live.item("purchase", entry_id)["state"] == "UNKNOWN"


def test_case_b17_an_order_that_becomes_unknown_while_people_are_asked_still_blocks(live):
    execution = live.block().enrol(require_approval=True).extend()
    live.world.run_for(5 * MINUTE)
    unknown(live)
    live.answer("approve")
    live.world.run_until_idle()
    assert (execution.path[-1], live.orders()) == ("Purchase not allowed", [])
    assert live.reserved() == 100


@pytest.mark.parametrize("state", ["SENT", "UNKNOWN"])
def test_an_earlier_order_that_ec2_shows_is_adopted_and_the_next_end_is_bought(live, state):
    """The workflow of the earlier end was stopped between SENT and the answer."""
    live.block().enrol()
    live.world.engine.crash("BuyExtension", when="after")
    earlier = live.extend()
    live.world.run_for(timedelta(seconds=1))
    live.world.engine.stop(earlier)
    live.world.run_for(HOUR)
    assert (live.end(), live.purchase()["state"]) == (END + DAY, "BOUGHT")
    # As if the function had died before it could write down the answer.
    entry = live.purchase() | {"state": state}
    live.put("purchase", {k: int(v) if isinstance(v, Decimal) else v for k, v in entry.items() if k != "kind"})
    live.put("unresolved", {"id": "cr-0a1", "ledger_id": "cr-0a1#2026-05-04T11:30:00Z"})
    execution = live.extend("cr-0a1-20260505T1130Z", "2026-05-05T11:30:00Z")
    live.world.run_until_idle()
    assert execution.path[-1] == "Extension confirmed"
    assert live.purchase()["state"] == "BOUGHT"
    assert len(live.bought()) == 2
    assert live.item("unresolved", "cr-0a1").get("ledger_id") is None


def test_cases_b17_b20_an_order_without_effect_is_settled_when_somebody_elses_from_the_same_end_is_paid(live):
    live.world.market.faults.add(kind="error_before", operation="PurchaseCapacityBlockExtension")
    live.block().enrol()
    first = live.extend()
    live.world.run_until_idle()
    assert (first.path[-1], live.purchase()["state"]) == ("Outcome unknown", "UNKNOWN")
    # At another price it is another offering.
    live.world.market.faults.add(
        kind="price_change", operation="DescribeCapacityBlockExtensionOfferings", value=Decimal(4100)
    )
    live.buy_by_hand()
    live.world.run_for(HOUR)
    execution = live.extend("cr-0a1-20260505T1130Z", "2026-05-05T11:30:00Z")
    live.world.run_until_idle()
    assert execution.path[-1] == "Extension confirmed"
    assert (live.purchase()["state"], live.purchase("2026-05-05T11:30:00Z")["state"]) == ("REFUSED", "BOUGHT")
    assert live.reserved() == 4100


@pytest.fixture
def own_table(live, monkeypatch):
    (monkeypatch.setenv("TABLE_NAME", live._table), monkeypatch.setenv("ACCOUNT_ID", ACCOUNT))
    return live


def intent(end, offering="cbe-1"):
    return ledger.Intent(
        "train", "cr-0a1", ACCOUNT, "us-east-1", end, Offering(offering, 24, end + DAY, Decimal(100)), None, None
    )


def test_of_two_orders_for_a_block_at_two_ends_only_one_is_sent(own_table):
    """Both have read that nothing is unresolved, and both have their INTENT: the condition of SENT decides."""
    keys = [f"cr-0a1#{end:%Y-%m-%dT%H:%M:%SZ}" for end in (END, END + DAY)]
    now, limits = END - DAY, Limits(Decimal(1000))
    first, second = (
        ledger.intend(key, intent(end), None, limits, now) for key, end in zip(keys, (END, END + DAY), strict=True)
    )
    ledger.mark_sent(keys[0], first, now)
    with pytest.raises(ledger.UnresolvedError, match="2026-05-04"):
        ledger.mark_sent(keys[1], second, now)
    assert (ledger.unresolved("cr-0a1"), ledger.unresolved("cr-0b2")) == (keys[0], None)
    ledger.mark_unknown(keys[0], now, "no answer")
    with pytest.raises(ledger.UnresolvedError):
        ledger.mark_sent(keys[1], second, now)
    ledger.mark_bought(keys[0], "cbe-1", now, "EC2 shows it")
    assert ledger.unresolved("cr-0a1") is None
    sent = ledger.mark_sent(keys[1], second, now)
    # A late second word about the first order does not free the second.
    ledger.mark_bought(keys[0], "cbe-1", now, "EC2 shows it")
    assert ledger.unresolved("cr-0a1") == keys[1]
    ledger.release(keys[1], sent, "refused", now)
    assert (ledger.unresolved("cr-0a1"), own_table.reserved()) == (None, 100)


def test_a_refusal_counts_although_another_run_has_found_nothing_meanwhile(own_table, monkeypatch):
    """Run B looks while A's order is on its way, and writes UNKNOWN; A then hears that EC2 refused."""
    monkeypatch.setenv("PURCHASE_MODE", "live")
    monkeypatch.setenv("MONTHLY_LIMIT", "1000")
    key, now = "cr-0a1#2026-05-04T11:30:00Z", END - DAY

    def call(*, live):
        assert live
        ledger.mark_unknown(key, now, "the order was sent and EC2 shows neither an extension nor a refusal")
        return Order(Answer.REFUSED, "EC2 refused the order: IncorrectState", "IncorrectState")

    assert order_once(key, intent(END), None, call, now)[0] == "refused"
    assert own_table.item("purchase", key)["state"] == "REFUSED"
    assert (ledger.unresolved("cr-0a1"), own_table.reserved()) == (None, 0)


def test_money_of_another_runs_attempt_is_not_given_back(own_table, monkeypatch):
    """Between reading the entry and releasing it another run releases it, and puts a cheaper attempt in its place."""
    key, now, limits, read = "cr-0a1#2026-05-04T11:30:00Z", END - DAY, Limits(Decimal(1000)), table.get_item
    dearer = replace(intent(END), offering=Offering("cbe-0", 24, END + DAY, Decimal(300)))
    stale = ledger.intend(key, dearer, None, limits, now)

    def late(kind, item_id):
        item = read(kind, item_id)
        monkeypatch.setattr(table, "get_item", read)
        ledger.release(key, stale, "an earlier run stopped", now)
        ledger.intend(key, intent(END), ledger.read(key), limits, now)
        return item

    monkeypatch.setattr(table, "get_item", late)
    with pytest.raises(ledger.TakenElsewhereError):
        ledger.release(key, stale, "an earlier run stopped", now)
    assert own_table.reserved() == 100
