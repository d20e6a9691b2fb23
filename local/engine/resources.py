"""What a Task may call: Lambda functions, other state machines, and any AWS API through the SDK integrations."""

import json
import traceback
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING, Any

import boto3
import botocore.session
from botocore.exceptions import BotoCoreError, ClientError
from botocore.model import ListShape, MapShape, OperationModel, ServiceModel, Shape, StructureShape

from .errors import RUNTIME, TASK_FAILED, TIMEOUT, ApiError, LambdaDiedError, StateError
from .scheduler import Future, Timer

if TYPE_CHECKING:
    from .engine import Engine
    from .execution import Execution

LAMBDA = "arn:aws:states:::lambda:invoke"
LAMBDA_CALLBACK = "arn:aws:states:::lambda:invoke.waitForTaskToken"
START = "arn:aws:states:::states:startExecution"
START_SYNC = "arn:aws:states:::states:startExecution.sync:2"
_SDK = "arn:aws:states:::aws-sdk:"

_LAMBDA_ARGUMENTS = frozenset({"FunctionName", "Payload", "InvocationType", "Qualifier"})
_START_ARGUMENTS = frozenset({"StateMachineArn", "Input", "Name"})
# Where the SDK integration's name is not botocore's, and where the error prefix is not the capitalised name.
# Source: Step Functions guide, "Learning to use AWS service SDK integrations" (names follow the AWS SDK for Java 2).
_BOTO_NAMES = {"sfn": "stepfunctions", "eventbridge": "events", "cloudwatchlogs": "logs"}
_ERROR_PREFIXES = {
    "dynamodb": "DynamoDb",
    "autoscaling": "AutoScaling",
    "secretsmanager": "SecretsManager",
    "eventbridge": "EventBridge",
    "sesv2": "SesV2",
    "cloudwatch": "CloudWatch",
    "cloudwatchlogs": "CloudWatchLogs",
}


@dataclass
class Call:
    """One attempt of a Task: what it calls with what, and the future of its answer."""

    engine: "Engine"
    execution: "Execution"
    state: str
    resource: str
    arguments: Any
    token: str | None
    deadlines: dict[str, timedelta]
    future: Future = field(default_factory=Future)
    child: "Execution | None" = None
    timers: dict[str, Timer] = field(default_factory=dict)

    def arm(self, deadline: str) -> None:
        """Start (again) the timer of TimeoutSeconds or HeartbeatSeconds, if the state has it."""
        if deadline in self.deadlines:
            if deadline in self.timers:
                self.timers[deadline].cancel()
            error = StateError(TIMEOUT, f"{deadline} of state '{self.state}' is over")
            self.timers[deadline] = self._after(self.deadlines[deadline], error)

    def fail(self, error: StateError) -> None:
        if error.takes:
            self.timers["failure"] = self._after(error.takes, error)
        else:
            self.future.fail(error)

    def close(self) -> None:
        """Nobody waits for the answer any more: a nested execution that is waited for is stopped, as AWS does."""
        for timer in self.timers.values():
            timer.cancel()
        if self.child is not None and self.resource == START_SYNC:
            self.engine.stop(self.child)

    def _after(self, pause: timedelta, error: StateError) -> Timer:
        timer = self.engine.scheduler.timer(self.engine.clock.now() + pause)
        timer.then(lambda _: self.future.fail(error))
        return timer


@dataclass(frozen=True)
class LambdaContext:
    """The context object that a Python handler gets."""

    function_name: str
    invoked_function_arn: str
    aws_request_id: str
    function_version: str = "$LATEST"
    memory_limit_in_mb: str = "256"
    log_group_name: str = "/aws/lambda/local"
    log_stream_name: str = "local"

    def get_remaining_time_in_millis(self) -> int:
        return 30_000


def resource_problems(resource: str, arguments: Any) -> Iterator[str]:
    """What is wrong with a Task's Resource and the Arguments beside it, as far as it shows before a run."""
    given = set(arguments) if isinstance(arguments, dict) else set()
    if resource in (LAMBDA, LAMBDA_CALLBACK):
        yield from _argument_problems(given, _LAMBDA_ARGUMENTS, "FunctionName")
        if resource == LAMBDA_CALLBACK and "$states.context.Task.Token" not in json.dumps(arguments):
            yield "the callback task never passes $states.context.Task.Token on"
    elif resource in (START, START_SYNC):
        yield from _argument_problems(given, _START_ARGUMENTS, "StateMachineArn")
        if "Name" not in given:
            yield "a nested start without Name starts a second execution when it is retried"
    elif resource.startswith(_SDK):
        operation = _sdk_operation(resource)
        if operation is None:
            yield f"Resource {resource!r} is no API of the SDK"
        elif operation.input_shape is not None:
            members = {_pascal(member) for member in operation.input_shape.members}
            yield from _argument_problems(given, frozenset(members), "")
    else:
        yield f"Resource {resource!r} is not known"


