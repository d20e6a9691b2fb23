"""Executions: callbacks, nested starts, crashes, redrive, limits, and that runs repeat exactly."""

import json
from datetime import timedelta
from typing import Any

import boto3
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from moto import mock_aws

from local.engine import ApiError, DefinitionError, Engine, Execution
from local.engine.stepfunctions import attach

from .conftest import START, SteppedClock, ask, engine_of, invoke, machine, run

NO_ANSWER: dict[str, Any] = {"ask": lambda *_: None}


def _asking(**more: Any) -> tuple[Engine, Execution]:
    engine = engine_of(machine("Ask", {"Ask": ask(**more)}), NO_ANSWER)
    execution = engine.start("m")
    engine.run_until(START)
    return engine, execution


# --- callbacks --------------------------------------------------------------------------------------------------------


def test_a_callback_answers_once() -> None:
    engine, execution = _asking()
    engine.run_until_idle()
    assert execution.status == "RUNNING"
    (token,) = engine.open_tokens("Ask")
    engine.send_task_success(token, json.dumps({"approved": True}))
    engine.run_until_idle()
    assert execution.output == {"approved": True}
    with pytest.raises(ApiError, match="TaskTimedOut"):
        engine.send_task_success(token, "{}")


def test_a_callback_failure_has_the_name_that_was_sent() -> None:
    engine, execution = _asking()
    engine.send_task_failure(engine.open_tokens()[0], "Rejected", "too dear")
    engine.run_until_idle()
    assert (execution.error, execution.cause) == ("Rejected", "too dear")


def test_wrong_answers_are_refused_case_b04() -> None:
    engine, execution = _asking(TimeoutSeconds=60)
    (token,) = engine.open_tokens()
    with pytest.raises(ApiError, match="InvalidOutput"):
        engine.send_task_success(token, "{not json")
    with pytest.raises(ApiError, match="InvalidToken"):
        engine.send_task_success("made up", "{}")
    with pytest.raises(ApiError, match="TaskDoesNotExist"):
        engine.send_task_success("AQB8" + "0" * 128, "{}")
    engine.run_until_idle()
    assert execution.error == "States.Timeout"
    with pytest.raises(ApiError, match="TaskTimedOut"):
        engine.send_task_success(token, "{}")


def test_heartbeats_keep_a_task_alive_up_to_its_timeout() -> None:
    engine, execution = _asking(TimeoutSeconds=100, HeartbeatSeconds=30)
    (token,) = engine.open_tokens()
    for second in (20, 40, 60, 80):
        engine.run_until(START + timedelta(seconds=second))
        engine.send_task_heartbeat(token)
    engine.run_until_idle()
    assert (execution.error, execution.stopped_at) == ("States.Timeout", START + timedelta(seconds=100))
    silent = run(machine("Ask", {"Ask": ask(TimeoutSeconds=100, HeartbeatSeconds=30)}), NO_ANSWER)
    assert silent.stopped_at == START + timedelta(seconds=30)


def test_an_error_of_the_function_that_asks_fails_the_callback_task() -> None:
    def f(*_: Any) -> None:
        raise PermissionError("no channel")

    assert run(machine("Ask", {"Ask": ask()}), {"ask": f}).error == "PermissionError"


def test_an_answer_given_while_the_function_asks_counts() -> None:
    engine = engine_of(
        machine("Ask", {"Ask": ask()}), {"ask": lambda event, _: engine.send_task_success(event["token"], '"now"')}
    )
    execution = engine.start("m")
    engine.run_until_idle()
    assert execution.output == "now"


def test_a_function_may_stop_its_own_execution() -> None:
    engine = engine_of(
        machine("T", {"T": invoke(Next="U"), "U": invoke()}),
        {"f": lambda *_: engine.stop(execution, "Stopped", "by itself")},
    )
    execution = engine.start("m")
    engine.run_until_idle()
    assert (execution.status, execution.error, execution.path) == ("ABORTED", "Stopped", ["T"])


