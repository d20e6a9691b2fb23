"""slack-interactions: what Slack posts when somebody presses a button of a question, or sends the form with a reason.

Slack waits three seconds. Within them stands one conditional write, the only thing that decides (`aws.approvals.decide`); the
message is updated by tell-slack, which our own event starts. Whoever may not answer, or answers too late, is told so in
private. Every call of Slack is answered alike however often it comes: a second one finds the request decided (case B06).
"""

import json
from datetime import UTC, datetime
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from blockkeeper.aws import slack
from blockkeeper.aws.approvals import TooManyAnswersError, decide, load_request
from blockkeeper.domain.approval import Answer, ApprovalRequest, Decided, Decision, Delivery, vote
from blockkeeper.domain.slack_message import private_answer, reject_form, said_in_form
from blockkeeper.telemetry import count, handler, log
from slack_interactions.payload import Click, NotFromSlackError, UnreadablePayloadError, read_click

# Of Slack's three seconds, for the one call to Slack that an answer may need.
_SLACK_SECONDS = 2
_NOT_KNOWN = (
    "Blockkeeper could not write that down in time. The message shows what counts: if it still has its buttons in a minute, "
    "please answer again."
)
_NO_FORM = "Slack did not open the form; nothing was decided. Please press Reject again."
Response = dict[str, Any]


@handler
def lambda_handler(event: dict[str, Any], _context: Any) -> Response:
    """Answer an event of API Gateway's REST API (POST /slack/interactions).

    200, empty or with what the form shows next; 401 for what Slack did not sign; 400 for what no message of ours can send; 404
    without Slack; 503 while the signing secret cannot be read.
    """
    now = datetime.fromtimestamp(event["requestContext"]["requestTimeEpoch"] // 1000, UTC)
    try:
        if slack.channel() is None:
            return _answer(404)
        click = read_click(event, now)
    except NotFromSlackError:
        log.warning("a request is not signed by Slack, or too old")
        return _answer(401)
    except UnreadablePayloadError as error:
        log.warning("a payload of Slack cannot be read", extra={"problem": str(error)})
        return _answer(400)
    except (slack.SlackRefusedError, slack.SlackBusyError) as error:
        log.error("Slack cannot be believed", extra={"error": str(error)})
        count("SlackFailed")
        return _answer(503)
    try:
        said = _open_form(click, now) if click.action == "reject" else _decide(click, now)
    except (ClientError, BotoCoreError, TooManyAnswersError) as error:
        log.error("an answer from Slack was not recorded", extra={"error": type(error).__name__})
        said = _NOT_KNOWN
    if said is None:
        return _answer(200)
    if click.action == "form":
        view = said_in_form(said)
        return _answer(200, {"response_action": "update", "view": view})
    slack.whisper(click.channel, click.user, said, _SLACK_SECONDS)
    return _answer(200)


def _decide(click: Click, now: datetime) -> str | None:
    """Record the vote; answers what to tell the person, None when the message itself shows it."""
    stopped = _stopped(click, load_request(click.approval_id))
    if stopped is not None:
        return stopped
    decision = Decision.REJECT if click.action == "form" else Decision.APPROVE
    decided = decide(click.approval_id, decision, click.who, click.reason, now)
    if decided.answer is Answer.NOT_AN_APPROVER:
        _log_stranger(click)
    delivered = decided.request is not None and decided.request.delivery is Delivery.DELIVERED
    return None if decided.answer is Answer.RECORDED and delivered else private_answer(decided)


def _open_form(click: Click, now: datetime) -> str | None:
    """Ask for a reason; nothing is decided by it. Whoever may not answer gets no form."""
    request = load_request(click.approval_id)
    stopped = _stopped(click, request)
    if stopped is not None or request is None:
        return stopped or private_answer(Decided(Answer.NO_SUCH_REQUEST, None))
    refused = vote(request, click.who, Decision.REJECT, None, now)
    if isinstance(refused, Answer):
        if refused is Answer.NOT_AN_APPROVER:
            _log_stranger(click)
        return private_answer(Decided(refused, request))
    form = {"trigger_id": click.trigger_id, "view": reject_form(request)}
    try:
        slack.call("views.open", form, _SLACK_SECONDS)
    except (slack.SlackRefusedError, slack.SlackBusyError) as error:
        log.warning("the form was not opened", extra={"error": str(error)})
        return _NO_FORM
    return None


def _stopped(click: Click, request: ApprovalRequest | None) -> str | None:
    """What to say when the click came through another installation of the app than the one that asked (case B21)."""
    if request is None or click.team is None or click.team == request.slack_team:
        return None
    _log_stranger(click)
    return private_answer(Decided(Answer.NOT_AN_APPROVER, request))


def _log_stranger(click: Click) -> None:
    log.warning(
        "somebody who is no approver pressed a button", extra={"approval_id": click.approval_id, "who": click.who}
    )


def _answer(status: int, body: dict[str, Any] | None = None) -> Response:
    headers = {"Content-Type": "application/json", "Cache-Control": "no-store"}
    return {"statusCode": status, "headers": headers, "body": "" if body is None else json.dumps(body)}
