"""tell-people: mail a block's approvers what became of it, and publish all notices to the topic. Target of a rule on our events."""

import os
from collections.abc import Callable
from functools import partial
from typing import Any

from blockkeeper import settings
from blockkeeper.aws import notices, topic
from blockkeeper.aws.clients import client
from blockkeeper.aws.environments import load_environment
from blockkeeper.aws.mail import MailBusyError, MailRefusedError, send
from blockkeeper.domain.doctor_report import findings_mail
from blockkeeper.domain.environment import UTC_ZONE
from blockkeeper.domain.outcome_mail import notice, outcome_key, outcome_mail
from blockkeeper.domain.signed_link import approver_id, request_address
from blockkeeper.telemetry import count, handler, log

# Those who are asked have their own mail and page for these.
FOR_THE_TOPIC_ONLY = frozenset({"Approval Requested", "Approval Decided"})
FINDINGS = "Findings Changed"
TOPIC = "topic"


@handler
def lambda_handler(event: dict[str, Any], _context: Any) -> dict[str, int]:
    """Answer ``{told, failed}``. EventBridge calls again after an error; whoever has heard is not told again.

    Args:
        event: an EventBridge event of source `blockkeeper`.

    Raises:
        UnknownEventError, KeyError, ValueError: the event cannot be told; it ends in the dead-letter queue.
        MailBusyError: somebody could not be told just now.
    """
    detail_type, detail = event["detail-type"], event["detail"]
    approvers, zone = _approvers(detail.get("environment"))
    if detail_type == FINDINGS:
        # The doctor remembers itself what it has told, so each of its events is news.
        key, for_topic = f"{FINDINGS.replace(' ', '-')}#{event['id']}", findings_mail(detail)
    else:
        key, for_topic = outcome_key(detail_type, detail), notice(detail_type, detail, zone, _address(detail))
    to_tell: dict[str, Callable[[], None]] = {}
    if detail_type not in FOR_THE_TOPIC_ONLY:
        mail = for_topic if detail_type == FINDINGS else outcome_mail(detail_type, detail, zone)
        to_tell = {approver_id(reader): partial(send, reader, mail) for reader in _readers(approvers)}
        if not to_tell and not os.environ["SLACK_CHANNEL"]:
            log.warning("nobody was told", extra={"environment": detail.get("environment"), "event": detail_type})
            count("NobodyTold")
    to_tell[TOPIC] = partial(topic.publish, for_topic)
    return _tell(key, to_tell, detail.get("environment"))


def _approvers(pk: str | None) -> tuple[tuple[str, ...], str]:
    """A record's approvers and their time zone; what is about none, or one that is gone, concerns those that the stack names."""
    environment = None if pk is None else load_environment(pk)
    return (environment.approvers, environment.time_zone) if environment else (settings.approver_emails(), UTC_ZONE)


def _readers(approvers: tuple[str, ...]) -> list[str]:
    """Whose mailboxes: the approvers', or those that the stack names when all of them are in Slack and no channel hears it."""
    mailed = [approver for approver in approvers if "@" in approver]
    return mailed if mailed or os.environ["SLACK_CHANNEL"] else list(settings.approver_emails())


def _tell(key: str, to_tell: dict[str, Callable[[], None]], environment: str | None) -> dict[str, int]:
    told, failed, busy = notices.heard(key), 0, None
    for who, tell in to_tell.items():
        if who in told:
            continue
        try:
            tell()
        except (MailRefusedError, MailBusyError) as error:
            failed += 1
            busy = error if isinstance(error, MailBusyError) else busy
            extra = {"environment": environment, "approver": who, "error": str(error)}
            log.error("an approver was not told", extra=extra)
            count("ApproverNotTold")
            continue
        told.append(who)
        notices.mark_heard(key, told)
    if busy:
        raise busy
    return {"told": len([who for who in told if who != TOPIC]), "failed": failed}


def _address(detail: dict[str, Any]) -> str | None:
    if not detail.get("approval_id"):
        return None
    parameter = client("ssm").get_parameter(Name=os.environ["API_URL_PARAMETER"])
    return request_address(parameter["Parameter"]["Value"].rstrip("/"), detail["approval_id"])
