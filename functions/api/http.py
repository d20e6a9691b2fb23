"""What the API understands of HTTP: an API Gateway proxy event as a request, and answers and refusals as its proxy response."""

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from blockkeeper.domain.problem import Problem

MOST_BODY_BYTES = 64 * 1024
# Lambda takes 6 MB of response, API Gateway's proxy event included.
MOST_ANSWER_BYTES = 5_500_000
_JSON_TYPES = ("application/json", "text/json")


class RefusedError(Exception):
    """A request that is answered with an error.

    Attributes:
        status: HTTP status, 4xx.
        code: short word for programs.
        message: one sentence for people, with the remedy.
        problems: what is wrong with which field.
    """

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        problems: list[Problem] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.code, self.message = status, code, message
        self.problems, self.headers = problems or [], headers or {}


def invalid(problems: list[Problem]) -> RefusedError:
    """The refusal of a request with these faults."""
    return RefusedError(400, "invalid", "; ".join(str(problem) for problem in problems[:5]), problems)


@dataclass(frozen=True, slots=True)
class Answer:
    """A JSON answer; `body` is what is serialised."""

    status: int
    body: Any
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Request:
    """A request as the route's function sees it. Header names are in lower case."""

    method: str
    resource: str
    path: Mapping[str, str]
    query: Mapping[str, str]
    headers: Mapping[str, str]
    now: datetime
    body: str | None
    base64: bool

    def json(self) -> Any:
        """The body as JSON; None when there is none.

        Raises:
            RefusedError: too large, another media type, no UTF-8, or no JSON as RFC 8259 has it.
        """
        raw = self._bytes()
        if not raw.strip():
            return None
        media_type = self.headers.get("content-type", _JSON_TYPES[0]).split(";")[0].strip().lower()
        if media_type not in _JSON_TYPES and not media_type.endswith("+json"):
            raise RefusedError(
                415, "unsupported_media_type", "the body is not announced as JSON; send Content-Type: application/json"
            )
        try:
            parsed = json.loads(raw.decode(), parse_constant=_refuse_constant, object_pairs_hook=_once)
            # Half of a surrogate pair is legal in JSON's text, but no character: it cannot be stored.
            json.dumps(parsed, ensure_ascii=False).encode()
        except (ValueError, RecursionError) as error:
            reason = str(error) if isinstance(error, _RepeatedNameError) else "the body is not JSON"
            raise RefusedError(400, "invalid_json", f"{reason}; send one JSON object in UTF-8") from error
        return parsed

    def fields(self) -> dict[str, Any]:
        """The body as a JSON object; empty when there is no body."""
        body = self.json()
        if body is None:
            return {}
        if not isinstance(body, dict):
            raise invalid(
                [Problem("body", "is no object", "it is one JSON object", 'write it as in {"name": "value"}')]
            )
        return body

    def _bytes(self) -> bytes:
        try:
            text = self.body or ""
            raw = base64.b64decode(text, validate=True) if self.base64 else text.encode()
        except (binascii.Error, ValueError) as error:
            raise RefusedError(400, "invalid_body", "the body cannot be decoded; send JSON in UTF-8") from error
        if len(raw) > MOST_BODY_BYTES:
            raise RefusedError(
                413, "body_too_large", f"the body has {len(raw)} bytes; at most {MOST_BODY_BYTES} are read (send less)"
            )
        return raw


def parse_request(event: Mapping[str, Any]) -> Request:
    """Read an API Gateway REST proxy event; the clock is API Gateway's `requestTimeEpoch`, in milliseconds."""
    headers = {name.lower(): value for name, value in (event.get("headers") or {}).items() if value is not None}
    return Request(
        method=event["httpMethod"],
        resource=event["resource"],
        path=event.get("pathParameters") or {},
        query=event.get("queryStringParameters") or {},
        headers=headers,
        now=datetime.fromtimestamp(event["requestContext"]["requestTimeEpoch"] // 1000, UTC),
        body=event.get("body"),
        base64=bool(event.get("isBase64Encoded")),
    )


def render(answer: Answer) -> dict[str, Any]:
    """The proxy response of an answer."""
    body = json.dumps(answer.body, ensure_ascii=False)
    if len(body.encode()) > MOST_ANSWER_BYTES:
        return render_refusal(
            RefusedError(400, "answer_too_large", "the list is too long for one answer; use ?limit=500")
        )
    headers = {"Content-Type": "application/json", "Cache-Control": "no-store", **answer.headers}
    return {"statusCode": answer.status, "headers": headers, "body": body, "isBase64Encoded": False}


def render_refusal(refusal: RefusedError) -> dict[str, Any]:
    """The proxy response of a refusal: `{"error": {"code", "message", "details": [...]}}`."""
    details = [problem.as_json() for problem in refusal.problems]
    error = {"code": refusal.code, "message": refusal.message, "details": details}
    return render(Answer(refusal.status, {"error": error}, refusal.headers))


class _RepeatedNameError(ValueError):
    """An object names a field twice; which one is meant cannot be known."""


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = [name for name, _ in pairs]
    if len(set(names)) < len(names):
        raise _RepeatedNameError("the body names a field twice")
    return dict(pairs)


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")
