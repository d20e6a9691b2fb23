"""Reads what Slack posts: the signature over the raw bytes first, then the payload against its schema."""

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import parse_qsl

from blockkeeper.aws import slack
from blockkeeper.domain.slack_person import slack_caller
from blockkeeper.domain.slack_signature import is_from_slack
from blockkeeper.schema_check import schema_problems

_MOST_FIELDS = 5


class NotFromSlackError(Exception):
    """The request is not signed as Slack signs, or too old: nothing of it was read."""


class UnreadablePayloadError(Exception):
    """Slack's signature is right, but the payload is none that our messages can cause; nothing was changed."""


@dataclass(frozen=True, slots=True)
class Click:
    """A button pressed, or the form sent.

    Attributes:
        who: `slack:<team>:<user>`, or None when it came through another installation of the app than the one that asked.
        action: `approve`, `reject`, or `form` for the filled-in form of a rejection.
    """

    action: str
    approval_id: str
    team: str | None
    who: str
    user: str
    channel: str
    trigger_id: str
    reason: str | None


def read_click(event: Mapping[str, Any], now: datetime) -> Click:
    """Check and read one request.

    Raises:
        NotFromSlackError: the signature is missing, wrong or too old.
        UnreadablePayloadError: it is signed, and still not what we expect.
        SlackRefusedError, SlackBusyError: the signing secret cannot be read.
    """
    body = _raw_body(event)
    headers = {name.lower(): value for name, value in (event.get("headers") or {}).items()}
    signed = (headers.get("x-slack-request-timestamp"), headers.get("x-slack-signature"))
    if body is None or not (
        is_from_slack(slack.signing_secret(), *signed, body, now)
        or is_from_slack(slack.signing_secret(doubted=True), *signed, body, now)
    ):
        raise NotFromSlackError
    return _click(_payload(body))


def _raw_body(event: Mapping[str, Any]) -> bytes | None:
    """The bytes as Slack sent them (case B05); None when the gateway's base64 is none."""
    body = event.get("body") or ""
    if not event.get("isBase64Encoded"):
        return bytes(body, "utf-8", "surrogatepass")
    try:
        return base64.b64decode(body, validate=True)
    except (binascii.Error, ValueError):
        return None


def _payload(body: bytes) -> dict[str, Any]:
    """What is raised here holds nothing of what was sent: it can have a person's words or a form's key in it."""
    try:
        fields = parse_qsl(body.decode(), strict_parsing=True, max_num_fields=_MOST_FIELDS, errors="strict")
        (payload,) = [value for name, value in fields if name == "payload"]
        given = json.loads(payload)
    except (ValueError, RecursionError):
        raise UnreadablePayloadError("the body is no form with one payload in JSON") from None
    problems = schema_problems("slack-interaction", given)
    if problems:
        raise UnreadablePayloadError(f"not as expected: {', '.join(problem.field for problem in problems)}")
    return dict(given)


def _click(payload: Mapping[str, Any]) -> Click:
    user, team = payload["user"], (payload.get("team") or {}).get("id")
    # The person's own workspace: in a channel that is shared between companies it is not the app's.
    who = slack_caller(user.get("team_id") or team or "", user["id"])
    if payload["type"] == "view_submission":
        view = payload["view"]
        # A form that was opened from a shared channel comes with the person's workspace as team (as bolt-python reads it).
        team = view.get("app_installed_team_id") or team
        reason = (view["state"]["values"]["reason"]["reason"].get("value") or "").replace("\r\n", "\n").strip()
        return Click("form", view["private_metadata"], team, who, user["id"], "", "", reason or None)
    pressed = payload["actions"][0]
    where = payload["channel"]["id"]
    return Click(pressed["action_id"], pressed["value"], team, who, user["id"], where, payload["trigger_id"], None)