# --- names and nested executions --------------------------------------------------------------------------------------


def test_names_case_b25() -> None:
    clock = SteppedClock()
    engine = Engine({"m": machine("Ask", {"Ask": ask()})}, NO_ANSWER, clock)
    first = engine.start("m", {"a": 1}, "cr-0a1-20260504T1130Z")
    assert engine.start("m", {"a": 1}, first.name) is first
    with pytest.raises(ApiError, match="ExecutionAlreadyExists"):
        engine.start("m", {"a": 2}, first.name)
    engine.stop(first)
    with pytest.raises(ApiError, match="ExecutionAlreadyExists"):
        engine.start("m", {"a": 1}, first.name)
    clock.set(START + timedelta(days=91))
    assert engine.start("m", {"a": 1}, first.name) is not first
    for bad in ("", "a" * 81, "arn:aws:ec2", "a b", "a/b", "2026-05-04T11:30Z", "a\n"):
        with pytest.raises(ApiError, match="InvalidName"):
            engine.start("m", name=bad)


def _nesting(suffix: str, flavour: Any = "aws", **more: Any) -> Engine:
    start = {
        "Type": "Task",
        "Resource": f"arn:aws:states:::states:startExecution{suffix}",
        "Arguments": {"StateMachineArn": "child", "Name": "one", "Input": "{% $states.input %}"},
        "End": True,
        **more,
    }
    child = machine("F", {"F": invoke()})
    functions = {"f": _answer_or_fail}
    return Engine({"m": machine("Start", {"Start": start}), "child": child}, functions, SteppedClock(), flavour=flavour)


def _answer_or_fail(event: dict[str, Any], _: Any) -> dict[str, Any]:
    if event.get("fail"):
        raise ValueError("child")
    return {"answer": 42}


def test_start_and_forget_goes_on_at_once() -> None:
    engine = _nesting("")
    execution = engine.start("m", {"fail": True})
    engine.run_until_idle()
    assert execution.status == "SUCCEEDED"
    assert execution.output["ExecutionArn"] == execution.children[0].arn
    assert execution.children[0].status == "FAILED"


def test_sync_hands_the_output_over_as_json() -> None:
    engine = _nesting(".sync:2")
    execution = engine.start("m", {})
    engine.run_until_idle()
    assert execution.output["Output"] == {"answer": 42}
    assert execution.output["Status"] == "SUCCEEDED"


@pytest.mark.parametrize(("flavour", "error"), [("aws", "States.TaskFailed"), ("ministack", "ValueError")])
def test_a_failed_nested_execution_fails_the_task(flavour: str, error: str) -> None:
    engine = _nesting(".sync:2", flavour)
    execution = engine.start("m", {"fail": True})
    engine.run_until_idle()
    assert execution.error == error
    if flavour == "aws":
        assert json.loads(execution.cause or "")["Error"] == "ValueError"


@pytest.mark.parametrize(
    ("flavour", "error"),
    [("aws", "StepFunctions.ExecutionAlreadyExistsException"), ("ministack", "ExecutionAlreadyExists")],
)
def test_a_name_in_use_fails_a_nested_start(flavour: str, error: str) -> None:
    engine = _nesting("", flavour)
    engine.start("m", {})
    engine.run_until_idle()
    second = engine.start("m", {})
    engine.run_until_idle()
    assert second.error == error


def test_a_nested_execution_that_is_waited_for_stops_with_its_parent() -> None:
    start = {
        "Type": "Task",
        "Resource": "arn:aws:states:::states:startExecution.sync:2",
        "Arguments": {"StateMachineArn": "child", "Name": "one"},
        "TimeoutSeconds": 10,
        "End": True,
    }
    definitions = {"m": machine("Start", {"Start": start}), "child": machine("Ask", {"Ask": ask()})}
    engine = Engine(definitions, NO_ANSWER, SteppedClock())
    execution = engine.start("m")
    engine.run_until_idle()
    assert (execution.error, execution.children[0].status) == ("States.Timeout", "ABORTED")


