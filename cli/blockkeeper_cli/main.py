"""The `blockkeeper` command: commands, exit codes and the one place where errors become words.

boto3 is imported by the command that needs it: help and completion come at once.
"""

from __future__ import annotations

from typing import Any, NoReturn

import typer
from typer.core import TyperGroup

from blockkeeper_cli import answer, approvals, doctor, extend, history, offers, records, replace, resolve, status
from blockkeeper_cli.errors import CommandError, explain

_EPILOG = (
    "Every command takes --stack (or BLOCKKEEPER_STACK), --region, --profile and --json behind its name."
    " Exit codes: 0 done, 1 refused or failed, 2 wrong usage, 3 AWS or the API not reached."
)


class _Commands(TyperGroup):
    """Turns expected errors into one line on standard error and an exit code."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except Exception as error:
            # Typer's own errors, such as a wrong option, pass through.
            known = None if type(error).__module__.startswith(("typer", "click")) else explain(error)
            if known is None:
                raise
            _end(known)


def _end(error: CommandError) -> NoReturn:
    typer.echo(typer.style("error: ", fg="red") + str(error), err=True)
    raise typer.Exit(error.exit_code)


app = typer.Typer(
    name="blockkeeper",
    help="Keep EC2 Capacity Blocks running for as long as a team needs them.",
    cls=_Commands,
    no_args_is_help=True,
    # A traceback with local variables could show the API's key.
    pretty_exceptions_show_locals=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=_EPILOG,
)


for command in (
    status.status,
    offers.offers,
    extend.extend,
    replace.replace,
    approvals.approvals,
    answer.approve,
    answer.reject,
    history.history,
    doctor.doctor,
    resolve.resolve,
    records.enrol,
    records.show,
    records.remove,
):
    app.command()(command)
