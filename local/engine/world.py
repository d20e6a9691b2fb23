"""The whole product in one process: real template, state machines and handlers, with a market, a clock and moto around them.

with World(start=datetime(2026, 5, 4, tzinfo=UTC), parameters={"PurchaseMode": "live"}) as world:
    world.start("ExtendBlock", {...}, name="...")
    world.run_until_idle()
"""

import copy
import io
import json
import os
import re
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, Literal, Self

import boto3
import botocore.auth
import botocore.endpoint
import botocore.handlers
import botocore.retries.quota
import botocore.session
import botocore.useragent
from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from botocore.exceptions import NoCredentialsError
from botocore.hooks import HierarchicalEmitter
from botocore.model import OperationModel
from moto import mock_aws

from local.account import Account
from local.account import attach as attach_account
from local.botocore_market import attach as attach_market
from local.clock import MarketClock
from local.http_answer import ANSWERED, http_answer
from local.market import Market
from local.slack import Workspace
from local.slack import secret as slack_secret
from local.slack.http import Server

from . import moto_dynamodb, moto_resources, rest_api, stepfunctions
from .call_faults import CallFaults, Site
from .engine import Engine
from .errors import LambdaDiedError, StateError
from .event_pattern import matches
from .execution import Execution
from .sandbox import Sandboxes
from .scheduler import Process, Steps
from .template import Template, Trigger

Json = dict[str, Any]
ROOT = Path(__file__).parents[2]
ACCOUNT = "123456789012"
REGION = "us-east-1"
_ASYNC_RETRY_PAUSES = (timedelta(minutes=1), timedelta(minutes=2))  # Lambda guide, "How Lambda handles errors"


@dataclass(frozen=True)
class AwsCall:
    """A call that a function (or a state machine's SDK integration) made, before botocore serialised it."""

    caller: str
    service: str
    operation: str
    params: Json
    region: str
    nth: int
    """Which of the invocation's calls of this operation it is, from 1."""

    @property
    def site(self) -> Site:
        return Site(self.caller, self.service, self.operation, self.nth)


