"""Routes of the approvals: who is asked what, and answers given with the API key."""

from datetime import datetime
from typing import Any

from api.http import Answer, RefusedError, Request, invalid
from api.paging import asked_start, page
from blockkeeper.aws.table import get_item, query_kind
from blockkeeper.domain.problem import Problem
from blockkeeper.schema_check import schema, schema_problems

KIND = "approval"
OPEN = "OPEN"
# Who holds the API key may answer for others and says for whom; the prefix keeps it apart from an approver's own answer.
_KEY_HOLDER = "api-key"

Item = dict[str, Any]


def list_approvals(request: Request) -> Answer:
    """`GET /approvals`: all approvals as a plain array, in order of id; with `?status=` those of that status."""
    wanted = request.query.get("status")
    statuses = schema(KIND)["properties"]["status"]["enum"]
    if wanted is not None and wanted not in statuses:
        raise invalid(
            [Problem("status", "is unknown", f"it is one of {', '.join(statuses)}", "use one, or leave it out")]
        )
    found = (item for item in query_kind(KIND, after=asked_start(request)) if wanted in (None, item.get("status")))
    shown, headers = page(request, found, "id")
    return Answer(200, [_public(item) for item in shown], headers)


def approve(request: Request) -> Answer:
    """`POST /approvals/{id}/approve`."""
    return _answer_one(request, "approve")


def reject(request: Request) -> Answer:
    """`POST /approvals/{id}/reject`."""
    return _answer_one(request, "reject")


def approve_open(record: Item, fields: Item, now: datetime) -> Answer:
    """Approve the one open request about the block that a record names (`PATCH /{PK}`)."""
    pk = record["PK"]
    found = [
        item["id"]
        for item in query_kind(KIND, prefix=f"{record['capacity_block_id']}-")
        if item.get("environment") == pk and item.get("status") == OPEN
    ]
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
    return _decide(request.path.get("id", ""), decision, fields, request.now)


def _decide(approval_id: str, decision: str, fields: Item, now: datetime) -> Answer:
    from blockkeeper.aws.approvals import decide

    before = _load(approval_id)
    if before.get("status") != OPEN:
        raise _decided_already(approval_id, before)
    decide(approval_id, decision, f"api:{fields.get('approver', _KEY_HOLDER)}", fields.get("reason"), now)
    after = _load(approval_id)
    # OPEN still: this was a yes, and the quorum wants more of them.
    if after.get("status") not in (OPEN, "APPROVED" if decision == "approve" else "REJECTED"):
        raise _decided_already(approval_id, after)
    return Answer(200, _public(after))


def _load(approval_id: str) -> Item:
    item = get_item(KIND, approval_id) if _is_id(approval_id) else None
    if item is None:
        raise RefusedError(404, "not_found", "there is no such approval; see GET /approvals for those that are")
    return {"id": approval_id, **item}


def _is_id(text: str) -> bool:
    return 0 < len(text) <= 80 and text.isascii() and text.isprintable()  # noqa: PLR2004 - see schemas/approve-purchase


def _decided_already(approval_id: str, item: Item) -> RefusedError:
    by = f" by {item['decided_by']}" if item.get("decided_by") else ""
    at = f" at {item['decided_at']}" if item.get("decided_at") else ""
    message = (
        f"{approval_id} is {item.get('status')}{by}{at}, and cannot be answered again; see GET /approvals?status=OPEN"
    )
    return RefusedError(409, "decided_already", message)


def _public(item: Item) -> Item:
    """Only what the schema names: never the task token (design rule 8)."""
    return {name: item[name] for name in schema(KIND)["properties"] if name in item}
