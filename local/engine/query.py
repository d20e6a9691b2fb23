"""JSONata as Step Functions evaluates it: `{% ... %}` strings, `$states`, workflow variables, and the extra functions.

Source: Step Functions guide, "Transforming data with JSONata".
"""

import hashlib
import json
import math
import random
import uuid
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from jsonata import Jsonata  # type: ignore[import-untyped]
from jsonata.functions import Functions  # type: ignore[import-untyped]
from jsonata.utils import Utils  # type: ignore[import-untyped]

from .errors import QUERY, StateError

_HASHES = {"MD5": "md5", "SHA-1": "sha1", "SHA-256": "sha256", "SHA-384": "sha384", "SHA-512": "sha512"}


def is_expression(value: object) -> bool:
    """Whether Step Functions evaluates this string: it starts with `{%` and ends with `%}`, without surrounding space."""
    return isinstance(value, str) and len(value) >= 4 and value.startswith("{%") and value.endswith("%}")


@cache
def compiled(expression: str) -> Jsonata:
    """The parsed text between `{%` and `%}`. Raises whatever the parser raises on a syntax error."""
    query = Jsonata(expression)
    # Without this the library changes the input document while it converts nulls, and an explicit null can't be
    # told from "no result", which Step Functions treats as an error.
    query.set_output_convert_nulls(False)
    return query


class Evaluator:
    """Evaluates expressions with a clock and a random source that the engine owns, so that runs repeat exactly."""

    def __init__(self, now_millis: Callable[[], int], rng: random.Random) -> None:
        self._now_millis = now_millis
        self._rng = rng
        functions: dict[str, Callable[..., Any]] = {
            "now": lambda picture=None, zone=None: Functions.datetime_from_millis(now_millis(), picture, zone),
            "millis": now_millis,
            "random": lambda seed=None: (rng if seed is None else _seeded(seed)).random(),
            "uuid": lambda: str(uuid.UUID(int=rng.getrandbits(128), version=4)),
            "parse": json.loads,
            "partition": _partition,
            "range": _range,
            "hash": _hash,
            "toMillis": _to_millis,
            "eval": _refused("$eval does not exist in Step Functions; use $parse"),
            "shuffle": _refused("$shuffle is not repeatable, so the engine does not offer it"),
        }
        self._functions = {name: Jsonata.JLambda(function) for name, function in functions.items()}

    def render(self, template: Any, states: Mapping[str, Any], variables: Mapping[str, Any]) -> Any:
        """A copy of `template` with each expression in it replaced by its value.

        Raises StateError `States.QueryEvaluationError` when an expression fails or yields nothing.
        """
        if isinstance(template, dict):
            return {key: self.render(value, states, variables) for key, value in template.items()}
        if isinstance(template, list):
            return [self.render(value, states, variables) for value in template]
        if not is_expression(template):
            return template
        return self._evaluate(template[2:-2].strip(), states, variables)

    def _evaluate(self, expression: str, states: Mapping[str, Any], variables: Mapping[str, Any]) -> Any:
        bindings: dict[str, Any] = dict(self._functions)
        # The library takes a variable bound to None for undefined.
        bindings |= {name: Utils.NULL_VALUE if value is None else value for name, value in variables.items()}
        bindings["states"] = dict(states)
        try:
            value = compiled(expression).evaluate(None, bindings)
            if value is not None:
                return _plain(value)
        except Exception as error:  # the library raises many types; each is an evaluation error on AWS
            code = getattr(error, "error", "") or type(error).__name__
            raise StateError(QUERY, f"{code}: {error} (in {{% {expression} %}})") from error
        raise StateError(QUERY, f"The JSONata expression '{expression}' returned nothing (undefined)")


def _plain(value: Any) -> Any:
    """A copy made of JSON's own types; numbers as JavaScript prints them (2.0 is 2)."""
    if value is None or value is Utils.NULL_VALUE:
        return None
    if isinstance(value, bool | str | int):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"{value} is not a JSON number")
        return int(value) if value.is_integer() else value
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, Utils.RangeList):
        return list(range(value.a, value.b + 1))
    if isinstance(value, list):
        return [_plain(item) for item in value]
    raise TypeError(f"{type(value).__name__} is not a JSON value")


def _refused(why: str) -> Callable[..., Any]:
    def refuse(*_: object) -> Any:
        raise ValueError(why)

    return refuse


def _seeded(seed: float) -> random.Random:
    return random.Random(math.floor(seed))  # noqa: S311 - it must repeat


def _partition(array: list[Any], size: float) -> list[list[Any]]:
    count = math.floor(size)
    if count < 1:
        raise ValueError("$partition needs a size of at least 1")
    return [array[start : start + count] for start in range(0, len(array), count)]


def _range(start: float, end: float, step: float) -> list[int]:
    first, last, by = math.floor(start), math.floor(end), math.floor(step)
    if by == 0:
        raise ValueError("$range needs a step other than 0")
    return list(range(first, last + (1 if by > 0 else -1), by))


def _hash(text: str, algorithm: str) -> str:
    if algorithm not in _HASHES:
        raise ValueError(f"$hash algorithm {algorithm!r} is not one of {', '.join(_HASHES)}")
    return hashlib.new(_HASHES[algorithm], text.encode()).hexdigest()


def _to_millis(timestamp: str | None = None, picture: str | None = None) -> int | None:
    # The library also reads "2026-05-04 11:30:00"; the reference implementation answers D3110.
    if picture is None and isinstance(timestamp, str) and " " in timestamp:
        raise ValueError(f"D3110: {timestamp!r} is not an ISO 8601 timestamp")
    millis: int | None = Functions.datetime_to_millis(timestamp, picture)
    return millis
