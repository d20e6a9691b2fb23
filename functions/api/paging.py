"""Pages of a list: `?limit=` and `?cursor=`. The answer stays a plain array; the way on stands in headers."""

import base64
import binascii
from collections.abc import Iterable
from itertools import islice
from typing import Any
from urllib.parse import urlencode

from api.http import RefusedError, Request, invalid
from blockkeeper.domain.problem import Problem

MOST_IN_A_PAGE = 1000


def asked_limit(request: Request) -> int | None:
    """`?limit=`; None when the whole list is wanted."""
    text = request.query.get("limit")
    if text is None:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) <= 4 and 1 <= int(text) <= MOST_IN_A_PAGE):  # noqa: PLR2004
        raise invalid([Problem("limit", "is not right", f"it is 1 to {MOST_IN_A_PAGE}", "write it as in ?limit=100")])
    return int(text)


def asked_start(request: Request) -> str | None:
    """The id behind which `?cursor=` starts; None at the beginning."""
    cursor = request.query.get("cursor")
    if cursor is None:
        return None
    try:
        start = base64.urlsafe_b64decode(cursor.encode("ascii") + b"=" * (-len(cursor) % 4)).decode()
    except (binascii.Error, ValueError):
        start = ""
    if not start or len(start) > 256 or not start.isprintable():  # noqa: PLR2004 - longer than any id
        raise RefusedError(
            400, "invalid_cursor", "cursor is none of ours; use the last answer's x-next-cursor, or leave it out"
        )
    return start


def page(request: Request, entries: Iterable[dict[str, Any]], key: str) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """The entries that this page holds, and the headers that lead to the next.

    Args:
        entries: from the start that was asked, lazily; one more than the limit is read to know whether there is a next page.
        key: the field that cursors are made of.
    """
    limit = asked_limit(request)
    if limit is None:
        return list(entries), {}
    taken = list(islice(entries, limit + 1))
    if len(taken) <= limit:
        return taken, {}
    shown = taken[:limit]
    cursor = base64.urlsafe_b64encode(shown[-1][key].encode()).decode().rstrip("=")
    # Relative to the request's own address, whatever stage or domain stands before it.
    link = urlencode({**request.query, "limit": limit, "cursor": cursor})
    return shown, {"x-next-cursor": cursor, "Link": f'<?{link}>; rel="next"'}