class World:
    """One deployed stack at one moment of virtual time.

    Names in `functions` and state machines are the template's logical ids. Only one world can be entered at a time.
    """

    current: "ClassVar[World | None]" = None
    # One for all worlds: warm functions keep its address, as they keep Slack's.
    _slack_server: ClassVar[Server | None] = None
    _hooked: ClassVar[bool] = False

    def __init__(
        self,
        start: datetime,
        *,
        parameters: Mapping[str, str] | None = None,
        template: Path = ROOT / "template.yaml",
        seed: int | None = None,
        flavour: Literal["aws", "ministack"] = "aws",
        schedules: bool = True,
        sandboxes: Sandboxes | None = None,
        redrive_keeps_entered_time: bool = False,
    ) -> None:
        self.clock = MarketClock(start, 0)
        self.market = Market(self.clock, ACCOUNT)
        self.template = Template(template, parameters, region=REGION, account=ACCOUNT)
        self.account = Account(verified=lambda: moto_resources.verified(ACCOUNT, REGION), may=self._may)
        self.sandboxes = sandboxes or Sandboxes()
        machines = self.template.state_machines
        self.engine = Engine(
            {key: machine.definition for key, machine in machines.items()},
            {key: self._handler(key) for key in self.template.functions},
            self.clock,
            names={key: self.template.name(key) for key in [*machines, *self.template.functions]},
            seed=seed,
            region=REGION,
            account=ACCOUNT,
            flavour=flavour,
            redrive_keeps_entered_time=redrive_keeps_entered_time,
        )
        self.calls: list[AwsCall] = []
        """Every AWS call of the product, in order."""
        self.on_call: list[Callable[[AwsCall], object]] = []
        """Called with each of them before it is made."""
        self.call_faults = CallFaults()
        """What goes wrong with them."""
        self.events: list[Json] = []
        """Every event that reached the bus, in order."""
        self.logs = io.StringIO()
        """What the functions printed and logged."""
        self.failures: list[tuple[str, StateError]] = []
        """Functions started by events that failed three times, and how."""
        self.slack = Workspace(self.now, self._click)
        """The Slack workspace; it is reached with the parameters SlackSecretName and SlackChannel."""
        self._rules = [trigger for trigger in self.template.triggers if trigger.pattern is not None]
        self._schedules = [_Schedule(trigger, start) for trigger in self.template.triggers if trigger.schedule]
        self._schedules = self._schedules if schedules else []
        self._moto = mock_aws()
        self._session = botocore.session.Session(event_hooks=HierarchicalEmitter(), include_builtin_handlers=False)
        self._environment: dict[str, str] = {}
        self._made: Counter[tuple[str, str]] = Counter()
        self._invoked: Any = None
        self._died_at = 0

    def __enter__(self) -> Self:
        if World.current is not None:
            raise RuntimeError("another world is entered already")
        _hook_all_sessions()
        self._environment = dict(os.environ)
        os.environ.update(AWS_DEFAULT_REGION=REGION, AWS_REGION=REGION)
        self._moto.start()
        World.current = self
        stepfunctions.attach(self._session, self.engine)
        attach_market(self._session, self.market)
        emitter = self._session.get_component("event_emitter")
        attach_account(emitter, self.account)
        emitter.register("before-parameter-build", self._note_call)
        emitter.register("before-send.eventbridge.PutEvents", self._put_events)
        self.market.on_event(self.publish)
        self.engine.on_tick += [self.market.tick, self._fire_schedules]
        self.engine.next_event_at += [self._next_schedule, self.market.next_due]
        self.engine.on_status.append(self._publish_status)
        moto_resources.create(self.template)
        if name := self.template.parameters.get("SlackSecretName"):
            World._slack_server = World._slack_server or Server()
            World._slack_server.current = self.slack
            api_url = World._slack_server.api_url
            boto3.client("secretsmanager").create_secret(Name=name, SecretString=slack_secret(api_url))
        return self

    def __exit__(self, *_: object) -> None:
        World.current = None
        if World._slack_server is not None:
            World._slack_server.current = None
        self._moto.stop()
        os.environ.clear()
        os.environ.update(self._environment)

    # --- what tests do ------------------------------------------------------------------------------------------------

    def now(self) -> datetime:
        return self.clock.now()

    def start(self, machine: str, given: Any = None, name: str | None = None) -> Execution:
        """Start a state machine by its logical id."""
        return self.engine.start(machine, given, name)

    def run_until_idle(self, within: timedelta = timedelta(days=400)) -> None:
        self.engine.run_until_idle(within)

    def run_until(self, at: datetime) -> None:
        self.engine.run_until(at)

    def run_for(self, span: timedelta) -> None:
        self.engine.run_until(self.now() + span)

    def invoke(self, function: str, event: Any) -> Any:
        """Invoke a function by its logical id and wait. Raises StateError as Lambda reports the function's exception."""
        return self.engine.invoke(function, event)

    def request(
        self,
        method: str,
        path: str,
        *,
        body: str | None = None,
        headers: Mapping[str, str] | None = None,
        query: Mapping[str, str] | None = None,
        base64: bool = False,
    ) -> rest_api.Response:
        """Send a request to the REST API: 403 without the needed key or for an unknown path, 502 when the function fails."""
        request = rest_api.Request(method, path, dict(headers or {}), dict(query or {}), body, base64)
        return rest_api.send(request, self.template.routes, self.engine, moto_resources.api_key(self.template))

    def api_key(self) -> str | None:
        """The key that `request` wants in the header x-api-key."""
        return moto_resources.api_key(self.template)

    def executions(self, machine: str) -> list[Execution]:
        """The executions of a state machine (logical id), in the order of their start."""
        wanted = self.engine.machines[machine]
        return [execution for execution in self.engine.executions.values() if execution.machine is wanted]

    def cold(self, function: str | None = None) -> None:
        """Let the next invocation of a function, or of every one, be a cold start."""
        self.sandboxes.cold(function)

    def publish(self, event: Json) -> None:
        """Put an event on the bus, as EC2 does too: rules that match start their targets."""
        event = copy.deepcopy(event)
        event.setdefault("version", "0")
        event.setdefault("id", f"{self.engine.rng.getrandbits(128):032x}")
        event.setdefault("account", ACCOUNT)
        event.setdefault("region", REGION)
        event.setdefault("time", _second(self.now()))
        event.setdefault("resources", [])
        self.events.append(event)
        for rule in self._rules:
            if matches(rule.pattern or {}, event):
                self._trigger(rule, event)

    def mails(self) -> list[Any]:
        """The mails that SES has sent, oldest first (moto's messages)."""
        return moto_resources.sent_mails(ACCOUNT, REGION)

    # --- inside -------------------------------------------------------------------------------------------------------

    def _handler(self, logical_id: str) -> Callable[[Any, Any], Any]:
        def handle(event: Any, context: Any) -> Any:
            function = self.template.functions[logical_id]
            platform = {
                "AWS_REGION": REGION,
                "AWS_DEFAULT_REGION": REGION,
                "AWS_ACCESS_KEY_ID": os.environ["AWS_ACCESS_KEY_ID"],
                "AWS_SECRET_ACCESS_KEY": os.environ["AWS_SECRET_ACCESS_KEY"],
                "AWS_LAMBDA_FUNCTION_NAME": function.name,
                "_HANDLER": function.handler,
            }
            outer, self._invoked, self._made = (self._invoked, self._made), event, Counter()
            try:
                return self.sandboxes.invoke(function, platform, event, context, self.logs)
            except LambdaDiedError:
                # What the handler's `finally` still printed was printed by nobody.
                self.logs.seek(self._died_at)
                self.logs.truncate()
                raise
            finally:
                self._invoked, self._made = outer

        return handle

    def _may(self, role: str) -> set[str] | None:
        """What the role of a function may do, from its statements in the template."""
        for logical_id, properties in self.template.of_type("AWS::Serverless::Function"):
            if role == self.template.resolve({"Fn::GetAtt": [f"{logical_id}Role", "Arn"]}):
                statements = [each for policy in properties["Policies"] for each in policy["Statement"]]
                actions = [each["Action"] for each in statements if each["Effect"] == "Allow"]
                return {name for each in actions for name in ([each] if isinstance(each, str) else each)}
        return None

    def _click(self, headers: Mapping[str, str], body: str) -> tuple[int, str]:
        answer = self.request("POST", "/slack/interactions", body=body, headers=headers)
        return answer.status, answer.body

    def _run_again(self) -> None:
        with suppress(StateError):
            self.engine.invoke(self.engine.caller or "", self._invoked)

    def _note_call(self, params: Json, model: OperationModel, context: Json, **_: object) -> None:
        if self.engine.caller is None:
            self.call_faults.enter(None)
            return
        region = str(context.get("client_region"))
        service = model.service_model.service_name
        self._made[service, model.name] += 1
        nth = self._made[service, model.name]
        call = AwsCall(self.engine.caller, service, model.name, copy.deepcopy(params), region, nth)
        self.calls.append(call)
        for hook in self.on_call:
            hook(call)
        self.call_faults.enter(call.site)

    def _put_events(self, request: AWSPreparedRequest, **_: object) -> AWSResponse:
        url, request.url = request.url, ANSWERED
        entries = []
        for entry in json.loads(request.body)["Entries"]:
            if entry.get("Source", "").startswith("aws."):
                entries.append(
                    {"ErrorCode": "NotAuthorizedForSourceException", "ErrorMessage": "Not authorized for the source."}
                )
                continue
            event = {"source": entry["Source"], "detail-type": entry["DetailType"], "detail": json.loads(entry["Detail"]),
                     "resources": entry.get("Resources", [])}  # fmt: skip
            self.publish(event)
            entries.append({"EventId": self.events[-1]["id"]})
        failed = sum("ErrorCode" in entry for entry in entries)
        return http_answer(url, 200, json.dumps({"FailedEntryCount": failed, "Entries": entries}).encode())

    def _ask(self, event_name: str, **given: Any) -> Any:
        """What the product's AWS calls meet here, before moto."""
        emitter = self._session.get_component("event_emitter")

        def answer() -> Any:
            return next((answer for _, answer in emitter.emit(event_name, **given) if answer is not None), None)

        if not event_name.startswith("before-send."):
            return answer()
        function = self.template.functions.get(self.engine.caller or "")
        timeout = timedelta(seconds=function.timeout if function else 0)
        try:
            return self.call_faults.send(
                event_name, given["request"], answer, timeout=timeout, run_again=self._run_again
            )
        except LambdaDiedError:
            self._died_at = self.logs.tell()
            raise

    def _publish_status(self, execution: Execution) -> None:
        detail = {
            "executionArn": execution.arn,
            "stateMachineArn": execution.machine.arn,
            "name": execution.name,
            "status": execution.status,
            "input": execution.input_text,
            "output": json.dumps(execution.output) if execution.status == "SUCCEEDED" else None,
            "error": execution.error,
            "cause": execution.cause,
        }
        self.publish(
            {"source": "aws.states", "detail-type": "Step Functions Execution Status Change", "detail": detail}
        )

    def _trigger(self, trigger: Trigger, event: Json) -> None:
        payload = _payload(trigger, event)
        if trigger.target in self.engine.machines:
            self.engine.start(trigger.target, payload)
        else:
            Process(self.engine.scheduler, self._invoke_async(trigger.target, payload))

    def _invoke_async(self, function: str, payload: Any) -> Steps:
        """Lambda tries an asynchronous invocation three times."""
        for pause in (*_ASYNC_RETRY_PAUSES, None):
            try:
                self.engine.invoke(function, payload)
            except StateError as error:
                if pause is None:
                    self.failures.append((function, error))
                else:
                    yield self.engine.scheduler.timer(self.now() + pause)
            else:
                return

    def _next_schedule(self) -> datetime | None:
        return min((schedule.at for schedule in self._schedules), default=None)

    def _fire_schedules(self) -> None:
        for schedule in self._schedules:
            while schedule.at <= self.now():
                event = {
                    "version": "0",
                    "source": "aws.events",
                    "detail-type": "Scheduled Event",
                    "account": ACCOUNT,
                    "region": REGION,
                    "time": _second(schedule.at),
                    "resources": [],
                    "detail": {},
                }
                schedule.at += schedule.every
                self._trigger(schedule.trigger, event)


