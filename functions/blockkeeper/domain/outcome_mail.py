"""What people are told became of a block, made from Blockkeeper's own events; mail and Slack say the same."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from blockkeeper.domain.instants import moment, parse_instant
from blockkeeper.domain.mail import Mail, compose, one_line
from blockkeeper.domain.money import format_usd, parse_usd

LONGEST_NAME = 50


class UnknownEventError(ValueError):
    """An event that is none of those that people are told of."""


@dataclass(frozen=True, slots=True)
class OutcomeWords:
    """What people are told: a line, a sentence or two, (label, value) in reading order, and paragraphs below."""

    title: str
    opening: str
    facts: tuple[tuple[str, str], ...]
    closing: tuple[str, ...] = ()


def outcome_mail(detail_type: str, detail: Mapping[str, Any]) -> Mail:
    """Tell what happened by mail; arguments and errors as of `outcome_words`."""
    words = outcome_words(detail_type, detail)
    return compose(words.title, words.opening, words.facts, closing=words.closing)


def outcome_words(detail_type: str, detail: Mapping[str, Any]) -> OutcomeWords:
    """Tell what happened.

    Args:
        detail_type: `Extension Confirmed`, `Extension Failed` or `Block Expiring`.
        detail: ``environment, reservation_id, account, region, end_date`` and, as far as known, ``reason, end, offering``.

    Raises:
        UnknownEventError: another detail type.
        KeyError, ValueError: a field is missing or cannot be read.
    """
    name = one_line(detail["environment"], LONGEST_NAME)
    before = moment(parse_instant(detail["end_date"]))
    reason = detail.get("reason") or "no reason was given"
    place = ("Capacity Block", f"{detail['reservation_id']} in {detail['region']}, account {detail['account']}")
    if detail_type == "Extension Confirmed":
        after = moment(parse_instant(detail["end"])) if detail.get("end") else "see EC2"
        fee = format_usd(parse_usd(detail["offering"]["upfront_fee"])) if detail.get("offering") else None
        return OutcomeWords(
            f"{name} now runs until {after}",
            f"EC2 has moved the end of the Capacity Block of {detail['environment']}.",
            (
                place,
                ("Ended before", before),
                ("Ends now", after),
                *([("Upfront fee", fee)] if fee else []),
                ("How", reason),
            ),
        )
    if detail_type == "Extension Failed":
        return OutcomeWords(
            f"{name} is not extended and ends on {before}",
            f"The Capacity Block of {detail['environment']} is not extended: {reason}.",
            (place, ("Ends", before), ("Reason", reason)),
            ("As it stands the groups of the block drain before its end. Work that must go on needs another place.",),
        )
    if detail_type == "Block Expiring" and detail.get("outcome") == "end_not_moved":
        return OutcomeWords(
            f"{name} is paid, but EC2 still ends it on {before}",
            f"The extension of the Capacity Block of {detail['environment']} is paid, and EC2 has not moved its end.",
            (place, ("Ends", before), ("Reason", reason)),
            ("Save what is running. If EC2 moves the end yet, the groups stay; if not, take it up with AWS Support.",),
        )
    if detail_type == "Block Expiring":
        return OutcomeWords(
            f"{name} ends on {before}; it is too late to extend",
            f"It is too late to extend the Capacity Block of {detail['environment']}. Its groups are draining now or will soon.",
            (place, ("Ends", before), ("Reason", reason)),
            (
                "Save what is running. EC2 terminates the instances 30 minutes before the end, UltraServers 60 minutes before.",
            ),
        )
    raise UnknownEventError(f"{detail_type!r} is not an event that people are told of")
