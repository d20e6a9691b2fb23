"""sweep-target: look at every enrolled block of one account and Region, mirror EC2's state, and answer what is due."""

from typing import Any

from blockkeeper import settings
from blockkeeper.aws import bus, ec2
from blockkeeper.aws.approvals import supersede_open_requests
from blockkeeper.aws.clients import own_account
from blockkeeper.aws.environments import enrol_tagged, list_environments, set_status
from blockkeeper.aws.leftovers import list_leftovers
from blockkeeper.aws.table import ConditionFailedError
from blockkeeper.domain.environment import Status
from blockkeeper.domain.instants import parse_instant
from blockkeeper.domain.replacement import asks
from blockkeeper.domain.sweep import Target, Write, sweep
from blockkeeper.telemetry import count, handler, log


@handler
def lambda_handler(event: dict[str, Any], _context: Any) -> dict[str, Any]:
    """Answer ``{"account", "region", "starts": [{workflow, name, input}], "written", "skipped", "unreadable"}``.

    Args:
        event: ``{"account": 12 digits, "region": str, "trigger": str, "now": ISO}``.

    Raises:
        ClientError: EC2 or the table could not be read to the end; nothing was written, nothing is "gone" (case B18).
    """
    now = parse_instant(event["now"])
    account, region = event["account"], event["region"]
    beside = frozenset(other for other, place in settings.own_targets() if place == region and other != account)
    target = Target(account, region, home=account == own_account(), beside=beside)
    result = sweep(
        target,
        ec2.describe_entries(target.region, target.account),
        list_environments(),
        leftovers=list_leftovers(target.region),
        payment_margin=settings.payment_margin(),
        period=settings.sweep_period(),
        default_approvers=settings.approver_emails(),
        now=now,
    )
    for write in result.writes:
        try:
            _save(write, target, event["now"])
        except Exception as error:  # noqa: BLE001 - one record that cannot be written never stops the others (design rule 4)
            result.unreadable.append(f"record {write.environment.pk} was not written: {type(error).__name__}")
    refused = (enrol_tagged(reservation, now) for reservation in result.unenrolled)
    result.unreadable += [text for text in refused if text]
    for text in result.unreadable:
        log.error("skipped what could not be read", extra={"what": text})
    count("Unreadable", len(result.unreadable))
    return {
        "account": target.account,
        "region": target.region,
        "starts": result.starts,
        "written": len(result.writes),
        "skipped": result.skipped,
        "unreadable": len(result.unreadable),
    }


def _save(write: Write, target: Target, now: str) -> None:
    environment = write.environment
    if write.event is not None:
        # Told before it is written: after a crash in between it is told twice, never not at all.
        detail_type, facts = write.event
        bus.publish(
            detail_type,
            {
                "environment": environment.pk,
                "reservation_id": environment.capacity_block_id,
                "account": target.account,
                "region": target.region,
                "now": now,
                **facts,
            },
        )
    asked = environment.status is Status.EXTENSION_APPROVAL_REQUIRED or asks(environment)
    if "end_time" in write.changes and asked:
        supersede_open_requests(environment.capacity_block_id, write.changes["end_time"], parse_instant(now))
    try:
        set_status(
            environment.pk, write.status, write.error, parse_instant(now), version=environment.version, **write.changes
        )
    except ConditionFailedError:
        # A workflow or a person wrote meanwhile; the next sweep sees what they wrote.
        log.info("left to the next sweep", extra={"environment": environment.pk})
