"""Keeps what stands in the Slack channel equal to what is in the table: one message per request, and one notice per outcome.

`show` is level-triggered: it reads the request and makes its message say how it stands, posting one when there is none. So it
may run after any event, twice and in any order. Channel and timestamp of the message (Slack's id of it) are kept with the
request. When Slack's answer to a post is lost, asking again posts a second message, since Slack knows no idempotency key and
reading the channel would need a scope that shows us what people write; both carry the same request id, the first answer counts,
and the other message's buttons say so.
"""

import json
from datetime import datetime
from hashlib import sha256
from typing import Any

from blockkeeper.aws import slack
from blockkeeper.aws.table import (
    ConditionFailedError,
    delete_request,
    get_item,
    put_request,
    update_request,
    write,
)
from blockkeeper.domain.approval import ApprovalStatus, request_from
from blockkeeper.domain.slack_message import SlackMessage, question, reminder

KIND, NOTICE = "approval", "slack-notice"
_ATTEMPTS = 5


def show(approval_id: str, now: datetime) -> None:
    """Make the request's message say how it stands. Nothing is posted for one that has ended unseen.

    Args:
        now: tells whether a second list of approvers is asked by then.

    Raises:
        SlackRefusedError, SlackBusyError: the message is not as it should be; calling again may help.
    """
    channel, shown = slack.channel(), None
    for _ in range(_ATTEMPTS):
        item = get_item(KIND, approval_id)
        if channel is None or item is None:
            return
        request = request_from({**item, "approval_id": approval_id})
        message = question(request, now, dry_run=bool(item.get("dry_run")), outcome=item.get("slack_outcome"))
        if shown is None and item.get("slack_shown") == _fingerprint(message):
            return
        if message == shown:
            write(update_request(KIND, approval_id, set_={"slack_shown": _fingerprint(message)}))
            return
        if "slack_ts" in item:
            where = {"channel": item["slack_channel"], "ts": item["slack_ts"]}
            slack.call("chat.update", {**where, **_content(message)})
        elif request.status is ApprovalStatus.OPEN:
            if request.slack_team is None:
                # Before the message: whoever presses a button must be known by then, even if we stop here.
                write(update_request(KIND, approval_id, set_={"slack_team": slack.home_team()}))
                continue
            _post(approval_id, channel, message)
        else:
            return
        # Look again: an answer that came meanwhile must not leave buttons behind, whoever updates last.
        shown = message


def remind(approval_id: str, mark: str, now: datetime, invocation: str) -> bool:
    """Mention those in Slack who have not answered, once per mark; answers whether this call has.

    Args:
        mark: the reminder's or escalation's moment, ISO 8601.

    Raises:
        SlackRefusedError, SlackBusyError: as of `tell_once`.
    """
    item = get_item(KIND, approval_id)
    message = None if item is None else reminder(request_from({**item, "approval_id": approval_id}), now)
    if message is None:
        return False
    return tell_once(f"{approval_id}#{mark}", message, invocation, approval_id)


def note_outcome(approval_id: str, outcome: str, *, final: bool) -> None:
    """Keep what became of an approved request, for its message; a final word stays."""
    condition = "attribute_exists(#status)" + ("" if final else " AND attribute_not_exists(#slack_outcome)")
    try:
        write(update_request(KIND, approval_id, set_={"slack_outcome": outcome}, condition=condition))
    except ConditionFailedError:
        return


def tell_once(key: str, message: SlackMessage, invocation: str, approval_id: str | None) -> bool:
    """Post a notice unless it was posted; answers whether this call has.

    Args:
        key: what it is about; one notice per key.
        invocation: id of the function's invocation, which is the same when Lambda tries it again.
        approval_id: the request that it belongs to: it goes into that message's thread, and into the channel as well.

    Raises:
        SlackRefusedError: it cannot be posted.
        SlackBusyError: not now, or another invocation is at it.
    """
    channel = slack.channel()
    free = "attribute_not_exists(id) OR (attribute_not_exists(#slack_ts) AND #claimed_by = :me)"
    try:
        write(put_request(NOTICE, key, {"claimed_by": invocation}, free, {":me": invocation}))
    except ConditionFailedError:
        if "slack_ts" in (get_item(NOTICE, key) or {}):
            return False
        raise slack.SlackBusyError(f"the notice {key} is being posted by another invocation") from None
    item = (get_item(KIND, approval_id) if approval_id else None) or {}
    thread = {"thread_ts": item["slack_ts"], "reply_broadcast": True} if item.get("slack_channel") == channel else {}
    try:
        posted = slack.call("chat.postMessage", {"channel": channel, **_content(message), **thread})
    except (slack.SlackRefusedError, slack.SlackBusyError):
        write(delete_request(NOTICE, key))
        raise
    write(update_request(NOTICE, key, set_={"slack_ts": posted["ts"]}))
    return True


def _post(approval_id: str, channel: str, message: SlackMessage) -> None:
    posted = slack.call("chat.postMessage", {"channel": channel, **_content(message)})
    where = {"slack_channel": posted["channel"], "slack_ts": posted["ts"]}
    try:
        write(update_request(KIND, approval_id, set_=where, condition="attribute_not_exists(#slack_ts)"))
    except ConditionFailedError:
        # Somebody else has asked at the same moment; one question is enough.
        slack.call("chat.delete", {"channel": posted["channel"], "ts": posted["ts"]})


def _fingerprint(message: SlackMessage) -> str:
    """What tells one content from another, so that a message that says the right thing already is left alone."""
    return sha256(json.dumps(_content(message), sort_keys=True).encode()).hexdigest()


def _content(message: SlackMessage) -> dict[str, Any]:
    return {"text": message.text, "blocks": list(message.blocks), "unfurl_links": False, "unfurl_media": False}
