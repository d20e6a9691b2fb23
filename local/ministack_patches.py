"""Every change that we make to MiniStack, each for a named upstream version and with a test that fails once it is not needed.

`apply` puts all of them in place, in the process that serves MiniStack. Tests: `tests/unit/local/test_ministack_patches.py`.
"""

import contextvars
import datetime as dt
import json
import os
import re
import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType, SimpleNamespace
from typing import Any

import ministack
from ministack.core import iam_actions, lambda_runtime
from ministack.core.responses import get_account_id, get_region
from ministack.services import apigateway_v1, eventbridge, lambda_svc, scheduler, stepfunctions
from ministack.services.cloudformation import provisioners

from local.clock import MarketClock
from local.market import Market, wire

UPSTREAM = "1.5.33"
"""The version that all patches are for; `apply` refuses another."""

_ExecutionError = stepfunctions._ExecutionError
_NAME_IN_USE = "StepFunctions.ExecutionAlreadyExistsException"
_SCHEDULE_SWEEP_SECONDS = 0.25


def apply(market: Market) -> None:
    """Put all patches in place; the clock is the market's.

    Raises:
        RuntimeError: another MiniStack is installed than the patches are for.
    """
    if (installed := _installed_version()) != UPSTREAM:
        raise RuntimeError(
            f"ministack {installed} is installed; local/ministack_patches.py is for {UPSTREAM} (check each patch anew)"
        )
    callback_and_task_timeouts(market.clock)
    errors_of_asking_functions()
    names_of_executions()
    redrive_count()
    step_functions_clock(market.clock)
    gateway_clock(market.clock)
    schedules_clock(market.clock)
    resources_of_calls(market)
    shared_layers()
    sources_of_events()
    machines_of_tokens()
    groups_of_stacks(market)


def _installed_version() -> str:
    from importlib.metadata import version

    return version(ministack.__name__)


# -- (a) 1.5.33: `TimeoutSeconds` as a JSONata string raises a TypeError; and task timeouts follow the market's clock


def callback_and_task_timeouts(clock: MarketClock) -> None:
    """Evaluate `TimeoutSeconds` and let callbacks and nested executions time out in market time.

    A Lambda function or an SDK call works in real time however fast the market runs, so that its timeout stays in real seconds.
    """
    execute_task = stepfunctions._execute_task
    in_real_time = stepfunctions._invoke_resource_with_timeout

    def execute_with_evaluated_timeout(
        state_def: dict[str, Any], raw_input: Any, execution: Any, ctx: dict[str, Any]
    ) -> Any:
        if isinstance(state_def.get("TimeoutSeconds"), str):
            seconds = stepfunctions._jsonata_state_field(state_def, "TimeoutSeconds", "number", raw_input, ctx)
            state_def = {**state_def, "TimeoutSeconds": seconds}
        return execute_task(state_def, raw_input, execution, ctx)

    def invoke_with_timeout(resource: str, input_data: Any, timeout: float) -> Any:
        if ":states:startExecution" not in resource:
            return in_real_time(resource, input_data, timeout)
        pool = ThreadPoolExecutor(max_workers=1)
        future = pool.submit(contextvars.copy_context().run, stepfunctions._invoke_resource, resource, input_data)
        pool.shutdown(wait=False)
        clock.wait_until(clock.now() + dt.timedelta(seconds=timeout), cancelled=future.done)
        if not future.done():
            raise _ExecutionError("States.Timeout", f"Task timed out after {timeout} seconds")
        return future.result()

    stepfunctions._execute_task = execute_with_evaluated_timeout
    stepfunctions._invoke_resource_with_timeout = invoke_with_timeout
    stepfunctions.threading = _proxy(threading, Event=lambda: MarketEvent(clock))


class MarketEvent(threading.Event):
    """An event whose `wait` ends that many market seconds after the event was made: a task's timeout runs from its start, not from
    the end of the call that asks."""

    def __init__(self, clock: MarketClock) -> None:
        super().__init__()
        self._clock = clock
        self._made = clock.now()

    def wait(self, timeout: float | None = None) -> bool:
        if timeout is None:
            return super().wait()
        self._clock.wait_until(self._made + dt.timedelta(seconds=timeout), cancelled=self.is_set)
        return self.is_set()


# -- (b) 1.5.33: an error of the function that asks, on a waitForTaskToken task, is swallowed


