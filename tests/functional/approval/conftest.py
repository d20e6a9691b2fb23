"""A stack in one process; approvals are asked on Mon 4 May 2026 at 06:00 UTC."""

import pytest
from approval_story import PARAMETERS, START, Story

from local.engine.sandbox import Sandboxes
from local.engine.world import World


@pytest.fixture(scope="session")
def sandboxes():
    """Warm functions, as a busy account has them."""
    return Sandboxes()


@pytest.fixture
def story(sandboxes):
    with World(START, parameters=PARAMETERS, schedules=False, sandboxes=sandboxes) as world:
        yield Story(world)
