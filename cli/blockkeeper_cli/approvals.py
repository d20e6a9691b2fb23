"""`blockkeeper approvals`: who is asked what, and what became of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from blockkeeper_cli import options, output
from blockkeeper_cli.connection import Connection

if TYPE_CHECKING:
    from blockkeeper_cli.rest import Record

_COLOURS = {"OPEN": "yellow", "APPROVED": "green", "REJECTED": "red", "EXPIRED": "red"}


def approvals(
    pk: Annotated[str | None, typer.Argument(metavar="[PK]", help="Only those of this record.")] = None,
    *,
    all_: Annotated[bool, typer.Option("--all", "-a", help="Past ones too.")] = False,
    json_: options.Json = False,
    stack: options.Stack = options.DEFAULT_STACK,
    region: options.Region = None,
    profile: options.Profile = None,
) -> None:
    """List the requests that wait for an answer, or with --all also what became of past ones."""
    connection = Connection(stack, region, profile)
    query = {**({} if all_ else {"status": "OPEN"}), **({} if pk is None else {"environment": pk})}
    found = sorted(connection.api.pages("/approvals", **query), key=lambda request: str(request.get("opened_at")))
    if json_:
        output.show_json(found)
    elif found:
        output.show(_table(found))
    else:
        whose = "" if pk is None else f" of {pk}"
        past = "" if all_ else "; --all lists past ones"
        output.say(f"no request{whose}{'' if all_ else ' waits for an answer'}{past}")


def _table(found: list[Record]) -> object:
    from rich.text import Text

    rows = output.table("Request", "New end (UTC)", "Fee", "Where it stands", right=("Fee",), whole=("Fee",))
    rows.show_lines = len(found) > 1
    for request in found:
        name = Text().append(request["environment"], style="bold").append(f"\n{request['approval_id']}", style="dim")
        status = request["status"]
        stands = Text().append(status, style=_COLOURS.get(status, "")).append(f"\n{_words(request)}", style="dim")
        rows.add_row(name, output.moment(request.get("new_end")), _fee(request.get("upfront_fee")), stands)
    return rows


def _words(request: Record) -> str:
    if request["status"] == "OPEN":
        yes = sum(vote == "approve" for vote in (request.get("votes") or {}).values())
        return f"answer before {output.moment(request.get('decide_by'))}; {yes} of {request.get('quorum', 1)} said yes"
    by = f"by {request['decided_by']} " if request.get("decided_by") else ""
    why = f": {request['reason']}" if request.get("reason") else ""
    return f"{by}at {output.moment(request.get('decided_at'))}{why}"


def _fee(text: str | None) -> str:
    from blockkeeper.domain.money import UnreadableFeeError, format_usd, parse_usd

    try:
        return format_usd(parse_usd(text))
    except UnreadableFeeError:
        return text or "-"
