"""Which parts of a state machine have run: states, Choice rules and Default, Catch and Retry entries."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from .asl import all_states

Coverage = dict[str, Counter[str]]
"""Per state machine: how often each branch ran. A branch reads `Search`, `Search > Retry[0]`, `Search > Default`."""


def new_coverage() -> Coverage:
    return defaultdict(Counter)


def branches(definition: Mapping[str, Any]) -> Iterator[str]:
    """Every branch that a test can run, in the definition's order."""
    for name, state in all_states(definition):
        yield name
        for part in ("Choices", "Retry", "Catch"):
            # A retrier with MaxAttempts 0 only keeps an error from the retriers after it.
            for index, entry in enumerate(state.get(part, [])):
                if entry.get("MaxAttempts") != 0:
                    yield f"{name} > {part}[{index}]"
        if "Default" in state:
            yield f"{name} > Default"


def missing_branches(definition: Mapping[str, Any], covered: Mapping[str, int]) -> list[str]:
    """The branches of `definition` that never ran."""
    return [branch for branch in branches(definition) if not covered.get(branch)]
