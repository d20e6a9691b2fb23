"""The in-process Step Functions: runs the project's state machines on a virtual clock, one step at a time.

Months pass in milliseconds, the same input and seed give the same history, and crashes happen where a test puts them.
The rules are AWS's; where MiniStack, the deployed test environment, differs, `flavour` selects its way.
"""

import json
import random
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Literal

from . import resources
from .asl import Json, Machine, all_states, load
from .coverage import new_coverage
from .errors import TIMEOUT, ApiError, DefinitionError, StateError
from .execution import MAX_EVENTS, MAX_PAYLOAD_BYTES, Execution, Frame
from .query import Evaluator
from .resources import Call
from .scheduler import Clock, Future, Process, Scheduler
from .states import Interpreter

Function = Callable[[Any, Any], Any]
_NAME = re.compile(r"""[^\s<>{}\[\]?*"#%\\^|~`$&,;:/\x00-\x1f\x7f-\x9f]{1,80}""")
_NAME_KEPT = timedelta(days=90)
_REDRIVABLE_FOR = timedelta(days=14)


@dataclass
class _Crash:
    name: str
    nth: int
    when: Literal["before", "after"]
    error: StateError
    times: int | None
    seen: int = 0

    def is_due(self, name: str) -> bool:
        self.seen += name == self.name
        return name == self.name and self.seen >= self.nth and (self.times is None or self.seen < self.nth + self.times)


