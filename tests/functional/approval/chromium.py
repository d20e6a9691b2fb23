"""Headless Chromium over its DevTools pipe, with every request answered by the test: no server, no library, no network."""

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome")
PATIENCE_SECONDS = 60.0

# (method, URL, body or None) -> (status, headers, body)
Answer = Callable[[str, str, str | None], tuple[int, dict[str, str], str]]


def found() -> str | None:
    """The browser on PATH."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Chromium:
    """One page of a phone's size. What the page asks for goes to `answer`, and `asked` keeps it."""

    def __init__(self, binary: str, answer: Answer) -> None:
        self.asked: list[tuple[str, str]] = []
        self._answer = answer
        self._profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        to_browser, self._out = os.pipe()
        self._in, from_browser = os.pipe()

        def as_3_and_4() -> None:
            # Above 4 first: either may be 3 or 4 already.
            high = os.dup(to_browser), os.dup(from_browser)
            os.dup2(os.dup(high[0]), 3)
            os.dup2(high[1], 4)

        arguments = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"]
        arguments += [
            f"--user-data-dir={self._profile.name}",
            "--remote-debugging-pipe",
            "--no-first-run",
            "about:blank",
        ]
        self._browser = subprocess.Popen(
            [binary, *arguments],
            close_fds=False,
            preexec_fn=as_3_and_4,  # noqa: PLW1509 - the pipe is at 3 and 4 by definition
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_browser)
        os.close(from_browser)
        self._buffer, self._ids, self._session, self._events = b"", 0, "", []
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Accessibility"):
            self.send(f"{domain}.enable")
        self.send("Fetch.enable", patterns=[{"urlPattern": "*"}])
        self.send("Emulation.setDeviceMetricsOverride", width=390, height=844, deviceScaleFactor=2, mobile=True)

    def close(self) -> None:
        self._browser.kill()
        self._browser.wait()
        os.close(self._out)
        os.close(self._in)
        self._profile.cleanup()

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One command and its answer; requests of the page are answered meanwhile."""
        number = self._post(method, parameters)
        give_up = time.monotonic() + PATIENCE_SECONDS
        while True:
            message = self._read(give_up)
            if message.get("id") == number:
                assert "error" not in message, f"{method}: {message['error']}"
                answer: dict[str, Any] = message["result"]
                return answer
            self._note(message)

    def open(self, url: str) -> None:
        self._load(lambda: self.send("Page.navigate", url=url))

    def press(self, selector: str) -> None:
        """Click a button that loads the next page."""
        self._load(lambda: self.run(f"document.querySelector({json.dumps(selector)}).click()"))

    def run(self, script: str) -> Any:
        """Evaluate as a browser's extension or a robot does: the page's own policy does not bind it."""
        answer = self.send("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def type(self, selector: str, text: str) -> None:
        self.run(f"document.querySelector({json.dumps(selector)}).focus()")
        self.send("Input.insertText", text=text)

    def key(self, name: str, code: int, text: str = "") -> None:
        given = {"key": name, "code": name, "windowsVirtualKeyCode": code}
        self.send("Input.dispatchKeyEvent", type="keyDown", text=text, **given)
        self.send("Input.dispatchKeyEvent", type="keyUp", **given)

    def dark(self, on: bool) -> None:
        features = [{"name": "prefers-color-scheme", "value": "dark" if on else "light"}]
        self.send("Emulation.setEmulatedMedia", features=features)

    def names(self) -> list[tuple[str, str]]:
        """(role, name) of what a screen reader announces, in reading order."""
        nodes = self.send("Accessibility.getFullAXTree")["nodes"]
        seen = [node for node in nodes if not node.get("ignored")]
        return [(node["role"]["value"], node.get("name", {}).get("value", "")) for node in seen]

    def screenshot(self, path: Path) -> None:
        shot = self.send("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(shot["data"]))

    def settle(self) -> None:
        """Let what the page has begun come to an end: until nothing comes for half a second."""
        while b"\0" in self._buffer or select.select([self._in], [], [], 0.5)[0]:
            self._note(self._read(time.monotonic() + PATIENCE_SECONDS))

    def _load(self, begin: Callable[[], Any]) -> None:
        self._events.clear()
        begin()
        give_up = time.monotonic() + PATIENCE_SECONDS
        while "Page.loadEventFired" not in self._events:
            self._note(self._read(give_up))

    def _note(self, message: dict[str, Any]) -> None:
        self._events.append(message.get("method"))
        if message.get("method") != "Fetch.requestPaused":
            return
        request, paused = message["params"]["request"], message["params"]["requestId"]
        self.asked.append((request["method"], request["url"]))
        status, headers, body = self._answer(request["method"], request["url"], request.get("postData"))
        fulfilled = {
            "requestId": paused,
            "responseCode": status,
            "responseHeaders": [{"name": name, "value": value} for name, value in headers.items()],
            "body": base64.b64encode(body.encode()).decode(),
        }
        self._post("Fetch.fulfillRequest", fulfilled)

    def _post(self, method: str, parameters: dict[str, Any]) -> int:
        self._ids += 1
        message = {"id": self._ids, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        return self._ids

    def _read(self, give_up: float) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            assert time.monotonic() < give_up, "Chromium does not answer"
            read = os.read(self._in, 1 << 20)
            assert read, "Chromium has ended"
            self._buffer += read
        line, self._buffer = self._buffer.split(b"\0", 1)
        message: dict[str, Any] = json.loads(line)
        return message
