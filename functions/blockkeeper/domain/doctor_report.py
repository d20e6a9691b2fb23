"""How findings are told: as an event, and as a mail made from it."""

from collections.abc import Mapping, Sequence
from typing import Any

from blockkeeper.domain.doctor import Changes, Finding
from blockkeeper.domain.mail import Mail, compose, one_line

# An event holds 256 KB, and nobody reads more than this at once; the command shows all.
MOST_TOLD = 40
LONGEST_NAME = 50

Record = Mapping[str, Any]


def change_detail(changes: Changes, record: Record | None, pk: str | None, account: str, region: str) -> dict[str, Any]:
    """Detail of the event `Findings Changed`: lists `new`, `changed` and `mended`, each at most `MOST_TOLD` long.

    Args:
        record: the record it is about, if it still exists.
        pk: its PK; None when the changes are about the stack and its accounts, then the event has no `environment`.
        account, region: the stack's, where the record does not know better.
    """
    record = record or {}
    detail = {
        "environment": pk,
        "reservation_id": record.get("capacity_block_id"),
        "account": record.get("owner_id") or account,
        "region": record.get("region") or region,
        "end_date": record.get("end_time"),
    }
    known = {name: value for name, value in detail.items() if value is not None}
    return known | {
        "new": _told(changes.new),
        "changed": _told(changes.changed),
        "mended": _told(changes.mended),
    }


def findings_mail(detail: Mapping[str, Any]) -> Mail:
    """Tell what the doctor found.

    Args:
        detail: of the event `Findings Changed`.

    Raises:
        KeyError: a field is missing.
    """
    subject, opening, closing = findings_words(detail)
    facts = [fact for each in (*detail["new"], *detail["changed"]) for fact in _facts(each)]
    facts += [("Mended", f"{label(each['subject'])}: {each['problem']}") for each in detail["mended"]]
    return compose(subject, opening, facts, closing=[closing])


def findings_words(detail: Mapping[str, Any]) -> tuple[str, str, str]:
    """Title, opening and closing of what is told, by mail and in Slack alike."""
    name = one_line(detail.get("environment") or "the stack", LONGEST_NAME)
    fresh, mended = [*detail["new"], *detail["changed"]], detail["mended"]
    title = (
        f"{name}: {_number(len(fresh), 'finding')}" if fresh else f"{name}: {_number(len(mended), 'finding')} mended"
    )
    opening = f"Blockkeeper's daily look at {name} found something that would only show when it counts."
    if not fresh:
        opening = f"What Blockkeeper had found at {name} is mended."
    command = f"blockkeeper doctor {detail['environment']}" if detail.get("environment") else "blockkeeper doctor"
    return title, opening, f"`{command}` looks again at once. Each finding is told once."


def label(subject: str) -> str:
    """A subject as people read it: without the word that tells records from accounts."""
    return subject.removeprefix("record:").removeprefix("account:")


def _facts(finding: Mapping[str, str]) -> Sequence[tuple[str, str]]:
    return [
        (finding["severity"].capitalize(), f"{label(finding['subject'])} ({finding['check']})"),
        ("What", finding["problem"]),
        ("Why", finding["why"]),
        ("Remedy", finding["remedy"]),
    ]


def _number(count: int, noun: str) -> str:
    return f"1 {noun}" if count == 1 else f"{count} {noun}s"


def _told(findings: Sequence[Finding]) -> list[dict[str, str]]:
    return [finding.as_json() for finding in findings[:MOST_TOLD]]
