"""Cooperative processes on a virtual clock: nothing here waits, and the same seed gives the same order."""

import heapq
import inspect
import itertools
import random
from collections.abc import Callable, Generator, Iterable
from datetime import datetime
from typing import Any, Protocol

from .errors import StateError


class Clock(Protocol):
    """The part of the market clock that the engine needs."""

    def now(self) -> datetime: ...

    def set(self, at: datetime) -> object: ...


class Future:
    """A result that is not there yet; the first outcome wins."""

    def __init__(self) -> None:
        self.done = False
        self._value: Any = None
        self._error: StateError | None = None
        self._callbacks: list[Callable[[Future], None]] = []

    def resolve(self, value: Any = None) -> None:
        self._finish(value, None)

    def fail(self, error: StateError) -> None:
        self._finish(None, error)

    def result(self) -> Any:
        """The value, or the error raised. Only to be asked when done."""
        if self._error is not None:
            raise self._error
        return self._value

    @property
    def error(self) -> StateError | None:
        return self._error

    def then(self, callback: Callable[["Future"], None]) -> None:
        if self.done:
            callback(self)
        else:
            self._callbacks.append(callback)

    def _finish(self, value: Any, error: StateError | None) -> None:
        if self.done:
            return
        self.done, self._value, self._error = True, value, error
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback(self)


Steps = Generator[Future, Any, Any]


def any_of(futures: Iterable[Future]) -> Future:
    """Done as soon as one of them is; never fails itself."""
    first = Future()
    for future in futures:
        future.then(lambda _: first.resolve())
    return first


class Process(Future):
    """A generator that yields the futures it waits for; itself the future of what it returns."""

    def __init__(self, scheduler: "Scheduler", steps: Steps) -> None:
        super().__init__()
        self._scheduler = scheduler
        self._steps = steps
        scheduler.make_ready(self, None)

    def advance(self, waited_for: Future | None) -> None:
        """Run until the next wait. A StateError ends the process; any other exception is a defect and goes up."""
        if self.done:
            return
        try:
            if waited_for is None:
                wait = next(self._steps)
            elif waited_for.error is not None:
                wait = self._steps.throw(waited_for.error)
            else:
                wait = self._steps.send(waited_for.result())
        except StopIteration as end:
            self.resolve(end.value)
        except StateError as error:
            self.fail(error)
        else:
            if self.done:  # cancelled by what it did itself, such as a function that stops its own execution
                self._steps.close()
            wait.then(lambda future: self._scheduler.make_ready(self, future))

    def cancel(self) -> None:
        """Stop where it waits; its `finally` blocks run and stop what it started."""
        if not self.done:
            self.done = True
            if inspect.getgeneratorstate(self._steps) != inspect.GEN_RUNNING:
                self._steps.close()


class Timer(Future):
    """Resolves when the clock has reached `at`, unless cancelled before."""

    def __init__(self, at: datetime) -> None:
        super().__init__()
        self.at = at

    def cancel(self) -> None:
        self.done = True


class Scheduler:
    """The processes that can go on, and the timers.

    `seed` picks at random (repeatably) which of several ready processes goes on; None keeps the order of arrival.
    """

    def __init__(self, clock: Clock, seed: int | None = None) -> None:
        self.clock = clock
        self._choose = random.Random(seed) if seed is not None else None  # noqa: S311 - it must repeat
        self._ready: list[tuple[Process, Future | None]] = []
        self._timers: list[tuple[datetime, int, Timer]] = []
        self._count = itertools.count()

    def make_ready(self, process: Process, waited_for: Future | None) -> None:
        self._ready.append((process, waited_for))

    def timer(self, at: datetime) -> Timer:
        timer = Timer(at)
        heapq.heappush(self._timers, (at, next(self._count), timer))
        return timer

    def step(self) -> bool:
        """Let one process go on until its next wait; False when none can at this moment."""
        self._fire()
        while self._ready:
            process, waited_for = self._ready.pop(self._choose.randrange(len(self._ready)) if self._choose else 0)
            if not process.done:
                process.advance(waited_for)
                return True
        return False

    def next_timer_at(self) -> datetime | None:
        """When the clock must move to for the next timer; None when there is no timer."""
        while self._timers and self._timers[0][2].done:
            heapq.heappop(self._timers)
        return self._timers[0][0] if self._timers else None

    def _fire(self) -> None:
        now = self.clock.now()
        while (at := self.next_timer_at()) is not None and at <= now:
            heapq.heappop(self._timers)[2].resolve()
