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
