"""EventBridge event patterns, as far as the template uses them.

Source: EventBridge guide, "Comparison operators". A pattern with an operator that is not known here is refused.
"""

from collections.abc import Mapping
from typing import Any

_OPERATORS = frozenset({"prefix", "suffix", "anything-but", "exists", "equals-ignore-case"})


def matches(pattern: Mapping[str, Any], event: Mapping[str, Any]) -> bool:
    """Whether every field of the pattern accepts the event. Raises ValueError for a malformed pattern."""
    # Not a generator: every part of the pattern is checked, also after one that does not match.
    found = [_field(condition, event.get(name, _ABSENT)) for name, condition in pattern.items()]
    return all(found)


_ABSENT = object()


def _field(condition: Any, value: Any) -> bool:
    if isinstance(condition, dict):
        return matches(condition, value if isinstance(value, dict) else {})
    if not isinstance(condition, list) or not condition:
        raise ValueError(f"{condition!r} must be a nested pattern or a list of accepted values")
    candidates = value if isinstance(value, list) else [value]
    accepted = [_accepts(one, candidate) for one in condition for candidate in candidates]
    return any(accepted)


def _accepts(condition: Any, value: Any) -> bool:
    if not isinstance(condition, dict):
        return value is not _ABSENT and type(condition) is type(value) and bool(condition == value)
    if len(condition) != 1 or not condition.keys() <= _OPERATORS:
        raise ValueError(f"{condition!r} is no single operator of {sorted(_OPERATORS)}")
    ((operator, operand),) = condition.items()
    if operator == "exists":
        return (value is not _ABSENT) is bool(operand)
    if operator == "anything-but":
        refused = operand if isinstance(operand, list) else [operand]
        return value is not _ABSENT and not any(_accepts(one, value) for one in refused)
    if not isinstance(value, str):
        return False
    if operator == "equals-ignore-case":
        return value.lower() == str(operand).lower()
    text = str(operand)
    return value.startswith(text) if operator == "prefix" else value.endswith(text)
