"""The workspace inside the local AWS's server, under `/_slack/`, and what tests order of it at `/_slack/control` in JSON.

`GET` answers `Workspace.state`. `POST` takes one of `interactions_url` (where clicks go), `press`, `submit` and `fail` (arguments
of the workspace's methods of that name); `press` and `submit` answer what the person got to see.
"""

import asyncio
import json
import time
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict
from datetime import datetime
from typing import Any

from .http import Answer, handle
from .workspace import Workspace

BASE = "/_slack"
CONTROL = "/control"
_CLICK_SECONDS = 30
App = Callable[[Any, Any, Any], Awaitable[None]]


def mounted(app: App, now: Callable[[], datetime]) -> App:
    """The app, with a workspace of that clock in front of it."""
    workspace = Workspace(now, stopwatch=time.monotonic)

    async def with_slack(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or not scope["path"].startswith(f"{BASE}/"):
            await app(scope, receive, send)
            return
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        path = scope["path"].removeprefix(BASE)
        headers = {name.decode().lower(): value.decode() for name, value in scope["headers"]}
        answer = await asyncio.to_thread(_answer, workspace, scope["method"], path, headers, body)
        # Of a lost answer the caller sees the connection end in the middle.
        length = len(answer.body) + (1 if answer.lost else 0)
        sent = {**answer.headers, "content-length": str(length)}
        lines = [(name.lower().encode(), value.encode()) for name, value in sent.items()]
        await send({"type": "http.response.start", "status": answer.status, "headers": lines})
        await send({"type": "http.response.body", "body": answer.body})

    return with_slack


def _answer(workspace: Workspace, method: str, path: str, headers: dict[str, str], body: bytes) -> Answer:
    if path != CONTROL:
        return handle(workspace, method, path, headers, body)
    try:
        said = workspace.state() if method == "GET" else _order(workspace, json.loads(body))
        status = 200
    except (ValueError, TypeError, KeyError, LookupError, RuntimeError) as error:
        status, said = 400, {"error": f"{type(error).__name__}: {error}"}
    return Answer(status, json.dumps(said, default=str).encode(), {"content-type": "application/json"})


def _order(workspace: Workspace, order: dict[str, Any]) -> Any:
    ((name, given),) = order.items()
    if name == "interactions_url":
        workspace.deliver = _poster(given)
        return {}
    if name == "fail":
        workspace.fail(**given)
        return {}
    if name in ("press", "submit"):
        return asdict(getattr(workspace, name)(**given))
    raise ValueError(f"{name!r} is no order; there are interactions_url, press, submit and fail")


def _poster(url: str) -> Callable[[Mapping[str, str], str], tuple[int, str]]:
    if not url.startswith("http://127.0.0.1:"):
        raise ValueError(f"{url} is not on this machine")

    def deliver(headers: Mapping[str, str], body: str) -> tuple[int, str]:
        request = urllib.request.Request(url, body.encode(), dict(headers))  # noqa: S310 - checked above
        try:
            with urllib.request.urlopen(request, timeout=_CLICK_SECONDS) as answer:  # noqa: S310 - checked above
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    return deliver
