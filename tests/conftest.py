"""How the tests are shared among processes (pytest-xdist), and how what they ran comes together."""

import json
from collections import Counter
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


_MATRIX = "tests/functional/faults/test_fault_matrix.py"
_BEGIN = (f"{_MATRIX}::extended", f"{_MATRIX}::replaced", "tests/functional/model/test_model.py", "deployed")
"""What takes longest begins: the proofs that it is bought once, then the deployed stack."""


def pytest_collection_modifyitems(items):
    order = {scope: number for number, scope in enumerate(_BEGIN)}
    items.sort(key=lambda item: order.get(_together(item.nodeid), len(order)))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    from xdist.scheduler import LoadScopeScheduling

    class Together(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            return _together(nodeid)

    return Together(config, log)


def _together(nodeid):
    """What runs in one process: the tests of a file share what it makes, and all on the deployed stack share that."""
    file, _, test = nodeid.partition("::")
    if file == _MATRIX:
        # The halves of the matrix are a file's only tests that share nothing, and the longest.
        return f"{file}::{test.partition('[')[2].removesuffix(']')}"
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
    kinds = Counter()
    for outcome in ("passed", "failed"):
        for report in terminalreporter.getreports(outcome):
            kinds.update(dict(report.user_properties).get("faults", {}))
    if kinds:
        each = ", ".join(f"{kind} {count}" for kind, count in sorted(kinds.items()))
        terminalreporter.write_line(f"fault matrix: {kinds.total()} scenarios ({each})")
