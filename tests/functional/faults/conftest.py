"""Runs the matrix's scenarios in as many processes as there are cores, each forked from this one with its warm functions."""

import gc
import multiprocessing
import os
import traceback
from collections import Counter

import pytest

RUN = pytest.StashKey[Counter]()


class Outcomes:
    """What was wrong in each scenario: asked for in order, told ahead."""

    def __init__(self, names, answers):
        self._names = iter(names)
        self._answers = answers
        self._known = {}

    def __getitem__(self, name):
        while name not in self._known:
            self._known[next(self._names)] = next(self._answers)
        return self._known[name]


def _outcome(name):
    from .scenario import COURSES, Telling
    from .test_fault_matrix import SCENARIOS

    scenario = SCENARIOS[name]
    try:
        return Telling(COURSES[scenario.course], scenario.trouble).run()
    except Exception:  # noqa: BLE001 - another process shows it
        return [traceback.format_exc()]


@pytest.fixture(scope="session")
def outcomes(request):
    from .test_fault_matrix import SCENARIOS

    names = [
        item.callspec.params["name"]
        for item in request.session.items
        if "outcomes" in getattr(item, "fixturenames", ())
    ]
    request.config.stash[RUN] = Counter(SCENARIOS[name].trouble.kind for name in names)
    gc.collect()
    gc.freeze()
    with multiprocessing.get_context("fork").Pool(os.cpu_count()) as pool:
        gc.unfreeze()
        yield Outcomes(names, pool.imap(_outcome, names, chunksize=2))


def pytest_terminal_summary(terminalreporter, config):
    if run := config.stash.get(RUN, None):
        from .test_fault_matrix import SCENARIOS

        kinds = ", ".join(f"{kind} {count}" for kind, count in sorted(run.items()))
        terminalreporter.write_line(f"fault matrix: {run.total()} of {len(SCENARIOS)} scenarios ({kinds})")
