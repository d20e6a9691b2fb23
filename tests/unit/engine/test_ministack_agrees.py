"""The same machines in MiniStack's interpreter: neither is trusted alone (docs: two engines for every workflow)."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from ministack.services import stepfunctions as ministack

from .conftest import engine_of, invoke, machine


def _flaky() -> Callable[[Any], Any]:
    calls: list[Any] = []

    def f(event: Any) -> Any:
        calls.append(event)
        if event == "broken" or (event == "flaky" and len(calls) < 3):
            raise ValueError("no")
        return {"calls": len(calls), "list": [event]}

    return f


_RETRY = [{"ErrorEquals": ["ValueError"], "IntervalSeconds": 1, "MaxAttempts": 3}]
_CATCH = [{"ErrorEquals": ["States.ALL"], "Next": "Caught", "Output": {"error": "{% $states.errorOutput.Error %}"}}]
_TASK = machine("T", {"T": invoke(Retry=_RETRY, Catch=_CATCH), "Caught": {"Type": "Pass", "End": True}})
_INNER = {
    "Double": {"Type": "Pass", "Output": "{% $states.input * 2 %}", "Next": "Big"},
    "Big": {
        "Type": "Choice",
        "Choices": [{"Condition": "{% $states.input > 4 %}", "Output": "{% $states.input + 100 %}", "Next": "Yes"}],
        "Default": "No",
    },
    "Yes": {"Type": "Succeed"},
    "No": {"Type": "Pass", "Output": ["{% $states.input %}"], "End": True},
}
_MAP = machine(
    "M",
    {
        "M": {
            "Type": "Map",
            "Items": "{% $states.input.list %}",
            "ItemProcessor": {"ProcessorConfig": {"Mode": "INLINE"}, "StartAt": "Double", "States": _INNER},
            "Assign": {"first": "{% $states.result[0] %}", "count": "{% $count($states.result) %}"},
            "Next": "Tell",
        },
        "Tell": {"Type": "Pass", "Output": {"all": "{% $states.input %}", "n": "{% $count %}"}, "End": True},
    },
)
_SHAPES = machine(
    "S",
    {
        "S": {
            "Type": "Pass",
            "Output": {
                "one": "{% $states.input.one %}",
                "none": "{% $states.input.none %}",
                "nil": "{% $states.input.nil %}",
                "picked": "{% $states.input.rows[a = 1].b %}",
                "kept": "{% [$states.input.rows[a = 1].b] %}",
                "joined": "{% $join([$states.input.one], ', ') %}",
                "division": "{% 6 / 3 %}",
                "half": "{% 1 / 2 %}",
                "millis": "{% $toMillis('2026-05-04T11:30:00Z') %}",
                "text": "{% $fromMillis(1777894200000) %}",
                "cut": "{% $substring('cr-0a1-20260504T1130Z', 0, 6) %}",
                "parsed": "{% $parse('{\"a\": [1]}') %}",
                "range": "{% [1..3] %}",
                "in": "{% 'a' in ['a', 'b'] %}",
            },
            "End": True,
        }
    },
)
_UNDEFINED = machine("U", {"U": {"Type": "Pass", "Output": "{% $states.input.gone %}", "End": True}})
_FAIL = machine("F", {"F": {"Type": "Fail", "Error": "{% 'A' & 'B' %}", "Cause": "why"}})
_PARALLEL = machine(
    "P",
    {
        "P": {
            "Type": "Parallel",
            "Branches": [
                {"StartAt": "L", "States": {"L": {"Type": "Pass", "Output": 1, "End": True}}},
                {"StartAt": "R", "States": {"R": {"Type": "Wait", "Seconds": 0, "End": True}}},
            ],
            "End": True,
        }
    },
)


@pytest.mark.parametrize(
    ("definition", "given"),
    [
        (_TASK, "fine"),
        (_TASK, "flaky"),
        (_TASK, "broken"),
        (_MAP, {"list": [1, 2, 3, 4]}),
        (_MAP, {"list": []}),
        (_SHAPES, {"one": ["x"], "none": [], "nil": None, "rows": [{"a": 1, "b": 2}, {"a": 2}]}),
        (_UNDEFINED, {}),
        (_FAIL, {}),
        (_PARALLEL, {"a": 1}),
    ],
)
def test_outcome_output_and_path_agree(definition: dict[str, Any], given: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    ours_function, theirs_function = _flaky(), _flaky()
    engine = engine_of(definition, {"f": lambda event, _: ours_function(event)})
    ours = engine.start("m", given)
    engine.run_until_idle()

    def call(_: str, event: Any) -> Any:
        try:
            return theirs_function(event)
        except ValueError as error:
            raise ministack._ExecutionError("ValueError", str(error)) from error

    monkeypatch.setattr(ministack, "_call_lambda", call)
    monkeypatch.setattr(ministack, "_scaled_sleep", lambda _: None)
    name = f"m{id(definition)}"
    ministack._create_state_machine(
        {"name": name, "definition": json.dumps(definition), "roleArn": "arn:aws:iam::000000000000:role/x"}
    )
    arn = next(arn for arn in ministack._state_machines if arn.endswith(f":{name}"))
    *_, body = ministack._start_sync_execution({"stateMachineArn": arn, "input": json.dumps(given)})
    answer = json.loads(body)
    theirs = ministack._executions[answer["executionArn"]]
    their_path = [
        event["stateEnteredEventDetails"]["name"] for event in theirs["events"] if "stateEnteredEventDetails" in event
    ]
    assert (theirs["status"], theirs.get("error")) == (ours.status, ours.error)
    # MiniStack keeps no events of the states inside Map and Parallel.
    assert their_path == [state for state in ours.path if state in definition["States"]]
    if ours.status == "SUCCEEDED":
        assert json.loads(theirs["output"]) == ours.output