def test_a_nested_start_without_a_name_is_refused() -> None:
    start = {"Type": "Task", "Resource": "arn:aws:states:::states:startExecution",
             "Arguments": {"StateMachineArn": "m"}, "End": True}  # fmt: skip
    with pytest.raises(DefinitionError, match="without Name"):
        engine_of(machine("S", {"S": start}))


# --- faults and redrive -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["T", "f"])
@pytest.mark.parametrize(("when", "effects"), [("before", 1), ("after", 2)])
def test_a_crash_before_or_after_the_effects(name: str, when: Any, effects: int) -> None:
    calls: list[Any] = []
    retry = [{"ErrorEquals": ["Sandbox.Timedout"], "IntervalSeconds": 1}]
    engine = engine_of(machine("T", {"T": invoke(Retry=retry)}), {"f": lambda event, _: calls.append(event)})
    engine.crash(name, when=when, error="Sandbox.Timedout", takes=timedelta(seconds=30))
    execution = engine.start("m")
    engine.run_until_idle()
    assert (execution.status, len(calls)) == ("SUCCEEDED", effects)
    assert execution.stopped_at == START + timedelta(seconds=31)


def test_the_nth_call_crashes() -> None:
    engine = engine_of(machine("T", {"T": invoke()}), {"f": lambda *_: 1})
    engine.crash("f", 2, when="before")
    runs = [engine.start("m") for _ in range(3)]
    engine.run_until_idle()
    assert [execution.error for execution in runs] == [None, "Lambda.Unknown", None]


def test_redrive_goes_on_from_the_failed_state() -> None:
    steps = machine(
        "A",
        {
            "A": invoke("a", Assign={"kept": "{% $states.result.Payload %}"}, Next="B"),
            "B": {**invoke("b"), "Output": ["{% $kept %}", "{% $states.context.Execution.RedriveCount %}"]},
        },
    )
    calls: list[str] = []
    engine = engine_of(steps, {"a": lambda *_: calls.append("a") or 5, "b": lambda *_: calls.append("b")})
    engine.crash("B", when="after")
    execution = engine.start("m")
    engine.run_until_idle()
    assert execution.status == "FAILED"
    engine.redrive(execution)
    engine.run_until_idle()
    assert (execution.output, calls) == ([5, 1], ["a", "b", "b"])
    with pytest.raises(ApiError, match="ExecutionNotRedrivable"):
        engine.redrive(execution)


@pytest.mark.parametrize(("keeps", "seen"), [(False, "2026-05-05T"), (True, "2026-05-04T")])
def test_entered_time_after_a_redrive_can_be_either(keeps: bool, seen: str) -> None:
    task = invoke(payload="{% $states.context.State.EnteredTime %}")
    engine = engine_of(machine("T", {"T": task}), {"f": lambda at, _: at}, redrive_keeps_entered_time=keeps)
    engine.crash("T", when="before")
    execution = engine.start("m")
    engine.run_until(START + timedelta(days=1))
    engine.redrive(execution)
    engine.run_until_idle()
    assert execution.output.startswith(seen)


@pytest.mark.parametrize("mode", [{"Mode": "INLINE"}, {"Mode": "DISTRIBUTED", "ExecutionType": "STANDARD"}])
def test_redrive_reruns_only_the_failed_parts_of_a_map(mode: dict[str, str]) -> None:
    calls: list[int] = []

    def f(event: int, _: Any) -> int:
        calls.append(event)
        if event == 2 and calls.count(2) == 1:
            raise ValueError("once")
        return event * 10

    processor = {"ProcessorConfig": mode, "StartAt": "T", "States": {"T": invoke()}}
    engine = engine_of(machine("M", {"M": {"Type": "Map", "ItemProcessor": processor, "End": True}}), {"f": f})
    execution = engine.start("m", [1, 2])
    engine.run_until_idle()
    assert execution.status == "FAILED"
    engine.redrive(execution)
    engine.run_until_idle()
    assert (execution.output, calls) == ([10, 20], [1, 2, 2])
    if mode["Mode"] == "DISTRIBUTED":
        assert [child.redrive_count for child in execution.children] == [0, 1]


