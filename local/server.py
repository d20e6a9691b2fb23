"""The local AWS as a server: MiniStack with the Capacity Block market in it, on 127.0.0.1.

    python -m local.server --port 4566

Credentials: an access key of twelve digits is the root user of that account, with any secret (MiniStack's rule), so:

    AWS_ENDPOINT_URL=http://127.0.0.1:4566 AWS_ACCESS_KEY_ID=111122223333 AWS_SECRET_ACCESS_KEY=local AWS_DEFAULT_REGION=us-east-1

serve sam, the AWS CLI and boto3 alike. IAM is enforced (`--no-auth` turns it off): a deployed function calls with its own
role's temporary credentials and is refused what its role does not allow. Step Functions' and EventBridge's own calls on
behalf of a role are not checked by MiniStack. Other accounts exist as soon as someone calls with their number as the key;
`sts:AssumeRole` crosses accounts.

API Gateway: an API with the URL `https://{id}.execute-api...amazonaws.com/{stage}` is at `{endpoint}/_aws/execute-api/{id}/{stage}`
(`LocalAws.api_url`). Mails are at `/_ministack/ses/messages`. A Slack is at `/_slack/` (`local/slack/asgi.py`).

Control, in JSON, under `/_blockkeeper/`: `GET|POST clock` (`set`, `advance_seconds`, `speed`), `GET state`, `POST fleet`,
`GET|POST|DELETE faults`, `POST market` (`throttle`, `older_event_names`), `POST account` (`quotas`, `suppressed`),
`GET events`, `GET calls`.
"""

import argparse
import asyncio
import contextlib
import contextvars
import json
import os
import queue
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, Self

from local.account import Account, over_http, takes
from local.clock import MarketClock
from local.market import LostAnswerError, Market, MarketError, wire
from local.market.events import instant_text, plain

ACCOUNT = "111122223333"
_ROOT = Path(__file__).parent.parent
_CONTROL = "/_blockkeeper/"
_START_SECONDS = 60.0
_STOP_SECONDS = 10.0
_PARENT_POLL_SECONDS = 1.0

Scope = dict[str, Any]
Message = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


# -- the server's process

# What MiniStack does not know of the account; the control `account` changes it.
_ACCOUNT = Account()
_lost_answer: contextvars.ContextVar[LostAnswerError | None] = contextvars.ContextVar("lost_answer", default=None)


def serve(port: int, *, auth: bool, speed: float, start_at: datetime | None) -> None:
    """Run until SIGTERM, SIGINT or the parent's end."""
    os.environ |= server_environment(port, auth=auth)
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        del os.environ[name]  # workers inherit them, and would call elsewhere or with someone's credentials
    from hypercorn.asyncio import serve as hypercorn_serve
    from hypercorn.config import Config
    from ministack.app import app as ministack_app

    from local import ministack_patches
    from local.slack.asgi import mounted

    market = Market(MarketClock(start_at, speed), ACCOUNT)
    ministack_patches.apply(market)
    install(market)
    threading.Thread(target=_keep_ticking, args=(market,), daemon=True, name="market").start()
    _deliver_events(market)
    config = Config()
    config.bind = [f"127.0.0.1:{port}"]
    config.loglevel = "WARNING"
    config.graceful_timeout = 1

    async def run() -> None:
        stopped = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stopped.set)
        await hypercorn_serve(
            mounted(_app(market, ministack_app), market.clock.now), config, shutdown_trigger=stopped.wait
        )

    asyncio.run(run())


def server_environment(port: int, *, auth: bool) -> dict[str, str]:
    """What MiniStack reads at its import."""
    return {
        "GATEWAY_PORT": str(port),
        "BIND_HOST": "127.0.0.1",
        "MINISTACK_HOST": "127.0.0.1",
        "MINISTACK_ACCOUNT_ID": ACCOUNT,
        "AUTH": "true" if auth else "false",
        "IOT_MTLS_ENABLED": "0",
        "SFTP_ENABLED": "0",
        "LOG_LEVEL": os.environ.get("LOG_LEVEL", "WARNING"),
    }


def install(market: Market) -> None:
    """Put the market's operations into MiniStack's tables of EC2 and Auto Scaling actions, and before its EKS and Batch."""
    from ministack.services import autoscaling, batch, ec2, eks

    tables = {"ec2": ec2._ACTION_MAP, "autoscaling": autoscaling._ACTION_MAP}
    for service, operation in market.operations():
        if service in tables:
            tables[service][operation] = _handler(market, service, operation)
    for service, module in (("eks", eks), ("batch", batch)):
        module.handle_request = _before(market, service, module.handle_request)


