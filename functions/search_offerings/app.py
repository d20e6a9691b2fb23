"""search-offerings: what extension does EC2 offer now, and is it what was approved?"""

from decimal import Decimal
from hashlib import sha256
from typing import Any

from blockkeeper.aws import ec2, table
from blockkeeper.aws.environments import load_environment
from blockkeeper.aws.search_turns import search_in_turn
from blockkeeper.domain.environment import Environment
from blockkeeper.domain.instants import format_instant, parse_instant
from blockkeeper.domain.offering import Found, Offering, choose_offering, lengths
from blockkeeper.domain.outcome import Outcome
from blockkeeper.domain.purchase_policy import approval_refusal, missing_policy, past_extend_until
from blockkeeper.telemetry import handler

OPERATION = "DescribeCapacityBlockExtensionOfferings"
_CHANGED = "changed"
_DECIDED = (Found.OFFERED, _CHANGED)


@handler
def lambda_handler(event: dict[str, Any], _context: Any) -> dict[str, Any]:
    """Answer ``{found, reason, offering}``.

    `found` is a value of `Found`, ``not_allowed``, ``changed``: not what was approved, or ``wait``: ask again with `search` after
    `wait_seconds`, since EC2 allows a search every seven seconds.

    Args:
        event: ``{"block": <input of extend-block>, "approval_id": str | None, "search": <from a wait> | None, "now": ISO}``.
            With an approval the offering must be the one that was approved, or a cheaper one to the same end; anything else is
            asked again (case B11).
    """
    block = event["block"]
    environment = load_environment(block["environment"])
    if environment is None:
        return _answer(Outcome.NOT_ALLOWED, f"{block['environment']} is not enrolled any more")
    lacking = missing_policy(environment)
    if lacking:
        return _answer(Outcome.NOT_ALLOWED, lacking)
    approval = table.get_item("approval", event["approval_id"]) if event.get("approval_id") else None
    return search_in_turn(
        OPERATION,
        (block["region"], block["account"]),
        environment.instance_type,
        lengths(environment, None if approval is None else approval["duration_hours"]),
        lambda hours: _search(environment, block, hours, approval),
        decided=_DECIDED,
        state=event["search"],
        now=parse_instant(event["now"]),
    )


def _search(
    environment: Environment, block: dict[str, Any], hours: int, approval: dict[str, Any] | None
) -> dict[str, Any]:
    end = parse_instant(block["end_date"])
    entries = ec2.extension_offerings(block["reservation_id"], hours, block["region"], block["account"])
    ceiling = environment.max_upfront_fee or Decimal(0)
    choice = choose_offering(entries, hours=hours, current_end=end, ceiling=ceiling)
    if choice.found is not Found.OFFERED or choice.offering is None:
        return _answer(choice.found, choice.reason, choice.offering)
    too_long = past_extend_until(environment, choice.offering)
    if too_long:
        return _answer(Outcome.NOT_ALLOWED, too_long, choice.offering)
    differs = approval and approval_refusal(approval, choice.offering, block["reservation_id"], end)
    if differs:
        return _answer(_CHANGED, differs, choice.offering)
    return _answer(choice.found, choice.reason, choice.offering)


def _answer(found: str, reason: str | None, offering: Offering | None = None) -> dict[str, Any]:
    facts = None
    if offering is not None:
        facts = {
            "offering_id": offering.offering_id,
            "duration_hours": offering.hours,
            "new_end": format_instant(offering.new_end),
            "upfront_fee": str(offering.fee),
            # Another end or fee is another question, and an answer counts for the question that was asked (case B16).
            "question": sha256(f"{offering.new_end.isoformat()} {offering.fee}".encode()).hexdigest()[:8],
        }
    return {"found": found, "reason": reason, "offering": facts}
