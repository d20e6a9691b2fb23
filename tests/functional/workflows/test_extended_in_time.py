"""The story "Extended in time" in one process; tests/e2e/test_extended_in_time.py tells the same on the deployed stack."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml

from local.engine.template import _Loader
from local.engine.world import World
from tests.stories.extended_in_time import GROUPS, HANDLERS_TAG, NODES, PLAIN, Teller, begin, tell

from .conftest import WARM
from .in_process import InProcess

EXAMPLES = Path(__file__).parents[3] / "examples"
EXAMPLE_OF = {PLAIN: "auto-scaling-group", NODES: "eks-self-managed"}


def hook_seconds(example):
    template = yaml.load((EXAMPLES / example / "template.yaml").read_text("utf-8"), _Loader)  # noqa: S506 - a SafeLoader
    return template["Parameters"]["DrainSeconds"]["Default"]


def deployed(group):
    """A group as its example makes it: at size 0, with its hook and its tags."""
    return {
        "name": group.name,
        "region": "us-east-1",
        "availability_zone": "us-east-1a",
        "reservation_id": group.reservation_id,
        "min": 0,
        "max": 0,
        "desired": 0,
        "tags": {HANDLERS_TAG: "true"} if group.handler else {},
        "lifecycle_hooks": [{"name": "drain", "heartbeat_seconds": hook_seconds(EXAMPLE_OF[group])}],
    }


@pytest.fixture
def engine():
    with World(
        datetime(2026, 5, 1, 8, 0, tzinfo=UTC),
        # Half as often as by default: twice as fast to run, and harder on the groups.
        parameters={"PurchaseMode": "live", "MonthlyLimit": "50000", "ScheduleExpression": "rate(30 minutes)"},
        sandboxes=WARM,
    ) as world:
        world.market.load_fleet({"groups": [deployed(group) for group in GROUPS]})
        yield InProcess(world)


def test_cases_b03_b08_b36_extended_in_time(engine):
    tell(begin(engine))


def test_case_b08_ultraservers_are_gone_an_hour_before_the_end(engine):
    """EC2 terminates them at 10:30; before that 5 minutes in reserve, the hook's 10, and Auto Scaling's 2: 10:13."""
    teller = Teller(engine)
    ultraservers = {"instance_type": "p6e-gb200.36xlarge", "ultraserver": "u-p6e-gb200x72"}
    teller.enrolled(NODES, ends=0, extend=False, start="2026-04-29T11:30:00Z", **ultraservers)
    teller.go(0, "08:30")
    assert teller.armed(NODES) == {"end": (teller.at(0, "10:13"), (0, 0, 0))}
    started = teller.running(NODES)
    assert len(started) == 4, "the block has been active for days"
    teller.go(0, "10:12:59")
    assert teller.running(NODES) == started
    teller.go(0, "10:13")
    assert (teller.sizes(NODES), teller.members(NODES)) == ((0, 0, 0), ["Terminating:Wait"] * 4)
    teller.go(0, "10:22:59")
    assert teller.running(NODES) == started, "nobody drains here, so the hook ends the wait"
    teller.go(0, "10:23")
    assert (teller.members(NODES), teller.running(NODES)) == ([], set())
    teller.go(0, "10:31")
    assert not teller.reclaimed(NODES)