def _before(market: Market, service: str, upstream: Callable[..., Any]) -> Callable[..., Any]:
    """Answer what the market knows, and leave the rest to MiniStack."""
    from ministack.core.responses import get_account_id, get_region

    known = market.operations()

    async def handle(method: str, path: str, headers: Any, body: Any, query_params: Any) -> Any:
        found = wire.rest_operation(service, method, path)
        if found is None or (service, found[0]) not in known:
            return await upstream(method, path, headers, body, query_params)
        region, account = get_region(), get_account_id()
        try:
            params = wire.parse_rest(service, found[0], found[1], body)
            if not market.answers(service, params, region, account):
                return await upstream(method, path, headers, body, query_params)
            return wire.answer(service, found[0], market.call(service, found[0], params, region, account))
        except MarketError as refused:
            return wire.refusal(service, refused)
        except LostAnswerError as lost:
            _lost_answer.set(lost)
            return wire.refusal(service, MarketError("ServerException", "An internal error has occurred", 500))

    return handle


def _handler(
    market: Market, service: str, operation: str
) -> Callable[[dict[str, Any]], tuple[int, dict[str, str], bytes]]:
    from ministack.core.responses import get_account_id, get_region

    def handle(form: dict[str, Any]) -> tuple[int, dict[str, str], bytes]:
        flat = {key: value[0] if isinstance(value, list) else value for key, value in form.items()}
        try:
            params = wire.parse_request(service, operation, flat)
            return wire.answer(
                service, operation, market.call(service, operation, params, get_region(), get_account_id())
            )
        except MarketError as refused:
            return wire.refusal(service, refused)
        except LostAnswerError as lost:
            _lost_answer.set(lost)  # for callers over HTTP; Step Functions' own calls see the 500
            return wire.refusal(service, MarketError("InternalError", "An internal error has occurred", 500))

    return handle


def _keep_ticking(market: Market) -> None:
    """Let things happen at their times even when nobody calls."""
    while True:
        due = market.next_due() or market.clock.now() + timedelta(days=1)
        if market.clock.wait_until(due, cancelled=lambda due=due: (market.next_due() or due) < due):  # type: ignore[misc]
            market.tick()


def _deliver_events(market: Market) -> None:
    """Put EC2's events on the default bus; PutEvents would refuse their source, so they go in through the service's module."""
    from ministack.core.responses import request_scope
    from ministack.services import eventbridge

    waiting: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    market.on_event(waiting.put)

    def deliver() -> None:
        while True:
            event = waiting.get()
            record = {
                "EventId": event["id"],
                "Source": event["source"],
                "DetailType": event["detail-type"],
                "Detail": json.dumps(event["detail"]),
                "EventBusName": "default",
                "Time": int(datetime.fromisoformat(event["time"]).timestamp()),
                "Resources": event["resources"],
                "Account": event["account"],
                "Region": event["region"],
            }
            with request_scope(event["account"], event["region"]):
                eventbridge._events_log_list().append(record)
                eventbridge._dispatch_event(record)

    threading.Thread(target=deliver, daemon=True, name="market-events").start()


def _app(market: Market, ministack_app: Callable[[Scope, Receive, Send], Awaitable[None]]) -> Any:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"].startswith(_CONTROL):
            await _control(market, scope, receive, send)
            return
        if scope["type"] != "http":
            await ministack_app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        if takes(scope["method"], scope["path"], headers):
            answer = over_http(_ACCOUNT, scope["path"], headers, await _body(receive))
            await send({"type": "http.response.start", "status": answer.status, "headers": answer.headers})
            await send({"type": "http.response.body", "body": answer.body})
            return
        _lost_answer.set(None)

        async def send_unless_lost(message: Message) -> None:
            lost = _lost_answer.get()
            if lost is None:
                await send(message)
            elif message["type"] == "http.response.start":
                await (_hang(receive) if lost.hangs else _cut_off(send))

        await ministack_app(scope, receive, send_unless_lost)

    return app


async def _hang(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _cut_off(send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"4096")]})
    await send({"type": "http.response.body", "body": b"<", "more_body": False})


# -- control


async def _body(receive: Receive) -> bytes:
    body = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            return body


async def _control(market: Market, scope: Scope, receive: Receive, send: Send) -> None:
    body = await _body(receive)
    action = (scope["method"], scope["path"].removeprefix(_CONTROL))
    try:
        perform = _CONTROLS[action]
    except KeyError:
        status, answer = 404, {"error": f"no such control: {' '.join(action)}"}
    else:
        try:
            answer, status = await asyncio.to_thread(perform, market, json.loads(body or b"{}")), 200
        except (ValueError, TypeError, KeyError) as error:
            status, answer = 400, {"error": f"{type(error).__name__}: {error}"}
    payload = json.dumps(answer, default=str).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(payload)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": payload})