class Engine:
    """State machines and functions under one clock.

    `definitions` and `functions` are keyed by what tests call them; `names` gives their AWS names where those differ.
    Raises DefinitionError for a state machine that uses anything unknown.
    """

    def __init__(
        self,
        definitions: Mapping[str, Json],
        functions: Mapping[str, Function],
        clock: Clock,
        *,
        names: Mapping[str, str] | None = None,
        seed: int | None = None,
        region: str = "us-east-1",
        account: str = "123456789012",
        flavour: Literal["aws", "ministack"] = "aws",
        redrive_keeps_entered_time: bool = False,
    ) -> None:
        self.clock = clock
        self.region = region
        self.account = account
        self.flavour = flavour
        # AWS does not say whether a redriven state has a new EnteredTime, so a test can ask for either.
        self.redrive_keeps_entered_time = redrive_keeps_entered_time
        self.functions = dict(functions)
        self.names = dict(names or {})
        self.scheduler = Scheduler(clock, seed)
        self.rng = random.Random(seed or 0)  # noqa: S311 - it must repeat
        self.skew = timedelta(0)
        self.evaluator = Evaluator(lambda: round(self.told_now().timestamp() * 1000), self.rng)
        self.coverage = new_coverage()
        self.executions: dict[str, Execution] = {}
        self.raised: list[Exception] = []
        """What functions raised, in order, for a test that wants the traceback."""
        self.on_tick: list[Callable[[], object]] = []
        """Called after each move of the clock."""
        self.next_event_at: list[Callable[[], datetime | None]] = []
        """Each tells when something outside happens next; the clock stops there on its way."""
        self.on_status: list[Callable[[Execution], object]] = []
        """Called when an execution starts, ends or is redriven."""
        self.on_task: list[Callable[[Call], object]] = []
        """Called before each attempt of a task is made."""
        self.caller: str | None = None
        """The function or state machine whose AWS calls are being made at this moment."""
        self._calls: dict[str, Call] = {}
        self._crashes: list[_Crash] = []
        self.machines: dict[str, Machine] = {}
        for key, definition in definitions.items():
            name = self.names.get(key, key)
            self.machines[key] = load(key, name, self._arn("stateMachine", name), definition)
        for machine in self.machines.values():
            self._check_literal_targets(machine)

    # --- running ------------------------------------------------------------------------------------------------------

    def start(self, machine: str, given: Any = None, name: str | None = None) -> Execution:
        """Start an execution; `machine` is a key, name or ARN. Raises ApiError as StartExecution does."""
        return self.start_execution(machine, json.dumps({} if given is None else given), name)

    def step(self) -> bool:
        """Let one branch of one execution go on until it waits; False when nothing can go on at this moment."""
        return self.scheduler.step()

    def run_until_idle(self, within: timedelta = timedelta(days=400)) -> None:
        """Run until nothing waits but callbacks without a timer; the clock jumps to each next timer or outside event.

        Raises RuntimeError when timers remain after `within`, which a loop without end would do.
        """
        limit = self.clock.now() + within
        self._tick()
        while True:
            self._run_ready()
            at = self.scheduler.next_timer_at()
            if at is None:
                return
            if at > limit:
                raise RuntimeError(f"a timer at {at:%Y-%m-%dT%H:%M:%SZ} is past the limit of {within}")
            self._move_to(at)

    def run_until(self, at: datetime) -> None:
        """Run everything that happens up to `at`, which the clock then shows."""
        self._tick()
        self._run_ready()
        while self.clock.now() < at:
            timer = self.scheduler.next_timer_at()
            self._move_to(at if timer is None else min(at, timer))
            self._run_ready()

    def _run_ready(self) -> None:
        while self.step():
            pass

    def _move_to(self, at: datetime) -> None:
        """Move the clock to `at`, or to an outside event that comes sooner."""
        now = self.clock.now()
        events = [event for ask in self.next_event_at if (event := ask()) is not None and event > now]
        self.clock.set(min([at, *events]))
        self._tick()

    def _tick(self) -> None:
        for hook in self.on_tick:
            hook()

    # --- Step Functions' API ------------------------------------------------------------------------------------------

    def machine(self, which: str) -> Machine:
        """By key, name or ARN. Raises ApiError StateMachineDoesNotExist."""
        for machine in self.machines.values():
            if which in (machine.key, machine.name, machine.arn):
                return machine
        raise ApiError("StateMachineDoesNotExist", f"State Machine Does Not Exist: '{which}'")

    def start_execution(
        self, which: str, input_text: str, name: str | None = None, parent: Execution | None = None
    ) -> Execution:
        """StartExecution. A name in use answers the running execution if the input is the same, else ApiError."""
        machine = self.machine(which)
        name = name if name is not None else f"{self.rng.getrandbits(128):032x}"
        if not _NAME.fullmatch(name):
            raise ApiError("InvalidName", f"Invalid Name: '{name}'")
        if len(input_text.encode()) > MAX_PAYLOAD_BYTES:
            raise ApiError("InvalidExecutionInput", f"the input is larger than {MAX_PAYLOAD_BYTES} bytes")
        try:
            given = json.loads(input_text)
        except ValueError as error:
            raise ApiError("InvalidExecutionInput", f"Invalid State Machine Execution Input: {error}") from error
        arn = self._arn("execution", f"{machine.name}:{name}")
        earlier = self.executions.get(arn)
        if earlier is not None and not self._is_forgotten(earlier):
            if self.flavour == "aws" and earlier.status == "RUNNING" and earlier.input_text == input_text:
                return earlier
            raise ApiError("ExecutionAlreadyExists", f"Execution Already Exists: '{arn}'")
        frame = Frame(machine.definition["States"], machine.definition["StartAt"], given)
        execution = Execution(machine, name, arn, input_text, self.clock.now(), frame, parent)
        if parent is not None:
            parent.children.append(execution)
        self._launch(execution, "ExecutionStarted", input=given)
        return execution

    def start_item(self, parent: Execution, label: str, processor: Json, index: int, item: Any) -> Execution:
        """Start a child execution of a distributed Map."""
        name = f"{self.rng.getrandbits(128):032x}"
        arn = self._arn("execution", f"{parent.machine.name}/{label}:{name}")
        frame = Frame(processor["States"], processor["StartAt"], item)
        machine = replace(parent.machine, arn=f"{parent.machine.arn}/{label}")
        child = Execution(machine, name, arn, json.dumps(item), self.clock.now(), frame, parent)
        parent.children.append(child)
        self._launch(child, "ExecutionStarted", input=item, index=index)
        return child

    def redrive(self, execution: Execution) -> None:
        """RedriveExecution: go on from the state that failed. Raises ApiError ExecutionNotRedrivable.

        Failed branches, iterations and children of a distributed Map are redriven with it. A task that waits for a
        nested execution is started again (AWS reruns the Task); redrive the nested one by itself if that is meant.
        """
        now = self.clock.now()
        if execution.status not in ("FAILED", "TIMED_OUT", "ABORTED") or execution.stopped_at is None:
            raise ApiError("ExecutionNotRedrivable", f"Execution is {execution.status} and cannot be redriven")
        if now - execution.stopped_at > _REDRIVABLE_FOR:
            raise ApiError("ExecutionNotRedrivable", "Execution has ended more than 14 days ago")
        if len(execution.history) >= MAX_EVENTS - 1:
            raise ApiError("ExecutionNotRedrivable", "Execution history event limit exceeded")
        execution.status, execution.error, execution.cause, execution.stopped_at = "RUNNING", None, None, None
        execution.redrive_count += 1
        execution.redriven_at = now
        execution.ended = Future()
        self._launch(execution, "ExecutionRedriven", redrive_count=execution.redrive_count)

    def stop(self, execution: Execution, error: str | None = None, cause: str | None = None) -> None:
        """StopExecution; nothing happens to one that has ended."""
        self._end(execution, "ABORTED", error=error, cause=cause)

    def send_task_success(self, token: str, output: str) -> None:
        """Raises ApiError InvalidOutput, InvalidToken, TaskDoesNotExist or TaskTimedOut."""
        try:
            value = json.loads(output)
        except ValueError as error:
            raise ApiError("InvalidOutput", f"Invalid Output: {error}") from error
        self._open_call(token).future.resolve(value)

    def send_task_failure(self, token: str, error: str = "", cause: str = "") -> None:
        """Raises ApiError InvalidToken, TaskDoesNotExist or TaskTimedOut."""
        self._open_call(token).future.fail(StateError(error, cause))

    def send_task_heartbeat(self, token: str) -> None:
        """Raises ApiError InvalidToken, TaskDoesNotExist or TaskTimedOut."""
        self._open_call(token).arm("HeartbeatSeconds")

    def open_tokens(self, state: str | None = None) -> list[str]:
        """Tokens that still wait for an answer, oldest first; of one state, or of all."""
        return [
            token
            for token, call in self._calls.items()
            if not call.future.done and call.execution.status == "RUNNING" and state in (None, call.state)
        ]

    # --- faults -------------------------------------------------------------------------------------------------------

    def crash(
        self,
        name: str,
        nth: int = 1,
        *,
        when: Literal["before", "after"],
        error: str = "Lambda.Unknown",
        cause: str = "crash by test",
        takes: timedelta = timedelta(0),
        times: int | None = 1,
    ) -> None:
        """Let the nth call from now of a state or a function fail, before or after its effects have happened.

        `takes` is how long the caller waits for the failure, as with `Sandbox.Timedout`; `times` how many calls in a row fail
        (None: all until `calm`).
        """
        self._crashes.append(_Crash(name, nth, when, StateError(error, cause, takes), times))

    def calm(self) -> None:
        """Forget all planned crashes."""
        self._crashes.clear()

    def told_now(self) -> datetime:
        """What Step Functions and API Gateway say that the time is: their own clocks, off by `skew` from EC2's."""
        return self.clock.now() + self.skew

    def _due_crash(self, name: str) -> _Crash | None:
        due = [crash for crash in self._crashes if crash.is_due(name)]
        return due[0] if due else None

    # --- used by states and resources ---------------------------------------------------------------------------------

    def new_token(self) -> str:
        return f"AQB8{self.rng.getrandbits(512):0128x}"

    def begin(self, call: Call) -> None:
        """Make a task's call, unless a crash is due there."""
        if call.token is not None:
            self._calls[call.token] = call
        for hook in self.on_task:
            hook(call)
        crash = self._due_crash(call.state)
        if crash is None:
            resources.begin(call)
            return
        if crash.when == "after":
            effect = replace(call, future=Future())
            resources.begin(effect)
            call.child = effect.child
        call.fail(crash.error)

    def invoke(self, name: str, payload: Any) -> Any:
        """Invoke a function, for a task or an event. Raises StateError with the name that Lambda reports."""
        crash = self._due_crash(name)
        if crash is not None and crash.when == "before":
            raise crash.error
        with self.acting(name):
            answer = resources.invoke_function(self, name, payload)
        if crash is not None:
            raise crash.error
        return answer

    @contextmanager
    def acting(self, caller: str) -> Iterator[None]:
        """Mark what happens inside as done by this function or state machine."""
        before, self.caller = self.caller, caller
        try:
            yield
        finally:
            self.caller = before

    def function_name(self, which: str) -> str | None:
        """The key of a function given by key, name or ARN (with or without qualifier); None if there is none."""
        name = which.partition(":function:")[2].partition(":")[0] or which
        for key in self.functions:
            if name in (key, self.names.get(key)):
                return key
        return None

    # --- inside -------------------------------------------------------------------------------------------------------

    def _arn(self, kind: str, name: str) -> str:
        return f"arn:aws:states:{self.region}:{self.account}:{kind}:{name}"

    def _is_forgotten(self, execution: Execution) -> bool:
        return execution.stopped_at is not None and self.clock.now() - execution.stopped_at > _NAME_KEPT

    def _open_call(self, token: str) -> Call:
        if not re.fullmatch(r"AQB8[0-9a-f]{128}", token):
            raise ApiError("InvalidToken", "Invalid Token: 'Invalid token'")
        call = self._calls.get(token)
        if call is None:
            raise ApiError("TaskDoesNotExist", "Task does not exist")
        if call.future.done or call.execution.status != "RUNNING":
            raise ApiError("TaskTimedOut", "Task Timed Out: 'Provided task does not exist anymore'")
        return call

    def _launch(self, execution: Execution, event: str, **details: Any) -> None:
        self.executions[execution.arn] = execution
        execution.record(self.clock.now(), event, **details)
        execution.process = Process(self.scheduler, Interpreter(self, execution).run(execution.frame))
        execution.process.then(lambda process: self._ran(execution, process))
        # A distributed Map's child runs under the limits of its states only.
        seconds = execution.machine.definition.get("TimeoutSeconds")
        if seconds is not None and "/" not in execution.machine.arn:
            execution.timeout = self.scheduler.timer(self.clock.now() + timedelta(seconds=seconds))
            execution.timeout.then(lambda _: self._end(execution, "TIMED_OUT", error=TIMEOUT))
        self._report(execution)

    def _ran(self, execution: Execution, process: Future) -> None:
        if process.error is None:
            self._end(execution, "SUCCEEDED", output=process.result())
        else:
            self._end(execution, "FAILED", error=process.error.error, cause=process.error.cause)

    def _end(self, execution: Execution, status: str, **outcome: Any) -> None:
        if execution.status != "RUNNING":
            return
        execution.status = status
        execution.stopped_at = self.clock.now()
        for name, value in outcome.items():
            setattr(execution, name, value)
        if execution.timeout is not None:
            execution.timeout.cancel()
        if execution.process is not None:
            execution.process.cancel()
        event = {"TIMED_OUT": "TimedOut"}.get(status, status.capitalize())
        execution.record(execution.stopped_at, f"Execution{event}", **outcome)
        execution.ended.resolve()
        self._report(execution)

    def _report(self, execution: Execution) -> None:
        for hook in self.on_status:
            hook(execution)

    def _check_literal_targets(self, machine: Machine) -> None:
        """A function or state machine that a task names outright must exist."""
        problems = []
        for name, state in all_states(machine.definition):
            arguments = state.get("Arguments")
            given = arguments if isinstance(arguments, dict) else {}
            for field in ("FunctionName", "StateMachineArn"):
                target = given.get(field)
                if isinstance(target, str) and not target.startswith("{%") and not self._exists(field, target):
                    problems.append(f"state {name!r}: {field} {target!r} does not exist")
        if problems:
            raise DefinitionError(machine.name, problems)

    def _exists(self, field: str, target: str) -> bool:
        if field == "FunctionName":
            return self.function_name(target) is not None
        return any(target in (machine.key, machine.name, machine.arn) for machine in self.machines.values())
