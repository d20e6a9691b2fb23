"""Lets code that calls boto3's `stepfunctions` client reach the engine, as a handler does that answers a task token."""

import json
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

import boto3
import botocore.session
from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from botocore.model import ServiceModel
from botocore.validate import validate_parameters

from local.http_answer import ANSWERED, http_answer

from .errors import ApiError
from .execution import Execution

if TYPE_CHECKING:
    from .engine import Engine

Answer = dict[str, Any]
Operation = Callable[[Answer], Answer]


def attach(session: boto3.session.Session | botocore.session.Session, engine: "Engine") -> None:
    """Answer the `stepfunctions` calls of clients that `session` makes from now on.

    Only the sending is replaced, so botocore's retries and parser stay in the way; it also works inside moto's `mock_aws`. Each
    answer is checked against botocore's model. Calls that the engine does not know raise NotImplementedError.
    """
    api = StepFunctionsApi(engine)
    raw = session._session if isinstance(session, boto3.session.Session) else session
    raw.get_component("event_emitter").register_first("before-send.sfn", api.answer)


@cache
def _model() -> ServiceModel:
    return botocore.session.get_session().get_service_model("stepfunctions")


class StepFunctionsApi:
    """Step Functions' API in front of an engine."""

    def __init__(self, engine: "Engine") -> None:
        self._engine = engine
        self._operations: dict[str, Operation] = {
            "StartExecution": self._start_execution,
            "DescribeExecution": self._describe_execution,
            "ListExecutions": self._list_executions,
            "StopExecution": self._stop_execution,
            "RedriveExecution": self._redrive_execution,
            "SendTaskSuccess": self._send_task_success,
            "SendTaskFailure": self._send_task_failure,
            "SendTaskHeartbeat": self._send_task_heartbeat,
        }

    def answer(self, request: AWSPreparedRequest, event_name: str, **_: object) -> AWSResponse:
        """The botocore `before-send` handler."""
        operation = event_name.rpartition(".")[2]
        if operation not in self._operations:
            raise NotImplementedError(f"the engine does not answer stepfunctions {operation}")
        url, request.url = request.url, ANSWERED
        status = 200
        try:
            answer = self._operations[operation](json.loads(request.body))
            shape = _model().operation_model(operation).output_shape
            if shape is not None:
                validate_parameters(answer, shape)
        except ApiError as error:
            status = 400
            answer = {"__type": error.code, "message": error.message}
        return http_answer(url, status, json.dumps(answer, default=lambda at: at.timestamp()).encode())

    def _start_execution(self, given: Answer) -> Answer:
        execution = self._engine.start_execution(given["stateMachineArn"], given.get("input", "{}"), given.get("name"))
        return {"executionArn": execution.arn, "startDate": execution.started_at}

    def _describe_execution(self, given: Answer) -> Answer:
        execution = self._execution(given["executionArn"])
        redrivable = execution.status in ("FAILED", "TIMED_OUT", "ABORTED")
        described = self._summary(execution) | {
            "input": execution.input_text,
            "inputDetails": {"included": True},
            "redriveStatus": "REDRIVABLE" if redrivable else "NOT_REDRIVABLE",
        }
        if execution.status == "SUCCEEDED":
            described |= {"output": json.dumps(execution.output), "outputDetails": {"included": True}}
        described |= {
            name: value for name, value in (("error", execution.error), ("cause", execution.cause)) if value is not None
        }
        return described

    def _list_executions(self, given: Answer) -> Answer:
        machine = self._engine.machine(given["stateMachineArn"])
        wanted = given.get("statusFilter")
        found = [
            execution
            for execution in reversed(list(self._engine.executions.values()))
            if execution.machine is machine and wanted in (None, execution.status)
        ]
        found.sort(key=lambda execution: execution.started_at, reverse=True)
        first = int(given.get("nextToken", "0"))
        after = first + (given.get("maxResults") or 100)
        page: Answer = {"executions": [self._summary(execution) for execution in found[first:after]]}
        return page | ({"nextToken": str(after)} if after < len(found) else {})

    def _stop_execution(self, given: Answer) -> Answer:
        execution = self._execution(given["executionArn"])
        self._engine.stop(execution, given.get("error"), given.get("cause"))
        return {"stopDate": execution.stopped_at}

    def _redrive_execution(self, given: Answer) -> Answer:
        execution = self._execution(given["executionArn"])
        self._engine.redrive(execution)
        return {"redriveDate": execution.redriven_at}

    def _send_task_success(self, given: Answer) -> Answer:
        self._engine.send_task_success(given["taskToken"], given["output"])
        return {}

    def _send_task_failure(self, given: Answer) -> Answer:
        self._engine.send_task_failure(given["taskToken"], given.get("error", ""), given.get("cause", ""))
        return {}

    def _send_task_heartbeat(self, given: Answer) -> Answer:
        self._engine.send_task_heartbeat(given["taskToken"])
        return {}

    def _execution(self, arn: str) -> Execution:
        if arn not in self._engine.executions:
            raise ApiError("ExecutionDoesNotExist", f"Execution Does Not Exist: '{arn}'")
        return self._engine.executions[arn]

    @staticmethod
    def _summary(execution: Execution) -> Answer:
        summary: Answer = {
            "executionArn": execution.arn,
            "stateMachineArn": execution.machine.arn,
            "name": execution.name,
            "status": execution.status,
            "startDate": execution.started_at,
            "redriveCount": execution.redrive_count,
        }
        if execution.stopped_at is not None:
            summary["stopDate"] = execution.stopped_at
        if execution.redriven_at is not None:
            summary["redriveDate"] = execution.redriven_at
        return summary