def _clock(market: Market, _: Any) -> dict[str, Any]:
    due = market.next_due()
    return {
        "now": market.clock.now().isoformat(),
        "speed": market.clock.speed,
        "next_due": due and due.isoformat(),
    }


def _set_clock(market: Market, change: dict[str, Any]) -> dict[str, Any]:
    from local import ministack_patches

    unknown = change.keys() - {"set", "advance_seconds", "speed"}
    if unknown:
        raise ValueError(f"unknown fields {sorted(unknown)}; the clock takes set, advance_seconds and speed")
    before = market.clock.now()
    if "speed" in change:
        market.clock.speed = float(change["speed"])
    if "set" in change:
        market.clock.set(datetime.fromisoformat(change["set"]))
    if "advance_seconds" in change:
        market.clock.advance(timedelta(seconds=float(change["advance_seconds"])))
    if market.clock.now() < before:
        ministack_patches.restart_schedules(market.clock)
    market.tick()
    return _clock(market, None)


def _state(market: Market, _: Any) -> dict[str, Any]:
    return {
        "blocks": [
            {
                **plain(market.blocks.as_reservation(block)),
                "region": block.region,
                "extensions": [
                    {"hours": each.offering.hours, "fee": each.offering.fee, "status": each.status}
                    for each in market.extensions.of(block.reservation_id)
                ],
            }
            for block in market.blocks.all()
        ],
        "groups": [
            {
                "name": group.name,
                "region": group.region,
                "account": group.account,
                "sizes": [group.minimum, group.desired, group.maximum],
                "instances": [member.lifecycle for member in group.members],
                "scheduled_actions": {action.name: instant_text(action.starts) for action in group.schedule.values()},
            }
            for group in market.groups.by_key.values()
        ],
        "environments": market.environments,
    }


def _load_fleet(market: Market, fleet: dict[str, Any]) -> dict[str, Any]:
    market.load_fleet(fleet)
    return _state(market, None)


def _faults(market: Market, _: Any) -> list[dict[str, Any]]:
    return market.faults.waiting()


def _add_faults(market: Market, faults: Any) -> list[dict[str, Any]]:
    for fault in faults if isinstance(faults, list) else [faults]:
        numbers = {key: Decimal(str(fault[key])) for key in ("percent", "value") if fault.get(key) is not None}
        market.faults.add(**{**fault, **numbers})
    return market.faults.waiting()


def _clear_faults(market: Market, _: Any) -> list[dict[str, Any]]:
    market.faults.clear()
    return []


def _set_market(market: Market, change: dict[str, Any]) -> dict[str, Any]:
    if "throttle" in change:
        market.throttle.enabled = bool(change["throttle"])
    if "older_event_names" in change:
        market.older_event_names = bool(change["older_event_names"])
    return {"throttle": market.throttle.enabled, "older_event_names": market.older_event_names}


def _set_account(_: Market, change: dict[str, Any]) -> dict[str, Any]:
    unknown = change.keys() - {"quotas", "suppressed"}
    if unknown:
        raise ValueError(f"unknown fields {sorted(unknown)}; the account takes quotas and suppressed")
    _ACCOUNT.quotas |= change.get("quotas", {})
    _ACCOUNT.suppressed |= change.get("suppressed", {})
    return {"quotas": _ACCOUNT.quotas, "suppressed": _ACCOUNT.suppressed}


def _events(market: Market, _: Any) -> list[dict[str, Any]]:
    return list(market.events)


def _calls(market: Market, _: Any) -> dict[str, Any]:
    return {"counts": dict(market.call_counts), "calls": [plain(vars(call)) for call in list(market.calls)]}


_CONTROLS: dict[tuple[str, str], Callable[[Market, Any], Any]] = {
    ("GET", "clock"): _clock,
    ("POST", "clock"): _set_clock,
    ("GET", "state"): _state,
    ("POST", "fleet"): _load_fleet,
    ("GET", "faults"): _faults,
    ("POST", "faults"): _add_faults,
    ("DELETE", "faults"): _clear_faults,
    ("POST", "market"): _set_market,
    ("POST", "account"): _set_account,
    ("GET", "events"): _events,
    ("GET", "calls"): _calls,
}


# -- the handle of who starts it


