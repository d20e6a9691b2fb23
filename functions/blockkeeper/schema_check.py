"""Checks what comes from outside against `schemas/`, and says what is wrong so that the sender can mend it.

Each field's schema carries its own words: `x-rule` says what is right, `x-remedy` what to do. jsonschema takes some 60 ms to
import, so it is imported when the first body is checked, not when a function starts.
"""

import json
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from blockkeeper.domain.instants import parse_instant
from blockkeeper.domain.problem import Problem

SCHEMAS = Path(__file__).parent / "schemas"
LONGEST_SHOWN = 60
MOST_PROBLEMS = 50
_TYPES = {
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "array": "a list",
    "object": "an object",
    "null": "null",
}


@lru_cache(maxsize=16)
def schema(name: str) -> dict[str, Any]:
    """The schema `schemas/<name>.schema.json`."""
    read: dict[str, Any] = json.loads((SCHEMAS / f"{name}.schema.json").read_text(encoding="utf-8"))
    return read


def without_read_only(name: str, body: Mapping[str, Any]) -> dict[str, Any]:
    """The body without the fields that its schema marks `readOnly`: a client may send back what it got."""
    properties = schema(name)["properties"]
    return {field: value for field, value in body.items() if not properties.get(field, {}).get("readOnly")}


def schema_problems(name: str, body: Any) -> list[Problem]:
    """All faults of `body` against the schema `name`, in the order of their fields; an empty list means it is right."""
    errors = sorted(_validator(name).iter_errors(body), key=lambda error: [str(part) for part in error.absolute_path])
    problems = (problem for error in errors for problem in _problems(error))
    return list(dict.fromkeys(problems))[:MOST_PROBLEMS]


@lru_cache(maxsize=16)
def _validator(name: str) -> Any:
    from jsonschema import Draft202012Validator, FormatChecker
    from jsonschema.exceptions import ValidationError
    from jsonschema.validators import extend

    formats = FormatChecker(formats=())

    @formats.checks("date-time", raises=ValueError)
    def is_instant(value: object) -> bool:
        if isinstance(value, str):
            parse_instant(value)
        return True

    def pattern(_: Any, wanted: str, value: Any, __: Any) -> Iterator[ValidationError]:
        # JSON Schema's patterns are ECMAScript's, where `$` is the very end; Python's `$` lets a final line break through.
        if isinstance(value, str) and not re.search(re.sub(r"\$(?=\)?$)", r"\\Z", wanted), value):
            yield ValidationError("does not match")

    checker = extend(Draft202012Validator, {"pattern": pattern})  # type: ignore[no-untyped-call]
    return checker(schema(name), format_checker=formats)


def _problems(error: Any) -> Iterator[Problem]:
    field = _field(error.absolute_path)
    if error.validator == "required":
        for missing in error.validator_value:
            if missing not in error.instance:
                words = error.schema.get("properties", {}).get(missing, {})
                yield Problem(_inside(field, missing), "is missing", *_words(words))
    elif error.validator == "additionalProperties":
        from difflib import get_close_matches

        known = [name for name, words in error.schema["properties"].items() if not words.get("readOnly")]
        for extra in error.instance:
            if extra not in error.schema["properties"]:
                near = get_close_matches(extra, known, n=1)
                remedy = f"did you mean {near[0]}?" if near else f"leave it out; known are {', '.join(known)}"
                yield Problem(
                    _inside(field, _short(extra)), "is unknown", "fields that mean nothing are refused", remedy
                )
    elif error.validator == "type" and "x-rule" in error.schema:
        # `"7"` is no number although 7 is right: the kind of value is what is wrong, not its range.
        yield Problem(field, f"is {_shown(error)}", f"it must be {_kind(error.schema)}", _words(error.schema)[1])
    else:
        yield Problem(field, f"is {_shown(error)}", *_words(error.schema))


def _words(words: Mapping[str, Any]) -> tuple[str, str]:
    examples = words.get("examples")
    remedy = f"write it as in {json.dumps(examples[0], ensure_ascii=False)}" if examples else "see GET /openapi.json"
    return words.get("x-rule", f"it must be {_kind(words)}"), words.get("x-remedy", remedy)


def _kind(words: Mapping[str, Any]) -> str:
    kinds = words.get("type", [])
    return " or ".join(_TYPES[name] for name in ([kinds] if isinstance(kinds, str) else kinds)) or "present"


def _field(path: Any) -> str:
    field = ""
    for part in path:
        field = f"{field}[{part}]" if isinstance(part, int) else _inside(field, _short(part))
    return field or "body"


def _inside(field: str, name: str) -> str:
    return name if field in ("", "body") else f"{field}.{name}"


def _shown(error: Any) -> str:
    value = error.instance
    if error.schema.get("writeOnly"):
        return "not right"
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "an empty list" if not value else f"a list of {len(value)}"
    return _short(json.dumps(value, ensure_ascii=False))


def _short(text: str) -> str:
    return text if len(text) <= LONGEST_SHOWN else text[:LONGEST_SHOWN] + "..."
