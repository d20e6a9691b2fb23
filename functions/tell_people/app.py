"""tell-people: mail the approvers of a block what became of it. Target of the rule on our own outcome events."""

from typing import Any

from blockkeeper import settings
from blockkeeper.aws.environments import load_environment
from blockkeeper.aws.mail import MailBusyError, MailRefusedError, send
from blockkeeper.domain.doctor_report import findings_mail
from blockkeeper.domain.outcome_mail import outcome_mail
from blockkeeper.domain.signed_link import approver_id
from blockkeeper.telemetry import count, handler, log


@handler
def lambda_handler(event: dict[str, Any], _context: Any) -> dict[str, int]:
    """Answer ``{told, failed}``. EventBridge calls again after an error, so one is raised only while nobody has got a mail.

    Args:
        event: an EventBridge event of source `blockkeeper`.

    Raises:
        UnknownEventError, KeyError, ValueError: the event cannot be told; it ends in the dead-letter queue.
        MailBusyError: SES was busy for everybody.
    """
    detail = event["detail"]
    findings = event["detail-type"] == "Findings Changed"
    mail = findings_mail(detail) if findings else outcome_mail(event["detail-type"], detail)
    approvers = _approvers(detail.get("environment"))
    told, busy, failed = 0, None, 0
    for approver in approvers:
        if "@" not in approver:
            continue
        try:
            send(approver, mail)
            told += 1
        except (MailRefusedError, MailBusyError) as error:
            failed += 1
            busy = error if isinstance(error, MailBusyError) else busy
            extra = {"environment": detail.get("environment"), "approver": approver_id(approver), "error": str(error)}
            log.error("an approver was not told", extra=extra)
            count("ApproverNotTold")
    if busy and not told:
        raise busy
    if not told:
        log.warning("nobody was told", extra={"environment": detail.get("environment"), "event": event["detail-type"]})
        count("NobodyTold")
    return {"told": told, "failed": failed}


def _approvers(pk: str | None) -> tuple[str, ...]:
    """A record's approvers; what is about no record concerns those that the stack names."""
    if pk is None:
        return settings.approver_emails()
    environment = load_environment(pk)
    return environment.approvers if environment else ()
