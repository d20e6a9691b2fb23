"""`blockkeeper doctor`: what would only go wrong when it counts, with the command that mends it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from blockkeeper_cli import clock, options, output
from blockkeeper_cli.connection import Connection
from blockkeeper_cli.errors import REFUSED, UNREACHABLE, CommandError

if TYPE_CHECKING:
    from blockkeeper.domain.doctor import Finding

_COLOURS = {"error": "red", "warning": "yellow", "unknown": "magenta"}


def doctor(
    pk: Annotated[str | None, typer.Argument(metavar="[PK]", help="Only this record, and what it depends on.")] = None,
    *,
    json_: options.Json = False,
    stack: options.Stack = options.DEFAULT_STACK,
    region: options.Region = None,
    profile: options.Profile = None,
) -> None:
    """Look for what would only go wrong when a block starts, ends or is extended. Changes nothing.

    Exit codes: 0 nothing to mend, 1 something to mend, 2 wrong usage, 3 nothing known to be wrong, but something could not be read.
    """
    connection = Connection(stack, region, profile)
    connection.output("TableName")
    from blockkeeper.aws.environments import list_environments
    from blockkeeper.aws.examination import examine
    from blockkeeper.aws.findings import stored_findings
    from blockkeeper.domain.doctor import Check, Severity, compare, merged
    from blockkeeper.domain.doctor_report import label

    records = list(list_environments())
    if pk is not None and pk not in {record["PK"] for record in records}:
        raise CommandError(f"{pk} is not enrolled; `blockkeeper status` lists what is")
    examination = examine(connection.as_stack(), records, clock.now(), pk)
    # What the caller may not read the daily look may have: what it found there stands until somebody looks again.
    standing = compare(stored_findings(), examination.findings, examination.unread).standing
    findings = merged([*examination.findings, *(each for each in standing if pk is None or each.is_about(pk))])
    if json_:
        output.show_json([finding.as_json() for finding in findings])
    else:
        notes = [finding for finding in findings if finding.severity is Severity.NOTE]
        if len(notes) < len(findings):
            _print(findings[: len(findings) - len(notes)])
        else:
            output.say(f"nothing to mend ({len(records) if pk is None else 1} enrolled, every check made)")
        for note in notes:
            output.say(f"note: {label(note.subject)}: {note.problem} ({note.remedy})")
    if any(finding.severity in {Severity.ERROR, Severity.WARNING} for finding in findings):
        raise typer.Exit(REFUSED)
    if any(finding.check is Check.COULD_NOT_READ for finding in findings):
        raise typer.Exit(UNREACHABLE)


def _print(findings: list[Finding]) -> None:
    from rich.text import Text

    from blockkeeper.domain.doctor_report import label

    rows = output.table("", "Where, and which check", "What is wrong, and why it matters", right=("",), whole=("",))
    rows.show_lines = len(findings) > 1
    for number, finding in enumerate(findings, 1):
        place = Text(label(finding.subject), style="bold")
        place.append(f"\n{finding.severity}", style=_COLOURS[finding.severity]).append(f" {finding.check}", style="dim")
        what = Text(finding.problem)
        what.append(f"\n{finding.why}", style="dim")
        rows.add_row(str(number), place, what)
    output.show(rows)
    output.say("\nTo mend:")
    for number, finding in enumerate(findings, 1):
        output.say(f"{number:>3}  {finding.remedy}")