def begin(call: Call) -> None:
    """Make the call; its answer arrives in `call.future`, at once or later.

    Errors carry the names that Step Functions reports.
    """
    try:
        if call.resource in (LAMBDA, LAMBDA_CALLBACK):
            answer = _invoke(call)
            if call.resource == LAMBDA:
                call.future.resolve(answer)
        elif call.resource in (START, START_SYNC):
            _start(call)
        else:
            call.future.resolve(_sdk(call))
    except StateError as error:
        call.fail(error)


def _argument_problems(given: set[str], known: frozenset[str], needed: str) -> Iterator[str]:
    if needed and needed not in given:
        yield f"Arguments must have {needed}"
    for name in sorted(given - known):
        yield f"argument {name!r} is not known"


def _metadata(status: int = 200) -> dict[str, Any]:
    return {"SdkHttpMetadata": {"HttpStatusCode": status}, "SdkResponseMetadata": {"RequestId": "local"}}


# --- Lambda -----------------------------------------------------------------------------------------------------------


def _invoke(call: Call) -> dict[str, Any]:
    engine = call.engine
    name = engine.function_name(str(call.arguments["FunctionName"]))
    if name is None:
        raise StateError("Lambda.ResourceNotFoundException", f"Function not found: {call.arguments['FunctionName']}")
    kind = call.arguments.get("InvocationType", "RequestResponse")
    if kind != "RequestResponse":
        raise StateError(RUNTIME, f"InvocationType {kind!r} is not known to the engine")
    payload = engine.invoke(name, call.arguments.get("Payload", {}))
    return {"ExecutedVersion": "$LATEST", "Payload": payload, "StatusCode": 200, **_metadata()}


def invoke_function(engine: "Engine", name: str, payload: Any) -> Any:
    """Run a function as Lambda runs it: JSON in and out. Raises StateError named as the exception's class."""
    request_id = str(uuid.UUID(int=engine.rng.getrandbits(128), version=4))
    context = LambdaContext(name, f"arn:aws:lambda:{engine.region}:{engine.account}:function:{name}", request_id)
    try:
        answer = engine.functions[name](json.loads(json.dumps(payload)), context)
    except StateError:
        raise  # a defect of the engine or a test's function that names its own error
    except LambdaDiedError as death:
        raise StateError(death.error, "the function's process ended, by a test", death.takes) from None
    except Exception as error:
        kind = type(error).__name__
        cause = {
            "errorMessage": str(error),
            "errorType": kind,
            "requestId": request_id,
            "stackTrace": traceback.format_tb(error.__traceback__),
        }
        engine.raised.append(error)
        raise StateError(kind, json.dumps(cause)) from error
    try:
        return json.loads(json.dumps(answer, allow_nan=False))
    except (TypeError, ValueError) as error:
        cause = {"errorMessage": f"Unable to marshal response: {error}", "errorType": "Runtime.MarshalError"}
        engine.raised.append(error)
        raise StateError("Runtime.MarshalError", json.dumps(cause)) from error


# --- nested executions ------------------------------------------------------------------------------------------------


def _start(call: Call) -> None:
    engine, arguments = call.engine, call.arguments
    given = arguments.get("Input", {})
    try:
        child = engine.start_execution(
            str(arguments["StateMachineArn"]),
            given if isinstance(given, str) else json.dumps(given),
            arguments.get("Name"),
            parent=call.execution,
        )
    except ApiError as error:
        # MiniStack hands the API's code on; AWS puts the SDK's exception name after the service.
        name = error.code if engine.flavour == "ministack" else f"StepFunctions.{_exception_name(error.code)}"
        raise StateError(name, error.message) from error
    call.child = child
    if call.resource == START:
        call.future.resolve({"ExecutionArn": child.arn, "StartDate": iso(child.started_at), **_metadata()})
    else:
        child.ended.then(lambda _: _finish_sync(call, child))


