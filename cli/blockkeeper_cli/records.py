"""Environment records through the REST API: finding the one that is meant, and showing, enrolling and removing one."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from blockkeeper.domain.enrolment import pk_problem
from blockkeeper_cli import options, output
from blockkeeper_cli.block_check import look
from blockkeeper_cli.connection import Connection
from blockkeeper_cli.errors import CommandError, UsageError
from blockkeeper_cli.four_eyes import note_unlike_approvers
from blockkeeper_cli.rest import Api, ApiError, Record, segment

Pk = Annotated[str, typer.Argument(metavar="PK", help="Name of the environment record.")]


def find_record(api: Api, target: str) -> Record | None:
    """The record of a name, or of a block's id; None when there is none.

    Raises:
        CommandError: several records name the block.
    """
    if not target.startswith("cr-"):
        return _read(api, target)
    found = [record for record in api.pages("/") if target in (record["PK"], record.get("capacity_block_id"))]
    if len(found) > 1:
        names = ", ".join(record["PK"] for record in found)
        raise CommandError(f"{target} is enrolled more than once, as {names}; name the one you mean")
    return found[0] if found else None


def wanted_record(api: Api, target: str) -> Record:
    """As `find_record`, where there must be one."""
    record = find_record(api, target)
    if record is None:
        raise CommandError(f"{target} is not enrolled; `blockkeeper status` lists what is")
    return record


def _read(api: Api, pk: str) -> Record | None:
    try:
        record: Record = api.call("GET", f"/{_checked(pk)}")
    except ApiError as error:
        if error.code == "not_found":
            return None
        raise
    return record


def _checked(pk: str) -> str:
    # A word of the API's own, such as `blocks`, would ask another question.
    if problem := pk_problem(pk) if pk else "PK is empty; name a record":
        raise UsageError(str(problem))
    return segment(pk)


def enrol(
    file: Annotated[str, typer.Argument(metavar="FILE|-", help="A record as JSON; - reads standard input.")],
    *,
    update: Annotated[
        bool, typer.Option("--update", help="Change the record that is there: PUT instead of POST.")
    ] = False,
    who: Annotated[
        str | None, typer.Option("--as", help="Who enrols it, as in approvers; else the name of your AWS identity.")
    ] = None,
    json_: options.Json = False,
    stack: options.Stack = options.DEFAULT_STACK,
    region: options.Region = None,
    profile: options.Profile = None,
) -> None:
    """Enrol a block: store its environment record. With four_eyes whoever enrols it cannot approve it alone."""
    body, connection = _from_file(file), Connection(stack, region, profile)
    path = f"/{_checked(str(body.get('PK', '')))}" if update else "/"
    stored = (_read(connection.api, str(body["PK"])) if update else None) or {}
    if who or not stored.get("enrolled_by"):
        body = {"enrolled_by": who or connection.caller} | body
    if block := look(connection, body, stored):
        output.note(block)
    record = connection.api.call("PUT" if update else "POST", path, body)
    if json_:
        output.show_json(record)
        return
    output.say(f"{record['PK']} is enrolled: {record['capacity_block_id']} in {record['region']}")
    if record.get("error"):
        output.say(f"nothing is bought for it yet: {record['error']}")
    if record["require_approval"] and record["four_eyes"] and record.get("enrolled_by"):
        note_unlike_approvers(record["enrolled_by"])
    for warning in record.get("warnings", ()):
        output.say(f"warning: {warning}")


def show(
    pk: Pk,
    *,
    json_: options.Json = False,
    stack: options.Stack = options.DEFAULT_STACK,
    region: options.Region = None,
    profile: options.Profile = None,
) -> None:
    """Show one environment record, policy and all."""
    record = wanted_record(Connection(stack, region, profile).api, pk)
    if json_:
        output.show_json(record)
        return
    fields = output.table("Field", "Value", whole=("Field",))
    for name, value in record.items():
        fields.add_row(name, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
    output.show(fields)


def remove(
    pk: Pk,
    *,
    yes: options.Yes = False,
    json_: options.Json = False,
    stack: options.Stack = options.DEFAULT_STACK,
    region: options.Region = None,
    profile: options.Profile = None,
) -> None:
    """Forget a record: its block stays, and nothing more is done for it."""
    path = f"/{_checked(pk)}"
    output.confirm(f"Forget {pk}? Its block is not extended any more, and its groups stay as they are.", yes)
    answer = Connection(stack, region, profile).api.call("DELETE", path)
    if json_:
        output.show_json(answer)
    else:
        output.say(f"{pk} is forgotten")


def _from_file(file: str) -> dict[str, Any]:
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
        body = json.loads(text)
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise UsageError(f"{file} is not JSON: {error}") from error
    if not isinstance(body, dict):
        raise UsageError(f'{file} holds no JSON object; a record is written as in {{"PK": "team-vision", ...}}')
    return body
