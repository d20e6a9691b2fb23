"""The environment records in the table: kind `environment`, id = PK, and the record's fields as in its JSON form.

Every write counts `version` up by one. A write of a whole record names the version that it read, so that none is lost.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from blockkeeper.aws.leftovers import Leftover, put_leftover
from blockkeeper.aws.table import (
    ConditionFailedError,
    delete_request,
    get_item,
    put_request,
    query_kind,
    transact,
    update_request,
    write,
)
from blockkeeper.domain.environment import Environment, Status, parse_environment
from blockkeeper.domain.instants import format_instant
from blockkeeper.domain.reservation import Reservation
from blockkeeper.settings import approver_emails

KIND = "environment"

Record = dict[str, Any]


def load_record(pk: str) -> Record | None:
    """One record in its JSON form, strongly consistent; None when there is none."""
    item = get_item(KIND, pk)
    return None if item is None else {"PK": pk, **item}


def load_environment(pk: str) -> Environment | None:
    """One record with its type; None when there is none.

    Raises:
        ValueError, KeyError: somebody wrote to the table by other ways (see `parse_environment`).
    """
    record = load_record(pk)
    return None if record is None else parse_environment(record, approver_emails())


def list_environments(after: str | None = None, limit: int | None = None) -> Iterator[Record]:
    """All records in their JSON form, in order of PK, read page by page (Query, strongly consistent).

    Args:
        after: start behind this PK.
        limit: at most so many.
    """
    for item in query_kind(KIND, after=after, limit=limit):
        yield {"PK": item.pop("id"), **item}


def create(record: Mapping[str, Any]) -> None:
    """Store a new record.

    Raises:
        ConditionFailedError: a record of this PK exists.
    """
    write(put_request(KIND, record["PK"], _attributes(record), condition="attribute_not_exists(id)"))


def replace(record: Mapping[str, Any], version: int, leftover: Leftover | None = None) -> None:
    """Store a record in place of the one that was read with `version` (0: it had none).

    Args:
        leftover: what its block leaves armed when the record turns to another; written with it or not at all.

    Raises:
        ConditionFailedError: it has been written or deleted since.
    """
    condition, values = _unchanged(version)
    _write_with(put_request(KIND, record["PK"], _attributes(record), condition=condition, values=values), leftover)


def delete(pk: str, version: int, leftover: Leftover | None = None) -> None:
    """Delete the record that was read with `version`.

    Args:
        leftover: what its block leaves armed; written with the deletion or not at all.

    Raises:
        ConditionFailedError: it has been written or deleted since.
    """
    condition, values = _unchanged(version)
    _write_with(delete_request(KIND, pk, condition=condition, values=values), leftover)


def _write_with(request: dict[str, Any], leftover: Leftover | None) -> None:
    if leftover is None:
        write(request)
    else:
        transact([request, put_leftover(leftover)])


def set_status(
    pk: str, status: Status, error: str | None, now: datetime, *, version: int | None = None, **mirrored: Any
) -> None:
    """Write status, error and EC2's facts in one UpdateItem. The caller decides whether anything is worth a write.

    Args:
        error: what is wrong, with the remedy; None clears it.
        now: aware UTC, for `updated_at`.
        version: the version that was read, when the decision rests on it; None writes to whatever is there.
        mirrored: fields such as `end_time`, `state`, `instance_count`; instants may be aware datetimes, None removes a field.

    Raises:
        ConditionFailedError: the record was deleted, or written since `version`. A deleted record is not made again.
    """
    facts = {name: format_instant(value) if isinstance(value, datetime) else value for name, value in mirrored.items()}
    condition, values = ("attribute_exists(id)", {}) if version is None else _unchanged(version)
    write(
        update_request(
            KIND,
            pk,
            set_={**facts, "status": status.value, "error": error, "updated_at": format_instant(now)},
            add={"version": 1},
            condition=condition,
            values=values,
        )
    )


def set_replacement(pk: str, said: Mapping[str, Any], now: datetime) -> None:
    """Write what replace-block says of a record's block; see `Environment.replacement`.

    Raises:
        ConditionFailedError: the record was deleted; it is not made again.
    """
    facts = {"replacement": dict(said), "updated_at": format_instant(now)}
    write(update_request(KIND, pk, set_=facts, add={"version": 1}, condition="attribute_exists(id)"))


def set_groups(
    environment: Environment,
    armed: str | None,
    check_at: datetime | None,
    error: str | None,
    followed: tuple[str, ...],
) -> None:
    """Write what scale-groups arranged, when it differs from what the record says.

    Args:
        environment: the record as it was read.
        armed: fingerprint of what stands in Auto Scaling now; None when not all groups are arranged, so that the next sweep tries
            again.
        check_at: the boundary after which to look at the groups again.
        error: what keeps a group from following the block; it also shows as the record's `error` when nothing else does.
        followed: Auto Scaling groups that may have something of ours on them.

    Raises:
        ConditionFailedError: the record was written or deleted since it was read; what was arranged may be out of date.
    """
    shown = error if environment.error in {None, environment.groups_error} else environment.error
    before = (environment.groups_armed, environment.groups_check_at, environment.groups_error, environment.error)
    if (*before, environment.groups_followed) == (armed, check_at, error, shown, followed):
        return
    condition, values = _unchanged(environment.version)
    facts = {
        "groups_armed": armed,
        "groups_check_at": None if check_at is None else format_instant(check_at),
        "groups_error": error,
        "groups_followed": list(followed) or None,
        "error": shown,
    }
    write(update_request(KIND, environment.pk, set_=facts, add={"version": 1}, condition=condition, values=values))


def enrol_tagged(reservation: Reservation, now: datetime) -> str | None:
    """Store the record of a reservation that is enrolled by its tag alone.

    Returns:
        Why it was not enrolled, in words for a log: the tag is no PK, or a record of this PK exists and its word counts.
        None when it was enrolled. One bad tag never stops a sweep (design rule 4).
    """
    # Only the sweep enrols; no other function's start should pay for the rules.
    from blockkeeper.domain.enrolment import record_for_tagged_block

    try:
        create(record_for_tagged_block(reservation, now))
    except ValueError as error:
        return str(error)
    except ConditionFailedError:
        return (
            f"{reservation.reservation_id}: a record {reservation.environment} exists; it names the block, not the tag"
        )
    return None


def _attributes(record: Mapping[str, Any]) -> Record:
    return {name: value for name, value in record.items() if name != "PK"}


def _unchanged(version: int) -> tuple[str, Record]:
    if version:
        return "version = :version", {":version": version}
    # A record that was written to the table by other ways has no version.
    return "attribute_exists(id) AND attribute_not_exists(version)", {}
