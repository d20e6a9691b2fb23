import threading
import time
from datetime import UTC, datetime, timedelta

import pytest

from local.clock import MarketClock

START = datetime(2026, 5, 1, tzinfo=UTC)


def test_stands_still_at_speed_0_and_jumps() -> None:
    clock = MarketClock(START, speed=0)
    assert clock.now() == START
    clock.advance(timedelta(days=30))
    assert clock.now() == datetime(2026, 5, 31, tzinfo=UTC)
    clock.set(START)
    assert clock.now() == START


def test_runs_at_its_speed() -> None:
    clock = MarketClock(START, speed=3600)
    real = time.monotonic()
    assert clock.wait_until(START + timedelta(minutes=6), real_timeout=5)
    assert 0.09 <= time.monotonic() - real < 5


def test_a_change_of_speed_keeps_the_time() -> None:
    clock = MarketClock(START, speed=0)
    clock.speed = 1
    assert START <= clock.now() < START + timedelta(seconds=5)
    clock.speed = 0
    stopped = clock.now()
    assert clock.now() == stopped


def test_a_jump_releases_who_waits() -> None:
    clock = MarketClock(START, speed=0)
    reached: list[bool] = []
    waiting = threading.Thread(
        target=lambda: reached.append(clock.wait_until(START + timedelta(days=1), real_timeout=10))
    )
    waiting.start()
    clock.advance(timedelta(days=2))
    waiting.join(10)
    assert reached == [True]


def test_gives_up_when_cancelled_or_after_the_real_timeout() -> None:
    clock = MarketClock(START, speed=0)
    assert not clock.wait_until(START + timedelta(days=1), cancelled=lambda: True)
    assert not clock.wait_until(START + timedelta(days=1), real_timeout=0.01)
    assert clock.wait_until(START)


def test_refuses_a_time_without_zone_and_a_speed_below_0() -> None:
    with pytest.raises(ValueError, match="no time zone"):
        MarketClock(datetime(2026, 5, 1))  # noqa: DTZ001 - the case
    with pytest.raises(ValueError, match="speed is -1"):
        MarketClock(START, speed=-1)
