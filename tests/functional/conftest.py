"""Notes what functional tests run of the product, and lets the tests about the whole judge it."""

import json

import pytest

from local.engine.world import World
from tests.ran import HERE, Ran

WHOLE = "test_whole_product.py"


@pytest.fixture(scope="session")
def ran(pytestconfig):
    """What the functional tests have run, of an earlier pytest with the same `--ran`."""
    file = pytestconfig.getoption("ran")
    if file is None:
        pytest.skip("./dev test runs all functional tests and then these, which judge what ran")
    return Ran(json.loads(file.read_text()))


@pytest.fixture(autouse=True)
def _collected(monkeypatch, pytestconfig):
    leave, here = World.__exit__, pytestconfig.stash[HERE]

    def collect_and_leave(world, *error):
        for machine, counts in world.engine.coverage.items():
            here.branches[machine].update(counts)
        for call in world.calls:
            here.calls[call.caller].update(_authorized(call))
        leave(world, *error)

    monkeypatch.setattr(World, "__exit__", collect_and_leave)


def _authorized(call):
    """A transaction is authorized as the writes in it (Service Authorization Reference, Amazon DynamoDB)."""
    if call.operation != "TransactWriteItems":
        return {(call.service, call.operation)}
    return {(call.service, f"{action}Item") for item in call.params["TransactItems"] for action in item}


def pytest_collection_modifyitems(config, items):
    """The tests about the whole judge what has run before, so they run alone."""
    whole = [item for item in items if item.path.name == WHOLE]
    if len(whole) < len(items):
        config.hook.pytest_deselected(items=whole)
        items[:] = [item for item in items if item not in whole]
