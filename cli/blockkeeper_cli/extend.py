"""`blockkeeper extend`: start the workflow for a block by hand, or rehearse it. The command itself never buys."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from blockkeeper.domain.approval import length
from blockkeeper.domain.instants import format_instant, stamp
from blockkeeper.domain.names import extension_name
from blockkeeper_cli import block, clock, options, output
from blockkeeper_cli.connection import Connection
from blockkeeper_cli.errors import CommandError, error_code
from blockkeeper_cli.records import wanted_record
from blockkeeper_cli.rehearsal import Step, Verdict, rehearse

if TYPE_CHECKING:
    from blockkeeper.domain.environment import Environment
    from blockkeeper.domain.reservation import Reservation

_IN_USE = {"ExecutionAlreadyExists", "StepFunctions.ExecutionAlreadyExistsException"}


def extend(
    target: Annotated[str, typer.Argument(metavar="PK|RESERVATION_ID", help=block.Target)],
    *,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show each step and ask EC2's DryRun; spends and writes nothing.")
    ] = False,
    who: Annotated[
        str | None, typer.Option("--as", help="Who asks, shown to approvers; else the name of your AWS identity.")
    ] = None,
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
    if dry_run:
        _rehearse(environment, reservation, account, json_)
        return
    end = format_instant(reservation.end)
    output.note(f"{environment.pk}: {reservation.reservation_id}, {block.size(reservation)}, ends {end}")
    if not environment.require_approval:
        output.note("its record asks for no approval: what its policy allows is bought at once")
    output.confirm(f"Start extend-block to extend it by {length(environment.wanted_hours)}?", yes)
    started = _start(connection, environment, reservation, account, who or connection.caller)
    if json_:
        output.show_json(started)
        return
    output.say(f"extend-block {'started' if started['started'] else 'is running already'}: {started['execution_arn']}")


def _rehearse(environment: Environment, reservation: Reservation, account: str, json_: bool) -> None:
    steps: list[Step] = []
    for step in rehearse(environment, reservation, account, clock.now()):
        steps.append(step)
        if not json_:
            _print(len(steps), step)
    stops = [step for step in steps if step.verdict is Verdict.STOP]
    if json_:
        verdict = stops[0].verdict if stops else steps[-1].verdict
        facts = {
            "environment": environment.pk,
            "reservation_id": reservation.reservation_id,
            "end_date": format_instant(reservation.end),
        }
        output.show_json({**facts, "verdict": verdict, "steps": [asdict(step) for step in steps]})
    if stops:
        raise CommandError(f"{environment.pk} would not be extended: {stops[0].words}")


def _print(number: int, step: Step) -> None:
    from rich.padding import Padding
    from rich.text import Text

    colours = {Verdict.OK: "green", Verdict.UNKNOWN: "yellow", Verdict.WAIT: "yellow", Verdict.STOP: "red"}
    head = Text(f"{number}. {step.name}: ", style="bold").append(step.verdict, style=colours[step.verdict])
    output.show(head, Padding(Text(step.words), (0, 0, 0, 3)))


def _start(
    connection: Connection, environment: Environment, reservation: Reservation, account: str, who: str
) -> dict[str, Any]:
    machine = connection.output("ExtendBlockArn")
    given = {
        "environment": environment.pk,
        "reservation_id": reservation.reservation_id,
        "account": account,
        "region": reservation.region,
        "end_date": format_instant(reservation.end),
        "requested_by": who,
    }
    name = extension_name(reservation.reservation_id, reservation.end)
    # A finished execution keeps its name for 90 days. Another name is safe: the ledger buys once for a block and an end.
    by_hand = f"{name[:55]}-by-hand-{stamp(clock.now())}"
    for wanted in (name, by_hand):
        if started := _start_as(connection, machine, wanted, given):
            return {**started, "input": given}
    raise CommandError(
        f"{by_hand} has run already; wait a minute before you start it again, or see `blockkeeper history`"
    )


def _start_as(connection: Connection, machine: str, name: str, given: dict[str, str]) -> dict[str, Any] | None:
    """Start it, or find it running under that name; None when the name is used up."""
    from botocore.exceptions import ClientError

    states = connection.client("stepfunctions")
    try:
        answer = states.start_execution(stateMachineArn=machine, name=name, input=json.dumps(given))
    except ClientError as error:
        if error_code(error) not in _IN_USE:
            raise
    else:
        return {"execution_arn": answer["executionArn"], "name": name, "started": True}
    arn = f"{machine.replace(':stateMachine:', ':execution:')}:{name}"
    if states.describe_execution(executionArn=arn)["status"] not in {"RUNNING", "PENDING_REDRIVE"}:
        return None
    return {"execution_arn": arn, "name": name, "started": False}
