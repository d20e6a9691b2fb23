"""Reads the form of the approval page, and says what is wrong with one that no browser would send."""

import base64
import binascii
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl

from blockkeeper.domain.approval import Decision
from blockkeeper.domain.problem import Problem
from blockkeeper.schema_check import schema_problems

FORM = "application/x-www-form-urlencoded"
_MOST_FIELDS = 10


class FormError(ValueError):
    """The form cannot be read; nothing was decided."""

    def __init__(self, status: int, problems: Sequence[Problem]) -> None:
        """Keep the HTTP status to answer, and what is wrong."""
        super().__init__("; ".join(str(problem) for problem in problems))
        self.status = status
        self.problems = problems


@dataclass(frozen=True, slots=True)
class Form:
    """What was sent. `amount` is None when the field was not there: then it was no browser that sent the page's own form."""

    decision: Decision
    reason: str | None
    amount: str | None


def read_form(event: Mapping[str, Any]) -> Form:
    """The fields of a POST, checked against ``schemas/decide-form.schema.json``.

    Raises:
        FormError: it is no such form.
    """
    headers = {name.lower(): value for name, value in (event.get("headers") or {}).items()}
    sent = headers.get("content-type", "").partition(";")[0].strip().lower()
    if sent != FORM:
        raise FormError(415, [Problem("Content-Type", "is another", f"it is {FORM}", "send the page's own form")])
    fields: dict[str, str] = {}
    for name, value in _pairs(event):
        if name in fields:
            raise FormError(
                400, [Problem("body", "has a field twice", "each field stands once", "send the page's own form")]
            )
        fields[name] = value.replace("\r\n", "\n").strip() if name == "reason" else value
    problems = schema_problems("decide-form", fields)
    if problems:
        raise FormError(400, problems)
    return Form(Decision(fields["decision"]), fields.get("reason") or None, fields.get("amount"))


def _pairs(event: Mapping[str, Any]) -> list[tuple[str, str]]:
    body = event.get("body") or ""
    try:
        raw = base64.b64decode(body, validate=True) if event.get("isBase64Encoded") else body.encode()
        return parse_qsl(raw.decode(), keep_blank_values=True, max_num_fields=_MOST_FIELDS, errors="strict")
    except (binascii.Error, ValueError):
        problem = Problem("body", "cannot be read", "it is a form in UTF-8", "send the page's own form")
        # What was sent stays out of the log, which a cause would put it in.
        raise FormError(400, [problem]) from None
