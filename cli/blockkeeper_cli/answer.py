"""`blockkeeper approve` and `reject`: answer a request for approval through the REST API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from blockkeeper_cli import options, output
from blockkeeper_cli.connection import Connection
from blockkeeper_cli.errors import CommandError
from blockkeeper_cli.rest import segment

if TYPE_CHECKING:
    from blockkeeper_cli.rest import Api, Record

Target = Annotated[
    str, typer.Argument(metavar="ID|PK", help="Id of the request, or the record's name for its open one.")
]
As = Annotated[
    str | None,
    typer.Option(
        "--as",
        help="Who answers, for the record; else the name of your AWS identity. The API's key is what authorises you.",
    ),
]
Reason = Annotated[str | None, typer.Option("--reason", help="Why, for the record and the team.")]


def approve(
    target: Target,
    *,
    reason: Reason = None,
    who: As = None,
    yes: options.Yes = False,
    json_: options.Json = False,
    stack: options.Stack = options.DEFAULT_STACK,
    region: options.Region = None,
    profile: options.Profile = None,
) -> None:
    """Say yes to one extension: it is then bought, at most for the fee shown."""
    _answer(Connection(stack, region, profile), "approve", target, reason=reason, who=who, yes=yes, json_=json_)


def reject(
    target: Target,
    *,
    reason: Reason = None,
    who: As = None,
    yes: options.Yes = False,
    json_: options.Json = False,
    stack: options.Stack = options.DEFAULT_STACK,
    region: options.Region = None,
    profile: options.Profile = None,
) -> None:
    """Say no to one extension: nothing is bought, and the block ends as planned."""
    _answer(Connection(stack, region, profile), "reject", target, reason=reason, who=who, yes=yes, json_=json_)


def _answer(
    connection: Connection, decision: str, target: str, *, reason: str | None, who: str | None, yes: bool, json_: bool
) -> None:
    api = connection.api
    asked = _open_request(api, target)
    _show(asked)
    output.confirm(f"{decision.capitalize()} this?", yes)
    body = {"approver": who or connection.caller}
    if reason:
        body["reason"] = reason
    decided = api.call("POST", f"/approvals/{segment(asked['approval_id'])}/{decision}", body)
    if json_:
        output.show_json(decided)
    else:
        for line in _outcome(decided):
            output.say(line)


def _outcome(decided: Record) -> list[str]:
    """What was answered, by whom, whose voices are missing, and what comes next."""
    from blockkeeper.domain.approval import API_CALLER, ApprovalStatus, What, local, request_from, without_answer
    from blockkeeper.domain.money import format_usd

    request = request_from(decided)
    what = "new block in place of" if request.what is What.BLOCK else "extension of"
    asked = f"the {what} {request.environment} until {local(request, request.new_end)} for {format_usd(request.upfront_fee)}"
    said = str(decided["message"])
    if request.status is ApprovalStatus.OPEN:
        others = ", ".join(each for each in request.approvers if each.lower() not in request.votes)
        until = local(request, request.decide_by)
        rest = f"It can still be answered by {others}, before {until}; without that {without_answer(request)}."
        return [f"{asked} is not approved yet. {said}", rest]
    who = (request.decided_by or "nobody").removeprefix(API_CALLER)
    after = {
        ApprovalStatus.APPROVED: (
            "the workflow looks the offer up again and buys it, for no more than that (with PurchaseMode dry-run it"
            f" rehearses); `blockkeeper status {request.environment}` shows how far it is."
        ),
        ApprovalStatus.REJECTED: "nothing is bought, and the block ends as planned, its groups drained before.",
    }
    return [
        f"{asked} is {request.status.lower()} by {who}. {said}",
        f"Next: {after[request.status]}",
    ]


def _open_request(api: Api, target: str) -> Record:
    """The open request that is meant.

    Raises:
        CommandError: there is none, or several; what became of the last one is said.
    """
    found = [request for request in api.pages("/approvals", status="OPEN") if _meant(request, target)]
    if len(found) > 1:
        names = ", ".join(request["approval_id"] for request in found)
        raise CommandError(f"{target} has {len(found)} open requests; name the one you mean: {names}")
    if found:
        return found[0]
    past = [request for request in api.pages("/approvals") if _meant(request, target)]
    if not past:
        raise CommandError(f"{target} has no request for approval; `blockkeeper status` shows what is next")
    last = max(past, key=lambda request: str(request.get("opened_at") or request["approval_id"]))
    by = f" by {last['decided_by']}" if last.get("decided_by") else ""
    at = f" at {last['decided_at']}" if last.get("decided_at") else ""
    raise CommandError(
        f"{last['approval_id']} is {last['status']}{by}{at} and cannot be answered again; nothing was changed"
    )


def _meant(request: Record, target: str) -> bool:
    return target in (request["approval_id"], request["environment"])


def _show(request: Record) -> None:
    """What the page and the mail show too, on standard error: the answer alone is the result."""
    from blockkeeper.domain.approval import facts, request_from

    output.note(f"Request {request['approval_id']}")
    try:
        labelled = facts(request_from(request))
    except (KeyError, ValueError, TypeError) as error:
        raise CommandError(f"{request['approval_id']} cannot be read ({error}), so it is not answered") from error
    for label, value in labelled:
        output.note(f"  {label}: {value}")
