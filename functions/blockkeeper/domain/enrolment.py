"""Enrolling a Capacity Block: the rules that span fields, and how a record is made and changed.

Shape and ranges of single fields stand in ``schemas/environment.schema.json``; here is what a schema cannot say.
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

from blockkeeper.domain.durations import IllegalDurationError, extension_hours
from blockkeeper.domain.environment import DEFAULT_REMINDER_HOURS, UTC_ZONE, OnTimeout, Status, parse_environment
from blockkeeper.domain.instants import format_instant, is_time_zone, parse_instant
from blockkeeper.domain.problem import Problem
from blockkeeper.domain.purchase_policy import bought_in_a_row, missing_policy
from blockkeeper.domain.reservation import Reservation

# The first segments of the API's own paths, which a PK would hide.
RESERVED_WORDS = frozenset({"blocks", "approvals", "openapi.json", "decide", "slack"})
# Facts of EC2 about the block, and what was arranged from them: void when the record turns to another block.
MIRRORED_FIELDS = (
    "state",
    "instance_count",
    "owner_id",
    "start_time",
    "groups_armed",
    "groups_check_at",
    "groups_error",
    "groups_followed",
    "extension_outcome",
    "replacement",
    "replaces",
    "groups_from",
)
KEPT_FIELDS = (*MIRRORED_FIELDS, "status", "error", "updated_at", "version")
DEFAULTS: Mapping[str, Any] = {
    "extension_lookahead_days": 2,
    "require_approval": True,
    "approvers": [],
    "quorum": 1,
    "four_eyes": True,
    "reminder_hours": list(DEFAULT_REMINDER_HOURS),
    "escalate_to": [],
    "on_timeout": OnTimeout.REJECT.value,
    "time_zone": UTC_ZONE,
    "fallback_days": [],
    "groups": [],
}

Record = dict[str, Any]


class PaymentPendingError(Exception):
    """The record's extension is bought and not yet paid: it must not lose its block now."""


def rule_problems(record: Mapping[str, Any], now: datetime, before: Mapping[str, Any] | None = None) -> list[Problem]:
    """All breaches of the rules that span fields or need the clock.

    Args:
        record: the whole record as it would be, without the fields that its schema refuses; every field may be absent.
        now: aware UTC.
        before: the stored record, when it is changed: a time that has passed since it was accepted is no fault of this change.
    """
    return [
        *_name_problems(record),
        *_length_problems(record),
        *_approver_problems(record),
        *_answer_problems(record),
        *_time_problems(record, now, before or {}),
        *_group_problems(record),
    ]


def new_record(body: Mapping[str, Any], now: datetime, default_approvers: tuple[str, ...] = ()) -> Record:
    """The record of a checked body, as it is stored: defaults filled in, times in UTC, whole numbers as int.

    Args:
        default_approvers: who is asked when the record names nobody; the stack's `ApproverEmails`.

    A record without a ceiling, or one that asks for approval and names no approver, is accepted, since AWS's sample knows
    neither; it stays PENDING with an error that says what is missing, and nothing is bought for it (design rule 6).
    """
    record = {**DEFAULTS, "name": body.get("PK"), **_plain(body), "status": Status.PENDING.value}
    return _written(record, missing_policy(parse_environment(record, default_approvers)), now)


def warnings(record: Mapping[str, Any]) -> list[str]:
    """What a stored record allows and its owner may not mean, each with the remedy; nothing for one that cannot be read."""
    try:
        found = bought_in_a_row(parse_environment(record))
    except (KeyError, ValueError, TypeError, AttributeError):
        return []
    return [] if found is None else [found]


def wanted_record(before: Mapping[str, Any], body: Mapping[str, Any]) -> Record:
    """The record that a change asks for, to be checked as a whole: the fields of `body` in place of the stored ones.

    As in AWS's sample a change names only what changes; a field that is null falls back to its default.
    """
    stored = {name: value for name, value in before.items() if name not in KEPT_FIELDS}
    return {name: value for name, value in {**stored, **body, "PK": before["PK"]}.items() if value is not None}


