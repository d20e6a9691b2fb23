"""Routes of the approvals: who is asked what, and answers given with the API key."""

from datetime import datetime
from typing import Any

from api.http import Answer, RefusedError, Request, invalid
from api.paging import asked_start, page
from blockkeeper.aws.table import get_item, query_kind
from blockkeeper.domain.approval import request_from
from blockkeeper.domain.problem import Problem
from blockkeeper.schema_check import schema, schema_problems
from blockkeeper.telemetry import log

KIND = "approval"
OPEN = "OPEN"
# As long as an execution's name; see schemas/approve-purchase.schema.json.
LONGEST_ID = 80
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
    items = (_shown(item, request.now) for item in query_kind(KIND, after=asked_start(request)))
    shown, headers = page(request, (item for item in items if wanted in (None, item["status"])), "approval_id")
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
    return _decide(request.path.get("id", ""), decision, fields, request.now)


def _decide(approval_id: str, decision: str, fields: Item, now: datetime) -> Answer:
    from blockkeeper.aws.approvals import decide

    before = _load(approval_id, now)
    if before["status"] != OPEN:
        raise _decided_already(before)
    decide(approval_id, decision, f"api:{fields.get('approver', _KEY_HOLDER)}", fields.get("reason"), now)
    after = _load(approval_id, now)
    # OPEN still: this was a yes, and the quorum wants more of them.
    if after["status"] not in (OPEN, "APPROVED" if decision == "approve" else "REJECTED"):
        raise _decided_already(after)
    return Answer(200, after)


def _load(approval_id: str, now: datetime) -> Item:
    item = get_item(KIND, approval_id) if 0 < len(approval_id) <= LONGEST_ID and approval_id.isascii() else None
    if item is None:
        raise RefusedError(404, "not_found", "there is no such approval; see GET /approvals for those that are")
    return _shown({"id": approval_id, **item}, now)


def _shown(item: Item, now: datetime) -> Item:
    """Only what the schema names, never the task token (design rule 8); an open request whose time is over shows as expired."""
    status = item.get("status", OPEN)
    try:
        status = request_from({"approval_id": item["id"], **item}).standing(now).value
    except (KeyError, ValueError, TypeError):
        # Written by other ways: shown as it is, so that the others can be seen (design rule 4).
        log.warning("an approval cannot be read", extra={"approval": item["id"]})
    shown = {**item, "approval_id": item["id"], "status": status}
    return {name: shown[name] for name in schema(KIND)["properties"] if shown.get(name) is not None}


def _decided_already(shown: Item) -> RefusedError:
    by = f" by {shown['decided_by']}" if "decided_by" in shown else ""
    at = f" at {shown['decided_at']}" if "decided_at" in shown else ""
    message = f"{shown['approval_id']} is {shown['status']}{by}{at}, and cannot be answered again; see GET /approvals?status=OPEN"
    return RefusedError(409, "decided_already", message)
