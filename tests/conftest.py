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


# Before xdist reads the groups; it is told not to sort them.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """A file's tests stay in one process, with what they share, and so do all that need the deployed stack; the longest begin."""
    items.sort(key=lambda item: _BEGIN.get(_group(item), len(_BEGIN)))
    for item in items:
        item.add_marker(pytest.mark.xdist_group(_group(item)))


_BEGIN = {"deployed": 0, "tests/functional/faults/test_fault_matrix.py": 1, "tests/functional/model/test_model.py": 2}


def _group(item):
    return "deployed" if item.get_closest_marker("e2e") else str(item.path.relative_to(item.config.rootpath))
