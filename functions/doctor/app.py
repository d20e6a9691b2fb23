"""doctor: look for what would only go wrong when it counts, and tell what has changed since the last look."""

import os
from typing import Any

from blockkeeper import settings
from blockkeeper.aws import bus
from blockkeeper.aws.clients import own_account
from blockkeeper.aws.environments import list_environments
from blockkeeper.aws.examination import Stack, examine
from blockkeeper.aws.findings import store, stored_findings
from blockkeeper.domain.doctor import Severity, compare
from blockkeeper.domain.doctor_account import BUY_BLOCK, BUY_EXTENSION
from blockkeeper.domain.doctor_report import change_detail
from blockkeeper.domain.instants import format_instant, parse_instant
from blockkeeper.telemetry import count, handler, log


@handler
def lambda_handler(event: dict[str, Any], _context: Any) -> dict[str, Any]:
    """Answer ``{"found": {severity: number}, "new", "changed", "mended", "unread": [subject]}``.

    Args:
        event: the schedule's event, whose `time` is when it was due; ``{"time": ISO}`` does for a start by hand.

    Raises:
        ClientError: the table could not be read, so that nothing is known to have changed.
    """
    now = parse_instant(event["time"])
    records = list(list_environments())
    examination = examine(_stack(), records, now)
    told = [each for each in examination.findings if each.severity is not Severity.NOTE]
    changes = compare(stored_findings(), told, examination.unread)
    by_pk = {record["PK"]: record for record in records}
    for pk in changes.records():
        # Told before it is written: after a crash in between it is told twice, never not at all.
        detail = change_detail(changes.about(pk), by_pk.get(pk or ""), pk, own_account(), os.environ["AWS_REGION"])
        bus.publish("Findings Changed", {**detail, "now": format_instant(now)})
    store(changes, now)
    for finding in (*changes.new, *changes.changed):
        log.warning(
            "a finding", extra={"subject": finding.subject, "check": finding.check, "severity": finding.severity}
        )
    count("FindingsNew", len(changes.new) + len(changes.changed))
    return {
        "found": {str(s): sum(each.severity is s for each in examination.findings) for s in Severity},
        "new": len(changes.new),
        "changed": len(changes.changed),
        "mended": len(changes.mended),
        "unread": sorted(examination.unread),
    }


def _stack() -> Stack:
    return Stack(
        account=own_account(),
        targets=tuple(settings.own_targets()),
        approvers=settings.approver_emails(),
        sender=os.environ["SENDER_EMAIL"],
        member_role=os.environ["MEMBER_ROLE_NAME"],
        teams=tuple(settings.limits().teams),
        buyers={BUY_EXTENSION: os.environ["BUY_EXTENSION_ROLE"], BUY_BLOCK: os.environ["BUY_BLOCK_ROLE"]},
    )
