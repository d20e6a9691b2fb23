"""Routes of the approvals: who is asked what, and answers given with the API key.

What decides an approval is imported where it is needed: most requests are about records, and a start should not pay for it.
"""

from datetime import datetime
from typing import Any

from api.http import Answer, RefusedError, Request, invalid
from api.paging import asked_start, page
from blockkeeper.aws.table import query_kind
from blockkeeper.domain.problem import Problem
from blockkeeper.schema_check import schema, schema_problems
from blockkeeper.telemetry import log

KIND = "approval"
OPEN = "OPEN"
# Who holds the API key may answer for others and says for whom; the prefix keeps it apart from an approver's own answer.
_KEY_HOLDER = "api-key"
# As long as an execution's name; see schemas/approve-purchase.schema.json.
LONGEST_ID = 80

Item = dict[str, Any]


def list_approvals(request: Request) -> Answer:
    """`GET /approvals`: all approvals as a plain array, in order of id; `?status=` and `?environment=` narrow it."""
    wanted = request.query.get("status")
    statuses = schema(KIND)["properties"]["status"]["enum"]
    if wanted is not None and wanted not in statuses:
        raise invalid(
            [Problem("status", "is unknown", f"it is one of {', '.join(statuses)}", "use one, or leave it out")]
        )
    environment = request.query.get("environment")
    items = (_shown(item, request.now) for item in query_kind(KIND, after=asked_start(request)))
    fitting = (
        item for item in items if wanted in (None, item["status"]) and environment in (None, item.get("environment"))
    )
    shown, headers = page(request, fitting, "approval_id")
    return Answer(200, shown, headers)


def approve(request: Request) -> Answer:
    """`POST /approvals/{id}/approve`."""
    return _answer_one(request, "approve")


def reject(request: Request) -> Answer:
    """`POST /approvals/{id}/reject`."""
    return _answer_one(request, "reject")


def approve_open(record: Item, fields: Item, now: datetime) -> Answer:
    """Approve the one open request about the block that a record names (`PATCH /{PK}`)."""
    pk = record["PK"]
    items = (_shown(item, now) for item in query_kind(KIND, prefix=f"{record['capacity_block_id']}-"))
    found = [item["approval_id"] for item in items if (item.get("environment"), item["status"]) == (pk, OPEN)]
    if not found:
        status = record.get("status")
        message = (
            f"nothing to approve: {pk} has no open request, its status is {status}; see GET /approvals for past ones"
        )
        raise RefusedError(409, "nothing_to_approve", message)
    if len(found) > 1:
        message = (
            f"{pk} has {len(found)} open requests; answer one with POST /approvals/{{id}}/approve: {', '.join(found)}"
        )
        raise RefusedError(409, "ambiguous", message)
    return _decide(found[0], "approve", fields, now)


def _answer_one(request: Request, decision: str) -> Answer:
    fields = request.fields()
    if problems := schema_problems("approval-answer", fields):
        raise invalid(problems)
    approval_id = request.path["id"]
    if not 1 <= len(approval_id) <= LONGEST_ID or not approval_id.isascii():
        raise _not_found()
    return _decide(approval_id, decision, fields, request.now)


def _decide(approval_id: str, decision: str, fields: Item, now: datetime) -> Answer:
    from blockkeeper.aws.approvals import TooManyAnswersError, decide
    from blockkeeper.domain.approval import API_CALLER, Decision, request_item
    from blockkeeper.domain.approval import Answer as Vote

    who = f"{API_CALLER}{fields.get('approver', _KEY_HOLDER)}"
    try:
        decided = decide(approval_id, Decision(decision), who, fields.get("reason"), now)
    except TooManyAnswersError as error:
        raise RefusedError(409, "changed_meanwhile", str(error)) from None
    if decided.request is None:
        raise _not_found()
    if decided.answer not in (Vote.RECORDED, Vote.COUNTED):
        raise RefusedError(
            409, decided.answer.value, f"{decided.message} See GET /approvals?status=OPEN for what can be answered."
        )
    shown = _shown({"id": approval_id, **request_item(decided.request)}, now)
    return Answer(200, {**shown, "message": decided.message})


def _not_found() -> RefusedError:
    return RefusedError(404, "not_found", "there is no such approval; see GET /approvals for those that are")


def _shown(item: Item, now: datetime) -> Item:
    """Only what the schema names, never the task token (design rule 8); an open request whose time is over shows as expired."""
    from blockkeeper.domain.approval import request_from

    status = item.get("status", OPEN)
    try:
        status = request_from({**item, "approval_id": item["id"]}).standing(now).value
    except (KeyError, ValueError, TypeError):
        # Written by other ways: shown as it is, so that the others can be seen (design rule 4).
        log.warning("an approval cannot be read", extra={"approval": item["id"]})
    shown = {**item, "approval_id": item["id"], "status": status}
    return {name: shown[name] for name in schema(KIND)["properties"] if shown.get(name) is not None}
