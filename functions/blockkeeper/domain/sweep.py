"""The sweep of one target: compare every enrolled block with EC2's list, and say what to write and what to start. Pure."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from blockkeeper.domain.calendar import scaling_due
from blockkeeper.domain.deadlines import deadlines_of
from blockkeeper.domain.environment import Environment, Status, parse_environment
from blockkeeper.domain.expiry import Action, Decision, decide, missing_target
from blockkeeper.domain.instants import format_instant
from blockkeeper.domain.names import (
    extension_name,
    found_replacement_name,
    leftover_name,
    replaced_end,
    replacement_name,
    scaling_name,
)
from blockkeeper.domain.new_block import PAID_STATES
from blockkeeper.domain.outcome import LEFT_BEHIND, Outcome
from blockkeeper.domain.replacement import replacement_due
from blockkeeper.domain.replacement_outcome import ReplacementOutcome
from blockkeeper.domain.reservation import (
    Reservation,
    UnreadableReservationError,
    is_capacity_block,
    parse_reservation,
)

# A sweep may begin late and takes a while until it starts what is due; what is watched for lasts a little beyond the next one.
SWEEP_LATENESS = timedelta(minutes=2)


@dataclass(frozen=True, slots=True)
class Target:
    """An account and a Region. `home` is true for the account that the stack is in; `beside` are the Region's other accounts."""

    account: str
    region: str
    home: bool
    beside: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Write:
    """New values of a record; `changes` are the mirrored fields that differ, as the record stores them.

    `event` is what is to be told before: a detail-type, and what its detail says beside the block.
    """

    environment: Environment
    status: Status
    error: str | None
    changes: Mapping[str, Any]
    event: tuple[str, Mapping[str, Any]] | None = None


@dataclass(slots=True)
class Sweep:
    """What a sweep came to: records to write, workflows to start, and counts."""

    writes: list[Write] = field(default_factory=list)
    starts: list[dict[str, Any]] = field(default_factory=list)
    unenrolled: list[Reservation] = field(default_factory=list)
    skipped: int = 0
    unreadable: list[str] = field(default_factory=list)


def sweep(
    target: Target,
    entries: Iterable[Mapping[str, Any]],
    records: Iterable[Mapping[str, Any]],
    *,
    leftovers: Iterable[Mapping[str, Any]],
    payment_margin: timedelta,
    default_approvers: tuple[str, ...],
    period: timedelta,
    now: datetime,
) -> Sweep:
    """Sweep one target.

    Args:
        entries: every entry of DescribeCapacityReservations, all pages: a part of them would make blocks look gone.
        records: every environment record, in its JSON form with `PK`.
        leftovers: what records that are gone left armed in this Region.
        period: time until the next sweep; a group's boundary before that is watched for by scale-groups, which is started now.
    """
    result = Sweep()
    watched = now + period + SWEEP_LATENESS
    blocks = _blocks(entries, target.region, result)
    records, enrolled = list(records), set()
    ids = {str(record.get("capacity_block_id")) for record in records}
    bought = [block for block in blocks.values() if block.purchase]
    for record in records:
        if record.get("region") != target.region:
            continue
        enrolled.add(record.get("PK"))
        try:
            environment = parse_environment(record, default_approvers)
            reservation = blocks.get(environment.capacity_block_id)
            if reservation is not None:
                _found(
                    target, environment, reservation, result, payment_margin=payment_margin, watched=watched, now=now
                )
            elif _ours_to_miss(environment, target):
                _missing(target, environment, result, now)
            result.starts += _gone_on_with(target, environment, bought, ids, now)
        except Exception as error:  # noqa: BLE001 - whatever somebody wrote by hand, the others go on (design rule 4)
            result.unreadable.append(f"record {record.get('PK')}: {type(error).__name__}: {error}")
    result.starts += [_disarm(target, leftover, now) for leftover in leftovers]
    result.unenrolled = [block for block in blocks.values() if block.environment and block.environment not in enrolled]
    return result


def unswept(records: Iterable[Mapping[str, Any]], targets: Collection[tuple[str, str]]) -> list[str]:
    """PKs of the records that no sweep looks at, since Region or account of their block is in no target.

    Args:
        records: in their JSON form; unreadable ones are somebody else's finding, except for where they are.
        targets: (account, Region) pairs.
    """
    return [
        str(record.get("PK"))
        for record in records
        if record.get("status") != Status.EXPIRED
        and missing_target(record.get("region"), record.get("owner_id"), record.get("error"), targets)
    ]


def _blocks(entries: Iterable[Mapping[str, Any]], region: str, result: Sweep) -> dict[str, Reservation]:
    blocks = {}
    for entry in entries:
        if not is_capacity_block(entry):
            result.skipped += 1
            continue
        try:
            reservation = parse_reservation(entry, region)
        except (UnreadableReservationError, AttributeError, TypeError) as error:
            result.unreadable.append(str(error))
            continue
        blocks[reservation.reservation_id] = reservation
    return blocks


def _found(
    target: Target,
    environment: Environment,
    reservation: Reservation,
    result: Sweep,
    *,
    payment_margin: timedelta,
    watched: datetime,
    now: datetime,
) -> None:
    decision = decide(
        environment,
        reservation,
        account=target.account,
        payment_margin=payment_margin,
        now=now,
        owner_swept=reservation.owner_id in target.beside,
    )
    write = _write(environment, reservation, decision)
    scale = decision.action is Action.DRAIN or scaling_due(environment, reservation, watched)
    until = watched if scale else None
    result.starts += _starts(target, environment, reservation, decision, now=now, scale_until=until)
    decide_by = deadlines_of(environment, reservation, payment_margin).decide_by
    ours = reservation.owner_id == target.account
    if ours and replacement_due(environment, reservation.end, decide_by, payment_margin, now):
        name = replacement_name(reservation.reservation_id, reservation.end)
        result.starts.append(_replacement(target, environment, reservation.end, name))
    result.writes += [write] if write else []