def errors_of_asking_functions() -> None:
    """Let the error of the function that a callback task calls fail the task, so that Retry and Catch see it."""
    call_lambda = stepfunctions._call_lambda
    invoke_with_callback = stepfunctions._invoke_with_callback
    asking: contextvars.ContextVar[str | None] = contextvars.ContextVar("asking", default=None)

    def call_and_report(func_ref: str, event: Any) -> Any:
        try:
            return call_lambda(func_ref, event)
        except _ExecutionError as error:
            task = stepfunctions._task_tokens.get(asking.get())
            if task is not None and not task["event"].is_set():
                task["error"] = {"Error": error.error, "Cause": error.cause}
                task["event"].set()
            raise

    def invoke(resource: str, input_data: Any, token: str, state_def: dict[str, Any]) -> Any:
        mine = asking.set(token)
        try:
            return invoke_with_callback(resource, input_data, token, state_def)
        finally:
            asking.reset(mine)

    stepfunctions._call_lambda = call_and_report
    stepfunctions._invoke_with_callback = invoke


# -- (c) 1.5.33: an execution's name in use: another error than AWS's, no idempotent start, and `.sync` overwrites the older run


def names_of_executions() -> None:
    """Answer a start under a name in use as AWS does.

    The same input on a running execution succeeds with that execution; anything else is refused, in nested tasks as
    `StepFunctions.ExecutionAlreadyExistsException`. A nested `.sync` start is refused instead of replacing the older run.
    """
    start_execution = stepfunctions._start_execution
    start_nested = stepfunctions._invoke_nested_start_execution
    start_nested_and_wait = stepfunctions._invoke_nested_start_execution_sync

    def start(data: dict[str, Any]) -> Any:
        running = _execution_of(data)
        if (
            running is not None
            and running["status"] == "RUNNING"
            and _same_json(running["input"], data.get("input", "{}"))
        ):
            return stepfunctions.json_response(
                {"executionArn": running["executionArn"], "startDate": running["startDate"]}
            )
        return start_execution(data)

    def nested(resource: str, input_data: Any) -> Any:
        try:
            return start_nested(resource, input_data)
        except _ExecutionError as error:
            if error.error == "ExecutionAlreadyExists":
                raise _ExecutionError(_NAME_IN_USE, error.cause) from error
            raise

    def nested_and_wait(resource: str, input_data: Any) -> Any:
        request = stepfunctions._nested_start_execution_request(input_data)
        if (existing := _execution_of(request)) is not None:
            raise _ExecutionError(_NAME_IN_USE, f"Execution Already Exists: '{existing['executionArn']}'")
        return start_nested_and_wait(resource, input_data)

    stepfunctions._start_execution = start
    stepfunctions._invoke_nested_start_execution = nested
    stepfunctions._invoke_nested_start_execution_sync = nested_and_wait


def _execution_of(request: dict[str, Any]) -> dict[str, Any] | None:
    name, arn = request.get("name"), request.get("stateMachineArn", "")
    if not name:
        return None
    found: dict[str, Any] | None = stepfunctions._executions.get(
        f"{arn.replace(':stateMachine:', ':execution:')}:{name}"
    )
    return found


def _same_json(one: str, other: str) -> bool:
    try:
        return bool(json.loads(one) == json.loads(other))
    except ValueError:
        return one == other


# -- (d) 1.5.33: the context object lacks Execution.RedriveCount


def redrive_count() -> None:
    """Give the context object `Execution.RedriveCount` (MiniStack cannot redrive, so that it is 0)."""
    evaluate = stepfunctions._evaluate_jsonata

    def evaluate_with_count(
        expression: str, raw_input: Any, ctx: dict[str, Any] | None = None, *args: Any, **kwargs: Any
    ) -> Any:
        if ctx and "Execution" in ctx:
            ctx["Execution"].setdefault("RedriveCount", 0)
        return evaluate(expression, raw_input, ctx, *args, **kwargs)

    stepfunctions._evaluate_jsonata = evaluate_with_count


# -- (e) 1.5.33: everything runs in real time


def step_functions_clock(clock: MarketClock) -> None:
    """Let executions live in market time: EnteredTime, StartTime, Wait, pauses between retries."""

    def sleep(seconds: float) -> None:
        clock.wait_until(clock.now() + dt.timedelta(seconds=float(seconds)))

    def sleep_until(timestamp: str) -> None:
        clock.wait_until(dt.datetime.fromisoformat(timestamp))

    stepfunctions.now_iso = lambda: iso_milliseconds(clock.now())
    stepfunctions._scaled_sleep = sleep
    stepfunctions._sleep_until = sleep_until