def changed_record(
    before: Mapping[str, Any], wanted: Mapping[str, Any], now: datetime, default_approvers: tuple[str, ...] = ()
) -> Record:
    """The record to store in place of `before`, from the checked record that a change asks for.

    Args:
        default_approvers: as for `new_record`.

    Raises:
        PaymentPendingError: it turns to another block while an extension of the present one awaits its payment.
    """
    kept = {name: before[name] for name in KEPT_FIELDS if name in before}
    readable, lacked = _policy_of(before, default_approvers)
    moved = any(wanted[name] != before.get(name) for name in ("capacity_block_id", "region"))
    if moved and kept.get("status") == Status.EXTENSION_PAYMENT_PENDING:
        raise PaymentPendingError
    record = {**DEFAULTS, "name": wanted["PK"], **_plain(wanted)}
    if moved and record.get("end_time") == before.get("end_time"):
        record.pop("end_time", None)
    if moved or not readable:
        kept = {"version": kept.get("version", 0), "status": Status.PENDING.value}
    if kept.get("state") is not None:
        # EC2 has been read: its EndDate stands, whatever a client still remembers (design rule 3).
        record["end_time"] = before.get("end_time")
    error = missing_policy(parse_environment(record, default_approvers))
    if error is None and kept.get("error") != lacked:
        error = kept.get("error")
    return _written({**record, **kept}, error, now)


def leftover(before: Mapping[str, Any], after: Mapping[str, Any] | None, now: datetime) -> Record | None:
    """What a record leaves armed for its block when it is deleted (`after` is None) or turns to another; None if nothing."""
    stays = after is not None and all(after.get(name) == before.get(name) for name in ("capacity_block_id", "region"))
    followed = set(before.get("groups_followed") or ())
    followed |= {group["auto_scaling_group"] for group in before.get("groups") or () if "auto_scaling_group" in group}
    if stays or not (followed or before.get("groups_armed")):
        return None
    return {
        "environment": before["PK"],
        "reservation_id": before["capacity_block_id"],
        "region": before["region"],
        "owner_id": before.get("owner_id"),
        "groups": sorted(followed),
        "since": format_instant(now),
    }


def shared_group_problems(record: Mapping[str, Any], others: Iterable[Mapping[str, Any]]) -> list[Problem]:
    """What is wrong when several records follow one block: a group that two of them name, or more instances than were bought.

    Args:
        record: the record as it would be.
        others: the stored records; those of other blocks, and the record itself, are passed over.
    """
    block = (record.get("region"), record.get("capacity_block_id"))
    same = [
        other
        for other in others
        if (other.get("region"), other.get("capacity_block_id")) == block and other.get("PK") != record.get("PK")
    ]
    taken = {_group_key(group): other["PK"] for other in same for group in other.get("groups") or ()}
    problems = [
        Problem(
            f"groups[{i}]",
            f"is {_group_key(group)[1]}, which record {taken[_group_key(group)]} names for {block[1]}, too",
            "a group follows a block once",
            f"take it off {record.get('PK')} or off {taken[_group_key(group)]}",
        )
        for i, group in enumerate(record.get("groups") or ())
        if _group_key(group) in taken
    ]
    bought = next((other["instance_count"] for other in (record, *same) if other.get("instance_count")), None)
    wanted = sum(
        group.get("instances") or bought or 0 for each in (record, *same) for group in each.get("groups") or ()
    )
    if same and record.get("groups") and bought is not None and wanted > bought and not problems:
        names = ", ".join(sorted(str(each.get("PK")) for each in (record, *same) if each.get("groups")))
        rule = f"{block[1]} has {bought}, and records {names} follow it"
        remedy = f"set instances so that they sum up to {bought}"
        problems.append(Problem("groups", f"want {wanted} instances together", rule, remedy))
    return problems