class _Schedule:
    def __init__(self, trigger: Trigger, start: datetime) -> None:
        match = re.fullmatch(r"rate\((\d+) (minute|hour|day)s?\)", trigger.schedule or "")
        if match is None:
            raise ValueError(f"{trigger.name}: schedule {trigger.schedule!r} is not known; only rate(...) is")
        self.trigger = trigger
        self.every = int(match[1]) * {"minute": timedelta(minutes=1), "hour": timedelta(hours=1)}.get(
            match[2], timedelta(days=1)
        )
        self.at = start + self.every


def _payload(trigger: Trigger, event: Json) -> Any:
    """What the target gets: the event, the rule's constant, or its template filled in."""
    if trigger.input is None:
        return event
    text = trigger.input.replace("<aws.scheduler.scheduled-time>", event["time"])
    for name, path in trigger.input_paths.items():
        value: Any = event
        for key in path.removeprefix("$").split(".")[1:]:
            value = value.get(key) if isinstance(value, dict) else None
        # A variable inside quotes is written bare, one that stands alone as JSON.
        bare = value if isinstance(value, str) else json.dumps(value)
        text = text.replace(f'"<{name}>"', json.dumps(value)).replace(f"<{name}>", bare)
    return json.loads(text)


def _second(at: datetime) -> str:
    return f"{at:%Y-%m-%dT%H:%M:%SZ}"


