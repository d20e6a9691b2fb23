"""What tests have run of the product: branches of state machines, and AWS calls of functions; gathered over all processes."""

from collections import Counter, defaultdict

import pytest


class Ran:
    """What has run: per state machine how often each branch, per function its (service, operation) calls."""

    def __init__(self, was=None):
        was = was or {"branches": {}, "calls": {}}
        self.branches = defaultdict(Counter, {machine: Counter(counts) for machine, counts in was["branches"].items()})
        self.calls = defaultdict(set, {name: {tuple(call) for call in calls} for name, calls in was["calls"].items()})

    def facts(self):
        """All of it as JSON takes it."""
        branches = {machine: dict(counts) for machine, counts in self.branches.items()}
        return {"branches": branches, "calls": {name: sorted(map(list, calls)) for name, calls in self.calls.items()}}

    def add(self, other):
        for machine, counts in other.branches.items():
            self.branches[machine].update(counts)
        for name, calls in other.calls.items():
            self.calls[name] |= calls


HERE = pytest.StashKey[Ran]()
"""Where a process keeps what it has run, in pytest's stash."""
