"""The market's clock: time that tests and demos set, speed up or stop, so that nobody waits for days."""

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

_POLL_SECONDS = 0.1
_LONGEST_WAIT_SECONDS = 86_400.0


class MarketClock:
    """A clock that runs at `speed` market seconds per real second, and jumps when told to.

    `speed` 0 stands still (in-process tests move it with `set` and `advance`); 60 makes a real second a market minute. All methods
    may be called from any thread; whoever waits in `wait_until` is released at once by a jump over the moment.
    """

    def __init__(self, start: datetime | None = None, speed: float = 1.0) -> None:
        self._moved = threading.Condition()
        self._speed = _checked_speed(speed)
        self._anchor = _aware(start) if start is not None else datetime.now(UTC)
        self._anchored_at = time.monotonic()

    def now(self) -> datetime:
        """The market's time, aware UTC."""
        with self._moved:
            return self._now()

    def _now(self) -> datetime:
        return self._anchor + timedelta(seconds=(time.monotonic() - self._anchored_at) * self._speed)

    def set(self, at: datetime) -> None:
        """Jump to `at` (aware), forwards or backwards."""
        with self._moved:
            self._anchor_at(_aware(at))

    def advance(self, by: timedelta) -> None:
        """Jump by a span."""
        with self._moved:
            self._anchor_at(self._now() + by)

    @property
    def speed(self) -> float:
        """Market seconds per real second."""
        return self._speed

    @speed.setter
    def speed(self, speed: float) -> None:
        with self._moved:
            self._anchor_at(self._now())
            self._speed = _checked_speed(speed)

    def wait_until(
        self,
        at: datetime,
        cancelled: Callable[[], bool] | None = None,
        real_timeout: float | None = None,
    ) -> bool:
        """Block until the market's time is `at`.

        Returns False when `cancelled()` became true (asked ten times a real second) or `real_timeout` real seconds went by first.
        """
        at = _aware(at)
        give_up = None if real_timeout is None else time.monotonic() + real_timeout
        while True:
            if (
                cancelled is not None and cancelled()
            ):  # asked without the lock: it may look at something that waits for this clock
                return False
            with self._moved:
                missing = (at - self._now()).total_seconds()
                if missing <= 0:
                    return True
                pauses = [min(missing / self._speed, _LONGEST_WAIT_SECONDS)] if self._speed else []
                if give_up is not None:
                    left = give_up - time.monotonic()
                    if left <= 0:
                        return False
                    pauses.append(left)
                if cancelled is not None:
                    pauses.append(_POLL_SECONDS)
                self._moved.wait(min(pauses, default=_LONGEST_WAIT_SECONDS))

    def _anchor_at(self, at: datetime) -> None:
        self._anchor = at
        self._anchored_at = time.monotonic()
        self._moved.notify_all()


def _aware(at: datetime) -> datetime:
    if at.tzinfo is None:
        raise ValueError(f"{at} has no time zone; the market's time is aware UTC")
    return at.astimezone(UTC)


def _checked_speed(speed: float) -> float:
    if speed < 0:
        raise ValueError(f"speed is {speed}; a clock runs at 0 (stands still) or more")
    return float(speed)
