"""How often EC2 lets an account search offerings and buy: a token bucket for each account, Region and API.

Source: EC2 Developer Guide, "Request throttling": 10 calls at once, then 0.15 a second (one in 6.7 seconds), for
DescribeCapacityBlockExtensionOfferings, DescribeCapacityBlockOfferings and the purchases. Others in the account use the same
bucket, so EC2 may still throttle a call that this one lets through.

A bucket is kept as the one moment at which it is full again: a token is out for an interval, one after the other.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta


@dataclass(frozen=True, slots=True)
class Bucket:
    """`size` tokens at most; a token comes back every `interval`."""

    size: int
    interval: timedelta

    def take(self, full_at: datetime | None, now: datetime) -> tuple[datetime, timedelta]:
        """Take the next token, even one that is not there yet.

        Args:
            full_at: when the bucket is full again by what was taken so far; None when nothing was.

        Returns:
            When it is full again with this token out, and how long from `now` until the token is there: 0 when it is there.
        """
        taken = max(full_at or now, now) + self.interval
        return taken, max(taken - now - self.size * self.interval, timedelta(0))


# 0.15 calls a second are one in 6 2/3 seconds; rounded up, never to more calls than EC2 allows.
OFFERINGS_AND_PURCHASES = Bucket(10, timedelta(milliseconds=6667))


def throttle_pause(throttled: int) -> timedelta | None:
    """How long to wait after EC2 throttled a call that was throttled so many times before: 20 s, twice as long each time.

    None after five times, some ten minutes: then it is no rate that a wait helps against.
    """
    return timedelta(seconds=20 * 2**throttled) if throttled < 5 else None  # noqa: PLR2004 - said above
