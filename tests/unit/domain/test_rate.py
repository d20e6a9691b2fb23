"""EC2's token bucket, against the plain definition of one."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from blockkeeper.domain.rate import OFFERINGS_AND_PURCHASES, Bucket

START = datetime(2026, 5, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)
PAUSES = st.lists(st.integers(0, 400_000), max_size=60)  # milliseconds


def test_ten_calls_at_once_then_one_in_seven_seconds():
    full_at, waits = None, []
    for _ in range(12):
        full_at, wait = OFFERINGS_AND_PURCHASES.take(full_at, START)
        waits.append(wait.total_seconds())
    assert waits == [0] * 10 + [6.667, 13.334]
    assert OFFERINGS_AND_PURCHASES.take(full_at, START + timedelta(minutes=5)) == (
        START + timedelta(minutes=5, seconds=6.667),
        timedelta(0),
    )


@given(PAUSES, st.integers(1, 12), st.integers(1, 10_000))
def test_calls_made_on_their_turn_never_ask_more_than_a_token_bucket_gives(pauses, size, interval_ms):
    """Each call waits for its turn; EC2's own bucket, counted in tokens, has one for each."""
    bucket = Bucket(size, timedelta(milliseconds=interval_ms))
    full_at, now, calls = None, START, []
    for pause in pauses:
        now += timedelta(milliseconds=pause)
        full_at, wait = bucket.take(full_at, now)
        calls.append(now + wait)
    tokens, since = float(size), START
    for at in sorted(calls):
        tokens = min(size, tokens + (at - since) / bucket.interval)
        since = at
        assert tokens >= 1 - 1e-6
        tokens -= 1


@given(PAUSES)
def test_nobody_waits_while_a_token_is_there(pauses):
    """And the bucket does not hold back: a call waits only when EC2's bucket is empty."""
    bucket = OFFERINGS_AND_PURCHASES
    full_at, now, tokens = None, START, float(bucket.size)
    for pause in pauses:
        step = timedelta(milliseconds=pause)
        now += step
        tokens = min(bucket.size, tokens + step / bucket.interval)
        taken, wait = bucket.take(full_at, now)
        assert (wait == timedelta(0)) == (tokens >= 1 - 1e-9)
        if wait == timedelta(0):
            full_at, tokens = taken, tokens - 1