class LocalAws:
    """A running local AWS; `stop` (or leaving the `with`) ends it with all its workers."""

    def __init__(self, process: subprocess.Popen[bytes], port: int, scratch: Path, log: Path) -> None:
        self._process = process
        self._scratch = scratch
        self.port = port
        self.endpoint = f"http://127.0.0.1:{port}"
        self.account = ACCOUNT
        self.log = log

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def client(self, service: str, region: str = "us-east-1", account: str = ACCOUNT) -> Any:
        """A boto3 client that acts as the account's root user."""
        import boto3
        from botocore.config import Config

        return boto3.client(  # type: ignore[call-overload]
            service,
            region_name=region,
            endpoint_url=self.endpoint,
            aws_access_key_id=account,
            aws_secret_access_key="local",  # noqa: S106 - MiniStack takes any
            config=Config(retries={"mode": "standard", "total_max_attempts": 2}),
        )

    def environment(self, account: str = ACCOUNT, region: str = "us-east-1") -> dict[str, str]:
        """The variables that point sam, the AWS CLI and boto3 here."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": account,
            "AWS_SECRET_ACCESS_KEY": "local",
            "AWS_DEFAULT_REGION": region,
            "AWS_REGION": region,
            "AWS_EC2_METADATA_DISABLED": "true",
            "SAM_CLI_TELEMETRY": "0",
        }

    def api_url(self, url: str) -> str:
        """Where an API with the given AWS URL (`https://{id}.execute-api...`) is reached here."""
        host, _, path = url.removeprefix("https://").partition("/")
        return f"{self.endpoint}/_aws/execute-api/{host.split('.')[0]}/{path}"

    def control(self, method: str, path: str, body: Any = None) -> Any:
        """Call `/_blockkeeper/<path>`.

        Raises:
            ValueError: the server refused; its message.
        """
        request = urllib.request.Request(  # noqa: S310 - loopback
            self.endpoint + _CONTROL + path, method=method, data=None if body is None else json.dumps(body).encode()
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310 - loopback
                return json.load(answer)
        except urllib.error.HTTPError as error:
            raise ValueError(json.load(error)["error"]) from error

    def stop(self) -> None:
        """End the server and its workers."""
        if self._process.poll() is None:
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_STOP_SECONDS)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)  # a session of its own: only what the server started
        self._process.wait()
        shutil.rmtree(self._scratch, ignore_errors=True)


def start(
    port: int | None = None,
    *,
    auth: bool = True,
    speed: float = 1.0,
    start_at: datetime | None = None,
    timeout: float = _START_SECONDS,
) -> LocalAws:
    """Start a local AWS on 127.0.0.1, on a free port unless one is given, and wait until it answers.

    Raises:
        RuntimeError: it did not come up within `timeout` real seconds; the message has the end of its log.
    """
    port = port or _free_port()
    scratch = Path(tempfile.mkdtemp(prefix="blockkeeper-"))
    log = scratch / "server.log"
    command = [
        sys.executable,
        "-m",
        "local.server",
        "--port",
        str(port),
        "--speed",
        str(speed),
        "--parent",
        str(os.getpid()),
    ]
    command.append("--auth" if auth else "--no-auth")
    if start_at is not None:
        command += ["--start-at", start_at.isoformat()]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    environment |= {"TMPDIR": str(scratch), "S3_DATA_DIR": str(scratch / "s3"), "PYTHONPATH": str(_ROOT)}
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, cwd=_ROOT, env=environment, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
    aws = LocalAws(process, port, scratch, log)
    give_up = time.monotonic() + timeout
    while time.monotonic() < give_up and process.poll() is None:
        if _healthy(aws.endpoint):
            return aws
        time.sleep(0.1)
    end_of_log = log.read_text(encoding="utf-8", errors="replace")[-2000:]
    aws.stop()
    raise RuntimeError(f"the local AWS did not start on port {port}:\n{end_of_log}")


def _healthy(endpoint: str) -> bool:
    try:
        with urllib.request.urlopen(f"{endpoint}{_CONTROL}clock", timeout=2) as answer:  # noqa: S310 - loopback
            return bool(answer.status == 200)
    except OSError:
        return False


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _end_with(parent: int) -> None:
    """End this process when its parent has ended."""
    while os.getppid() == parent:
        time.sleep(_PARENT_POLL_SECONDS)
    os.killpg(os.getpgrp(), signal.SIGKILL)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m local.server", description="The local AWS with its Capacity Block market."
    )
    parser.add_argument("--port", type=int, default=4566)
    parser.add_argument("--auth", action=argparse.BooleanOptionalAction, default=True, help="enforce IAM")
    parser.add_argument("--speed", type=float, default=1.0, help="market seconds per real second")
    parser.add_argument(
        "--start-at", type=datetime.fromisoformat, help="the market's time at the start, ISO 8601 with an offset"
    )
    parser.add_argument("--parent", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.parent is not None:
        threading.Thread(target=_end_with, args=(arguments.parent,), daemon=True).start()
    serve(arguments.port, auth=arguments.auth, speed=arguments.speed, start_at=arguments.start_at)


if __name__ == "__main__":
    main()
