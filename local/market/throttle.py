"""EC2's request throttling: one token bucket for each account, Region and API, refilled in market time."""

from datetime import datetime

from local.market.errors import MarketError
from local.market.rules import bucket_of


class Throttle:
    """Counts calls; `enabled` False lets everything through."""

    def __init__(self) -> None:
        self.enabled = True
        self._buckets: dict[tuple[str, str, str], tuple[float, datetime]] = {}

    def take(self, account: str, region: str, operation: str, now: datetime) -> None:
        """Take a token.

        Raises:
            MarketError: RequestLimitExceeded (503) when none is left.
        """
        if not self.enabled:
            return
        size, refill = bucket_of(operation)
        key = (account, region, operation)
        tokens, since = self._buckets.get(key, (size, now))
        tokens = min(size, tokens + max(0.0, (now - since).total_seconds()) * refill)
        if tokens < 1:
            self._buckets[key] = (tokens, now)
            raise MarketError("RequestLimitExceeded", "Request limit exceeded.", 503)
        self._buckets[key] = (tokens - 1, now)
