"""The one place where the command reads the clock."""

import json
import os
from datetime import UTC, datetime
from urllib.parse import urlsplit

from blockkeeper.domain.instants import parse_instant


def now() -> datetime:
    """This moment, aware UTC: this machine's, which AWS holds to within minutes of its own by its signatures.

    The local AWS has a time of its own, which runs faster or is set; it is asked.
    """
    endpoint = os.environ.get("AWS_ENDPOINT_URL", "")
    if urlsplit(endpoint).hostname in {"127.0.0.1", "localhost"}:
        return _local(endpoint) or datetime.now(UTC)
    return datetime.now(UTC)


def _local(endpoint: str) -> datetime | None:
    """The local AWS's time; None for another emulator, which has none."""
    import urllib3

    try:
        answer = urllib3.PoolManager(retries=False, timeout=2).request(
            "GET", f"{endpoint.rstrip('/')}/_blockkeeper/clock"
        )
        return parse_instant(json.loads(answer.data)["now"])
    except (urllib3.exceptions.HTTPError, ValueError, KeyError, TypeError):
        return None
