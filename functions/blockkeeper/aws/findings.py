"""What the doctor found last, in the table: kind `finding`, id = the finding's key. It is there so that a finding is told once."""

from datetime import datetime

from blockkeeper.aws.table import delete_request, put_request, query_kind, write
from blockkeeper.domain.doctor import Changes, Check, Finding, Severity
from blockkeeper.domain.instants import format_instant

KIND = "finding"


def stored_findings() -> list[Finding]:
    """All that stand. A check that a newer version no longer has is left out, and its item stays without harm."""
    return [
        Finding(
            Check(item["check"]),
            Severity(item["severity"]),
            item["subject"],
            item["problem"],
            item["why"],
            item["remedy"],
        )
        for item in query_kind(KIND)
        if item.get("check") in set(Check)
    ]


def store(changes: Changes, now: datetime) -> None:
    """Write what is new or changed, delete what is mended."""
    for finding in (*changes.new, *changes.changed):
        write(put_request(KIND, finding.key, {**finding.as_json(), "found_at": format_instant(now)}))
    for finding in changes.mended:
        write(delete_request(KIND, finding.key))
