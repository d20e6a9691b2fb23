"""Runs states as the Amazon States Language specification says, one generator per block of states."""

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from . import resources
from .asl import Json, is_distributed
from .errors import NO_CHOICE, QUERY, RUNTIME, TIMEOUT, TOO_MANY_FAILED_ITEMS, StateError
from .execution import Execution, Frame, check_size
from .resources import Call
from .scheduler import Process, Steps, any_of

if TYPE_CHECKING:
    from .engine import Engine

_INLINE_CONCURRENCY = 40  # Step Functions guide, "Inline mode": at most 40 iterations at a time
_UNSET: Any = object()


class Interpreter:
    """Runs the states of one execution."""

    def __init__(self, engine: "Engine", execution: Execution) -> None:
        self._engine = engine
        self._execution = execution

    def run(self, frame: Frame) -> Steps:
        """Go through the frame's states, from where it stands to its end; return the output."""
        while frame.state is not None:
            output, following = yield from _Visit(self._engine, self._execution, frame).run()
            frame.input, frame.state = output, following
            frame.children, frame.executions, frame.entered_at = {}, {}, None
        return frame.input


class _Visit:
    """One visit of one state."""

    def __init__(self, engine: "Engine", execution: Execution, frame: Frame) -> None:
        self._engine = engine
        self._execution = execution
        self._frame = frame
        self._name: str = frame.state or ""
        self._state: Json = frame.states[self._name]
        self._variables = frame.visible_variables()
        if frame.entered_at is None or not engine.redrive_keeps_entered_time:
            frame.entered_at = resources.iso(engine.told_now())
        self._context = self._context_object(frame.entered_at)

    def run(self) -> Steps:
        kind = self._state["Type"]
        self._record(f"{kind}StateEntered", input=self._frame.input)
        self._cover(self._name)
        if kind in ("Task", "Map", "Parallel"):
            output, following = yield from self._with_retry_and_catch(getattr(self, f"_{kind.lower()}"))
        elif kind == "Choice":
            output, following = self._choice()
        elif kind == "Wait":
            yield self._engine.scheduler.timer(self._wait_until())
            output, following = self._leave(self._state, self._frame.input), self._state.get("Next")
        elif kind == "Fail":
            error, cause = (self._text(field) for field in ("Error", "Cause"))
            raise StateError(error, cause)
        else:
            output, following = self._leave(self._state, self._frame.input), self._state.get("Next")
        self._record(f"{kind}StateExited", output=output)
        return output, following

    # --- what expressions see -----------------------------------------------------------------------------------------

    def _context_object(self, entered_at: str) -> Json:
        execution = self._execution
        about = {
            "Id": execution.arn,
            "Name": execution.name,
            "Input": execution.input,
            "StartTime": resources.iso(execution.started_at + self._engine.skew),
            "RedriveCount": execution.redrive_count,
            "RoleArn": f"arn:aws:iam::{self._engine.account}:role/{execution.machine.name}",
        }
        if execution.redriven_at:
            about["RedriveTime"] = resources.iso(execution.redriven_at + self._engine.skew)
        context: Json = {
            "Execution": about,
            "State": {"Name": self._name, "EnteredTime": entered_at, "RetryCount": 0},
            "StateMachine": {"Id": execution.machine.arn, "Name": execution.machine.name},
        }
        if self._frame.map_item is not None:
            context["Map"] = {"Item": self._frame.map_item}
        return context

    def _evaluate(
        self, template: Any, *, result: Any = _UNSET, error: Any = _UNSET, context: Json | None = None
    ) -> Any:
        states = {"input": self._frame.input, "context": context or self._context}
        if result is not _UNSET:
            states["result"] = result
        if error is not _UNSET:
            states["errorOutput"] = error
        return self._engine.evaluator.render(template, states, self._variables)

    def _leave(self, holder: Json, default: Any, **seen: Any) -> Any:
        """Output and Assign of the state, or of the rule or catcher that decides; assignments show from the next state."""
        output = self._evaluate(holder["Output"], **seen) if "Output" in holder else default
        check_size(f"the output of state '{self._name}'", output)
        assigned = self._evaluate(holder.get("Assign", {}), **seen)
        check_size(f"the variables assigned in state '{self._name}'", assigned)
        self._frame.variables |= assigned
        return output

    # --- values of fields ---------------------------------------------------------------------------------------------

    def _text(self, field: str) -> str:
        value = self._evaluate(self._state.get(field, ""))
        if not isinstance(value, str):
            raise StateError(QUERY, f"{field} of state '{self._name}' must be a string, not {value!r}")
        return value

    def _number(self, field: str, low: int, high: int, default: int) -> int:
        value = self._evaluate(self._state.get(field, default))
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise StateError(QUERY, f"{field} of state '{self._name}' must be a whole number from {low}, not {value!r}")
        return value

    def _wait_until(self) -> datetime:
        now = self._engine.clock.now()
        if "Seconds" in self._state:
            return now + timedelta(seconds=self._number("Seconds", 0, 99_999_999, 0))
        text = self._text("Timestamp")
        try:
            at = datetime.fromisoformat(text)
        except ValueError as error:
            raise StateError(QUERY, f"Timestamp {text!r} of state '{self._name}' is not RFC 3339") from error
        if at.tzinfo is None or "T" not in text:
            raise StateError(QUERY, f"Timestamp {text!r} of state '{self._name}' is not RFC 3339")
        return max(now, at - self._engine.skew)

    # --- states -------------------------------------------------------------------------------------------------------

    def _choice(self) -> tuple[Any, str]:
        for index, rule in enumerate(self._state["Choices"]):
            met = self._evaluate(rule["Condition"])
            if not isinstance(met, bool):
                raise StateError(
                    QUERY, f"Choices[{index}] of '{self._name}': Condition gave {met!r}, not true or false"
                )
            if met:
                self._cover(f"{self._name} > Choices[{index}]")
                return self._leave(rule, self._frame.input), rule["Next"]
        if "Default" not in self._state:
            raise StateError(NO_CHOICE, f"no rule of state '{self._name}' matches, and it has no Default")
        self._cover(f"{self._name} > Default")
        return self._leave(self._state, self._frame.input), self._state["Default"]

    def _with_retry_and_catch(self, attempt: Callable[[], Steps]) -> Steps:
        attempts: dict[int, int] = {}
        while True:
            try:
                result = yield from attempt()
                return self._leave(self._state, result, result=result), self._state.get("Next")
            except StateError as error:
                pause = self._pause_before_retry(error, attempts)
                if pause is None:
                    return self._catch(error)
            self._frame.children, self._frame.executions = {}, {}
            yield self._engine.scheduler.timer(self._engine.clock.now() + pause)

    def _pause_before_retry(self, error: StateError, attempts: dict[int, int]) -> timedelta | None:
        """The first retrier that takes the error decides; each counts its own attempts."""
        for index, retrier in enumerate(self._state.get("Retry", [])):
            if error.matches(retrier["ErrorEquals"]):
                made = attempts.get(index, 0)
                if made >= retrier.get("MaxAttempts", 3):
                    return None
                attempts[index] = made + 1
                self._context["State"]["RetryCount"] += 1
                self._cover(f"{self._name} > Retry[{index}]")
                seconds = retrier.get("IntervalSeconds", 1) * float(retrier.get("BackoffRate", 2.0)) ** made
                return timedelta(seconds=min(seconds, retrier.get("MaxDelaySeconds", 31_622_400)))
        return None

    def _catch(self, error: StateError) -> tuple[Any, str]:
        for index, catcher in enumerate(self._state.get("Catch", [])):
            if error.matches(catcher["ErrorEquals"]):
                self._cover(f"{self._name} > Catch[{index}]")
                return self._leave(catcher, error.output, error=error.output), catcher["Next"]
        raise error

    def _task(self) -> Steps:
        engine, resource = self._engine, self._state["Resource"]
        token = engine.new_token() if resource.endswith(".waitForTaskToken") else None
        context = {**self._context, "Task": {"Token": token}} if token else self._context
        arguments = self._evaluate(self._state.get("Arguments", self._frame.input), context=context)
        check_size(f"the arguments of state '{self._name}'", arguments)
        deadlines: dict[str, timedelta] = {
            field: timedelta(seconds=self._number(field, 1, 99_999_999, 1))
            for field in ("TimeoutSeconds", "HeartbeatSeconds")
            if field in self._state
        }
        call = Call(engine, self._execution, self._name, resource, arguments, token, deadlines)
        self._record("TaskScheduled", resource=resource)
        try:
            for deadline in deadlines:
                call.arm(deadline)
            self._record("TaskStarted", resource=resource)
            engine.begin(call)
            if token is not None or resource == resources.START_SYNC:
                self._record("TaskSubmitted", resource=resource)
            result = yield call.future
            check_size(f"the result of state '{self._name}'", result)
        except StateError as error:
            if error.error != RUNTIME:
                kind = "TaskTimedOut" if error.error == TIMEOUT else "TaskFailed"
                self._record(kind, error=error.error, cause=error.cause)
            raise
        finally:
            call.close()
        self._record("TaskSucceeded", output=result)
        return result

    def _parallel(self) -> Steps:
        given = self._evaluate(self._state.get("Arguments", self._frame.input))
        frame = self._frame
        for index, branch in enumerate(self._state["Branches"]):
            frame.children.setdefault(index, Frame(branch["States"], branch["StartAt"], given, frame, frame.map_item))
        self._record("ParallelStateStarted")
        outputs = yield from self._pool(len(frame.children), len(frame.children), self._start_branch)
        self._record("ParallelStateSucceeded")
        return outputs

    def _map(self) -> Steps:
        items = self._evaluate(self._state["Items"]) if "Items" in self._state else self._frame.input
        if not isinstance(items, list):
            raise StateError(QUERY, f"the items of Map state '{self._name}' are not an array")
        concurrency = self._number("MaxConcurrency", 0, 10_000, 0)
        self._record("MapStateStarted", length=len(items))
        if is_distributed(self._state):
            outputs = yield from self._map_run(items, concurrency or 10_000)
        else:
            outputs = yield from self._iterations(items, min(concurrency or 40, _INLINE_CONCURRENCY))
        self._record("MapStateSucceeded")
        return outputs

    def _iterations(self, items: list[Any], concurrency: int) -> Steps:
        frame, processor = self._frame, self._state["ItemProcessor"]
        for index, value in enumerate(items):
            if index not in frame.children:
                item = {"Index": index, "Value": value}
                context = {**self._context, "Map": {"Item": item}}
                selector = self._state.get("ItemSelector")
                given = value if selector is None else self._evaluate(selector, context=context)
                frame.children[index] = Frame(processor["States"], processor["StartAt"], given, frame, item)
        return (yield from self._pool(len(items), concurrency, self._start_branch, "MapIteration"))

    def _start_branch(self, index: int) -> Process:
        steps = Interpreter(self._engine, self._execution).run(self._frame.children[index])
        return Process(self._engine.scheduler, steps)

    def _pool(self, count: int, concurrency: int, start: Callable[[int], Process], events: str | None = None) -> Steps:
        """Run branches, at most so many at a time; the first that fails stops the others and fails the state."""
        waiting: Iterator[int] = iter([i for i in range(count) if not self._frame.children[i].done])
        running: dict[int, Process] = {}
        try:
            while True:
                while len(running) < concurrency and (index := next(waiting, None)) is not None:
                    if events:
                        self._record(f"{events}Started", index=index)
                    running[index] = start(index)
                if not running:
                    return [self._frame.children[i].input for i in range(count)]
                yield any_of(running.values())
                for index in [i for i, process in running.items() if process.done]:
                    process = running.pop(index)
                    if events:
                        self._record(f"{events}{'Failed' if process.error else 'Succeeded'}", index=index)
                    process.result()
        finally:
            for process in running.values():
                process.cancel()

    def _map_run(self, items: list[Any], concurrency: int) -> Steps:
        """Each item is an execution of its own; failures are tolerated up to the limits that the state gives."""
        children = self._frame.executions
        tolerated = [
            self._number("ToleratedFailureCount", 0, 10**9, 0) if "ToleratedFailureCount" in self._state else None,
            self._number("ToleratedFailurePercentage", 0, 100, 0) * len(items) / 100
            if "ToleratedFailurePercentage" in self._state
            else None,
        ]
        limit = min([bound for bound in tolerated if bound is not None], default=0)
        self._record("MapRunRedriven" if children else "MapRunStarted")
        waiting = iter([i for i in range(len(items)) if i not in children or children[i].status != "SUCCEEDED"])
        running: set[int] = set()
        failed = 0
        try:
            while True:
                while len(running) < concurrency and (index := next(waiting, None)) is not None:
                    children[index] = self._start_item(index, items[index], children.get(index))
                    running.add(index)
                if not running:
                    break
                yield any_of(children[i].ended for i in running)
                for index in [i for i in running if children[i].status != "RUNNING"]:
                    running.discard(index)
                    failed += children[index].status != "SUCCEEDED"
                if failed > limit:
                    raise StateError(TOO_MANY_FAILED_ITEMS, "The specified tolerated failure threshold was exceeded")
        finally:
            for index in running:
                self._engine.stop(children[index])
        self._record("MapRunSucceeded")
        return self._results(items)

    def _start_item(self, index: int, item: Any, earlier: Execution | None) -> Execution:
        if earlier is not None:
            self._engine.redrive(earlier)
            return earlier
        label = self._state.get("Label", self._name.replace(" ", "-"))
        return self._engine.start_item(self._execution, label, self._state["ItemProcessor"], index, item)

    def _results(self, items: list[Any]) -> list[Any]:
        """What a tolerated failure leaves in the result array: nothing on AWS, null on MiniStack."""
        children = [self._frame.executions[i] for i in range(len(items))]
        if self._engine.flavour == "ministack":
            return [child.output for child in children]
        return [child.output for child in children if child.status == "SUCCEEDED"]

    # --- what is written down -----------------------------------------------------------------------------------------

    def _record(self, type_: str, **details: Any) -> None:
        self._execution.record(self._engine.clock.now(), type_, self._name, **details)

    def _cover(self, branch: str) -> None:
        self._engine.coverage[self._execution.machine.key][branch] += 1
