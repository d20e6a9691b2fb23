"""How the tests are shared among processes (pytest-xdist), and how what they ran comes together."""

import json
from pathlib import Path

import pytest

from tests.ran import HERE, Ran


def pytest_addoption(parser):
    parser.addoption(
        "--ran",
        type=Path,
        metavar="FILE",
        help="where functional tests gather what they run of the product; test_whole_product.py, run alone, judges it",
    )


_BEGIN = {"deployed": 0, "tests/functional/faults/test_fault_matrix.py": 1, "tests/functional/model/test_model.py": 2}
"""What takes longest begins."""


def pytest_collection_modifyitems(items):
    items.sort(key=lambda item: _BEGIN.get(_together(item.nodeid), len(_BEGIN)))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    from xdist.scheduler import LoadScopeScheduling

    class Together(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            return _together(nodeid)

    return Together(config, log)


def _together(nodeid):
    """What runs in one process: the tests of a file share what it makes, and all on the deployed stack share that."""
    file = nodeid.partition("::")[0]
    return "deployed" if file.startswith("tests/e2e/") else file


def pytest_configure(config):
    config.stash[HERE] = Ran()


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node):
    """A process of xdist has ended: take over what it ran."""
    node.config.stash[HERE].add(Ran(getattr(node, "workeroutput", {}).get("ran")))


def pytest_sessionfinish(session):
    config, here = session.config, session.config.stash[HERE]
    if hasattr(config, "workeroutput"):
        config.workeroutput["ran"] = here.facts()
    elif config.getoption("ran") and here.branches:
        config.getoption("ran").write_text(json.dumps(here.facts()))


def pytest_terminal_summary(terminalreporter):
    """How many scenarios of the fault matrix ran, and how many of each kind."""
    for outcome in ("passed", "failed"):
        for report in terminalreporter.getreports(outcome):
            if kinds := dict(report.user_properties).get("faults"):
                each = ", ".join(f"{kind} {count}" for kind, count in sorted(kinds.items()))
                terminalreporter.write_line(f"fault matrix: {sum(kinds.values())} scenarios ({each})")
