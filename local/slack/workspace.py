"""The workspace: the Web API that Blockkeeper calls, and people who press buttons.

Source: docs.slack.dev, the pages of the methods and "Interaction payloads". Refuses what Slack refuses: wrong tokens, other
channels, messages that are not there, what is over the limits, forms for a trigger that is used or older than three seconds.
"""

import hashlib
import hmac
import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from urllib.parse import urlencode

from .limits import LONGEST_MESSAGE, LONGEST_TEXT, block_problems, view_problems

Json = dict[str, Any]
# No secrets: they open nothing but this.
BOT_TOKEN = "xoxb-111111111111-local-bot-token"  # noqa: S105
SIGNING_SECRET = "0123456789abcdef0123456789abcdef"  # noqa: S105
TEAM, APP, CHANNEL = "T0LOCAL01", "A0LOCAL01", "C0LOCAL01"
PEOPLE = {"U0MARIA01": "Maria", "U0JOHN001": "Jo", "U0INTERN1": "Intern"}
_TRIGGER_LIVES_SECONDS = 3.0
Deliver = Callable[[Mapping[str, str], str], tuple[int, str]]


class LostAnswer(Exception):  # noqa: N818 - it is no error of the caller's
    """The call was carried out, and its answer is to be lost."""


class OtherAnswer(Exception):  # noqa: N818
    """Something else is answered than Slack's JSON."""

    def __init__(self, status: int, headers: Mapping[str, str], body: str) -> None:
        super().__init__(status)
        self.status, self.headers, self.body = status, dict(headers), body


class _RefusedError(Exception):
    """Slack's own word for why not."""


@dataclass
class Message:
    """What stands in the channel."""

    ts: str
    text: str
    blocks: list[Json]
    thread_ts: str | None = None
    broadcast: bool = False
    edits: int = 0
    deleted: bool = False

    def buttons(self) -> list[Json]:
        return [each for block in self.blocks if block["type"] == "actions" for each in block["elements"]]

    def words(self) -> str:
        """All that is read on it, line by line."""
        return "\n".join(_words(self.blocks))


@dataclass(frozen=True)
class Pressed:
    """What Blockkeeper answered to a click, and what the person saw."""

    status: int
    body: str
    private: list[str]
    form: Json | None


@dataclass
class _Trigger:
    user: str
    at: float
    used: bool = False


def secret(api_url: str, token: str = BOT_TOKEN, signing_secret: str = SIGNING_SECRET) -> str:
    """What the secret SlackSecretName holds for this workspace."""
    return json.dumps({"bot_token": token, "signing_secret": signing_secret, "api_url": api_url})