def gateway_clock(clock: MarketClock) -> None:
    """Let API Gateway tell functions the market's time, as `requestTime` and `requestTimeEpoch`."""
    build_event = apigateway_v1._build_lambda_event_v1

    def build_event_in_market_time(*args: Any, **kwargs: Any) -> Any:
        event = build_event(*args, **kwargs)
        now = clock.now()
        event["requestContext"] |= {
            "requestTime": now.strftime("%d/%b/%Y:%H:%M:%S +0000"),
            "requestTimeEpoch": int(now.timestamp() * 1000),
        }
        return event

    apigateway_v1._build_lambda_event_v1 = build_event_in_market_time


def schedules_clock(clock: MarketClock) -> None:
    """Let events carry the market's time, and schedules of EventBridge and Scheduler fire by it."""

    def now() -> float:
        return clock.now().timestamp()

    eventbridge._now_ts = now
    eventbridge._SCHEDULER_TICK_INTERVAL = _SCHEDULE_SWEEP_SECONDS
    scheduler.time = _proxy(time, time=now)
    scheduler._now = now
    scheduler._SCHEDULE_TICK_INTERVAL = _SCHEDULE_SWEEP_SECONDS


def restart_schedules(clock: MarketClock) -> None:
    """After the clock went back: count schedules from now, not from runs and creations that are in the future."""
    now = clock.now().timestamp()
    for key in list(eventbridge._rules._data):
        eventbridge._rule_last_fired[key] = now
    for key in list(scheduler._schedules._data):
        scheduler._schedule_last_fired[key] = now


# -- (f) 1.5.33: IAM knows no resource of block purchases, Auto Scaling calls and mails, and compares policies with `*`


def resources_of_calls(market: Market) -> None:
    """Name the resource that IAM authorizes: a purchase's reservation, a version's launch template, a scaling call's group, ...

    And the role that IAM is asked to simulate.

    Source: Service Authorization Reference, "Amazon EC2", "Amazon EC2 Auto Scaling", "Amazon Elastic Kubernetes Service", "AWS
    Batch" and "Amazon Simple Email Service v2".
    """
    extract = iam_actions.extract_resource_arn

    def extract_known(  # noqa: PLR0917 - upstream's own arguments
        service: str, method: str, path: str, headers: Any, body: Any, query_params: Any, region: str, account_id: str
    ) -> str:
        action = iam_actions._query_param(query_params, "Action")
        if service == "ec2" and action.startswith("PurchaseCapacityBlock"):
            reservation_id = iam_actions._query_param(query_params, "CapacityReservationId") or "*"
            return f"arn:aws:ec2:{region}:{account_id}:capacity-reservation/{reservation_id}"
        if service == "ec2" and action == "CreateLaunchTemplateVersion":
            template_id = iam_actions._query_param(query_params, "LaunchTemplateId") or "*"
            return f"arn:aws:ec2:{region}:{account_id}:launch-template/{template_id}"
        if service == "autoscaling" and not action.startswith("Describe"):
            names = ("AutoScalingGroupName", "Tags.member.1.ResourceId")
            name = next((each for key in names if (each := iam_actions._query_param(query_params, key))), None)
            group = market.groups.get(account_id, region, name) if name else None
            if group is not None:
                return group.arn
        if service == "iam" and action == "SimulatePrincipalPolicy":
            return str(iam_actions._query_param(query_params, "PolicySourceArn"))
        if service == "eks" and (match := re.match(r"/clusters/([^/]+)/node-groups/([^/]+)", path)):
            return f"arn:aws:eks:{region}:{account_id}:nodegroup/{match[1]}/{match[2]}/{uuid.uuid5(uuid.NAMESPACE_OID, path)}"
        if service == "batch" and path == "/v1/updatecomputeenvironment":
            name = json.loads(body)["computeEnvironment"].rpartition("/")[2]
            return f"arn:aws:batch:{region}:{account_id}:compute-environment/{name}"
        if service == "ses" and path == "/v2/email/outbound-emails":
            return f"arn:aws:ses:{region}:{account_id}:identity/{json.loads(body)['FromEmailAddress']}"
        return str(extract(service, method, path, headers, body, query_params, region, account_id))

    iam_actions.extract_resource_arn = extract_known


