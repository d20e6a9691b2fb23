"""The workspace over HTTP: Slack's Web API under `<base>/api/`, and a page at `<base>/` on which a person reads and answers."""

import json
import socket
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl

from .page import page
from .workspace import LostAnswer, OtherAnswer, Workspace

_API = "/api/"


@dataclass(frozen=True)
class Answer:
    """`lost` means that the connection is cut instead."""

    status: int
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    lost: bool = False


def handle(workspace: Workspace, method: str, path: str, headers: dict[str, str], body: bytes) -> Answer:
    """Answer a request; `path` is what follows the base, header names are in lower case."""
    if path.startswith(_API) and method == "POST":
        return _api(workspace, path.removeprefix(_API), headers, body)
    if path == "/" and method == "GET":
        return Answer(200, page(workspace).encode(), {"Content-Type": "text/html; charset=utf-8"})
    form = dict(parse_qsl(body.decode(), keep_blank_values=True))
    if path == "/press" and method == "POST":
        workspace.press(form["user"], form["action_id"], form["ts"])
    elif path == "/submit" and method == "POST":
        workspace.submit(form["user"], form.get("reason") or None)
    elif path == "/close" and method == "POST":
        workspace.forms.pop(form["user"], None)
    else:
        return Answer(404)
    return Answer(303, headers={"Location": "./"})


def _api(workspace: Workspace, method: str, headers: dict[str, str], body: bytes) -> Answer:
    scheme, _, token = headers.get("authorization", "").partition(" ")
    arguments = (
        json.loads(body) if body and "json" in headers.get("content-type", "") else dict(parse_qsl(body.decode()))
    )
    try:
        answer = workspace.api(method, token if scheme == "Bearer" else None, arguments)
    except LostAnswer:
        return Answer(200, lost=True)
    except OtherAnswer as other:
        return Answer(other.status, other.body.encode(), other.headers)
    return Answer(200, json.dumps(answer).encode(), {"Content-Type": "application/json; charset=utf-8"})


class Server:
    """An HTTP server on 127.0.0.1 in front of whichever workspace is `current`; its base never changes, as Slack's does not."""

    def __init__(self) -> None:
        self.current: Workspace | None = None
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._serve(b"")

            def do_POST(self) -> None:
                self._serve(self.rfile.read(int(self.headers.get("Content-Length") or 0)))

            def _serve(self, body: bytes) -> None:
                if outer.current is None:
                    answer = Answer(503)
                else:
                    headers = {name.lower(): value for name, value in self.headers.items()}
                    answer = handle(outer.current, self.command, self.path, headers, body)
                if answer.lost:
                    self.connection.shutdown(socket.SHUT_RDWR)
                    self.close_connection = True
                    return
                self.send_response(answer.status)
                for name, value in {**answer.headers, "Content-Length": str(len(answer.body))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(answer.body)

            def log_message(self, *_: object) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        threading.Thread(target=self._http.serve_forever, daemon=True, name="slack").start()
        self.base = f"http://127.0.0.1:{self._http.server_port}"
        self.api_url = f"{self.base}{_API}"