def _group_key(group: Mapping[str, Any]) -> tuple[str, str]:
    """A group's kind and name."""
    if "eks_nodegroup" in group:
        return "eks_nodegroup", f"{group.get('eks_cluster')}/{group['eks_nodegroup']}"
    return next(
        (name, str(group[name])) for name in ("auto_scaling_group", "batch_compute_environment") if name in group
    )


def _policy_of(record: Mapping[str, Any], default_approvers: tuple[str, ...]) -> tuple[bool, str | None]:
    """Whether a stored record can be read (somebody may have written to the table by hand), and what its policy lacks."""
    try:
        return True, missing_policy(parse_environment(record, default_approvers))
    except (ValueError, KeyError, TypeError, AttributeError):
        return False, None


def record_for_tagged_block(reservation: Reservation, now: datetime) -> Record:
    """The record of a reservation that is enrolled by its tag `blockkeeper:environment=<PK>` alone.

    It asks for approval, wants one day and looks two days ahead; it has neither approver nor ceiling, so nothing is bought until
    somebody adds them.

    Raises:
        ValueError: the tag's value is no PK; the message names rule and remedy.
    """
    pk = reservation.environment or ""
    if problem := pk_problem(pk):
        raise ValueError(f"{reservation.reservation_id}: tag blockkeeper:environment: {problem}")
    record = new_record(
        {
            "PK": pk,
            "capacity_block_id": reservation.reservation_id,
            "region": reservation.region,
            "instance_type": reservation.instance_type,
            "end_time": format_instant(reservation.end),
            "extend_by_days": 1,
        },
        now,
    )
    mirrored = {
        "state": reservation.state,
        "instance_count": reservation.instance_count,
        "owner_id": reservation.owner_id,
        "start_time": reservation.start and format_instant(reservation.start),
    }
    return record | {name: value for name, value in mirrored.items() if value is not None}


def pk_problem(pk: str) -> Problem | None:
    """What is wrong with a PK that comes without a body: in a path, or in a tag."""
    allowed = pk.isascii() and pk.replace(".", "").replace("_", "").replace("-", "").isalnum()
    if not allowed or not pk[0].isalnum() or len(pk) > 128:  # noqa: PLR2004 - the design's own number
        return Problem(
            "PK",
            "is no name of a record",
            "it is 1 to 128 letters, digits, dots, underscores and hyphens, and begins with a letter or digit",
            "choose a name such as team-vision",
        )
    return next(_name_problems({"PK": pk}), None)


def _plain(body: Mapping[str, Any]) -> Record:
    record = {name: _whole(value) for name, value in body.items() if name not in KEPT_FIELDS}
    for name in ("end_time", "extend_until"):
        if record.get(name) is not None:
            record[name] = format_instant(parse_instant(record[name]))
    return record


def _whole(value: Any) -> Any:
    """1.0 as 1: JSON has one kind of number, and the schema has made sure that it is whole."""
    if isinstance(value, float):
        return int(value)
    if isinstance(value, list):
        return [_whole(entry) for entry in value]
    if isinstance(value, dict):
        return {name: _whole(entry) for name, entry in value.items()}
    return value


def _written(record: Record, error: str | None, now: datetime) -> Record:
    written = {**record, "error": error, "updated_at": format_instant(now), "version": record.get("version", 0) + 1}
    return {name: value for name, value in written.items() if value is not None}


def _name_problems(record: Mapping[str, Any]) -> Iterator[Problem]:
    if record.get("PK") in RESERVED_WORDS:
        words = ", ".join(sorted(RESERVED_WORDS))
        yield Problem("PK", f"is {record['PK']}", f"the API's own words are no names: {words}", "choose another name")


