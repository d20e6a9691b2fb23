"""Options that every command has."""

from typing import Annotated

import typer

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Stack = Annotated[str, typer.Option("--stack", envvar="BLOCKKEEPER_STACK", help="Name of the deployed stack.")]
Region = Annotated[str | None, typer.Option("--region", help="AWS Region of the stack; else that of the profile.")]
Profile = Annotated[str | None, typer.Option("--profile", help="AWS profile; else the standard AWS environment.")]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Show each step and ask EC2's DryRun; spends and writes nothing.")
]
AsksFor = Annotated[
    str | None, typer.Option("--as", help="Who asks, shown to approvers; else the name of your AWS identity.")
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]

DEFAULT_STACK = "blockkeeper"
