"""What will happen and when: the market's events, run in the order of their times."""

import heapq
from collections.abc import Callable
from datetime import datetime
from itertools import count


class Agenda:
    """Callbacks by moment; those of one moment run in the order in which they were planned."""

    def __init__(self) -> None:
        self._due: list[tuple[datetime, int, Callable[[], None]]] = []
        self._order = count()

    def plan(self, at: datetime, happens: Callable[[], None]) -> None:
        """Let `happens` run at `at`; a moment that has passed is run by the next tick."""
        heapq.heappush(self._due, (at, next(self._order), happens))

    def next_at(self) -> datetime | None:
        """The moment of the next event."""
        return self._due[0][0] if self._due else None

    def pop_until(self, until: datetime) -> tuple[datetime, Callable[[], None]] | None:
        """Take the first event that is due by `until`."""
        if not self._due or self._due[0][0] > until:
            return None
        at, _, happens = heapq.heappop(self._due)
        return at, happens