def _hook_all_sessions() -> None:
    """Let every botocore session made from now on ask the current world first; clients outlive a world in warm functions."""
    if not World._hooked:
        for event in ("before-parameter-build", "before-call"):
            botocore.handlers.BUILTIN_HANDLERS.append((event, _ask_current_world))
        # Before moto's own, which stands there already.
        botocore.handlers.BUILTIN_HANDLERS.insert(
            0, ("before-send", _ask_current_world, botocore.handlers.REGISTER_FIRST)
        )
        boto3.DEFAULT_SESSION = None
        moto_dynamodb.attach()
        # The SDK pauses before it tries again, and stops trying once many of a process's calls have failed. Nobody waits here, and
        # what one world's faults used up must not change the next.
        botocore.endpoint.time = SimpleNamespace(sleep=lambda _: None)  # type: ignore[attr-defined]
        botocore.retries.quota.RetryQuota.acquire = lambda *_: True  # type: ignore[method-assign]
        # Made anew for each call, and read by nobody here.
        botocore.useragent.UserAgentString.to_string = lambda _: "botocore"  # type: ignore[method-assign]
        # A signature is checked by nobody here either; who calls is.
        botocore.auth.SigV4Auth.add_auth = _name_the_caller  # type: ignore[method-assign]
        World._hooked = True


_signed = botocore.auth.SigV4Auth.add_auth


def _name_the_caller(auth: botocore.auth.SigV4Auth, request: Any) -> None:
    if World.current is None:
        _signed(auth, request)
        return
    if auth.credentials is None:
        raise NoCredentialsError
    request.context["timestamp"] = "20000101T000000Z"
    # A header that is set again stands there twice.
    del request.headers["Authorization"]
    request.headers["Authorization"] = (
        f"AWS4-HMAC-SHA256 Credential={auth.scope(request)}, SignedHeaders=host, Signature=none"
    )


def _ask_current_world(event_name: str, **given: Any) -> Any:
    return None if World.current is None else World.current._ask(event_name, **given)
