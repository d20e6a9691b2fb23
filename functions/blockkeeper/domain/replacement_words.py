"""What people are told became of plan B, a new block in place of one that cannot be extended."""

from collections.abc import Mapping
from typing import Any

from blockkeeper.domain.instants import moment, parse_instant
from blockkeeper.domain.mail import one_line
from blockkeeper.domain.money import format_usd, parse_usd
from blockkeeper.domain.replacement_outcome import CONFIRMED, FAILED, ReplacementOutcome

Facts = tuple[tuple[str, str], ...]

LONGEST_NAME = 50
TOLD = frozenset({CONFIRMED, FAILED})


def replacement_words(
    detail_type: str, detail: Mapping[str, Any], time_zone: str
) -> tuple[str, str, Facts, tuple[str, ...]]:
    """Title, opening, facts and closing, as `OutcomeWords` has them.

    Args:
        detail_type: `Replacement Confirmed` or `Replacement Failed`.
        detail: ``environment, reservation_id, account, region, end_date, outcome, reason`` and, as far as known, ``offering, new``.
        time_zone: IANA name of the readers' zone.

    Raises:
        KeyError, ValueError: a field is missing or cannot be read.
    """
    name, outcome = one_line(detail["environment"], LONGEST_NAME), detail["outcome"]
    reason = detail.get("reason") or "no reason was given"
    new, ends = detail.get("new") or {}, moment(parse_instant(detail["end_date"]), time_zone)
    old = ("Old block", f"{detail['reservation_id']} in {detail['region']}, account {detail['account']}, ends {ends}")
    facts = (old, *_new_facts(new, detail, time_zone))
    if detail_type == CONFIRMED and outcome == ReplacementOutcome.REPLACED:
        return (
            f"{name}: the groups launch into the new block {new['reservation_id']}",
            "The groups of the old block are pointed at the new one and grow when it starts.",
            (*facts, ("Groups", reason)),
            ("CloudFormation or Terraform would set the launch template back: enter the new reservation there too.",),
        )
    if detail_type == CONFIRMED:
        return (
            f"{name} gets a new block from {moment(parse_instant(new['start']), time_zone)}",
            "A new Capacity Block is bought and paid, and enrolled with the policy of the old one.",
            facts,
            ("The groups drain at the old block's end and go over to the new one after that.",),
        )
    if new.get("reservation_id"):
        return (
            f"{name}: the new block {new['reservation_id']} needs you",
            "A new Capacity Block is bought, but not everything could be done for it.",
            (*facts, ("To do", reason)),
            ("Nothing else was changed. The old block's groups drain at its end.",),
        )
    return (
        f"{name} gets no new block; it ends on {ends}",
        f"No new Capacity Block takes the place of the one of {detail['environment']}: {reason}.",
        (*facts, ("Reason", reason)),
        ("The groups of the block drain before its end. Work that must go on needs another place.",),
    )


def _new_facts(new: Mapping[str, Any], detail: Mapping[str, Any], time_zone: str) -> list[tuple[str, str]]:
    facts = []
    if new.get("reservation_id"):
        place = (
            f"{new['reservation_id']} in {new['availability_zone']}"
            if new.get("availability_zone")
            else new["reservation_id"]
        )
        facts.append(("New block", place))
        facts.append(("Starts", moment(parse_instant(new["start"]), time_zone)))
        facts.append(("Ends", moment(parse_instant(new["end"]), time_zone)))
    if new.get("environment"):
        facts.append(("Enrolled as", new["environment"]))
    if new.get("reservation_id") and detail.get("offering"):
        facts.append(("Upfront fee", format_usd(parse_usd(detail["offering"]["upfront_fee"]))))
    return facts
