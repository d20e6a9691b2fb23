"""What people see of prices before they say yes, and what is looked up again before money moves."""

import json
from datetime import timedelta

from .conftest import END

MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)


def question(story, position=-1):
    return json.loads(story.world.executions("ApprovePurchase")[position].input_text)


def test_the_question_shows_what_the_blocks_latest_extension_cost_and_who_asked(live):
    live.block().enrol(require_approval=True).extend()
    live.world.run_for(5 * MINUTE)
    assert question(live)["past_fee_per_instance_hour"] is None
    assert question(live)["requested_by"] is None
    live.answer("approve")
    live.world.run_until(END)
    given = {"environment": "train", "reservation_id": "cr-0a1", "account": "123456789012", "region": "us-east-1"}
    given |= {"end_date": "2026-05-05T11:30:00Z", "requested_by": "maria@example.com"}
    live.world.start("ExtendBlock", given, "cr-0a1-20260505T1130Z")
    live.world.run_for(5 * MINUTE)
    # 3,986.69 USD for 4 instances and 24 hours.
    assert question(live)["past_fee_per_instance_hour"] == "41.5280"
    assert question(live)["requested_by"] == "maria@example.com"


def test_case_b47_a_redriven_purchase_counts_the_time_of_its_redrive_not_of_its_first_entry(live):
    """It was stopped in the buying state, and somebody redrives it after the last moment to decide."""
    live.world.engine.redrive_keeps_entered_time = True
    live.world.engine.crash("BuyExtension", when="before", takes=MINUTE)
    execution = live.block().enrol().extend()
    live.world.run_for(MINUTE / 2)
    assert execution.path[-1] == "Buy once"
    live.world.engine.stop(execution)
    live.world.run_until(END - 2 * HOUR)
    live.world.engine.redrive(execution)
    live.world.run_until_idle()
    assert (live.orders(), live.purchase()) == ([], None)
    assert execution.path[-1] in {"Purchase not allowed", "Too late to extend"}
