"""What `blockkeeper status` says comes next is what comes: where nothing is bought, sweeps start nothing, and the words say so."""

import json
from datetime import timedelta

import pytest

from local.engine.world import ACCOUNT

from .conftest import END, Story, a_story
from .test_detect_expiry import sweep
from .test_unresolved import unknown

HOUR = timedelta(hours=1)
PURCHASE = "PurchaseCapacityBlockExtension"


def next_step(story):
    answer = story.world.request("GET", "/blocks", headers={"x-api-key": story.world.api_key()})
    (block,) = json.loads(answer.body)
    return block["next_step"]


def payment_failed(story):
    story.block(payment={"minutes": 20, "outcome": "payment-failed"}).enrol()


def unknown_order(story):
    story.block().enrol()
    story.world.market.faults.add(kind="error_before", operation=PURCHASE)


def unknown_order_of_an_earlier_end(story):
    unknown(story.block().enrol())


def rejected(story):
    story.block().enrol(require_approval=True)


@pytest.mark.parametrize(
    ("scene", "answers", "words"),
    [
        (payment_failed, False, "EC2 could not take the payment, and nothing more is ordered for this end"),
        (
            unknown_order,
            False,
            "what became of the order is not known, so nothing more is bought for the block: `blockkeeper resolve",
        ),
        (
            unknown_order_of_an_earlier_end,
            False,
            "what became of the order is not known, so nothing more is bought for the block",
        ),
        (rejected, True, "the extension was rejected; `blockkeeper extend train` asks again"),
    ],
)
def test_after_its_end_a_workflow_is_not_started_again_and_nobody_says_so(live, scene, answers, words):
    scene(live)
    live.world.run_until(END - 30 * HOUR)
    sweep(live)
    if answers:
        assert next_step(live).startswith("an approver answers by 2026-05-04T08:30:00Z: `blockkeeper approvals train`")
        live.answer("reject")
    live.world.run_for(2 * HOUR)
    assert next_step(live).startswith(words)
    stands(live)


def test_a_rehearsed_end_is_not_bought_by_itself(dry):
    dry.block().enrol()
    dry.world.run_until(END - 30 * HOUR)
    sweep(dry)
    dry.world.run_for(HOUR)
    assert next_step(dry).startswith(
        "rehearsed for this end, so nothing is bought for it by itself; `blockkeeper extend train`"
    )
    stands(dry)


def test_what_goes_on_looking_is_said_to_look_again(live):
    live.block().enrol(max_upfront_fee="100")
    live.world.run_until(END - 30 * HOUR)
    sweep(live)
    live.world.run_for(HOUR)
    assert next_step(live).startswith("extend-block looks again, after six hours at the latest; it is decided by")
    live.enrol(**{**live.record(), "max_upfront_fee": "12000"})
    live.world.run_for(7 * HOUR)
    assert live.end() > END


def test_a_block_that_another_account_lends_is_not_searched_for():
    other = "999988887777"
    with a_story(Targets=f"{ACCOUNT}:us-east-1") as world:
        live = Story(world)
        live.block(owner_id=other, shared_with=[ACCOUNT]).enrol()
        live.world.run_until(END - 30 * HOUR)
        sweep(live)
        assert next_step(live).startswith(
            f"only account {other}, which owns the block, can extend it: add {other}:us-east"
        )
        stands(live)


def stands(story):
    """Sweeps until the last moment to decide start nothing more, and nothing more is ordered."""
    before = (len(story.world.executions("ExtendBlock")), len(story.orders()))
    for _ in range(3):
        story.world.run_for(4 * HOUR)
        sweep(story)
    assert (len(story.world.executions("ExtendBlock")), len(story.orders())) == before
    assert "searches" not in next_step(story)