@dataclass
class Workspace:
    """One workspace. `deliver` posts a click to Blockkeeper: (headers, body) -> (status, body)."""

    now: Callable[[], datetime]
    """The clock of what is signed and posted."""
    deliver: Deliver | None = None
    token: str = BOT_TOKEN
    signing_secret: str = SIGNING_SECRET
    people: dict[str, str] = field(default_factory=lambda: dict(PEOPLE))
    messages: list[Message] = field(default_factory=list)
    private: list[tuple[str, str]] = field(default_factory=list)
    """(user, text) of what only one person sees."""
    forms: dict[str, Json] = field(default_factory=dict)
    """By user, the form that is open."""
    calls: list[tuple[str, Json]] = field(default_factory=list)
    """Every call of the Web API that had the right token: (method, arguments)."""
    faults: list[Json] = field(default_factory=list)
    """What happens to the next calls: method, kind (an error's name, rate_limited, down or lost_answer), times."""
    stopwatch: Callable[[], float] | None = None
    """Seconds of people, who have three to open a form; None is `now`."""
    _triggers: dict[str, _Trigger] = field(default_factory=dict)
    _lock: threading.RLock = field(default_factory=threading.RLock)

    # --- the Web API ------------------------------------------------------------------------------------------------------

    def api(self, method: str, token: str | None, arguments: Json) -> Json:
        """Carry out one method.

        Raises:
            LostAnswer, OtherAnswer: a fault that was ordered.
        """
        with self._lock:
            fault = self._fault(method)
            if fault == "rate_limited":
                raise OtherAnswer(429, {"Retry-After": "30"}, json.dumps({"ok": False, "error": "ratelimited"}))
            if fault == "down":
                raise OtherAnswer(503, {"Content-Type": "text/html"}, "<html>Slack is having a moment</html>")
            if fault not in (None, "lost_answer"):
                return {"ok": False, "error": fault}
            if token != self.token:
                return {"ok": False, "error": "invalid_auth" if token else "not_authed"}
            self.calls.append((method, arguments))
            try:
                answer = {"ok": True, **self._method(method)(arguments)}
            except _RefusedError as error:
                return {"ok": False, "error": str(error)}
            if fault == "lost_answer":
                raise LostAnswer
            return answer

    def fail(self, method: str, kind: str, times: int = 1) -> None:
        """Let the next calls of a method fail."""
        self.faults.append({"method": method, "kind": kind, "times": times})

    # --- what people do ---------------------------------------------------------------------------------------------------

    def press(
        self,
        user: str,
        action_id: str,
        ts: str | None = None,
        *,
        team: str = TEAM,
        home: str | None = None,
        value: str | None = None,
        retry: int | None = None,
    ) -> Pressed:
        """Press a button, of the newest message that has it unless `ts` says which.

        Args:
            team: the workspace whose installation of the app sends the click.
            home: the person's own workspace, if it is another.
            value: what the button carries, where no message has it any more.
        """
        payload = self.click(user, action_id, ts, team=team, home=home, value=value)
        return self._answered(user, *self.sign_and_send(payload, retry=retry))

    def click(
        self,
        user: str,
        action_id: str,
        ts: str | None = None,
        *,
        team: str = TEAM,
        home: str | None = None,
        value: str | None = None,
    ) -> Json:
        """The payload of a click (block_actions)."""
        with self._lock:
            message = self._message_with(action_id, ts, value)
            button = next((each for each in message.buttons() if each["action_id"] == action_id), {"value": value})
            trigger = f"{len(self._triggers) + 1}.{message.ts}.trigger"
            self._triggers[trigger] = _Trigger(user, self._seconds())
            return {
                "type": "block_actions",
                "api_app_id": APP,
                "team": {"id": team, "domain": "local"},
                "enterprise": None,
                "is_enterprise_install": False,
                "user": self._user(user, home or team),
                "container": {
                    "type": "message",
                    "message_ts": message.ts,
                    "channel_id": CHANNEL,
                    "is_ephemeral": False,
                },
                "channel": {"id": CHANNEL, "name": "gpu-blocks"},
                "trigger_id": trigger,
                "message": {"ts": message.ts, "text": message.text, "blocks": message.blocks},
                "state": {"values": {}},
                "response_url": f"https://hooks.slack.com/actions/{TEAM}/1/{message.ts}",
                "actions": [
                    {
                        "type": "button",
                        "action_id": action_id,
                        "block_id": "answers",
                        "value": value or button["value"],
                        "action_ts": self._stamp(),
                    }
                ],
            }

    def submit(self, user: str, reason: str | None = None, *, team: str = TEAM, home: str | None = None) -> Pressed:
        """Send the form that is open for a person, with a reason; arguments as of `press`."""
        view = self.forms[user]
        payload = {
            "type": "view_submission",
            "api_app_id": APP,
            "team": {"id": home or team, "domain": "local"},
            "user": self._user(user, home or team),
            "view": {
                **{name: view[name] for name in ("type", "callback_id", "private_metadata", "blocks")},
                "id": "V0LOCAL01",
                "app_installed_team_id": team,
                "state": {"values": {"reason": {"reason": {"type": "plain_text_input", "value": reason}}}},
            },
            "response_urls": [],
        }
        status, body = self.sign_and_send(payload)
        with self._lock:
            answer = json.loads(body) if body else {}
            self.forms.pop(user, None)
            if answer.get("response_action") == "update":
                problems = view_problems(answer["view"])
                if problems:
                    raise AssertionError(f"Slack would refuse the form: {problems}")
                self.forms[user] = answer["view"]
        return self._answered(user, status, body)

    def sign_and_send(self, payload: Json, *, retry: int | None = None) -> tuple[int, str]:
        """Post a payload as Slack does, signed."""
        body = urlencode({"payload": json.dumps(payload, ensure_ascii=False)})
        headers = self.signed_headers(body)
        if retry is not None:
            headers |= {"X-Slack-Retry-Num": str(retry), "X-Slack-Retry-Reason": "http_timeout"}
        if self.deliver is None:
            raise RuntimeError("nobody has said where clicks go")
        return self.deliver(headers, body)

    def signed_headers(self, body: str, at: datetime | None = None) -> dict[str, str]:
        """What Slack sends beside a body, as of now or another moment."""
        timestamp = str(int((at or self.now()).timestamp()))
        signed = hmac.new(self.signing_secret.encode(), f"v0:{timestamp}:{body}".encode(), hashlib.sha256).hexdigest()
        return {
            "Content-Type": "application/x-www-form-urlencoded",
            "User-Agent": "Slackbot 1.0 (+https://api.slack.com/robots)",
            "X-Slack-Request-Timestamp": timestamp,
            "X-Slack-Signature": f"v0={signed}",
        }

    # --- what there is ----------------------------------------------------------------------------------------------------

    def standing(self) -> list[Message]:
        """What is not deleted."""
        return [message for message in self.messages if not message.deleted]

    def told(self, user: str) -> list[str]:
        """What only this person has read."""
        return [text for reader, text in self.private if reader == user]

    def state(self) -> Json:
        """Everything, as JSON."""
        with self._lock:
            return {
                "messages": [{**vars(message), "words": message.words()} for message in self.messages],
                "private": [{"user": user, "text": text} for user, text in self.private],
                "forms": self.forms,
                "people": self.people,
                "faults": self.faults,
            }

    # --- inside -----------------------------------------------------------------------------------------------------------

    def _method(self, method: str) -> Callable[[Json], Json]:
        known = {
            "auth.test": self._auth_test,
            "chat.delete": self._delete,
            "chat.postEphemeral": self._post_ephemeral,
            "chat.postMessage": self._post,
            "chat.update": self._update,
            "views.open": self._open,
        }
        if method not in known:
            raise _RefusedError("unknown_method")
        return known[method]

    def _auth_test(self, _: Json) -> Json:
        return {
            "team_id": TEAM,
            "team": "local",
            "user_id": "U0BOT0001",
            "bot_id": "B0LOCAL01",
            "url": "https://local.slack.com/",
        }

    def _post(self, given: Json) -> Json:
        self._check_message(given)
        thread = given.get("thread_ts")
        if thread is not None:
            self._found(given)(thread)
        message = Message(
            self._stamp(), given["text"], given["blocks"], thread, bool(thread and given.get("reply_broadcast"))
        )
        self.messages.append(message)
        return {"channel": CHANNEL, "ts": message.ts}

    def _update(self, given: Json) -> Json:
        self._check_message(given)
        message = self._found(given)(given.get("ts"))
        message.text, message.blocks, message.edits = given["text"], given["blocks"], message.edits + 1
        return {"channel": CHANNEL, "ts": message.ts, "text": message.text}

    def _delete(self, given: Json) -> Json:
        message = self._found(given)(given.get("ts"))
        message.deleted = True
        return {"channel": CHANNEL, "ts": message.ts}

    def _post_ephemeral(self, given: Json) -> Json:
        if given.get("channel") != CHANNEL:
            raise _RefusedError("channel_not_found")
        if given.get("user") not in self.people:
            raise _RefusedError("user_not_in_channel")
        if not given.get("text"):
            raise _RefusedError("no_text")
        self.private.append((given["user"], given["text"]))
        return {"message_ts": self._stamp()}

    def _open(self, given: Json) -> Json:
        trigger = self._triggers.get(given.get("trigger_id", ""))
        if trigger is None:
            raise _RefusedError("invalid_trigger_id")
        if trigger.used:
            raise _RefusedError("exchanged_trigger_id")
        if self._seconds() - trigger.at > _TRIGGER_LIVES_SECONDS:
            raise _RefusedError("expired_trigger_id")
        if view_problems(given["view"]):
            raise _RefusedError("invalid_arguments")
        trigger.used = True
        self.forms[trigger.user] = given["view"]
        return {"view": {"id": "V0LOCAL01"}}

    def _check_message(self, given: Json) -> None:
        if given.get("channel") != CHANNEL:
            raise _RefusedError("channel_not_found")
        if not given.get("text"):
            raise _RefusedError("no_text")
        if len(given["text"]) > LONGEST_TEXT:
            raise _RefusedError("msg_too_long")
        if block_problems(given.get("blocks")):
            raise _RefusedError("invalid_blocks")
        if len(json.dumps(given["blocks"], ensure_ascii=False)) > LONGEST_MESSAGE:
            raise _RefusedError("msg_blocks_too_long")

    def _found(self, given: Json) -> Callable[[str | None], Message]:
        if given.get("channel") != CHANNEL:
            raise _RefusedError("channel_not_found")

        def find(ts: str | None) -> Message:
            found = next((message for message in self.standing() if message.ts == ts), None)
            if found is None:
                raise _RefusedError("message_not_found")
            return found

        return find

    def _message_with(self, action_id: str, ts: str | None, value: str | None) -> Message:
        if ts is not None:
            return next(message for message in self.messages if message.ts == ts)
        for message in reversed(self.standing()):
            if any(each["action_id"] == action_id for each in message.buttons()):
                return message
        if value is not None and self.messages:
            return self.messages[0]
        raise LookupError(f"no message has a button {action_id}")

    def _answered(self, user: str, status: int, body: str) -> Pressed:
        return Pressed(status, body, self.told(user), self.forms.get(user))

    def _user(self, user: str, team: str) -> Json:
        name = self.people.get(user, user).lower()
        return {"id": user, "username": name, "name": name, "team_id": team}

    def _fault(self, method: str) -> str | None:
        for fault in self.faults:
            if fault["method"] in (method, "*") and fault["times"] > 0:
                fault["times"] -= 1
                return str(fault["kind"])
        return None

    def _seconds(self) -> float:
        return self.now().timestamp() if self.stopwatch is None else self.stopwatch()

    def _stamp(self) -> str:
        return f"{int(self.now().timestamp())}.{len(self.messages) + len(self.private) + 1:06d}"


def _words(value: Any) -> list[str]:
    if isinstance(value, list):
        return [word for each in value for word in _words(each)]
    if not isinstance(value, dict):
        return []
    if value.get("type") in ("mrkdwn", "plain_text"):
        return [value["text"]]
    return [word for name in ("text", "fields", "elements") for word in _words(value.get(name))]
