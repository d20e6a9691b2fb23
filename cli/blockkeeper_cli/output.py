"""What people read: tables that fit into 80 columns, no colour where there is no terminal, times in UTC."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import typer

from blockkeeper.domain.instants import parse_instant
from blockkeeper_cli.errors import CommandError, UsageError

if TYPE_CHECKING:
    from rich.table import Table

_MINUTES_OF_DAY, _MINUTES_OF_HOUR = 1440, 60


def say(line: str = "") -> None:
    """One line of text, which is never broken: it may hold an ARN to copy."""
    typer.echo(line)


def note(line: str) -> None:
    """One line beside the result, on standard error."""
    typer.echo(line, err=True)


def show(*parts: Any) -> None:
    """Tables and text, wrapped to the terminal, or to 80 columns."""
    from rich.console import Console

    # No markup, since names and reasons that others wrote may hold brackets.
    console = Console(markup=False, highlight=False, emoji=False)
    for part in parts:
        console.print(part)


def show_json(value: Any) -> None:
    """JSON for programs."""
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False))


def table(*columns: str, right: tuple[str, ...] = (), whole: tuple[str, ...] = ()) -> Table:
    """An empty table.

    Args:
        right: columns of numbers.
        whole: columns whose text is not wrapped.
    """
    from rich import box
    from rich.table import Table

    made = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    for column in columns:
        made.add_column(
            column, justify="right" if column in right else "left", no_wrap=column in whole, overflow="fold"
        )
    return made


def moment(instant: datetime | str | None) -> str:
    """An instant in UTC to the minute: ``2026-05-04 11:30``; the column or sentence says UTC."""
    if instant is None:
        return "-"
    aware = parse_instant(instant) if isinstance(instant, str) else instant.astimezone(UTC)
    return f"{aware:%Y-%m-%d %H:%M}"


def span(minutes: int | None) -> str:
    """A span in its two largest units: ``3d 4h``, ``2h 05m``, ``12m``."""
    if minutes is None:
        return "-"
    days, rest = divmod(minutes, _MINUTES_OF_DAY)
    hours, left = divmod(rest, _MINUTES_OF_HOUR)
    if days:
        return f"{days}d {hours}h"
    return f"{hours}h {left:02}m" if hours else f"{left}m"


def interactive() -> bool:
    """Whether a person sits at the other end."""
    return sys.stdin.isatty()


def confirm(question: str, yes: bool) -> None:
    """Let a person confirm, on standard error, so that standard output stays for the result.

    Raises:
        UsageError: nobody is there to ask, and `yes` is not set.
        CommandError: the answer is no.
    """
    if yes:
        return
    if not interactive():
        raise UsageError("there is no terminal to confirm on; pass --yes if you mean it")
    if not typer.confirm(question, err=True):
        raise CommandError("not confirmed; nothing was done")
