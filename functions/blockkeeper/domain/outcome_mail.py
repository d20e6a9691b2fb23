"""What people are told became of a block, made from Blockkeeper's own events; mail and Slack say the same."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from blockkeeper.domain.instants import moment, parse_instant
from blockkeeper.domain.mail import Mail, compose, one_line
from blockkeeper.domain.money import format_usd, parse_usd
from blockkeeper.domain.replacement_words import TOLD, replacement_words

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


def outcome_key(detail_type: str, detail: Mapping[str, Any]) -> str:
    """What one notice is known by: an event that comes twice, or is published twice, is the same notice (case B12)."""
    said = [str(detail.get(name)) for name in ("approval_id", "decision", "reminder", "outcome", "reason", "end")]
    digest = hashlib.sha256("\n".join([detail_type, str(detail.get("environment")), *said]).encode()).hexdigest()[:16]
    return f"{detail['reservation_id']}#{detail['end_date']}#{detail_type.replace(' ', '-')}#{digest}"


def notice(detail_type: str, detail: Mapping[str, Any], time_zone: str = "UTC", address: str | None = None) -> Mail:
    """What everybody who follows the stack is told. It says more than approvers are mailed, and carries no power to decide.

    Args:
        detail_type, detail, time_zone: as for `outcome_mail`; also `Approval Requested` and `Approval Decided`.
        address: where the request is shown, without anybody's signature; None when there is none.

    Raises:
        UnknownEventError, KeyError, ValueError: as for `outcome_mail`.
    """
    link = None if address is None else ("The request", address)
    name = one_line(detail["environment"], LONGEST_NAME)
    if detail_type == "Approval Requested":
        until = moment(parse_instant(detail["decide_by"]), time_zone)
        again = "Still nobody has decided" if detail.get("reminder") else "Approvers were asked"
        return compose(
            f"{name} waits for an answer until {until}",
            f"{again} whether the Capacity Block of {detail['environment']} may be kept: {detail['told']} told.",
            [_place(detail), *_offer(detail, time_zone), ("Answers count until", until)],
            link=link,
            closing=[
                "It is answered through the link in an approver's own mail, in Slack, or with `blockkeeper approve`."
            ],
        )
    if detail_type == "Approval Decided":
        by = detail.get("decided_by") or "nobody"
        return compose(
            f"{name}: the request is {detail['decision']}",
            f"The request to keep the Capacity Block of {detail['environment']} is {detail['decision']}, by {by}.",
            [_place(detail), *_offer(detail, time_zone), ("Reason", detail.get("reason") or "none was given")],
            link=link,
        )
    words = outcome_words(detail_type, detail, time_zone)
    return compose(words.title, words.opening, words.facts, link=link, closing=words.closing)


def _place(detail: Mapping[str, Any]) -> tuple[str, str]:
    return ("Capacity Block", f"{detail['reservation_id']} in {detail['region']}, account {detail['account']}")


def _offer(detail: Mapping[str, Any], time_zone: str) -> list[tuple[str, str]]:
    return [
        ("Ends", moment(parse_instant(detail["end_date"]), time_zone)),
        ("New end", moment(parse_instant(detail["new_end"]), time_zone)),
        ("Upfront fee", format_usd(parse_usd(detail["upfront_fee"]))),
    ]


def outcome_mail(detail_type: str, detail: Mapping[str, Any], time_zone: str = "UTC") -> Mail:
    """Tell what happened by mail; arguments and errors as of `outcome_words`."""
    words = outcome_words(detail_type, detail, time_zone)
    return compose(words.title, words.opening, words.facts, closing=words.closing)


def outcome_words(detail_type: str, detail: Mapping[str, Any], time_zone: str = "UTC") -> OutcomeWords:
    """Tell what happened.

    Args:
        detail_type: `Extension Confirmed`, `Extension Failed`, `Block Expiring`, or one of `TOLD` about a replacement.
        detail: ``environment, reservation_id, account, region, end_date`` and, as far as known, ``reason, end, offering``.
        time_zone: IANA name of the readers' zone.

    Raises:
        UnknownEventError: another detail type.
        KeyError, ValueError: a field is missing or cannot be read.
    """
    if detail_type in TOLD:
        return OutcomeWords(*replacement_words(detail_type, detail, time_zone))
    name = one_line(detail["environment"], LONGEST_NAME)
    before = moment(parse_instant(detail["end_date"]), time_zone)
    reason = detail.get("reason") or "no reason was given"
    place = _place(detail)
    if detail_type == "Extension Confirmed":
        after = moment(parse_instant(detail["end"]), time_zone) if detail.get("end") else "see EC2"
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
