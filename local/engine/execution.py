"""One execution of a state machine: its history, its outcome, and where each of its branches stands."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from .asl import Json, Machine
from .errors import DATA_LIMIT, RUNTIME, StateError
from .scheduler import Future, Process, Timer

MAX_EVENTS = 25_000
MAX_PAYLOAD_BYTES = 262_144


@dataclass(frozen=True)
class Event:
    """One history event; `id` counts from 1. `details` has what a test looks at: input, output, error, cause."""

    id: int
    at: datetime
    type: str
    state: str | None = None
    details: Json = field(default_factory=dict)


@dataclass
class Frame:
    """Where a block of states stands: kept after a failure, so that a redrive goes on from there."""

    states: Json
    state: str | None
    input: Any
    outer: "Frame | None" = None
    map_item: Json | None = None
    variables: Json = field(default_factory=dict)
    children: "dict[int, Frame]" = field(default_factory=dict)
    executions: "dict[int, Execution]" = field(default_factory=dict)
    entered_at: str | None = None

    @property
    def done(self) -> bool:
        return self.state is None

    def visible_variables(self) -> Json:
        outer = self.outer.visible_variables() if self.outer else {}
        return {**outer, **self.variables}


@dataclass(eq=False)
class Execution:
    """As DescribeExecution tells it. `output` is the parsed JSON; `error` and `cause` are None unless it failed."""

    machine: Machine
    name: str
    arn: str
    input_text: str
    started_at: datetime
    frame: Frame
    parent: "Execution | None" = None
    status: str = "RUNNING"
    output: Any = None
    error: str | None = None
    cause: str | None = None
    stopped_at: datetime | None = None
    redrive_count: int = 0
    redriven_at: datetime | None = None
    history: list[Event] = field(default_factory=list)
    children: "list[Execution]" = field(default_factory=list)
    ended: Future = field(default_factory=Future)
    process: Process | None = None
    timeout: Timer | None = None

    @property
    def input(self) -> Any:
        return json.loads(self.input_text)

    @property
    def path(self) -> list[str]:
        """The states entered, in order, those inside inline Maps and Parallels included."""
        return [event.state for event in self.history if event.type.endswith("StateEntered") and event.state]

    def family(self) -> Iterator["Execution"]:
        """This execution and all that it started, nested ones and a distributed Map's children."""
        yield self
        for child in self.children:
            yield from child.family()

    def record(self, at: datetime, type_: str, state: str | None = None, **details: Any) -> None:
        """Add an event. Raises StateError `States.Runtime` when only the last of 25,000 events is left for the end."""
        if len(self.history) >= MAX_EVENTS - 1 and not type_.startswith("Execution"):
            cause = f"The execution reached the maximum number of history events ({MAX_EVENTS})."
            raise StateError(RUNTIME, cause)
        self.history.append(Event(len(self.history) + 1, at, type_, state, details))


def check_size(what: str, value: Any) -> Any:
    """Hand `value` back. Raises StateError `States.DataLimitExceeded` above 256 KiB of UTF-8 JSON."""
    size = len(json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode())
    if size > MAX_PAYLOAD_BYTES:
        raise StateError(DATA_LIMIT, f"{what} has {size} bytes; the limit is {MAX_PAYLOAD_BYTES}")
    return value
