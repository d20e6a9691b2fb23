"""How the tests are shared among processes (pytest-xdist), and where what they ran of the product is gathered."""

from pathlib import Path

import pytest


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
