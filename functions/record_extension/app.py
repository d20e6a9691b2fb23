"""record-extension: write what became of an extension on the record, and tell the bus; once for each change."""

from typing import Any

from blockkeeper.aws import bus
from blockkeeper.aws.environments import load_environment, set_status
from blockkeeper.domain.environment import Environment, Status
from blockkeeper.domain.instants import parse_instant
from blockkeeper.domain.names import replacement_name
from blockkeeper.domain.outcome import CONSEQUENCES, Outcome
from blockkeeper.domain.replacement import to_be_replaced
from blockkeeper.telemetry import count, handler, log

FACTS = ("environment", "reservation_id", "account", "region", "end_date")

# After the end has moved only the workflow of the next end says these.
_NEXT_WORKFLOWS_WORD = frozenset({Status.EXTENSION_APPROVAL_REQUIRED, Status.EXTENSION_PAYMENT_PENDING})


@handler
def lambda_handler(event: dict[str, Any], _context: Any) -> dict[str, Any]:
    """Answer ``{outcome, published, replacement}``; `replacement` names the replace-block that follows if this is the end.

    Args:
        event: ``{"block": <input of extend-block>, "outcome": Outcome, "reason": str, "offering": {...} | None,
            "approval_id": str | None, "end": EC2's EndDate or None, "now": ISO}``.
    """
    block, outcome = event["block"], Outcome(event["outcome"])
    consequence = CONSEQUENCES[outcome]
    environment = load_environment(block["environment"])
    error = event["reason"] if consequence.error else None
    # Past the last moment to decide a sweep says EXPIRING; how the search ended becomes its reason, and nothing expires twice.
    expiring = environment is not None and environment.status is Status.EXPIRING and consequence.error
    status = Status.EXPIRING if expiring else consequence.status
    known = None if environment is None else (environment.status, environment.error)
    replacement = _replacement(environment, block, outcome)
    if consequence.error and (known == (status, error) or (outcome is Outcome.TOO_LATE and expiring)):
        # Searches go on for days; people hear of each thing once (case B12).
        return {"outcome": outcome, "published": False, "replacement": replacement}
    detail = {name: block[name] for name in FACTS}
    detail |= {"outcome": outcome, "reason": event["reason"], "now": event["now"]}
    detail |= {name: event[name] for name in ("offering", "approval_id", "end") if event.get(name) is not None}
    bus.publish(consequence.detail_type, detail)
    if environment is not None and _still_about(environment, block):
        mirrored = {"end_time": event["end"]} if event.get("end") else {}
        mirrored["extension_outcome"] = {"end_date": block["end_date"], "outcome": outcome}
        set_status(environment.pk, status, error, parse_instant(event["now"]), **mirrored)
    log.info(consequence.detail_type, extra=detail)
    count(f"Extension_{outcome}")
    if outcome is Outcome.UNKNOWN:
        # From now on each sweep counts it, until it is resolved.
        count("PurchaseUnknown")
    return {"outcome": outcome, "published": True, "replacement": replacement}


def _replacement(environment: Environment | None, block: dict[str, Any], outcome: Outcome) -> str | None:
    """Name of the execution of replace-block that follows this end, if the policy has a plan B."""
    end = parse_instant(block["end_date"])
    if environment is None or environment.capacity_block_id != block["reservation_id"]:
        return None
    return replacement_name(block["reservation_id"], end) if to_be_replaced(environment, end, outcome) else None


def _still_about(environment: Environment, block: dict[str, Any]) -> bool:
    """Whether the record is still about this block and end; if not, what became of them is told, and not written there."""
    if environment.capacity_block_id != block["reservation_id"]:
        return False
    moved_on = environment.end_time is not None and environment.end_time > parse_instant(block["end_date"])
    return not (moved_on and environment.status in _NEXT_WORKFLOWS_WORD)
