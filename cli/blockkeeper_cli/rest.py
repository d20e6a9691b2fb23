"""The REST API as a client sees it. The key is sent to the API alone, and appears in no message.

urllib3 comes with botocore; it is imported when it is needed, since help and completion need it not.
"""

from __future__ import annotations

import ipaddress
import json
import os
import re
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode, urlsplit

from blockkeeper_cli.errors import CommandError, UnreachableError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import urllib3

PAGE_SIZE = 500
_AWS_HOST = re.compile(r"(?P<id>[a-z0-9]+)\.execute-api\.[a-z0-9-]+\.amazonaws\.com(\.cn)?")

# What the API tells its clients to call, as a person calls it; the longer paths first.
_COMMANDS = (
    (r"GET /openapi\.json", "schemas/environment.schema.json"),
    (r"GET /approvals\?status=OPEN", "`blockkeeper approvals`"),
    (r"GET /approvals", "`blockkeeper approvals --all`"),
    (r"POST /approvals/\{id\}/approve", "`blockkeeper approve ID`"),
    (r"GET /(?=[ ,;.)]|$)", "`blockkeeper status`"),
    (r"PUT /[^\s,;)]+", "`blockkeeper enrol FILE --update`"),
)

Record = dict[str, Any]


class ApiError(CommandError):
    """The API refused a request. `status` is the HTTP status, `code` the API's short word."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code = status, code


class Api:
    """One API.

    Args:
        url: base URL, stage included.
        key: API key.
    """

    def __init__(self, url: str, key: str) -> None:
        self.url = _reachable(url.rstrip("/"))
        self._key = key
        self._pool = _pool(self.url)

    def call(self, method: str, path: str, body: Any = None, **query: str | int) -> Any:
        """One request; answers the JSON of a success.

        Args:
            path: from the base, quoted already where it needs it.

        Raises:
            ApiError: the API refused.
            UnreachableError: it did not answer.
        """
        return self._send(method, path, body, query)[0]

    def pages(self, path: str, **query: str | int) -> Iterator[Record]:
        """Every entry of a list, page by page."""
        wanted: dict[str, str | int] = {**query, "limit": PAGE_SIZE}
        while True:
            entries, cursor = self._send("GET", path, None, wanted)
            yield from entries
            if cursor is None:
                return
            wanted["cursor"] = cursor

    def _send(self, method: str, path: str, body: Any, query: dict[str, str | int]) -> tuple[Any, str | None]:
        from urllib3.exceptions import HTTPError

        url = self.url + path + (f"?{urlencode(query)}" if query else "")
        headers = {"x-api-key": self._key, "accept": "application/json"}
        if body is not None:
            headers["content-type"] = "application/json"
        content = None if body is None else json.dumps(body).encode()
        try:
            answer = self._pool.request(method, url, body=content, headers=headers, redirect=False)
        except HTTPError as error:
            unsure = "" if method == "GET" else "; it may have been taken, so read before you repeat it"
            # The kind of the error only: its text can show the request.
            kind = type(getattr(error, "reason", None) or error).__name__
            raise UnreachableError(f"the API at {self.url} does not answer ({kind}){unsure}") from None
        try:
            parsed = json.loads(answer.data)
        except ValueError:
            parsed = None
        if not 200 <= answer.status < 300:  # noqa: PLR2004 - HTTP's successes
            raise _refusal(answer.status, parsed, self.url)
        if parsed is None:
            raise CommandError(f"{self.url} answers no JSON; is it Blockkeeper's API? (see the parameter apiUrl)")
        return parsed, answer.headers.get("x-next-cursor")


def segment(text: str) -> str:
    """Text as one segment of a path."""
    return quote(text, safe="")


def _refusal(status: int, parsed: Any, url: str) -> CommandError:
    error = parsed.get("error") if isinstance(parsed, dict) else None
    if isinstance(error, dict) and "message" in error:
        return ApiError(status, str(error.get("code")), as_commands(_lines(error)))
    if status == 403:  # noqa: PLR2004 - API Gateway's word for a key that it does not know, or a path
        return ApiError(
            403, "forbidden", f"the API at {url} does not accept its key; did the secret change? deploy again"
        )
    if status == 429:  # noqa: PLR2004 - too many requests
        return ApiError(429, "throttled", "the API is called too often; wait a minute and repeat")
    kind: type[CommandError] = UnreachableError if status >= 500 else CommandError  # noqa: PLR2004 - server errors
    return kind(f"the API at {url} answers HTTP {status}; see the stack's logs")


def _lines(error: Record) -> str:
    """The message; of several faults a line each, since people mend them one by one."""
    faults = dict.fromkeys(str(detail.get("message")) for detail in error.get("details") or [])
    return str(error["message"]) if len(faults) < 2 else "\n  ".join([f"{len(faults)} faults:", *faults])  # noqa: PLR2004 - several


def as_commands(message: str) -> str:
    """The API's words with our commands in place of its requests, which are for programs."""
    for request, command in _COMMANDS:
        message = re.sub(request, command, message)
    return message


def _reachable(url: str) -> str:
    """The address to use: a local AWS serves its APIs below its own endpoint.

    Raises:
        CommandError: the key would travel unencrypted beyond this machine.
    """
    endpoint, split = os.environ.get("AWS_ENDPOINT_URL"), urlsplit(url)
    local = _AWS_HOST.fullmatch(split.hostname or "")
    if endpoint and local:
        return f"{endpoint.rstrip('/')}/_aws/execute-api/{local['id']}{split.path}"
    if split.scheme != "https" and not (split.scheme == "http" and _loopback(split.hostname)):
        raise CommandError(f"{url} is not https; the API's key is not sent over it (mend the parameter apiUrl)")
    return url


def _loopback(host: str | None) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host or "").is_loopback
    except ValueError:
        return False


def _pool(url: str) -> urllib3.PoolManager:
    from urllib.request import getproxies, proxy_bypass

    import urllib3
    from botocore.httpsession import get_cert_path

    # Only reads are repeated: an answer to an approval that was lost may have been taken.
    retries = urllib3.Retry(
        3,
        allowed_methods={"GET"},
        status_forcelist={429, 502, 503, 504},
        backoff_factor=0.3,
        redirect=False,
        raise_on_status=False,
    )
    settings: dict[str, Any] = {
        "ca_certs": os.environ.get("AWS_CA_BUNDLE") or get_cert_path(True),
        "retries": retries,
        "timeout": urllib3.Timeout(connect=5, read=30),
    }
    split = urlsplit(url)
    proxy = getproxies().get(split.scheme)
    if proxy and not _loopback(split.hostname) and not proxy_bypass(split.netloc):
        return urllib3.ProxyManager(proxy, **settings)
    return urllib3.PoolManager(**settings)