def _finish_sync(call: Call, child: "Execution") -> None:
    described: dict[str, Any] = {
        "ExecutionArn": child.arn,
        "Input": child.input_text,
        "InputDetails": {"Included": True},
        "Name": child.name,
        "RedriveCount": child.redrive_count,
        "StartDate": iso(child.started_at),
        "StateMachineArn": child.machine.arn,
        "Status": child.status,
        "StopDate": iso(child.stopped_at) if child.stopped_at else None,
    }
    if child.status == "SUCCEEDED":
        # `.sync:2` hands the output over as JSON, `.sync` would as a string.
        call.future.resolve({**described, "Output": child.output, "OutputDetails": {"Included": True}})
    elif call.engine.flavour == "ministack":
        call.future.fail(StateError(child.error or TASK_FAILED, child.cause or ""))
    else:
        described |= {"Error": child.error, "Cause": child.cause}
        call.future.fail(StateError(TASK_FAILED, json.dumps(described)))


# --- any AWS API ------------------------------------------------------------------------------------------------------


def _sdk(call: Call) -> Any:
    service = call.resource.removeprefix(_SDK).partition(":")[0]
    operation = _sdk_operation(call.resource)
    if operation is None:  # the loader has refused it before
        raise StateError(RUNTIME, f"{call.resource} is no API of the SDK")
    arguments = call.arguments if isinstance(call.arguments, dict) else {}
    params = {} if operation.input_shape is None else _to_boto(arguments, operation.input_shape)
    prefix = _ERROR_PREFIXES.get(service, service[0].upper() + service[1:])
    client = boto3.client(_BOTO_NAMES.get(service, service), region_name=call.engine.region)  # type: ignore[call-overload]
    try:
        with call.engine.acting(call.execution.machine.key):
            answer = client._make_api_call(operation.name, params)
    except ClientError as error:
        code = str(error.response["Error"].get("Code", ""))
        modelled = {str(shape.metadata.get("error", {}).get("code", shape.name)) for shape in operation.error_shapes}
        modelled |= {shape.name for shape in operation.error_shapes}
        name = _exception_name(code) if code in modelled else f"{prefix}Exception"
        raise StateError(f"{prefix}.{name}", str(error)) from error
    except BotoCoreError as error:
        raise StateError(f"{prefix}.SdkClientException", str(error)) from error
    answer.pop("ResponseMetadata", None)
    return _to_states(answer)


@cache
def _service(service: str) -> ServiceModel | None:
    session = botocore.session.get_session()
    name = _BOTO_NAMES.get(service, service)
    return session.get_service_model(name) if name in session.get_available_services() else None


def _sdk_operation(resource: str) -> OperationModel | None:
    service, _, action = resource.removeprefix(_SDK).partition(":")
    model = _service(service)
    name = action[:1].upper() + action[1:]
    # An integration is written in camelCase, with no pattern behind it (`.waitForTaskToken` isn't used here).
    if model is None or action != action[:1].lower() + action[1:]:
        return None
    return model.operation_model(name) if name in model.operation_names else None


def _to_boto(value: Any, shape: Shape) -> Any:
    """Step Functions writes every parameter in PascalCase; botocore as the API's model does."""
    if isinstance(shape, StructureShape) and isinstance(value, dict):
        names = {_pascal(member): member for member in shape.members}
        return {
            names.get(key, key): _to_boto(item, shape.members[names[key]]) if key in names else item
            for key, item in value.items()
        }
    if isinstance(shape, ListShape) and isinstance(value, list):
        return [_to_boto(item, shape.member) for item in value]
    if isinstance(shape, MapShape) and isinstance(value, dict):
        return {key: _to_boto(item, shape.value) for key, item in value.items()}
    return value


def _to_states(value: Any) -> Any:
    if isinstance(value, dict):
        return {_pascal(key): _to_states(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_to_states(item) for item in value]
    if isinstance(value, datetime):
        return iso(value)
    return value


def _pascal(name: str) -> str:
    return name[:1].upper() + name[1:]


def _exception_name(code: str) -> str:
    return code if code.endswith("Exception") else f"{code}Exception"


def iso(at: datetime) -> str:
    """A time as Step Functions writes it, with milliseconds."""
    return f"{at:%Y-%m-%dT%H:%M:%S}.{at.microsecond // 1000:03d}Z"
