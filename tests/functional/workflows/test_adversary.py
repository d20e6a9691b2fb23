"""Attacks on the workflows: what must hold when records, answers, settings and other accounts change at the worst moment."""

from datetime import timedelta
from decimal import Decimal

import pytest
from boto3.dynamodb.types import TypeSerializer

from blockkeeper.aws import ledger
from blockkeeper.domain.budget import Limits
from blockkeeper.domain.offering import Offering
from local.engine.world import ACCOUNT

from .conftest import END, Story, a_story

HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)


def asked(live, **fields):
    execution = live.block().enrol(require_approval=True, **fields).extend()
    live.world.run_for(5 * MINUTE)
    return execution


def due(story):
    story.world.run_until(END - 24 * HOUR)
    sweep(story)
    story.world.run_until_idle()


def sweep(story):
    story.world.start("DetectExpiry", {})
    story.world.run_for(MINUTE)


def put(story, kind, item_id, **fields):
    item = {"kind": kind, "id": item_id} | fields
    story._dynamodb.put_item(
        TableName=story._table, Item={k: TypeSerializer().serialize(v) for k, v in item.items() if v is not None}
    )


@pytest.mark.parametrize(
    "fields",
    [
        {"groups": ["train"]},
        {"extension_lookahead_days": 10**12},
        {"extend_by_days": 10**12, "extend_until": "2026-06-01T00:00:00Z"},
        {"end_time": 5},
        {"groups": [{"auto_scaling_group": "x", "drain_minutes": 10**15}]},
        {"replace": "yes"},
        {"approvers": [5]},
    ],
)
def test_a_record_that_somebody_wrote_by_hand_stops_no_other(live, fields):
    live.block().block("cr-0b2").enrol("a-bad", capacity_block_id="cr-0b2", **fields).enrol()
    due(live)
    assert live.record()["status"] == "EXTENDED"


def test_an_approval_that_cannot_be_read_stops_no_sweep(live):
    live.block().block("cr-0b2").enrol(
        "a-bad", capacity_block_id="cr-0b2", status="EXTENSION_APPROVAL_REQUIRED", end_time="2026-05-03T11:30:00Z"
    ).enrol()
    put(live, "approval", "cr-0b2-x", status="OPEN", current_end="2026-05-03T11:30:00Z")
    due(live)
    assert live.record()["status"] == "EXTENDED"


def test_a_marker_of_an_approval_that_cannot_be_read_stops_no_sweep(live):
    live.block().enrol()
    put(live, "approval", "cr-0b2-x", status="APPROVED")
    put(live, "undelivered", "cr-0b2-x", since="2026-04-03T11:30:00Z")
    put(live, "undelivered", "cr-0b2-y")
    due(live)
    assert live.record()["status"] == "EXTENDED"


def test_a_workflow_does_not_write_on_a_record_that_has_turned_to_another_block(live):
    execution = asked(live)
    live.block("cr-0b2").enrol(
        capacity_block_id="cr-0b2", require_approval=True, status="NO_ACTION_REQUIRED", version=9
    )
    live.answer("reject")
    live.world.run_until_idle()
    assert execution.path[-1] == "Extension rejected"
    assert live.record()["status"] == "NO_ACTION_REQUIRED"
    assert "error" not in live.record()


def test_a_yes_to_a_rehearsal_moves_no_money(dry):
    asked(dry)
    dry.world.market.faults.add(kind="empty_offerings", operation="DescribeCapacityBlockExtensionOfferings", times=1)
    dry.answer("approve")
    dry.world.run_for(MINUTE)
    for function in dry.world.template.functions.values():
        function.environment.update({"PURCHASE_MODE": "live"} if "PURCHASE_MODE" in function.environment else {})
    dry.world.run_until_idle()
    assert dry.orders() == []


def test_a_length_that_the_record_no_longer_wants_is_not_bought(live):
    live.world.engine.crash("BuyExtension", when="before")
    live.block().enrol(extend_by_days=2).extend()
    live.world.run_for(timedelta(seconds=30))
    live.enrol(extend_by_days=1)
    live.world.run_until_idle()
    assert [e.offering.hours for e in live.bought()] == [24]


