"""For one block and end either an extension is bought or a new block in its place, never both, whatever EC2 shows late."""

from datetime import timedelta

import pytest

from .conftest import a_story
from .test_replace_block import PlanB

MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)


@pytest.fixture
def plan_b():
    with a_story() as world:
        yield PlanB(world)


def offered(story, *, extension):
    story.world.market.blocks.get("cr-0a1", "us-east-1").offering.available = extension


def test_no_new_block_beside_an_extension_that_ec2_does_not_show_yet(plan_b):
    """The search for a block begins a moment after the last order for an extension; EC2's history is behind."""
    plan_b.world.market.extensions.history_lags = HOUR
    plan_b.without_extension()
    offered(plan_b, extension=True)
    plan_b.extend()
    plan_b.world.run_for(2 * MINUTE)
    assert len(plan_b.orders()) == 1
    execution = plan_b.replace()
    plan_b.world.run_until_idle()
    assert plan_b.purchases() == []
    assert execution.output["outcome"] == "superseded"


@pytest.mark.parametrize("approval", [True, False])
def test_no_extension_beside_a_new_block(plan_b, approval):
    plan_b.without_extension(require_approval=False)
    plan_b.replace()
    plan_b.world.run_for(30 * MINUTE)
    assert len(plan_b.new_blocks()) == 1
    offered(plan_b, extension=True)
    plan_b.enrol(
        **{k: v for k, v in plan_b.record().items() if k not in {"id", "kind"}} | {"require_approval": approval}
    )
    plan_b.extend()
    plan_b.world.run_for(2 * HOUR)
    assert (plan_b.orders(), plan_b.links()) == ([], [])
    assert "#block" in plan_b.record()["error"]


def test_an_extension_asked_about_before_the_new_block_was_bought_is_not_bought_after_it(plan_b):
    plan_b.without_extension(require_approval=True)
    offered(plan_b, extension=True)
    plan_b.extend()
    plan_b.world.run_for(5 * MINUTE)
    plan_b.replace()
    plan_b.world.run_for(5 * MINUTE)
    plan_b.answer("approve", 1)
    plan_b.world.run_for(5 * MINUTE)
    assert len(plan_b.purchases()) == 1
    plan_b.answer("approve", 0)
    plan_b.world.run_until_idle()
    assert plan_b.orders() == []


def test_after_a_payment_that_failed_the_other_way_is_free(plan_b):
    plan_b.world.market.faults.add(kind="payment_failure", operation="PurchaseCapacityBlockExtension")
    plan_b.without_extension()
    offered(plan_b, extension=True)
    plan_b.extend()
    plan_b.world.run_until_idle()
    assert plan_b.purchase()["ec2_status"] == "payment-failed"
    execution = plan_b.replace()
    plan_b.world.run_until_idle()
    assert execution.output["outcome"] == "replaced"


def test_a_payment_that_failed_before_the_buyer_could_look_gives_its_money_back(plan_b):
    plan_b.world.market.faults.add(kind="payment_failure", operation="PurchaseCapacityBlock")
    plan_b.world.engine.crash("BuyBlock", when="after")
    plan_b.world.engine.crash("BuyBlock", 2, when="before", times=4)
    plan_b.without_extension()
    execution = plan_b.replace()
    plan_b.world.run_until_idle()
    assert (execution.error, len(plan_b.purchases())) == ("PaymentFailed", 1)
    assert plan_b.reserved() == 0
