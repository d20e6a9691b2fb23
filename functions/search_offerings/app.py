"""search-offerings: what extension does EC2 offer now, and is it what was approved?"""

from datetime import datetime
from decimal import Decimal
from hashlib import sha256
from typing import Any

from blockkeeper.aws import ec2, table
from blockkeeper.aws.environments import load_environment
from blockkeeper.domain.environment import Environment
from blockkeeper.domain.instants import format_instant, parse_instant
from blockkeeper.domain.offering import Found, Offering, choose_offering
from blockkeeper.domain.outcome import Outcome
from blockkeeper.domain.purchase_policy import approval_refusal, missing_policy, past_extend_until
from blockkeeper.telemetry import handler

_CHANGED = "changed"
_DECIDED = (Found.OFFERED, _CHANGED)


@handler
def lambda_handler(event: dict[str, Any], _context: Any) -> dict[str, Any]:
    """Answer ``{found, reason, offering}``; `found` is a value of `Found`, ``not_allowed``, or ``changed``: not what was approved.

    Args:
        event: ``{"block": <input of extend-block>, "approval_id": str | None}``. With an approval the offering must be the one
            that was approved, or a cheaper one to the same end; anything else is asked again (case B11).
    """
    block = event["block"]
    environment = load_environment(block["environment"])
    if environment is None:
        return _answer(Outcome.NOT_ALLOWED, f"{block['environment']} is not enrolled any more")
    lacking = missing_policy(environment)
    if lacking:
        return _answer(Outcome.NOT_ALLOWED, lacking)
    end = parse_instant(block["end_date"])
    approval = table.get_item("approval", event["approval_id"]) if event.get("approval_id") else None
    answers = (_search(environment, block, hours, end, approval) for hours in _lengths(environment, approval))
    first = next(answers)
    if first["found"] in _DECIDED:
        return first
    # The wanted length is not to be had: the first fallback that is, or the word on the wanted one.
    return next((answer for answer in answers if answer["found"] in _DECIDED), first)


def _lengths(environment: Environment, approval: dict[str, Any] | None) -> list[int]:
    """Hours to search, in order: what was approved, what is wanted, then the policy's shorter lengths; a call each."""
    wanted = [environment.wanted_hours, *environment.fallback_hours]
    # A length that the record no longer asks for is not bought, approved or not.
    approved = [] if approval is None else [hours for hours in wanted if hours == approval["duration_hours"]]
    return list(dict.fromkeys([*approved, *wanted]))


def _search(
    environment: Environment, block: dict[str, Any], hours: int, end: datetime, approval: dict[str, Any] | None
) -> dict[str, Any]:
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
