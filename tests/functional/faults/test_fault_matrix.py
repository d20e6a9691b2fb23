"""The fault matrix: every AWS call and every task of the workflows that buy, and what may go wrong there, once or for a while.

A scenario's id is course-call-fault-scope. `faults/scenario.py` tells it, `faults/rules.py` says what must hold then.
`FAULT_MATRIX=whole ./dev test tests/functional/faults` runs all of them; without it an even spread of some 30 runs.
"""

import os

import pytest

from .troubles import scenarios

SCENARIOS = {scenario.name: scenario for scenario in scenarios()}
RUN = list(SCENARIOS)[:: 1 if os.environ.get("FAULT_MATRIX") == "whole" else len(SCENARIOS) // 30]


@pytest.mark.parametrize("name", RUN)
def test_whatever_fails_it_is_bought_once_within_limits_or_somebody_is_told(name, outcomes):
    assert outcomes[name] == []