def test_redrive_ends_after_14_days() -> None:
    engine = engine_of(machine("F", {"F": {"Type": "Fail"}}))
    execution = engine.start("m")
    engine.run_until(START + timedelta(days=15))
    with pytest.raises(ApiError, match="14 days"):
        engine.redrive(execution)


# --- limits -----------------------------------------------------------------------------------------------------------


def test_history_limit_case_b37() -> None:
    loop = machine(
        "Wait",
        {
            "Wait": {"Type": "Wait", "Seconds": 30, "Next": "Poll"},
            "Poll": invoke(Next="Paid"),
            "Paid": {"Type": "Choice", "Choices": [{"Condition": "{% $states.input.paid %}", "Next": "Done"}],
                     "Default": "Wait"},
            "Done": {"Type": "Succeed"},
        },
    )  # fmt: skip
    execution = run(loop, {"f": lambda *_: {"paid": False}})
    assert (execution.status, execution.error) == ("FAILED", "States.Runtime")
    assert len(execution.history) == 25_000
    one_turn = execution.history[1:10]
    assert [event.state for event in one_turn] == ["Wait"] * 2 + ["Poll"] * 5 + ["Paid"] * 2


def test_payload_limit_case_b38() -> None:
    steps = machine("T", {"T": invoke(Catch=[{"ErrorEquals": ["States.ALL"], "Next": "Caught"}]),
                          "Caught": {"Type": "Succeed"}})  # fmt: skip
    execution = run(steps, {"f": lambda *_: "x" * 262_144})
    assert execution.error == "States.DataLimitExceeded"
    engine = engine_of(steps, {"f": lambda *_: 1})
    with pytest.raises(ApiError, match="InvalidExecutionInput"):
        engine.start("m", "ü" * 131_072)


def test_a_loop_without_end_is_reported() -> None:
    steps = machine("W", {"W": {"Type": "Wait", "Seconds": 3600, "Next": "W"}})
    engine = engine_of(steps)
    engine.start("m")
    with pytest.raises(RuntimeError, match="past the limit"):
        engine.run_until_idle(within=timedelta(days=2))


# --- time, order, repetition ------------------------------------------------------------------------------------------


def test_the_clock_stops_at_outside_events_and_tells_the_hooks() -> None:
    clock = SteppedClock()
    engine = Engine({"m": machine("W", {"W": {"Type": "Wait", "Seconds": 100, "End": True}})}, {}, clock)
    ticks: list[float] = []
    engine.on_tick.append(lambda: ticks.append((clock.now() - START).total_seconds()))
    event = START + timedelta(seconds=40)
    engine.next_event_at.append(lambda: event if clock.now() < event else None)
    engine.start("m")
    engine.run_until_idle()
    assert ticks == [0, 40, 100]
    engine.run_until(START + timedelta(seconds=150))
    assert clock.now() == START + timedelta(seconds=150)


def _story(seed: int | None, waits: list[int]) -> list[Any]:
    """The history of a run with tokens, random numbers and branches that race."""
    inner = {
        "W": {"Type": "Wait", "Seconds": "{% $states.input %}", "Next": "T"},
        "T": {
            **invoke(),
            "Output": ["{% $states.result.Payload %}", "{% $uuid() %}", "{% $random() %}", "{% $now() %}"],
        },
    }
    processor = {"ProcessorConfig": {"Mode": "INLINE"}, "StartAt": "W", "States": inner}
    order: list[int] = []
    engine = engine_of(
        machine("M", {"M": {"Type": "Map", "ItemProcessor": processor, "End": True}}),
        {"f": lambda event, _: order.append(event) or len(order)},
        seed=seed,
    )
    execution = engine.start("m", waits)
    engine.run_until_idle()
    assert execution.status == "SUCCEEDED"
    return execution.history


