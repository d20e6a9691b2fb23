"""The fault matrix: every AWS call and every task of the workflows that buy, and what may go wrong there, once or for a while.

A scenario's name is course-call-fault-scope. `scenario.py` tells it, `troubles.py` says what goes wrong, `rules.py` what must hold
then. `FAULTS='policy-BuyExtension*' ./dev test tests/functional/faults` runs those of such names.
"""

import os
from collections import Counter

import pytest

from .forks import Forks
from .scenario import COURSES, Telling
from .troubles import Matrix


@pytest.mark.parametrize("replaced", [False, True], ids=["extended", "replaced"])
def test_whatever_fails_it_is_bought_once_within_limits_or_somebody_is_told(
    replaced, subtests, request, record_property
):
    matrix, kinds, wanted = Matrix(), Counter(), os.environ.get("FAULTS", "*")
    for course in COURSES.values():
        if course.replaced is not replaced:
            if replaced:
                _leave_out(course, matrix)
            continue
        forks = Forks(course, matrix, wanted, one=request.config.option.maxfail == 1)
        for name, wrong in forks.run().items():
            with subtests.test(name):
                assert wrong == []
        kinds.update(forks.kinds.values())
        if request.session.shouldfail:
            break
    record_property("faults", dict(kinds))
    if not kinds and wanted != "*":
        pytest.skip(f"no scenario here is named {wanted}")
    assert kinds


def _leave_out(course, matrix):
    """What the other half's courses have in common with this half's is gone through there."""

    def pass_by(place):
        matrix.troubles(course, place)

    Telling(course, fork=pass_by).run()