def test_a_length_that_was_approved_and_is_no_longer_wanted_is_asked_again(live):
    asked(live, extend_by_days=2)
    live.enrol(require_approval=True, extend_by_days=1)
    live.answer("approve")
    live.world.run_for(5 * MINUTE)
    assert (live.orders(), len(live.links())) == ([], 2)
    live.answer("approve")
    live.world.run_for(5 * MINUTE)
    assert [each.offering.hours for each in live.bought()] == [24]


def test_after_a_yes_the_offer_is_looked_for_again_soon(live):
    live.world.market.faults.add(kind="empty_offerings", operation="DescribeCapacityBlockExtensionOfferings", times=7)
    execution = live.block().enrol(require_approval=True).extend()
    while not live.links():
        live.world.run_for(HOUR)
    live.world.run_until(END - 6 * HOUR)
    live.world.market.faults.add(kind="empty_offerings", operation="DescribeCapacityBlockExtensionOfferings", times=1)
    live.answer("approve")
    live.world.run_until_idle()
    assert execution.path[-1] == "Extension confirmed"


def test_a_policy_that_is_mended_in_time_is_followed(live):
    live.block().enrol(max_upfront_fee="100").extend()
    live.world.run_for(HOUR)
    live.enrol(max_upfront_fee=None)
    live.world.run_for(3 * HOUR)
    live.enrol()
    for _ in range(60):
        sweep(live)
        live.world.run_for(HOUR)
    assert live.bought()


def test_what_a_policy_lacks_is_told(live):
    live.block().enrol(max_upfront_fee=None)
    live.world.run_until(END - 24 * HOUR)
    sweep(live)
    sweep(live)
    assert live.told()


def test_two_accounts_that_see_a_shared_block_do_not_contradict_each_other():
    other = "210987654321"
    with a_story(Targets=f"{ACCOUNT}:us-east-1,{other}:us-east-1") as world:
        live = Story(world)
        live.block(shared_with=[other]).enrol()
        live.world.run_until(END - 2 * HOUR)
        for _ in range(6):
            sweep(live)
        assert live.told().count(("Block Expiring", None)) == 1


def test_a_stale_read_of_an_older_end_closes_no_request(live):
    asked(live)
    live.enrol(require_approval=True, status="EXTENSION_APPROVAL_REQUIRED", end_time="2026-05-04T11:30:00Z")
    live.world.market.blocks.get("cr-0a1", "us-east-1").end = END - 24 * HOUR
    sweep(live)
    live.world.market.blocks.get("cr-0a1", "us-east-1").end = END
    live.world.run_for(5 * MINUTE)
    assert live.items("approval")[0]["status"] == "OPEN"


def test_another_runs_intent_is_not_ours_to_send(live, monkeypatch):
    """Run A finds the INTENT that B has just written, takes it for left behind, and puts its own there; B must not send."""
    (monkeypatch.setenv("TABLE_NAME", live._table), monkeypatch.setenv("ACCOUNT_ID", ACCOUNT))
    facts = ("train", "cr-0a1", ACCOUNT, "us-east-1", END)
    ours, theirs = (
        ledger.Intent(*facts, Offering(offering, 24, END + 24 * HOUR, Decimal(100)), None, None) for offering in "BA"
    )
    now, limits = END - 24 * HOUR, Limits(Decimal(1000))
    first = ledger.intend("cr-0a1#end", ours, None, limits, now)
    second = ledger.intend("cr-0a1#end", theirs, ledger.read("cr-0a1#end"), limits, now)
    with pytest.raises(ledger.TakenElsewhereError):
        ledger.mark_sent("cr-0a1#end", first, now)
    ledger.mark_sent("cr-0a1#end", second, now)
    assert (live.item("purchase", "cr-0a1#end")["state"], live.reserved()) == ("SENT", 100)