def _length_problems(record: Mapping[str, Any]) -> Iterator[Problem]:
    wanted = record.get("extend_by_days")
    fallbacks = record.get("fallback_days") or []
    named = [("extend_by_days", wanted), *((f"fallback_days[{i}]", days) for i, days in enumerate(fallbacks))]
    for field, days in named:
        try:
            if days is not None:
                extension_hours(int(days), field)
        except IllegalDurationError as error:
            found, rule = str(error).removeprefix(f"{field} ").split("; ", 1)
            rule, remedy = rule.removesuffix(")").split(" (", 1)
            yield Problem(field, found, rule, remedy)
        else:
            if field != "extend_by_days" and wanted is not None and days >= wanted:
                rule = f"a fallback is shorter than extend_by_days, which is {wanted}"
                yield Problem(field, f"is {days}", rule, "use a smaller one, or leave it out")


def _approver_problems(record: Mapping[str, Any]) -> Iterator[Problem]:
    approvers = record.get("approvers") or []
    if len({_person(approver) for approver in approvers}) < len(approvers):
        yield Problem("approvers", "names somebody twice", "each approver has one voice", "name each once")
    quorum = record.get("quorum") or 1
    # With nobody named the record waits for approvers (see new_record); a quorum of one is then no further fault.
    if "approvers" in record and quorum > max(1, len(approvers)):
        rule = f"it is at most the number of approvers, which is {len(approvers)}"
        yield Problem("quorum", f"is {quorum}", rule, f"use {max(1, len(approvers))}, or name more approvers")


def _answer_problems(record: Mapping[str, Any]) -> Iterator[Problem]:
    """Who else may answer, and what no answer means."""
    approvers = {_person(approver) for approver in record.get("approvers") or []}
    second = record.get("escalate_to") or []
    if approvers & {_person(approver) for approver in second}:
        rule = "the second list is asked when the first has not answered"
        yield Problem("escalate_to", "names somebody of approvers", rule, "name other people")
    if second and record.get("escalate_hours") is None:
        rule = "escalate_to is asked that many hours before the last moment to answer"
        yield Problem("escalate_hours", "is missing", rule, "set it, such as 4")
    if record.get("escalate_hours") is not None and not second:
        yield Problem("escalate_to", "is empty", "escalate_hours needs somebody to ask", "name them, or leave both out")
    if record.get("on_timeout") == OnTimeout.APPROVE and record.get("max_upfront_fee") is None:
        rule = "nothing is bought unasked without a ceiling"
        yield Problem("on_timeout", "is approve", rule, "set max_upfront_fee, or use reject")
    enroller = record.get("enrolled_by")
    if record.get("four_eyes") is not False and enroller and approvers == {_person(enroller)}:
        rule = "with four_eyes whoever enrolled the block cannot approve alone"
        yield Problem(
            "approvers", "names only who enrolled it", rule, "name somebody else too, or set four_eyes to false"
        )
    if record.get("time_zone") is not None and not is_time_zone(record["time_zone"]):
        yield Problem(
            "time_zone",
            f"is {record['time_zone']}",
            "it is the IANA name of a time zone",
            "write it as in Europe/Berlin",
        )


def _person(approver: str) -> str:
    return approver.lower() if "@" in approver else approver.rpartition(":")[2]


def _time_problems(record: Mapping[str, Any], now: datetime, before: Mapping[str, Any]) -> Iterator[Problem]:
    until = record.get("extend_until")
    if until is None or (before.get("extend_until") and parse_instant(until) == parse_instant(before["extend_until"])):
        return
    if parse_instant(until) <= now:
        rule = f"it is now {format_instant(now)}, so nothing could be bought"
        yield Problem("extend_until", f"is {until}", rule, "use a later time, or leave it out")


def _group_problems(record: Mapping[str, Any]) -> Iterator[Problem]:
    seen: set[tuple[str, str]] = set()
    for i, group in enumerate(record.get("groups") or []):
        key = _group_key(group)
        if key in seen:
            yield Problem(f"groups[{i}]", f"is {key[1]} again", "each group follows a block once", "leave it out")
        seen.add(key)
