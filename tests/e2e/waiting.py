"""Waiting for a condition with a bound, and how long before a block's end its question ends."""

import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

DECISION_LEAD = timedelta(hours=3)  # before the end: 60 minutes for EC2 and 120 for the payment
PATIENCE_SECONDS = 120.0


def eventually(what: Callable[[], Any], patience: float = PATIENCE_SECONDS) -> Any:
    """The first true answer; fails after the patience with the last one."""
    give_up = time.monotonic() + patience
    while not (answer := what()):
        assert time.monotonic() < give_up, f"still {answer!r} after {patience:.0f} s"
        time.sleep(0.5)
    return answer