def _starts(
    target: Target,
    environment: Environment,
    reservation: Reservation,
    decision: Decision,
    *,
    now: datetime,
    scale_until: datetime | None,
) -> list[dict[str, Any]]:
    block = {
        "environment": environment.pk,
        "reservation_id": reservation.reservation_id,
        "account": target.account,
        "region": target.region,
    }
    starts = []
    if decision.action is Action.EXTEND:
        name = extension_name(reservation.reservation_id, reservation.end)
        end_date = format_instant(reservation.end)
        starts.append({"workflow": "extend-block", "name": name, "input": {**block, "end_date": end_date}})
    if scale_until is not None and environment.has_groups:
        name = scaling_name(reservation.reservation_id, target.account, reservation.end, now)
        given = {**block, "until": format_instant(scale_until)}
        starts.append({"workflow": "scale-groups", "name": name, "input": given})
    return starts


def _disarm(target: Target, leftover: Mapping[str, Any], now: datetime) -> dict[str, Any]:
    reservation_id = leftover["reservation_id"]
    given = {
        "environment": leftover["environment"],
        "reservation_id": reservation_id,
        "account": target.account,
        "region": target.region,
    }
    name = leftover_name(reservation_id, target.account, now)
    return {"workflow": "scale-groups", "name": name, "input": given}


def _replacement(target: Target, environment: Environment, end: datetime, name: str) -> dict[str, Any]:
    block = {
        "environment": environment.pk,
        "reservation_id": environment.capacity_block_id,
        "account": target.account,
        "region": target.region,
        "end_date": format_instant(end),
    }
    return {"workflow": "replace-block", "name": name, "input": block}


def _gone_on_with(
    target: Target, environment: Environment, bought: Iterable[Reservation], enrolled: Collection[str], now: datetime
) -> list[dict[str, Any]]:
    """What goes on with a new block that is paid for, when the replace-block that ordered it is over.

    Either it had given the order up and said so, or somebody stopped it: it says nothing then, and one that runs would be done.

    Args:
        bought: blocks that our orders made, in place of any block.
        enrolled: reservations that a record is about.
    """
    starts = []
    for block in bought:
        end = replaced_end(environment.capacity_block_id, block.purchase or "")
        if end is None or block.state not in PAID_STATES or block.owner_id != target.account:
            continue
        said = environment.replacement or {}
        said = said if said.get("end_date") == format_instant(end) else {}
        given_up = said.get("outcome") in LEFT_BEHIND
        over = given_up or now >= max(block.start or end, end)
        if block.reservation_id in enrolled:
            # Stopped before its groups were pointed at it.
            over = over and said.get("outcome") == ReplacementOutcome.CONFIRMED
        elif said.get("outcome") == ReplacementOutcome.NOT_ENROLLED or said.get("environment"):
            # People were told, or took the record away.
            over = False
        if over:
            name = found_replacement_name(environment.capacity_block_id, end)
            starts.append(_replacement(target, environment, end, name))
    return starts


def _write(environment: Environment, reservation: Reservation, decision: Decision) -> Write | None:
    """What to write about a block; None when the record says it already: no write for facts that did not change."""
    mirrored = {
        "end_time": (environment.end_time, reservation.end),
        "start_time": (environment.start_time, reservation.start),
        "state": (environment.state, reservation.state),
        "instance_count": (environment.instance_count, reservation.instance_count),
        "owner_id": (environment.owner_id, reservation.owner_id),
    }
    changes = {
        name: format_instant(new) if isinstance(new, datetime) else new
        for name, (old, new) in mirrored.items()
        if old != new
    }
    error = decision.error or environment.groups_error or reservation.late_drain
    if not changes and (environment.status, environment.error) == (decision.status, error):
        return None
    event = _moved_late(environment, reservation)
    if decision.status is Status.EXPIRING and environment.status is not Status.EXPIRING:
        facts = {"end_date": format_instant(reservation.end), "reason": decision.reason}
        event = "Block Expiring", facts
    return Write(environment, decision.status, error, changes, event)


def _moved_late(environment: Environment, reservation: Reservation) -> tuple[str, Mapping[str, Any]] | None:
    """What is told when EC2 has moved an end after all, and the workflow that said it would not is over."""
    said, before = environment.extension_outcome or {}, environment.end_time
    if before is None or reservation.end <= before or said.get("end_date") != format_instant(before):
        return None
    if said.get("outcome") not in LEFT_BEHIND:
        return None
    end = format_instant(reservation.end)
    reason = f"EC2 moved the end to {end} after all; what was told before was: {said['outcome'].replace('_', ' ')}"
    facts = {"end_date": format_instant(before), "outcome": Outcome.CONFIRMED, "reason": reason, "end": end}
    return "Extension Confirmed", facts


def _ours_to_miss(environment: Environment, target: Target) -> bool:
    """Whether a block that EC2 does not show here ought to be here: other accounts of a Region do not see it either."""
    return environment.owner_id == target.account or (environment.owner_id is None and target.home)


def _missing(target: Target, environment: Environment, result: Sweep, now: datetime) -> None:
    if environment.end_time is not None and now >= environment.end_time:
        # EC2 forgets an expired reservation after a while; the record remembers its end.
        status, error = Status.EXPIRED, None
    else:
        status = Status.ERROR
        error = (
            f"capacity_block_id is {environment.capacity_block_id}; account {target.account} has no such Capacity Block in "
            f"{target.region} (correct capacity_block_id or region, or delete the record)"
        )
    if (environment.status, environment.error) != (status, error):
        result.writes.append(Write(environment, status, error, {}))
