"""close-approval: the wait is over without an answer; expire the request, unless it was decided at the last moment."""

from typing import Any

from blockkeeper.aws.approvals import expire
from blockkeeper.domain.approval import outcome
from blockkeeper.domain.instants import parse_instant
from blockkeeper.telemetry import handler


@handler
def lambda_handler(event: dict[str, Any], _context: Any) -> dict[str, str | None]:
    """Answer ``{decision, approval_id, decided_by, decided_at, reason}``: `expired`, or the decision that was recorded meanwhile.

    Args:
        event: ``{"request": <input of approve-purchase>, "now": ISO}``.
    """
    asked, now = event["request"], parse_instant(event["now"])
    request = expire(asked["approval_id"], f"nobody answered before {asked['decide_by']}; nothing was bought", now)
    if request is not None:
        return outcome(request)
    return {
        "decision": "expired",
        "approval_id": asked["approval_id"],
        "decided_by": None,
        "decided_at": None,
        "reason": f"answers counted until {asked['decide_by']}, so nobody was asked; nothing was bought",
    }