@settings(deadline=None)
@given(seed=st.none() | st.integers(0, 2**32), waits=st.lists(st.integers(0, 3), max_size=6))
def test_the_same_seed_gives_the_same_history(seed: int | None, waits: list[int]) -> None:
    assert _story(seed, waits) == _story(seed, waits)


def test_seeds_try_other_orders() -> None:
    orders = {tuple(event.details["index"] for event in _story(seed, [0] * 6)
                    if event.type == "MapIterationSucceeded") for seed in range(10)}  # fmt: skip
    assert len(orders) > 1


# --- boto3 ------------------------------------------------------------------------------------------------------------


@mock_aws
def test_boto3_reaches_the_engine_while_moto_answers_the_rest() -> None:
    session = boto3.Session(region_name="us-east-1")
    engine = engine_of(machine("Ask", {"Ask": ask()}), NO_ANSWER)
    attach(session, engine)
    sfn = session.client("stepfunctions")
    arn = engine.machines["m"].arn
    started = sfn.start_execution(stateMachineArn=arn, name="one", input='{"a": 1}')
    engine.run_until_idle()
    described = sfn.describe_execution(executionArn=started["executionArn"])
    assert (described["status"], described["input"], described["startDate"]) == ("RUNNING", '{"a": 1}', START)
    with pytest.raises(sfn.exceptions.ExecutionAlreadyExists):
        sfn.start_execution(stateMachineArn=arn, name="one", input="{}")
    with pytest.raises(sfn.exceptions.TaskDoesNotExist):
        sfn.send_task_success(taskToken="AQB8" + "0" * 128, output="{}")
    with pytest.raises(sfn.exceptions.StateMachineDoesNotExist):
        sfn.start_execution(stateMachineArn=arn + "x")
    sfn.send_task_heartbeat(taskToken=engine.open_tokens()[0])
    sfn.send_task_success(taskToken=engine.open_tokens()[0], output='{"ok": true}')
    engine.run_until_idle()
    assert json.loads(sfn.describe_execution(executionArn=started["executionArn"])["output"]) == {"ok": True}
    sfn.start_execution(stateMachineArn=arn, name="two")
    pages = sfn.get_paginator("list_executions").paginate(stateMachineArn=arn, PaginationConfig={"PageSize": 1})
    assert [e["name"] for page in pages for e in page["executions"]] == ["two", "one"]
    with pytest.raises(NotImplementedError):
        sfn.list_activities()
    assert session.client("sqs").list_queues()["ResponseMetadata"]["HTTPStatusCode"] == 200


@mock_aws
def test_sdk_integration_calls_boto3_and_names_errors_as_aws_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    table = {"TableName": "t", "KeySchema": [{"AttributeName": "PK", "KeyType": "HASH"}], "BillingMode": "PAY_PER_REQUEST",
             "AttributeDefinitions": [{"AttributeName": "PK", "AttributeType": "S"}]}  # fmt: skip
    boto3.client("dynamodb", region_name="us-east-1").create_table(**table)  # type: ignore[arg-type]
    put = {
        "Type": "Task",
        "Resource": "arn:aws:states:::aws-sdk:dynamodb:putItem",
        "Arguments": {"TableName": "t", "Item": {"PK": {"S": "a"}}, "ConditionExpression": "attribute_not_exists(PK)"},
        "End": True,
    }
    assert run(machine("Put", {"Put": put})).status == "SUCCEEDED"
    assert run(machine("Put", {"Put": put})).error == "DynamoDb.ConditionalCheckFailedException"
    describe = {
        "Type": "Task",
        "Resource": "arn:aws:states:::aws-sdk:ec2:describeInstances",
        "Arguments": {"InstanceIds": ["i-0123456789abcdef0"]},
        "End": True,
    }
    assert run(machine("D", {"D": describe})).error == "Ec2.Ec2Exception"
