"""`blockkeeper status`: where every enrolled block stands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from blockkeeper_cli import options, output
from blockkeeper_cli.connection import Connection
from blockkeeper_cli.errors import CommandError

if TYPE_CHECKING:
    from blockkeeper_cli.rest import Record

_COLOURS = {
    "ERROR": "red",
    "EXPIRED": "red",
    "EXPIRING": "yellow",
    "EXTENDED": "green",
    "EXTENSION_APPROVAL_REQUIRED": "yellow",
    "EXTENSION_PAYMENT_PENDING": "yellow",
    "EXTENSION_REJECTED": "red",
    "EXTENSION_UNAVAILABLE": "red",
}


def status(
    pk: Annotated[str | None, typer.Argument(metavar="[PK]", help="Only this record, with all its deadlines.")] = None,
    *,
    json_: options.Json = False,
    stack: options.Stack = options.DEFAULT_STACK,
    region: options.Region = None,
    profile: options.Profile = None,
) -> None:
    """Show every enrolled block: its end, the time left, its status and what happens next."""
    connection = Connection(stack, region, profile)
    blocks = [block for block in connection.api.pages("/blocks") if pk in (None, block["PK"])]
    if pk is not None and not blocks:
        raise CommandError(f"{pk} is not enrolled; `blockkeeper status` lists what is")
    if json_:
        output.show_json(blocks)
    elif not blocks:
        output.say("no block is enrolled; enrol one with `blockkeeper enrol FILE.json`")
    else:
        output.show(_table(blocks))
        if pk is not None and blocks[0]["deadlines"]:
            output.show(_deadlines(blocks[0]["deadlines"]))


def _table(blocks: list[Record]) -> object:
    from rich.text import Text

    rows = output.table(
        "Block", "Ends (UTC)", "Left", "Status, and what is next", right=("Left",), whole=("Ends (UTC)", "Left")
    )
    rows.columns[-1].min_width = len("EXTENSION_APPROVAL_REQUIRED")
    rows.show_lines = len(blocks) > 1
    for block in blocks:
        state = Text().append(block["status"] or "-", style=_COLOURS.get(block["status"] or "", ""))
        if block["error"]:
            state.append(f"\n{block['error']}", style="red")
        state.append(f"\n{block['next_step']}", style="dim")
        count = f"{block['instance_count']} x " if block["instance_count"] else ""
        name = Text().append(block["PK"], style="bold")
        name.append(f"\n{count}{block['instance_type']}\n{block['region']}", style="dim")
        rows.add_row(name, output.moment(block["end_time"]), output.span(block["minutes_left"]), state)
    return rows


def _deadlines(deadlines: dict[str, str]) -> object:
    words = {
        "first_search": "the search for an extension begins",
        "decide_by": "last moment to decide to buy",
        "order_by": "EC2 takes no order after this",
        "pay_by": "the payment cannot succeed after this",
        "drain_at": "groups go to zero, or earlier for a lifecycle hook",
        "terminates_at": "EC2 starts to terminate instances",
    }
    rows = output.table("Deadline (UTC)", "Meaning")
    for name, instant in sorted(deadlines.items(), key=lambda entry: entry[1]):
        rows.add_row(output.moment(instant), words.get(name, name))
    return rows
