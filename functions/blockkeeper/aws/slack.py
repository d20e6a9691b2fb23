"""Slack's Web API, and the secret that opens it.

The secret (parameter `SlackSecretName`) is JSON: `bot_token` and `signing_secret` of the app. It is read when Slack is first
needed and kept for some minutes, so that a rotated one counts soon. It may name another `api_url`: whoever writes the secret
decides anyway whom Blockkeeper believes to be Slack, so this gives nobody more power, while a stack parameter or an environment
variable would.
"""

import json
import os
import re
import time
from dataclasses import dataclass, field
from http.client import HTTPException
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from blockkeeper.aws.clients import client
from blockkeeper.telemetry import log

API_URL = "https://slack.com/api/"
TIMEOUT_SECONDS = 10
_KEPT_SECONDS = 300.0
# A forged signature makes us read the secret again at most this often.
_DOUBTED_SECONDS = 30.0
# A signing secret has 32 characters; an empty or short one would let anybody sign.
_SHORTEST = 16
_TOO_MANY, _SERVER_ERROR = 429, 500
# Slack's words for what passes by itself (docs.slack.dev, Web API methods, "Errors").
_PASSING = frozenset(
    {
        "fatal_error",
        "internal_error",
        "rate_limited",
        "ratelimited",
        "request_timeout",
        "service_unavailable",
        "team_added_to_org",
    }
)
_OTHER_TOKEN = frozenset({"account_inactive", "invalid_auth", "not_authed", "token_expired", "token_revoked"})
_SECRET_WILL_NOT_DO = frozenset(
    {"AccessDeniedException", "DecryptionFailure", "InvalidRequestException", "ResourceNotFoundException"}
)


class SlackRefusedError(Exception):
    """Slack, or its secret, will not do; trying again does not help until somebody mends it. The text holds no secret."""


class SlackBusyError(Exception):
    """Slack could not be reached, or asked us to wait; trying again later may help."""


@dataclass(frozen=True, slots=True)
class _Secret:
    bot_token: str = field(repr=False)
    signing_secret: str = field(repr=False)
    api_url: str
    read_at: float


_kept: list[_Secret] = []


def channel() -> str | None:
    """Where Blockkeeper speaks in Slack; None when it has no Slack.

    Raises:
        SlackRefusedError: only one of the two parameters is set.
    """
    found, secret = os.environ.get("SLACK_CHANNEL") or None, os.environ.get("SLACK_SECRET_NAME") or None
    if bool(found) != bool(secret):
        missing = "SlackSecretName" if found else "SlackChannel"
        raise SlackRefusedError(
            f"{missing} is not set; Slack needs SlackSecretName and SlackChannel (set both, or neither)"
        )
    return found


def is_configured() -> bool:
    """Whether this stack has Slack."""
    return bool(os.environ.get("SLACK_CHANNEL") and os.environ.get("SLACK_SECRET_NAME"))


def signing_secret(*, doubted: bool = False) -> str:
    """The app's signing secret.

    Args:
        doubted: a signature did not fit, perhaps since the secret was rotated: read it again unless that was just done.

    Raises:
        SlackRefusedError, SlackBusyError: it cannot be read.
    """
    return _secret(_DOUBTED_SECONDS if doubted else _KEPT_SECONDS).signing_secret


def home_team() -> str:
    """The workspace that installed the app (auth.test).

    Raises:
        SlackRefusedError, SlackBusyError: Slack does not say.
    """
    return str(call("auth.test", {})["team_id"])


