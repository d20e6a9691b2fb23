"""close-approval: until when to wait for an answer, or, when that time is over, how the request has ended."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from blockkeeper.aws.approvals import expire, load_request, was_told
from blockkeeper.aws.environments import load_environment
from blockkeeper.domain.approval import (
    ApprovalRequest,
    ApprovalStatus,
    NobodyToAskError,
    Rules,
    TooLateToAskError,
    What,
    asks_the_same,
    open_request,
    outcome,
)
from blockkeeper.domain.environment import OnTimeout
from blockkeeper.domain.instants import format_instant, parse_instant
from blockkeeper.telemetry import handler


@handler
def lambda_handler(event: dict[str, Any], _context: Any) -> dict[str, str | None]:
    """Answer ``{wait_until}`` while there is time: the next reminder, the escalation or the last moment to answer.

    After that ``{decision, approval_id, decided_by, decided_at, reason}``: `expired`, or the decision that was recorded meanwhile,
    or `approved` by policy.

    Args:
        event: ``{"request": <input of approve-purchase>, "now": ISO}``.
    """
    asked, now = event["request"], parse_instant(event["now"])
    request = load_request(asked["approval_id"])
    if request is None or not asks_the_same(request, asked):
        return _unasked(asked, now)
    if request.standing(now) is ApprovalStatus.OPEN:
        return {"wait_until": format_instant(request.wait_until(now))}
    ended = expire(request.approval_id, now, may_buy=_may_buy(request))
    return outcome(ended or request)


def _unasked(asked: Mapping[str, Any], now: datetime) -> dict[str, str | None]:
    """Before the question is stored: what is wrong with it, or that nobody could say yes, is left to whoever asks."""
    wait_until = parse_instant(asked["decide_by"])
    try:
        if environment := load_environment(asked["environment"]):
            request = open_request(asked, environment.approvers, environment.quorum, now, Rules.of(environment))
            wait_until = request.wait_until(now)
    except TooLateToAskError:
        wait_until = now
    except (NobodyToAskError, KeyError, ValueError):
        pass
    if wait_until > now:
        return {"wait_until": format_instant(wait_until)}
    return {
        "decision": "expired",
        "approval_id": asked["approval_id"],
        "decided_by": None,
        "decided_at": None,
        "reason": f"answers counted until {asked['decide_by']}, so nobody was asked; nothing was bought",
    }


def _may_buy(request: ApprovalRequest) -> bool:
    """Whether the record, as it is now, still lets the policy approve this fee (case B16), and somebody could have answered."""
    environment = load_environment(request.environment)
    if environment is None or environment.on_timeout is not OnTimeout.APPROVE or not was_told(request.approval_id):
        return False
    policy = environment.replace if request.what is What.BLOCK else environment
    ceiling = None if policy is None else policy.max_upfront_fee
    return ceiling is not None and request.ceiling <= ceiling
