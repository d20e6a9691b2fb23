"""What the ledger keeps of a purchase for years, what budgets count in the end, and what is told when EC2 does not move the end."""

import re
from datetime import timedelta

from blockkeeper.aws import ledger
from blockkeeper.domain.ledger import Claim
from local.engine.world import ACCOUNT

from .conftest import END, START

MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)


def test_the_ledger_keeps_who_approved_what_was_offered_and_what_ec2_took(live):
    live.block().enrol(require_approval=True, approvers=["ann@example.com", "bob@example.com"], quorum=2).extend()
    live.world.run_for(5 * MINUTE)
    (live.answer("approve", 0), live.answer("approve", 1))
    live.world.run_until_idle()
    entry = live.purchase()
    assert entry["approved_by"] == ["ann@example.com", "bob@example.com"]
    assert (entry["upfront_fee"], entry["ec2_fee"], entry["ec2_currency"]) == ("3986.69", "3986.69", "USD")
    assert (entry["ec2_status"], entry["state"]) == ("payment-succeeded", "BOUGHT")
    assert (entry["current_end"], entry["new_end"]) == ("2026-05-04T11:30:00Z", "2026-05-05T11:30:00Z")


def test_case_b03_a_payment_that_fails_gives_the_money_back_once(live):
    live.block(payment={"minutes": 60, "outcome": "payment-failed"}).enrol(team="vision")
    execution = live.extend()
    live.world.run_until_idle()
    assert execution.path[-1] == "Payment failed"
    assert (live.purchase()["ec2_status"], live.purchase()["ec2_fee"]) == ("payment-failed", "0")
    again = live.extend("cr-0a1-20260504T1130Z-by-hand-1")
    live.world.run_until_idle()
    assert again.path[-1] == "Payment failed"
    assert {item["id"]: item["reserved"] for item in live.items("budget")} == {"2026-05": 0, "2026-05#vision": 0}
    assert len(live.orders()) == 1


def test_budgets_count_what_ec2_took(live, monkeypatch):
    taken = "local.market.extensions._as_extension"
    from local.market import extensions

    shown = extensions._as_extension
    monkeypatch.setattr(taken, lambda extension: {**shown(extension), "UpfrontFee": "4000"})
    live.block().enrol().extend()
    live.world.run_until_idle()
    assert (live.purchase()["upfront_fee"], live.purchase()["ec2_fee"], live.reserved()) == ("3986.69", "4000", 4000)


def test_case_b03_paid_and_not_moved_in_time_is_told_once_while_the_old_end_stays(live):
    live.world.run_until(END - 5 * HOUR)
    live.block(payment={"minutes": 20, "outcome": "payment-succeeded", "end_moves_after_minutes": 275}).enrol()
    execution = live.extend()
    live.world.run_until(END - 36 * MINUTE)
    assert live.told()[-1] == ("Extension Purchased", "purchased")
    live.world.run_until(END - 25 * MINUTE)
    assert live.told()[-1] == ("Block Expiring", "end_not_moved")
    assert live.record()["status"] == "EXTENSION_PAYMENT_PENDING"
    assert "has not moved the end" in live.record()["error"]
    assert "Extension_end_not_moved" in live.world.logs.getvalue()
    live.world.run_until_idle()
    assert execution.path[-1] == "Extension confirmed"
    assert live.told().count(("Block Expiring", "end_not_moved")) == 1


def test_case_b03_paid_and_never_moved_ends_when_the_block_does(live):
    live.world.run_until(END - 5 * HOUR)
    live.block(payment={"minutes": 20, "outcome": "payment-succeeded", "end_moves_after_minutes": 9999}).enrol()
    for nth in range(3, 9):
        live.world.engine.crash("RecordExtension", nth - 1, when="before")
    execution = live.extend()
    live.world.run_until_idle()
    assert execution.path[-1] == "Payment failed"
    assert "AWS Support" in execution.cause or "could not be read" in execution.cause
    assert live.world.now() < END + 2 * HOUR


def sweep(live):
    live.world.start("DetectExpiry", {})
    live.world.run_for(MINUTE)
    return [int(float(found)) for found in re.findall(r'"PurchaseUnknown":\s*\[?([0-9.]+)', live.world.logs.getvalue())]


def test_case_b17_an_unknown_order_is_counted_by_each_sweep_until_a_person_resolves_it(live, monkeypatch):
    live.world.market.faults.add(kind="error_before", operation="PurchaseCapacityBlockExtension")
    live.block().enrol().extend()
    live.world.run_for(MINUTE)
    # While the workflow still looks nobody is woken.
    assert sweep(live) == [0]
    live.world.run_for(2 * HOUR)
    assert sweep(live) == [0, 1, 1]
    (monkeypatch.setenv("TABLE_NAME", live._table), monkeypatch.setenv("ACCOUNT_ID", ACCOUNT))
    key = "cr-0a1#2026-05-04T11:30:00Z"
    assert ledger.unresolved("cr-0a1") == key
    ledger.resolve(key, ledger.read(key), Claim.NOT_BOUGHT, who="arn:ann", reason="case 1", now=START + 3 * HOUR)
    assert sweep(live) == [0, 1, 1, 0]
    assert live.reserved() == 0
    again = live.extend("cr-0a1-20260504T1130Z-by-hand-1")
    live.world.run_until_idle()
    assert again.path[-1] == "Extension confirmed"
    assert (len(live.bought()), live.purchase()["state"]) == (1, "BOUGHT")
    # The word stays in the entry of the order that came after it.
    assert [word["who"] for word in live.purchase()["resolutions"]] == ["arn:ann"]
    assert str(live.reserved()) == "3986.69"
