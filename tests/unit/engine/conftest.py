"""A clock and a short way to run a state machine."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from local.engine import Engine, Execution

START = datetime(2026, 5, 4, 11, 30, tzinfo=UTC)


class SteppedClock:
    """The smallest clock that the engine takes."""

    def __init__(self) -> None:
        self.at = START

    def now(self) -> datetime:
        return self.at

    def set(self, at: datetime) -> None:
        assert at >= self.at, "the clock went backwards"
        self.at = at


def machine(start: str, states: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"QueryLanguage": "JSONata", "StartAt": start, "States": states, **more}


def invoke(function: str = "f", payload: Any = "{% $states.input %}", **more: Any) -> dict[str, Any]:
    """A Lambda task whose output is the function's answer."""
    return {
        "Type": "Task",
        "Resource": "arn:aws:states:::lambda:invoke",
        "Arguments": {"FunctionName": function, "Payload": payload},
        "Output": "{% $states.result.Payload %}",
        **({} if "Next" in more else {"End": True}),
        **more,
    }


def ask(function: str = "ask", **more: Any) -> dict[str, Any]:
    """A task that waits for its token to come back."""
    return {
        "Type": "Task",
        "Resource": "arn:aws:states:::lambda:invoke.waitForTaskToken",
        "Arguments": {"FunctionName": function, "Payload": {"token": "{% $states.context.Task.Token %}"}},
        **({} if "Next" in more else {"End": True}),
        **more,
    }


Functions = dict[str, Callable[[Any, Any], Any]]


def engine_of(definition: dict[str, Any], functions: Functions | None = None, **options: Any) -> Engine:
    return Engine({"m": definition}, functions or {}, SteppedClock(), **options)


def run(definition: dict[str, Any], functions: Functions | None = None, given: Any = None) -> Execution:
    """Run one state machine to its end."""
    engine = engine_of(definition, functions)
    execution = engine.start("m", given)
    engine.run_until_idle()
    return execution


@pytest.fixture
def clock() -> SteppedClock:
    return SteppedClock()
