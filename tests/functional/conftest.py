"""What all functional tests together have run of the product: branches of state machines, and AWS calls of functions."""

from collections import Counter, defaultdict
from pathlib import Path

import pytest

from local.engine.world import World

HERE = Path(__file__).parent


class Ran:
    """What has run so far: per state machine how often each branch, per function its (service, operation) calls."""

    def __init__(self):
        self.branches = defaultdict(Counter)
        self.calls = defaultdict(set)


@pytest.fixture(scope="session")
def ran():
    return Ran()


@pytest.fixture(autouse=True)
def _collected(monkeypatch, ran):
    leave = World.__exit__

    def collect_and_leave(world, *error):
        for machine, counts in world.engine.coverage.items():
            ran.branches[machine].update(counts)
        for call in world.calls:
            ran.calls[call.caller].update(_authorized(call))
        leave(world, *error)

    monkeypatch.setattr(World, "__exit__", collect_and_leave)


def _authorized(call):
    """A transaction is authorized as the writes in it (Service Authorization Reference, Amazon DynamoDB)."""
    if call.operation != "TransactWriteItems":
        return {(call.service, call.operation)}
    return {(call.service, f"{action}Item") for item in call.params["TransactItems"] for action in item}


def pytest_collection_modifyitems(config, items):
    """The tests about the whole come last, and only when all the others run."""
    whole = [item for item in items if item.path.name == "test_whole_product.py"]
    files = {item.path for item in items}
    if whole and not files.issuperset(HERE.rglob("test_*.py")):
        config.hook.pytest_deselected(items=whole)
        items[:] = [item for item in items if item not in whole]
    else:
        items[:] = [item for item in items if item not in whole] + whole
