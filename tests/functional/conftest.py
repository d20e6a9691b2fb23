"""What all functional tests together have run of the product: branches of state machines, and AWS calls of functions."""

import json
from collections import Counter, defaultdict

import pytest

from local.engine.world import World

WHOLE = "test_whole_product.py"
_HERE = pytest.StashKey["Ran"]()


class Ran:
    """What has run: per state machine how often each branch, per function its (service, operation) calls."""

    def __init__(self, was=None):
        was = was or {"branches": {}, "calls": {}}
        self.branches = defaultdict(Counter, {machine: Counter(counts) for machine, counts in was["branches"].items()})
        self.calls = defaultdict(set, {name: {tuple(call) for call in calls} for name, calls in was["calls"].items()})

    def facts(self):
        """All of it as JSON takes it."""
        return {"branches": self.branches, "calls": {name: sorted(calls) for name, calls in self.calls.items()}}

    def add(self, other):
        for machine, counts in other.branches.items():
            self.branches[machine].update(counts)
        for name, calls in other.calls.items():
            self.calls[name] |= calls


def pytest_configure(config):
    config.stash[_HERE] = Ran()


@pytest.fixture(scope="session")
def ran(pytestconfig):
    """What the functional tests have run, of an earlier pytest with the same `--ran`."""
    file = pytestconfig.getoption("ran")
    if file is None:
        pytest.skip("./dev test runs all functional tests and then these, which judge what ran")
    return Ran(json.loads(file.read_text()))


@pytest.fixture(autouse=True)
def _collected(monkeypatch, pytestconfig):
    leave, here = World.__exit__, pytestconfig.stash[_HERE]

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


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node):
    """A process of xdist has ended: take over what it ran."""
    node.config.stash[_HERE].add(Ran(getattr(node, "workeroutput", {}).get("ran")))


def pytest_sessionfinish(session):
    config, here = session.config, session.config.stash[_HERE]
    if hasattr(config, "workeroutput"):
        config.workeroutput["ran"] = json.loads(json.dumps(here.facts()))
    elif config.getoption("ran") and here.branches:
        config.getoption("ran").write_text(json.dumps(here.facts()))
