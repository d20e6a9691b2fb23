"""record-replacement: write what became of a replacement on the old record, and tell the bus; once for each change."""

from typing import Any

from blockkeeper.aws import bus
from blockkeeper.aws.environments import load_environment, set_replacement
from blockkeeper.domain.instants import parse_instant
from blockkeeper.domain.replacement_outcome import FAILED, ReplacementOutcome, detail_type_of
from blockkeeper.telemetry import count, handler, log

FACTS = ("environment", "reservation_id", "account", "region", "end_date")


@handler
def lambda_handler(event: dict[str, Any], _context: Any) -> dict[str, Any]:
    """Answer ``{outcome, published}``.

    Args:
        event: ``{"block": <input of replace-block>, "outcome": ReplacementOutcome, "reason": str, "offering": {...} | None,
            "approval_id": str | None, "new": {reservation_id, availability_zone, start, end, environment} | None, "now": ISO}``.
    """
    block, outcome, new = event["block"], ReplacementOutcome(event["outcome"]), event.get("new") or {}
    environment = load_environment(block["environment"])
    said = {"end_date": block["end_date"], "outcome": outcome, "reason": event["reason"]}
    said |= {name: new[name] for name in ("reservation_id", "environment") if new.get(name)}
    before = (environment.replacement if environment else None) or {}
    before = before if before.get("end_date") == block["end_date"] else {}
    detail_type = detail_type_of(outcome)
    # The last bad news stays written down, since searches go on for a while and people hear of each thing once (case B12).
    news = f"{outcome}: {event['reason']}" if detail_type == FAILED else None
    said |= {"told": told} if (told := news or before.get("told")) else {}
    if before == said:
        return {"outcome": outcome, "published": False}
    detail = {name: block[name] for name in FACTS} | {
        "outcome": outcome,
        "reason": event["reason"],
        "now": event["now"],
    }
    detail |= {name: event[name] for name in ("offering", "approval_id", "new") if event.get(name) is not None}
    publishes = detail_type is not None and (news is None or news != before.get("told"))
    if detail_type is not None and publishes:
        bus.publish(detail_type, detail)
    if environment is not None and environment.capacity_block_id == block["reservation_id"]:
        set_replacement(environment.pk, said, parse_instant(event["now"]))
    log.info("replacement", extra=detail)
    count(f"Replacement_{outcome}")
    if outcome is ReplacementOutcome.UNKNOWN:
        # From now on each sweep counts it, until it is resolved.
        count("PurchaseUnknown")
    return {"outcome": outcome, "published": publishes}
