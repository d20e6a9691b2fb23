"""`blockkeeper replace`: start plan B for a block by hand, or rehearse it. The command itself never buys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from blockkeeper.domain.deadlines import deadlines_of
from blockkeeper.domain.instants import format_instant
from blockkeeper_cli import block, by_hand, clock, options, output, replacement_rehearsal
from blockkeeper_cli.connection import Connection
from blockkeeper_cli.records import wanted_record
from blockkeeper_cli.rehearsal import Verdict

if TYPE_CHECKING:
    from datetime import datetime

    from blockkeeper.domain.environment import Environment
    from blockkeeper.domain.reservation import Reservation


def replace(
    target: Annotated[str, typer.Argument(metavar="PK|RESERVATION_ID", help=block.Target)],
    *,
    dry_run: options.DryRun = False,
    who: options.AsksFor = None,
    yes: options.Yes = False,
    json_: options.Json = False,
    stack: options.Stack = options.DEFAULT_STACK,
    region: options.Region = None,
    profile: options.Profile = None,
) -> None:
    """Start replace-block for a block now: a new block in its place, or what is left to do for one that is bought already."""
    connection = Connection(stack, region, profile)
    environment = block.environment_of(connection, wanted_record(connection.api, target))
    reservation, account = block.read_enrolled(connection, environment)
    now = clock.now()
    if dry_run:
        steps = replacement_rehearsal.rehearse(environment, reservation, account, now)
        by_hand.show_rehearsal(environment, reservation, steps, "would get no new block", json_=json_)
        return
    end = format_instant(reservation.end)
    output.note(f"{environment.pk}: {reservation.reservation_id}, {block.size(reservation)}, ends {end}")
    first = replacement_rehearsal.look(environment, reservation, account, now)
    by_hand.begin(first, by_hand.REPLACE_BLOCK)
    if first.verdict is Verdict.OK:
        for line in _warnings(environment, reservation, now):
            output.note(line)
    output.confirm("Start replace-block?", yes)
    given = by_hand.input_for(environment, reservation, account, who or connection.caller)
    by_hand.start(connection, by_hand.REPLACE_BLOCK, reservation, given, json_=json_)


def _warnings(environment: Environment, reservation: Reservation, now: datetime) -> list[str]:
    """What a person should know who starts it out of turn."""
    from blockkeeper import settings

    lines = []
    decide_by = deadlines_of(environment, reservation, settings.payment_margin()).decide_by
    if now < decide_by:
        lines.append(
            f"the block can be extended until {format_instant(decide_by)}; once a new block is bought no extension is, for this end"
        )
    said = environment.extension_outcome or {}
    if said.get("end_date") == format_instant(reservation.end) and said.get("outcome") in {
        "rejected",
        "not_allowed",
        "over_budget",
    }:
        lines.append(f"its extension ended as {said['outcome']}, after which no new block is searched without you")
    if not environment.require_approval:
        lines.append("its record asks for no approval: what its policy allows is bought at once")
    return lines
