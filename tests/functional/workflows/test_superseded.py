"""Case B20: somebody extends the block by hand, at every moment of the workflow: nothing is bought on top of it."""

from datetime import timedelta

import pytest

from local.engine.world import ACCOUNT

from .conftest import END

SECOND, MINUTE, HOUR, DAY = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
PURCHASE, SEARCH = "PurchaseCapacityBlockExtension", "DescribeCapacityBlockExtensionOfferings"


def superseded(story, execution):
    """Only the hand's extension is there, no money of ours is held, and the record has the new end."""
    story.world.run_until_idle()
    assert execution.path[-1] == "Superseded", execution.path
    assert execution.status == "SUCCEEDED"
    assert len(story.bought()) == 1
    assert (story.end(), story.reserved()) == (END + DAY, 0)
    assert story.record()["end_time"] == "2026-05-05T11:30:00Z"
    assert story.record()["status"] == "NO_ACTION_REQUIRED"


def hold(story, operation, seconds=100):
    """Others have the turns until then, so the workflow waits there."""
    full_at = story.world.now() + timedelta(seconds=66.67 + seconds)
    story.put("rate", {"id": f"{ACCOUNT}#us-east-1#{operation}", "full_at_ms": int(full_at.timestamp() * 1000)})


def dearer(story):
    """The hand pays another price, so EC2 shows its offering as another than ours."""
    story.world.market.blocks.get("cr-0a1", "us-east-1").hourly_rate *= 2


def test_case_b20_before_the_search(live):
    hold(live.block().enrol(), SEARCH)
    execution = live.extend()
    live.world.run_for(10 * SECOND)
    live.buy_by_hand()
    superseded(live, execution)
    assert live.purchase() is None


@pytest.mark.parametrize("noticed_by", ["CloudTrail", "sweep"])
def test_case_b20_while_people_are_asked_the_request_closes_itself(live, noticed_by):
    if noticed_by == "sweep":
        live.world.market.faults.add(kind="drop_event", operation="AWS API Call via CloudTrail", times=None)
    execution = live.block().enrol(require_approval=True, end_time="2026-05-04T11:30:00Z").extend()
    live.world.run_for(5 * MINUTE)
    live.buy_by_hand()
    live.world.run_for(2 * HOUR)
    for _ in range(2):
        live.world.start("DetectExpiry", {})
        live.world.run_for(MINUTE)
    (approval,) = live.items("approval")
    assert approval["status"] == "SUPERSEDED"
    superseded(live, execution)
    # A late click changes nothing, and is told so politely.
    assert live.answer("approve").status == 200
    live.world.run_until_idle()
    assert len(live.bought()) == 1


def test_case_b20_after_a_yes_and_before_the_order(live):
    execution = live.block().enrol(require_approval=True).extend()
    live.world.run_for(5 * MINUTE)
    hold(live, PURCHASE)
    live.answer("approve")
    live.world.run_for(10 * SECOND)
    assert execution.path[-1] == "Wait for a turn to buy"
    live.buy_by_hand()
    superseded(live, execution)
    assert live.purchase() is None


def test_case_b20_between_sent_and_the_call_ec2_refuses_ours(live, monkeypatch):
    """The hand is faster by an instant: our order is written down as SENT and meets a block with a pending extension."""
    operations = live.world.market._operations
    order = operations["ec2", PURCHASE]
    hand = []

    def after_the_hand(params, caller):
        if not hand:
            hand.append(True)
            offering = operations["ec2", SEARCH](
                {"CapacityReservationId": "cr-0a1", "CapacityBlockExtensionDurationHours": 24}, caller
            )["CapacityBlockExtensionOfferings"][0]
            order(params | {"CapacityBlockExtensionOfferingId": offering["CapacityBlockExtensionOfferingId"]}, caller)
        return order(params, caller)

    monkeypatch.setitem(operations, ("ec2", PURCHASE), after_the_hand)
    execution = live.block().enrol().extend()
    superseded(live, execution)
    assert live.purchase()["state"] == "REFUSED"


@pytest.mark.parametrize("kind", ["error_before", "crash"])
def test_case_b20_while_our_order_is_unknown_the_hands_is_found_and_ours_settled(live, kind):
    if kind == "crash":
        live.world.engine.crash("BuyExtension", when="before", takes=MINUTE)
    else:
        live.world.market.faults.add(kind=kind, operation=PURCHASE)
    execution = live.block().enrol().extend()
    live.world.run_for(30 * SECOND)
    dearer(live)
    live.buy_by_hand()
    live.world.run_until_idle()
    assert execution.path[-1] == "Superseded"
    assert len(live.bought()) == 1
    if kind == "error_before":
        # It was sent, so it keeps its block and money until EC2 shows the other one as paid: the buyer of the next end sees it.
        assert live.purchase()["state"] == "UNKNOWN"
        execution = live.extend("cr-0a1-20260505T1130Z", "2026-05-05T11:30:00Z")
        live.world.run_until_idle()
        assert execution.path[-1] == "Extension confirmed"
        assert live.purchase()["state"] == "REFUSED"
        assert len(live.bought()) == 2


def test_case_b20_the_groups_follow_the_new_end(live):
    live.block()
    live.world.market.load_fleet(
        {
            "groups": [
                {
                    "name": "train",
                    "region": "us-east-1",
                    "availability_zone": "us-east-1a",
                    "reservation_id": "cr-0a1",
                    "min": 0,
                    "max": 4,
                    "desired": 4,
                }
            ]
        }
    )
    live.enrol(groups=[{"auto_scaling_group": "train"}])
    live.world.start("DetectExpiry", {})
    live.world.run_for(MINUTE)
    before = live.scheduled_actions("train")["blockkeeper-cr-0a1-end"]
    assert before < END
    execution = live.extend()
    live.buy_by_hand()
    live.world.run_until_idle()
    assert (execution.path[-1], len(live.bought())) == ("Superseded", 1)
    live.world.start("DetectExpiry", {})
    live.world.run_for(MINUTE)
    assert live.scheduled_actions("train")["blockkeeper-cr-0a1-end"] == before + DAY
