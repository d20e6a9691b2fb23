"""tell-slack: bring the request's message up to date, and post what became of a block. Target of the rule on our own events."""

from typing import Any

from blockkeeper.aws import slack
from blockkeeper.aws.slack_messages import note_outcome, remind, show, tell_once
from blockkeeper.domain.instants import parse_instant
from blockkeeper.domain.slack_notice import notice_key, notice_of, outcome_line
from blockkeeper.telemetry import handler, log


@handler
def lambda_handler(event: dict[str, Any], context: Any) -> dict[str, int]:
    """Answer ``{posted}``, how many notices this call has posted. After an error EventBridge and Lambda call again.

    Args:
        event: an EventBridge event of source `blockkeeper`.

    Raises:
        SlackRefusedError, SlackBusyError: the channel does not show it yet; in the end it lies in the dead-letter queue.
        KeyError, ValueError: the event cannot be told.
    """
    detail_type, detail = event["detail-type"], event["detail"]
    try:
        if slack.channel() is None:
            return {"posted": 0}
        approval_id = detail.get("approval_id")
        if approval_id:
            line = outcome_line(detail_type, detail)
            if line is not None:
                note_outcome(approval_id, line, final=detail_type != "Extension Purchased")
            now = parse_instant(detail["now"])
            show(approval_id, now)
            if "reminder" in detail:
                posted = remind(approval_id, detail["reminder"], now, context.aws_request_id)
                return {"posted": int(posted)}
        message = notice_of(detail_type, detail)
        if message is None:
            return {"posted": 0}
        posted = tell_once(notice_key(detail_type, detail), message, context.aws_request_id, approval_id)
        return {"posted": int(posted)}
    except (slack.SlackRefusedError, slack.SlackBusyError) as error:
        # No metric: what fails to the end lies in LostEvents, which has its alarm.
        log.error("Slack does not show it yet", extra={"event": detail_type, "error": str(error)})
        raise
