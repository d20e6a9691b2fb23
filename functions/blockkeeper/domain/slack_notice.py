"""Which of our own events become a notice in the Slack channel, and what they add to the message that asked."""

from collections.abc import Mapping
from typing import Any

from blockkeeper.domain.doctor_report import findings_words, label
from blockkeeper.domain.instants import moment, parse_instant
from blockkeeper.domain.mail import one_line
from blockkeeper.domain.money import format_usd, parse_usd
from blockkeeper.domain.outcome_mail import LONGEST_NAME, outcome_words
from blockkeeper.domain.replacement_words import TOLD
from blockkeeper.domain.slack_message import SlackMessage, notice

PURCHASED, CONFIRMED, FAILED, EXPIRING = (
    "Extension Purchased",
    "Extension Confirmed",
    "Extension Failed",
    "Block Expiring",
)
FINDINGS = "Findings Changed"
_AS_BY_MAIL = frozenset({CONFIRMED, FAILED, EXPIRING, *TOLD})
# The message says these itself, as its decision.
_DECISIONS = frozenset({"rejected", "expired"})


def notice_of(detail_type: str, detail: Mapping[str, Any]) -> SlackMessage | None:
    """The notice about an event; None for those that only change a request's message.

    Raises:
        KeyError, ValueError: a field is missing or cannot be read.
    """
    if detail_type in _AS_BY_MAIL:
        words = outcome_words(detail_type, detail)
        return notice(words.title, words.opening, words.facts, words.closing)
    if detail_type == FINDINGS:
        title, opening, closing = findings_words(detail)
        rows = [
            (f"{each['severity']}: {label(each['subject'])}", f"{each['problem']}\n{each['remedy']}")
            for each in (*detail["new"], *detail["changed"])
        ]
        rows += [(f"mended: {label(each['subject'])}", each["problem"]) for each in detail["mended"]]
        return notice(title, opening, rows, [closing])
    if detail_type == PURCHASED:
        name, fee = (
            one_line(detail["environment"], LONGEST_NAME),
            format_usd(parse_usd(detail["offering"]["upfront_fee"])),
        )
        place = f"{detail['reservation_id']} in {detail['region']}, account {detail['account']}"
        return notice(
            f"{name}: ordered for {fee}",
            "EC2 has taken the order. It counts when the payment has gone through, which takes 5 minutes to 12 hours.",
            [
                ("Capacity Block", place),
                ("Upfront fee", fee),
                ("Ends then", moment(parse_instant(detail["offering"]["new_end"]))),
            ],
        )
    return None


def notice_key(detail_type: str, detail: Mapping[str, Any]) -> str:
    """What a notice is about: however often an event comes, people read of each thing once (case B12)."""
    if detail_type == FINDINGS:
        return "#".join([FINDINGS, detail.get("environment", ""), detail["now"]])
    return "#".join([detail["reservation_id"], detail.get("end_date", ""), detail_type, detail.get("outcome", "")])


def outcome_line(detail_type: str, detail: Mapping[str, Any]) -> str | None:
    """What an event adds to the message that asked; None when it adds nothing.

    Raises:
        ValueError: a time cannot be read.
    """
    reason = detail.get("reason") or "no reason was given"
    if detail_type == PURCHASED:
        return "Ordered; the payment is pending."
    if detail_type == CONFIRMED:
        end = detail.get("end")
        return f"Done: the block now ends on {moment(parse_instant(end))}." if end else "Done."
    if detail_type == FAILED and detail.get("outcome") not in _DECISIONS:
        return f"Not extended: {reason}."
    if detail_type == "Extension Offered" and detail.get("outcome") == "dry_run":
        return f"Dry run: {reason}."
    return None
