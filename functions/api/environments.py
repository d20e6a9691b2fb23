"""Routes of the environment records: `/` and `/{PK}`.

AWS's sample names the record by `?PK=` or in the body at `/`, its documents name it in the path: both work here.
"""

import re
from typing import Any

from api.approvals import approve_open
from api.http import Answer, RefusedError, Request, invalid
from api.paging import asked_limit, asked_start, page
from blockkeeper.aws import environments
from blockkeeper.aws.table import ConditionFailedError
from blockkeeper.domain.enrolment import (
    PaymentPendingError,
    changed_record,
    leftover,
    new_record,
    pk_problem,
    rule_problems,
    shared_group_problems,
    wanted_record,
    warnings,
)
from blockkeeper.domain.environment import Status
from blockkeeper.domain.problem import Problem
from blockkeeper.schema_check import schema, schema_problems, without_read_only
from blockkeeper.settings import approver_emails

Record = dict[str, Any]

# Writers of one record are few: the sweep, a workflow, a person.
ATTEMPTS = 5


def list_or_read(request: Request) -> Answer:
    """`GET /`: all records as a plain array; with `?PK=` that one record, as the sample answers."""
    if "PK" in request.query:
        return read(request)
    limit = asked_limit(request)
    records = environments.list_environments(asked_start(request), None if limit is None else limit + 1)
    shown, headers = page(request, records, "PK")
    return Answer(200, [_public(record) for record in shown], headers)


def read(request: Request) -> Answer:
    """`GET /{PK}`."""
    return _answer(200, _load(_pk(request, {})))


def create(request: Request) -> Answer:
    """`POST /`: enrol a block. The next sweep reads it from EC2."""
    return _create(request, without_read_only("environment", request.fields()))


def change(request: Request) -> Answer:
    """`PUT /{PK}`: change the fields that the body names.

    A field that is null falls back to its default. An unknown PK is enrolled, as in AWS's sample.
    """
    fields = request.fields()
    pk = _pk(request, fields)
    body = without_read_only("environment", fields)
    for _ in range(ATTEMPTS):
        before = environments.load_record(pk)
        _check_match(request, before)
        if before is None:
            return _create(request, {**body, "PK": pk})
        wanted = wanted_record(before, body)
        _check(wanted, request, before)
        try:
            record = changed_record(before, wanted, request.now, approver_emails())
            environments.replace(record, before.get("version", 0), leftover(before, record, request.now))
        except PaymentPendingError:
            raise _payment_pending(pk, "turn to another block") from None
        except ConditionFailedError:
            continue
        return _answer(200, record)
    raise _busy(pk)


def delete(request: Request) -> Answer:
    """`DELETE /{PK}`: forget the record. The block itself stays; what was armed on its groups is taken away by the next sweep."""
    pk = _pk(request, request.fields())
    for _ in range(ATTEMPTS):
        before = _load(pk)
        _check_match(request, before)
        if before.get("status") == Status.EXTENSION_PAYMENT_PENDING:
            raise _payment_pending(pk, "be deleted")
        try:
            environments.delete(pk, before.get("version", 0), leftover(before, None, request.now))
        except ConditionFailedError:
            continue
        return Answer(200, {"PK": pk, "status": "Deleted"})
    raise _busy(pk)


def approve(request: Request) -> Answer:
    """`PATCH /{PK}`: approve the open request of this record."""
    fields = request.fields()
    pk = _pk(request, fields)
    if problems := schema_problems("approval-answer", fields):
        raise invalid(problems)
    return approve_open(_load(pk), fields, request.now)


def _create(request: Request, body: Record) -> Answer:
    body = {name: value for name, value in body.items() if value is not None}
    _check(body, request, None)
    record = new_record(body, request.now, approver_emails())
    try:
        environments.create(record)
    except ConditionFailedError:
        pk = record["PK"]
        message = f"PK {pk} is enrolled already; change it with PUT /{pk}, or choose another PK"
        raise RefusedError(409, "already_exists", message) from None
    return _answer(201, record)


def _check(record: Record, request: Request, before: Record | None) -> None:
    problems = schema_problems("environment", record)
    wrong = {re.split(r"[.\[]", problem.field, maxsplit=1)[0] for problem in problems}
    sound = {name: value for name, value in record.items() if name not in wrong}
    problems += rule_problems(sound, request.now, before)
    if sound.get("groups") and not problems:
        # Only who follows a block with groups can be in another's way; the count is EC2's, as the record's last sweep saw it.
        known = {"instance_count": (before or {}).get("instance_count")} if _same_block(sound, before) else {}
        problems += shared_group_problems({**sound, **known}, environments.list_environments())
    if problems:
        raise invalid(problems)


def _same_block(record: Record, before: Record | None) -> bool:
    return before is not None and all(record.get(name) == before.get(name) for name in ("capacity_block_id", "region"))


def _pk(request: Request, body: Record) -> str:
    named = [pk for pk in (request.path.get("PK"), request.query.get("PK"), body.get("PK")) if pk is not None]
    if not named:
        raise invalid([Problem("PK", "is missing", "a request names its record", "use /{PK}, ?PK= or the field PK")])
    if any(pk != named[0] for pk in named):
        raise invalid([Problem("PK", "is named twice, differently", "a record keeps its PK", "name one PK")])
    pk = named[0]
    problem = pk_problem(pk) if isinstance(pk, str) else Problem("PK", "is no text", "it is text", "quote it")
    if problem:
        raise invalid([problem])
    return str(pk)


def _load(pk: str) -> Record:
    record = environments.load_record(pk)
    if record is None:
        raise RefusedError(404, "not_found", f"no environment {pk} is enrolled; see GET / for those that are")
    return record


def _check_match(request: Request, record: Record | None) -> None:
    """`If-Match` as RFC 9110 has it: `*` any, else one of the listed ETags."""
    wanted = request.headers.get("if-match")
    if wanted is None:
        return
    tags = [tag.strip() for tag in wanted.split(",")]
    if record is None or ("*" not in tags and _etag(record) not in tags):
        now = "there is no such record" if record is None else f"its ETag is {_etag(record)}"
        raise RefusedError(
            412, "changed_meanwhile", f"If-Match does not hold: {now}; read the record again and repeat the change"
        )


def _etag(record: Record) -> str:
    return f'"{record.get("version", 0)}"'


def _answer(status: int, record: Record) -> Answer:
    return Answer(status, _public(record), {"ETag": _etag(record)})


def _public(record: Record) -> Record:
    shown = {name: record[name] for name in schema("environment")["properties"] if name in record}
    return shown | ({"warnings": warned} if (warned := warnings(record)) else {})


def _payment_pending(pk: str, what: str) -> RefusedError:
    message = f"an extension of {pk} awaits its payment, so the record cannot {what} now; wait for its status to change"
    return RefusedError(409, "payment_pending", message)


def _busy(pk: str) -> RefusedError:
    return RefusedError(409, "changed_meanwhile", f"{pk} is being changed by others at this moment; repeat the request")
