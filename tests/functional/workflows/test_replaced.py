"""The story "Replaced" in one process; tests/e2e/test_replaced.py tells the same on the deployed stack."""

from datetime import UTC, datetime

from local.engine.world import World
from tests.stories.replaced import tell

from .conftest import WARM
from .in_process import InProcess


def test_plan_b_from_no_extension_to_the_nodes_of_the_new_block():
    parameters = {"PurchaseMode": "live", "MonthlyLimit": "50000", "SenderEmail": "blockkeeper@example.com"}
    parameters |= {"ScheduleExpression": "rate(30 minutes)"}  # half as often as by default: faster to run
    with World(datetime(2026, 5, 1, 8, 0, tzinfo=UTC), parameters=parameters, sandboxes=WARM) as world:
        tell(InProcess(world))