# -- (g) 1.5.33: each worker unpacks the layers anew, and compiles them anew: seconds for each cold start ------------------------


def shared_layers() -> None:
    """Unpack a layer once, and let all Python workers import from there; AWS mounts it as well."""
    spawn = lambda_runtime.Worker._spawn

    def spawn_on_shared_layers(worker: Any) -> None:
        config = worker.config
        if not config.get("Layers") or not config.get("Runtime", "").startswith("python"):
            spawn(worker)
            return
        zips = [lambda_svc._resolve_layer_zip(layer) for layer in config["Layers"]]
        folders = os.pathsep.join(lambda_svc._docker_extracted_dir(layer, "layer") for layer in zips)
        variables = config.get("Environment", {}).get("Variables", {})
        # Compiled modules stay beside their sources, for the next worker.
        shared = {"_LAMBDA_LAYERS_DIRS": folders, "PYTHONDONTWRITEBYTECODE": ""}
        worker.config = {**config, "Layers": [], "Environment": {"Variables": {**variables, **shared}}}
        try:
            spawn(worker)
        finally:
            worker.config = config

    lambda_runtime.Worker._spawn = spawn_on_shared_layers


# -- (h) 1.5.33: IAM does not know the condition key events:source ----------------------------------------------------------------


def sources_of_events() -> None:
    """Give IAM the source of the events that PutEvents carries (EventBridge guide, "Using IAM policy conditions")."""
    request_tag_context = iam_actions.request_tag_context

    def context(service: str, iam_action: str, body: bytes, params: dict[str, Any]) -> dict[str, Any]:
        known: dict[str, Any] = request_tag_context(service, iam_action, body, params)
        if iam_action != "events:PutEvents":
            return known
        sources = sorted({str(entry.get("Source")) for entry in json.loads(body or b"{}").get("Entries", [])})
        # Of several sources none is allowed by a policy that names one.
        return {**known, "events:source": sources[0] if len(sources) == 1 else None}

    iam_actions.request_tag_context = context


# -- (i) 1.5.33: IAM does not know whose task a token is ---------------------------------------------------------------------------


def machines_of_tokens() -> None:
    """Name the state machine that a task token belongs to; AWS authorizes SendTaskSuccess on it."""
    execute_task = stepfunctions._execute_task
    invoke_with_callback = stepfunctions._invoke_with_callback
    extract = iam_actions.extract_resource_arn
    running: contextvars.ContextVar[str] = contextvars.ContextVar("running", default="*")
    machines: dict[str, str] = {}

    def execute(state_def: dict[str, Any], raw_input: Any, execution: Any, ctx: dict[str, Any]) -> Any:
        mine = running.set(ctx["StateMachine"]["Id"])
        try:
            return execute_task(state_def, raw_input, execution, ctx)
        finally:
            running.reset(mine)

    def invoke(resource: str, input_data: Any, token: str, state_def: dict[str, Any]) -> Any:
        machines[token] = running.get()
        return invoke_with_callback(resource, input_data, token, state_def)

    def extract_known(service: str, method: str, path: str, headers: Any, body: Any, *more: Any) -> str:
        if service == "states" and (token := iam_actions._safe_json_field(body, "taskToken")):
            return machines.get(token, "*")
        return str(extract(service, method, path, headers, body, *more))

    stepfunctions._execute_task = execute
    stepfunctions._invoke_with_callback = invoke
    iam_actions.extract_resource_arn = extract_known


# -- (j) 1.5.33: CloudFormation makes launch templates, groups and hooks past the API, where nothing launches or waits ----------


def groups_of_stacks(market: Market) -> None:
    """Let CloudFormation make them by the API's own operations, as AWS does, so that they live in the market."""
    made = _Provisioners(market)
    provisioners._RESOURCE_HANDLERS |= {
        "AWS::EC2::LaunchTemplate": {
            "create": made.create_template,
            "update": made.update_template,
            "delete": lambda *_: None,  # the market keeps templates
        },
        "AWS::AutoScaling::AutoScalingGroup": {
            "create": made.create_group,
            "update": made.update_group,
            "delete": made.delete_group,
        },
        "AWS::AutoScaling::LifecycleHook": {
            "create": made.create_hook,
            "update": made.update_hook,
            "delete": made.delete_hook,
        },
    }


