"""A stack with Slack in one process; questions are asked on Mon 4 May 2026 at 06:00 UTC."""

import sys
from pathlib import Path

import pytest

from local.engine.sandbox import Sandboxes
from local.engine.world import World

sys.path.insert(0, str(Path(__file__).parents[1] / "approval"))
from approval_story import PARAMETERS, SLACK, START, Story


@pytest.fixture(scope="session")
def slack_sandboxes():
    """Warm functions, as a busy account has them; Slack's address and secret are the same in every world."""
    return Sandboxes()


@pytest.fixture
def story(slack_sandboxes):
    with World(START, parameters=PARAMETERS | SLACK, schedules=False, sandboxes=slack_sandboxes) as world:
        yield Story(world).enrol(approvers=["T0LOCAL01:U0MARIA01", "U0JOHN001"])


@pytest.fixture
def slack(story):
    return story.world.slack
