"""ask-approvers: store the question, mail each approver their own link, and announce it; approve-purchase waits for the answer."""

from typing import Any

from blockkeeper import settings
from blockkeeper.aws import bus
from blockkeeper.aws.approvals import Asked, event_detail, mark_announced, mark_told, open_or_join
from blockkeeper.aws.decision_links import links
from blockkeeper.aws.environments import load_environment
from blockkeeper.aws.mail import MailBusyError, MailRefusedError, send
from blockkeeper.domain.approval import ApprovalStatus, NobodyToAskError, open_request
from blockkeeper.domain.approval_mail import question
from blockkeeper.domain.instants import format_instant, parse_instant
from blockkeeper.domain.signed_link import approver_id
from blockkeeper.schema_check import schema_problems
from blockkeeper.telemetry import count, handler, log


class InvalidRequestError(ValueError):
    """The question is not as ``schemas/approve-purchase.schema.json`` says; nobody was asked."""


class NobodyToldError(Exception):
    """SES refused the mail to every approver; somebody must mend that before anybody can be asked."""


@handler
def lambda_handler(event: dict[str, Any], _context: Any) -> dict[str, Any]:
    """Answer ``{told}``, how many approvers have their mail. Calling again, after any crash, mails nobody twice.

    Args:
        event: ``{"task_token": str, "request": <input of approve-purchase>, "now": ISO}``.

    Raises:
        InvalidRequestError, NobodyToAskError, TooLateToAskError, NobodyToldError, DifferentRequestError: nobody was asked, and
            asking again does not help.
        MailBusyError, ClientError: nobody was asked yet; asking again may help.
    """
    facts, now = event["request"], parse_instant(event["now"])
    problems = schema_problems("approve-purchase", facts)
    if problems:
        raise InvalidRequestError("; ".join(str(problem) for problem in problems))
    environment = load_environment(facts["environment"])
    if environment is None:
        raise NobodyToAskError(f"{facts['environment']} is not enrolled any more, so it has no approvers")
    request = open_request(facts, environment.approvers, environment.quorum, now)
    asked = open_or_join(request, event["task_token"], dry_run=not settings.live())
    if asked.request.status is not ApprovalStatus.OPEN:
        return {"told": len(asked.told)}
    told = _mail(asked)
    if not asked.announced:
        detail = event_detail(asked.request, now)
        bus.publish(
            "Approval Requested", {**detail, "decide_by": format_instant(asked.request.decide_by), "told": told}
        )
        mark_announced(asked.request.approval_id, now)
    return {"told": told}


def _mail(asked: Asked) -> int:
    """Mail those who have no mail yet; answers how many have one then."""
    request, told, failures = asked.request, list(asked.told), list[MailRefusedError | MailBusyError]()
    mailed = links(request)
    if not mailed:
        raise NobodyToAskError(f"{request.environment}: approvers has no e-mail address, the only way to ask (add one)")
    for approver, link in mailed.items():
        if approver in told:
            continue
        try:
            send(approver, question(request, link, dry_run=not settings.live()))
        except (MailRefusedError, MailBusyError) as error:
            failures.append(error)
            log.error(
                "an approver was not told",
                extra={"approval_id": request.approval_id, "approver": approver_id(approver), "error": str(error)},
            )
            count("ApproverNotTold")
            continue
        told.append(approver)
        mark_told(request.approval_id, tuple(told))
    if not told:
        busy = next((error for error in failures if isinstance(error, MailBusyError)), None)
        reasons = ", ".join(sorted({str(error) for error in failures}))
        raise busy or NobodyToldError(
            f"SES took none of {len(mailed)} mails: {reasons} (check SenderEmail and the sandbox in SES)"
        )
    return len(told)