def call(method: str, arguments: dict[str, Any], timeout: int = TIMEOUT_SECONDS) -> dict[str, Any]:
    """Call one method of the Web API, once: whoever calls decides whether a second message would do harm.

    Args:
        method: such as `chat.postMessage`.
        arguments: sent as JSON.
        timeout: in seconds.

    Raises:
        SlackRefusedError, SlackBusyError: it was not done; after a busy one it is not known whether it was.
    """
    # Here, not above: it takes a third of a second, which a click that needs no answer does without.
    from slack_sdk import WebClient
    from slack_sdk.errors import SlackApiError, SlackClientError

    secret = _secret(_KEPT_SECONDS)
    web = WebClient(secret.bot_token, base_url=secret.api_url, timeout=timeout, retry_handlers=[])
    try:
        answer = web.api_call(method, json=arguments)
    except SlackApiError as error:
        code, status = _refusal(error.response)
        # Without a word of Slack's it was something on the way that answered, such as a proxy's page.
        if not code or status == _TOO_MANY or status >= _SERVER_ERROR or code in _PASSING:
            raise SlackBusyError(f"{method}: {code or status}") from None
        if code in _OTHER_TOKEN:
            _kept.clear()
        raise SlackRefusedError(f"{method}: Slack answered {code} (docs/slack.md says what to do)") from None
    except (SlackClientError, HTTPException, OSError) as error:
        # `from None` here and above: what was sent, and the token with it, stays out of the log.
        raise SlackBusyError(f"{method}: {type(error).__name__}") from None
    found: dict[str, Any] = answer.data if isinstance(answer.data, dict) else {}
    return found


def whisper(where: str, user: str, text: str, timeout: int = TIMEOUT_SECONDS) -> None:
    """Tell one person something that the others in the channel do not see (chat.postEphemeral); a failure is only logged."""
    try:
        call("chat.postEphemeral", {"channel": where, "user": user, "text": text}, timeout)
    except (SlackRefusedError, SlackBusyError) as error:
        log.warning("a private answer did not reach its reader", extra={"error": str(error)})


def _refusal(response: Any) -> tuple[str, int]:
    """Slack's own word and the HTTP status; slack_sdk answers neither for a body that is no JSON."""
    data = getattr(response, "data", response)
    code = data.get("error") if isinstance(data, dict) else None
    return (
        code if isinstance(code, str) and re.fullmatch(r"[a-z_]{1,60}", code) else "",
        int(getattr(response, "status_code", 0) or 0),
    )


def _secret(longest: float) -> _Secret:
    """The secret, at most `longest` seconds old."""
    if _kept and time.monotonic() - _kept[0].read_at <= longest:
        return _kept[0]
    name = os.environ["SLACK_SECRET_NAME"]
    try:
        text = client("secretsmanager").get_secret_value(SecretId=name)["SecretString"]
    except ClientError as error:
        code = error.response["Error"]["Code"]
        if code in _SECRET_WILL_NOT_DO:
            raise SlackRefusedError(
                f"the secret SlackSecretName cannot be read: {code} (docs/slack.md, step 3)"
            ) from None
        raise SlackBusyError(f"the secret SlackSecretName cannot be read just now: {code}") from None
    except BotoCoreError as error:
        raise SlackBusyError(f"the secret SlackSecretName cannot be read just now: {type(error).__name__}") from None
    _kept[:] = [_parsed(text)]
    return _kept[0]


def _parsed(text: str) -> _Secret:
    try:
        given = json.loads(text)
        token, signing, url = given["bot_token"], given["signing_secret"], given.get("api_url", API_URL)
    except (KeyError, TypeError, ValueError, AttributeError):
        token = signing = url = None
    if not (
        isinstance(token, str) and token.startswith("xoxb-") and isinstance(signing, str) and len(signing) >= _SHORTEST
    ):
        # `from None`: a parser's error quotes what it could not read.
        raise SlackRefusedError(
            'the secret SlackSecretName must be {"bot_token": "xoxb-...", "signing_secret": "..."} (docs/slack.md, step 3)'
        ) from None
    if not isinstance(url, str) or not re.match(r"https://[^/]|http://127\.0\.0\.1[:/]", url):
        raise SlackRefusedError("api_url in the secret SlackSecretName is no https address (leave it out)")
    return _Secret(token, signing, url, time.monotonic())
