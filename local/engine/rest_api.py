"""The REST API in front of the functions, as API Gateway's proxy integration (payload version 1.0) calls them."""

import base64
import json
import re
from dataclasses import dataclass
from typing import Any

from .engine import Engine
from .errors import StateError
from .template import Route


@dataclass(frozen=True)
class Request:
    """`is_base64` says how the body is handed to the function, which API Gateway decides by media type."""

    method: str
    path: str
    headers: dict[str, str]
    query: dict[str, str]
    body: str | None
    is_base64: bool


@dataclass(frozen=True)
class Response:
    """What the caller gets; header names are in lower case."""

    status: int
    headers: dict[str, str]
    body: str

    def json(self) -> Any:
        return json.loads(self.body)


def send(request: Request, routes: list[Route], engine: Engine, api_key: str | None) -> Response:
    """Find the function and ask it."""
    found = _find(request, routes)
    if found is None:
        return _own_answer(403, "Missing Authentication Token")
    route, parameters = found
    headers = {name.lower(): value for name, value in request.headers.items()}
    if route.api_key_required and (api_key is None or headers.get("x-api-key") != api_key):
        return _own_answer(403, "Forbidden")
    try:
        answer = engine.invoke(route.function, _event(request, route, parameters, engine))
    except StateError:
        return _own_answer(502, "Internal server error")
    if not isinstance(answer, dict) or not isinstance(answer.get("statusCode"), int):
        return _own_answer(502, "Internal server error")
    many = {name: values[0] for name, values in (answer.get("multiValueHeaders") or {}).items()}
    sent = {name.lower(): str(value) for name, value in {**many, **(answer.get("headers") or {})}.items()}
    body = answer.get("body") or ""
    return Response(
        answer["statusCode"], sent, base64.b64decode(body).decode() if answer.get("isBase64Encoded") else body
    )


def _find(request: Request, routes: list[Route]) -> tuple[Route, dict[str, str]] | None:
    """API Gateway prefers literal parts of a path over parameters."""
    matching = []
    for route in routes:
        parts = re.split(r"\{(\w+)\}", route.path)
        pattern = "".join(f"(?P<{part}>[^/]+)" if i % 2 else re.escape(part) for i, part in enumerate(parts))
        match = re.fullmatch(pattern, request.path)
        if match and route.method == request.method.upper():
            matching.append((len(match.groupdict()), route, match.groupdict()))
    if not matching:
        return None
    _, route, parameters = min(matching, key=lambda one: one[0])
    return route, parameters


def _event(request: Request, route: Route, parameters: dict[str, str], engine: Engine) -> dict[str, Any]:
    body = request.body
    if body is not None and request.is_base64:
        body = base64.b64encode(body.encode()).decode()
    return {
        "resource": route.path,
        "path": request.path,
        "httpMethod": request.method.upper(),
        "headers": request.headers,
        "multiValueHeaders": {name: [value] for name, value in request.headers.items()},
        "queryStringParameters": request.query or None,
        "multiValueQueryStringParameters": {name: [value] for name, value in request.query.items()} or None,
        "pathParameters": parameters or None,
        "stageVariables": None,
        "requestContext": {
            "accountId": engine.account,
            "apiId": "local",
            "domainName": "local.execute-api.us-east-1.amazonaws.com",
            "httpMethod": request.method.upper(),
            "path": f"/v1{request.path}",
            "requestId": f"{engine.rng.getrandbits(128):032x}",
            "requestTimeEpoch": round(engine.told_now().timestamp() * 1000),
            "resourcePath": route.path,
            "stage": "v1",
            "identity": {"sourceIp": "192.0.2.1", "userAgent": request.headers.get("User-Agent", "")},
        },
        "body": body,
        "isBase64Encoded": request.is_base64,
    }


def _own_answer(status: int, message: str) -> Response:
    return Response(status, {"content-type": "application/json"}, json.dumps({"message": message}))
