"""What `extend` and `replace` share: a rehearsal that is shown step by step, and a workflow that is started once."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, NamedTuple

from blockkeeper.domain.instants import format_instant, stamp
from blockkeeper.domain.names import extension_name, replacement_name
from blockkeeper_cli import clock, output
from blockkeeper_cli.errors import CommandError, error_code
from blockkeeper_cli.rehearsal import Step, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from datetime import datetime

    from blockkeeper.domain.environment import Environment
    from blockkeeper.domain.reservation import Reservation
    from blockkeeper_cli.connection import Connection

_IN_USE = {"ExecutionAlreadyExists", "StepFunctions.ExecutionAlreadyExistsException"}
# Step Functions takes 80 characters; `-by-hand-20260504T1130Z` are 23.
_LONGEST_NAME = 57


class Workflow(NamedTuple):
    """A workflow, the stack's output with its ARN, and the name of its one execution for a block and an end."""

    name: str
    output: str
    name_for: Callable[[str, datetime], str]


EXTEND_BLOCK = Workflow("extend-block", "ExtendBlockArn", extension_name)
REPLACE_BLOCK = Workflow("replace-block", "ReplaceBlockArn", replacement_name)


def show_rehearsal(
    environment: Environment, reservation: Reservation, steps: Iterable[Step], otherwise: str, *, json_: bool
) -> None:
    """Show each step as soon as it is done.

    Args:
        otherwise: what would not come about if a step stops: ``would not be extended``.

    Raises:
        CommandError: a step stops.
    """
    done: list[Step] = []
    for step in steps:
        done.append(step)
        if not json_:
            _print(len(done), step)
    stops = [step for step in done if step.verdict is Verdict.STOP]
    if json_:
        verdict = stops[0].verdict if stops else done[-1].verdict
        facts = {
            "environment": environment.pk,
            "reservation_id": reservation.reservation_id,
            "end_date": format_instant(reservation.end),
        }
        output.show_json({**facts, "verdict": verdict, "steps": [asdict(step) for step in done]})
    if stops:
        raise CommandError(f"{environment.pk} {otherwise}: {stops[0].words}")


def _print(number: int, step: Step) -> None:
    from rich.padding import Padding
    from rich.text import Text

    colours = {Verdict.OK: "green", Verdict.UNKNOWN: "yellow", Verdict.WAIT: "yellow", Verdict.STOP: "red"}
    head = Text(f"{number}. {step.name}: ", style="bold").append(step.verdict, style=colours[step.verdict])
    output.show(head, Padding(Text(step.words), (0, 0, 0, 3)))


def input_for(environment: Environment, reservation: Reservation, account: str, who: str) -> dict[str, str]:
    """A workflow's input (schemas/extend-block.schema.json) for the block's present end.

    Args:
        who: who starts it, which approvers see.
    """
    return {
        "environment": environment.pk,
        "reservation_id": reservation.reservation_id,
        "account": account,
        "region": reservation.region,
        "end_date": format_instant(reservation.end),
        "requested_by": who,
    }


def start(
    connection: Connection, workflow: Workflow, reservation: Reservation, given: dict[str, str], *, json_: bool
) -> None:
    """Start a workflow for the block's present end, and say under which name; one that runs already is named.

    The one name for block and end is used up once an execution of it has ended, for 90 days; then another one is taken, which is
    safe: the ledger buys once for a block and an end.

    Raises:
        CommandError: both names are used up.
    """
    name = workflow.name_for(reservation.reservation_id, reservation.end)
    machine = connection.output(workflow.output)
    by_hand = f"{name[:_LONGEST_NAME]}-by-hand-{stamp(clock.now())}"
    started = _start_as(connection, machine, name, given) or _start_as(connection, machine, by_hand, given)
    if started is None:
        raise CommandError(
            f"{by_hand} has run already; wait a minute before you start it again, or see `blockkeeper history`"
        )
    if json_:
        output.show_json({**started, "input": given})
        return
    output.say(
        f"{workflow.name} {'started' if started['started'] else 'is running already'}: {started['execution_arn']}"
    )


def begin(step: Step, workflow: Workflow) -> None:
    """Say what the workflow would meet first, before it is started.

    Raises:
        CommandError: it would stop there.
    """
    if step.verdict is Verdict.STOP:
        raise CommandError(f"{workflow.name} would buy nothing and is not started: {step.words}")
    if step.verdict is not Verdict.OK:
        output.note(f"first of all: {step.words}")


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