class _Provisioners:
    """How a stack's resources are made, changed and deleted; each answers the physical id and what Fn::GetAtt reads."""

    def __init__(self, market: Market) -> None:
        self._market = market

    def _call(self, service: str, operation: str, given: dict[str, Any]) -> dict[str, Any]:
        shape = wire.service_model(service).operation_model(operation).input_shape
        return self._market.call(service, operation, _as_params(given, shape), get_region(), get_account_id())

    def create_template(self, logical_id: str, properties: dict[str, Any], stack: str) -> tuple[str, dict[str, Any]]:
        named = {"LaunchTemplateName": _name(stack, logical_id), **properties}
        template = self._call("ec2", "CreateLaunchTemplate", named)["LaunchTemplate"]
        return template["LaunchTemplateId"], _versions_of(template)

    def update_template(self, template_id: str, _: Any, new: dict[str, Any], *__: Any) -> tuple[str, dict[str, Any]]:
        version = {"LaunchTemplateId": template_id, "LaunchTemplateData": new["LaunchTemplateData"]}
        self._call("ec2", "CreateLaunchTemplateVersion", version)
        described = self._call("ec2", "DescribeLaunchTemplates", {"LaunchTemplateIds": [template_id]})
        return template_id, _versions_of(described["LaunchTemplates"][0])

    def create_group(self, logical_id: str, properties: dict[str, Any], stack: str) -> tuple[str, dict[str, Any]]:
        named = {"AutoScalingGroupName": _name(stack, logical_id), **properties}
        self._call("autoscaling", "CreateAutoScalingGroup", named)
        return named["AutoScalingGroupName"], {}

    def update_group(self, name: str, old: dict[str, Any], new: dict[str, Any], *_: Any) -> tuple[str, dict[str, Any]]:
        # Only what the template changed: as with IgnoreUnmodifiedGroupSizeProperties, sizes that others set stay.
        changed = {key: value for key, value in new.items() if old.get(key) != value}
        self._call("autoscaling", "UpdateAutoScalingGroup", {**changed, "AutoScalingGroupName": name})
        return name, {}

    def delete_group(self, name: str, _: Any) -> None:
        self._call("autoscaling", "DeleteAutoScalingGroup", {"AutoScalingGroupName": name, "ForceDelete": True})

    def create_hook(self, logical_id: str, properties: dict[str, Any], stack: str) -> tuple[str, dict[str, Any]]:
        named = {"LifecycleHookName": _name(stack, logical_id), **properties}
        self._call("autoscaling", "PutLifecycleHook", named)
        return named["LifecycleHookName"], {}

    def update_hook(self, name: str, _: Any, new: dict[str, Any], *__: Any) -> tuple[str, dict[str, Any]]:
        return self.create_hook("", {**new, "LifecycleHookName": name}, "")

    def delete_hook(self, name: str, properties: dict[str, Any]) -> None:
        self._call("autoscaling", "DeleteLifecycleHook", {**properties, "LifecycleHookName": name})


def _name(stack: str, logical_id: str) -> str:
    return str(provisioners._physical_name(stack, logical_id, max_len=128))


def _versions_of(template: dict[str, Any]) -> dict[str, Any]:
    """What Fn::GetAtt reads of a launch template."""
    numbers = {name: str(template[name]) for name in ("DefaultVersionNumber", "LatestVersionNumber")}
    return {"LaunchTemplateId": template["LaunchTemplateId"], **numbers}


def _as_params(given: Any, shape: Any) -> Any:
    """A template's properties as an operation's parameters: the same names, but numbers and booleans may be text there."""
    if shape.type_name == "structure":
        return {name: _as_params(given[name], member) for name, member in shape.members.items() if name in given}
    if shape.type_name == "list":
        return [_as_params(each, shape.member) for each in given]
    if shape.type_name in ("integer", "long"):
        return int(given)
    if shape.type_name == "boolean":
        return str(given).lower() == "true"
    return ",".join(given) if isinstance(given, list) else given  # VPCZoneIdentifier is text in the API


def iso_milliseconds(at: dt.datetime) -> str:
    """A moment as Step Functions writes it: `2026-05-04T11:30:00.000Z`."""
    return at.strftime("%Y-%m-%dT%H:%M:%S.") + f"{at.microsecond // 1000:03d}Z"


def _proxy(module: ModuleType, **replaced: Callable[..., Any]) -> Any:
    """The module with some names replaced, for one importer only."""
    return SimpleNamespace(**{**vars(module), **replaced})
