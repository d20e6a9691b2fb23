"""The fault matrix: every AWS call and every task of the workflows that buy, and what may go wrong there, once or for a while.

A scenario's name is course-call-fault-scope. `scenario.py` tells it, `troubles.py` says what goes wrong, `rules.py` what must hold
then. `FAULTS='policy-BuyExtension*' ./dev test tests/functional/faults` runs those of such names.
"""

import os
from collections import Counter

from .forks import Forks
from .scenario import COURSES
from .troubles import Matrix


def test_whatever_fails_it_is_bought_once_within_limits_or_somebody_is_told(subtests, request, record_property):
    matrix, kinds = Matrix(), Counter()
    for course in COURSES.values():
        forks = Forks(course, matrix, os.environ.get("FAULTS", "*"), one=request.config.option.maxfail == 1)
        for name, wrong in forks.run().items():
            with subtests.test(name):
                assert wrong == []
        kinds.update(forks.kinds.values())
        if request.session.shouldfail:
            break
    record_property("faults", dict(kinds))
    assert kinds, "no scenario has such a name"
