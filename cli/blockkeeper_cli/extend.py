"""`blockkeeper extend`: start the workflow for a block by hand, or rehearse it. The command itself never buys."""

from __future__ import annotations

from typing import Annotated

import typer

from blockkeeper.domain.approval import length
from blockkeeper.domain.instants import format_instant
from blockkeeper_cli import block, by_hand, clock, options, output, rehearsal
from blockkeeper_cli.connection import Connection
from blockkeeper_cli.four_eyes import note_unlike_approvers
from blockkeeper_cli.records import wanted_record


def extend(
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
    """Start extend-block for a block now. It buys only what the record's policy and its approvers allow, and once."""
    connection = Connection(stack, region, profile)
    environment = block.environment_of(connection, wanted_record(connection.api, target))
    reservation, account = block.read_enrolled(connection, environment)
    now = clock.now()
    if dry_run:
        steps = rehearsal.rehearse(environment, reservation, account, now)
        by_hand.show_rehearsal(environment, reservation, steps, "would not be extended", json_=json_)
        return
    end = format_instant(reservation.end)
    output.note(f"{environment.pk}: {reservation.reservation_id}, {block.size(reservation)}, ends {end}")
    by_hand.begin(rehearsal.look(environment, reservation, account, now), by_hand.EXTEND_BLOCK)
    who = who or connection.caller
    if environment.require_approval and environment.four_eyes:
        note_unlike_approvers(who)
    if not environment.require_approval:
        output.note("its record asks for no approval: what its policy allows is bought at once")
    output.confirm(f"Start extend-block to extend it by {length(environment.wanted_hours)}?", yes)
    given = by_hand.input_for(environment, reservation, account, who)
    by_hand.start(connection, by_hand.EXTEND_BLOCK, reservation, given, json_=json_)
