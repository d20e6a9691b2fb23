"""ask-approvers: store the question, mail each approver their own link, ask in Slack, and announce it; approve-purchase waits.

It runs again at each reminder and at the escalation, and after any crash: whoever has heard since the last mark is not told again.
"""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from blockkeeper import settings
from blockkeeper.aws import bus, ledger, slack
from blockkeeper.aws.approvals import Asked, event_detail, load_request, mark_announced, mark_told, open_or_join
from blockkeeper.aws.decision_links import links
from blockkeeper.aws.environments import load_environment
from blockkeeper.aws.mail import MailBusyError, MailRefusedError, send
from blockkeeper.aws.slack_messages import show
from blockkeeper.domain.approval import (
    ApprovalRequest,
    ApprovalStatus,
    NobodyToAskError,
    Rules,
    asks_the_same,
    open_request,
)
from blockkeeper.domain.approval_mail import question
from blockkeeper.domain.instants import format_instant, parse_instant
from blockkeeper.domain.signed_link import approver_id
from blockkeeper.domain.slack_person import is_slack_approver
from blockkeeper.schema_check import schema_problems
from blockkeeper.telemetry import count, handler, log


class InvalidRequestError(ValueError):
    """The question is not as ``schemas/approve-purchase.schema.json`` says; nobody was asked."""


class NobodyToldError(Exception):
    """SES and Slack refused to tell any approver; somebody must mend that before anybody can be asked."""


@handler
def lambda_handler(event: dict[str, Any], _context: Any) -> dict[str, Any]:
    """Answer ``{told}``, how many approvers were told. Calling again, after any crash, tells nobody twice.

    Args:
        event: ``{"task_token": str, "request": <input of approve-purchase>, "now": ISO}``.

    Raises:
        InvalidRequestError, NobodyToAskError, TooLateToAskError, NobodyToldError, DifferentRequestError: nobody was asked, and
            asking again does not help.
        MailBusyError, SlackBusyError, ClientError: nobody was asked yet; asking again may help.
    """
    facts, now = event["request"], parse_instant(event["now"])
    problems = schema_problems("approve-purchase", facts)
    if problems:
        raise InvalidRequestError("; ".join(str(problem) for problem in problems))
    asked = open_or_join(_request(facts, now), event["task_token"], dry_run=not settings.live())
    request = asked.request
    if request.status is not ApprovalStatus.OPEN:
        return {"told": len(asked.told)}
    told = _tell(asked, now)
    if asked.announced is None or asked.announced < request.last_mark(now):
        detail = {**event_detail(request, now), "decide_by": format_instant(request.decide_by), "told": told}
        reminder = {} if asked.announced is None else {"reminder": format_instant(request.last_mark(now))}
        bus.publish("Approval Requested", {**detail, **reminder})
        mark_announced(request.approval_id, now)
    return {"told": told}


def _request(facts: Mapping[str, Any], now: datetime) -> ApprovalRequest:
    """The request as it was asked; one that is new by the record as it is now."""
    stored = load_request(facts["approval_id"])
    if stored is not None and asks_the_same(stored, facts):
        return stored
    environment = load_environment(facts["environment"])
    if environment is None:
        raise NobodyToAskError(f"{facts['environment']} is not enrolled any more, so it has no approvers")
    request = open_request(facts, environment.approvers, environment.quorum, now, Rules.of(environment))
    left = ledger.budget_left(environment.team, now)
    return replace(request, budget_left=left.stack, team_budget_left=left.team)


def _tell(asked: Asked, now: datetime) -> int:
    """Tell whoever is due; answers how many were told then."""
    request, told = asked.request, dict(asked.told)
    _check_reach(request)
    failures = _mail(request, told, now)
    if asked.announced is None:
        # From then on tell-slack keeps the message, and posts it if it could not be posted here.
        failures += _post(request, told, now)
    if not told:
        busy = next((error for error in failures if isinstance(error, MailBusyError | slack.SlackBusyError)), None)
        reasons = ", ".join(sorted({str(error) for error in failures}))
        raise busy or NobodyToldError(
            f"nobody could be told: {reasons} (check SenderEmail and the sandbox in SES; for Slack see docs/slack.md)"
        )
    return len(told)


def _check_reach(request: ApprovalRequest) -> None:
    """Missing configuration means no (design rule 6): without Slack its people are nobody, and a quorum needs somebody.

    Raises:
        NobodyToAskError: fewer people can be reached than must say yes.
    """
    in_slack = sum(map(is_slack_approver, request.approvers))
    reached = len(request.approvers) - (0 if slack.is_configured() else in_slack)
    if reached < request.quorum:
        raise NobodyToAskError(
            f"{request.environment}: {in_slack} of {len(request.approvers)} approvers are in Slack, which this stack does not "
            f"have, and {request.quorum} must say yes (set SlackSecretName and SlackChannel, or name e-mail addresses in approvers)"
        )


def _mail(request: ApprovalRequest, told: dict[str, datetime], now: datetime) -> list[Exception]:
    """Mail those who have not heard since the last mark, and put them into `told`; answers what went wrong."""
    failures = list[Exception]()
    if all(map(is_slack_approver, request.asked(now))):
        return failures
    for approver, link in links(request, now).items():
        last = told.get(approver)
        if last is not None and (last >= request.told_last(now) or approver.lower() in request.votes):
            continue
        try:
            send(approver, question(request, link, dry_run=not settings.live(), reminder=last is not None))
        except (MailRefusedError, MailBusyError) as error:
            failures.append(error)
            _log_untold(request, approver, error)
            continue
        told[approver] = now
        mark_told(request.approval_id, told)
    return failures


def _post(request: ApprovalRequest, told: dict[str, datetime], now: datetime) -> list[Exception]:
    """Ask in Slack, and put its approvers into `told`; answers what went wrong."""
    asked = [approver for approver in request.approvers if is_slack_approver(approver)]
    try:
        show(request.approval_id, now)
    except (slack.SlackRefusedError, slack.SlackBusyError) as error:
        for approver in asked:
            _log_untold(request, approver, error)
        return [error]
    if asked and slack.is_configured() and not told.keys() >= set(asked):
        told |= {approver: now for approver in asked if approver not in told}
        mark_told(request.approval_id, told)
    return []


def _log_untold(request: ApprovalRequest, approver: str, error: Exception) -> None:
    log.error(
        "an approver was not told",
        extra={"approval_id": request.approval_id, "approver": approver_id(approver), "error": str(error)},
    )
    count("ApproverNotTold")
