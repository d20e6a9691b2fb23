"""What the reader sees: steps, the story line by line, and the tables. Everything is also kept for a picture."""

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from decimal import Decimal
from io import StringIO
from pathlib import Path

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from local.demo.fleet import Case
from local.demo.watch import News, Seen, short, told_actions

WIDTH = 160
# Rich's picture without its web fonts: a page that shows it loads nothing from elsewhere.
PICTURE = re.sub(r"@font-face \{\{.*?\}\}", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
_COLOURS = {
    "step": "cyan",
    "mail": "magenta",
    "buy": "yellow",
    "moved": "bold green",
    "scale": "blue",
    "end": "bold",
    "status": "dim",
}


class Screen:
    """Prints to the terminal, and again to a picture when one is wanted."""

    def __init__(self) -> None:
        self.console = Console(highlight=False)
        if not self.console.is_terminal or self.console.width > WIDTH:
            self.console = Console(width=WIDTH, highlight=False)
        self._picture = Console(record=True, width=WIDTH, file=StringIO(), force_terminal=True, highlight=False)

    def show(self, what: RenderableType = "") -> None:
        """Print something in both places."""
        self.console.print(what)
        self._picture.print(what)

    def heading(self, text: str) -> None:
        """A new part of the story."""
        self.show()
        self.show(Text(text, style="bold reverse"))

    @contextmanager
    def step(self, text: str) -> Iterator[None]:
        """One line for something that takes a while."""
        started = time.monotonic()
        with self.console.status(text):
            yield
        self.console.print(f"  [green]✓[/] {text:<60} {time.monotonic() - started:6.1f} s")

    def news(self, all_news: list[News]) -> None:
        """The story's next lines."""
        for each in all_news:
            line = Text.assemble(
                (f"  {short(each.at)}  ", "dim"), (f"{each.pk:<14}", "bold"), (each.text, _COLOURS[each.kind])
            )
            line.truncate(WIDTH, overflow="ellipsis")
            self.console.print(line)
            if each.kind != "status":  # the table has it
                self._picture.print(line)

    @contextmanager
    def waiting(self, text: Callable[[], str]) -> Iterator[Callable[[], None]]:
        """A line at the bottom that says what is waited for; the story goes on above it."""
        with self.console.status(text()) as status:
            yield lambda: status.update(text())

    def save(self, path: Path) -> None:
        """Write the picture."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self._picture.save_svg(str(path), title="./dev demo", code_format=PICTURE)


def found(cases: list[Case], seen: dict[str, Seen]) -> Table:
    """The fleet after the first sweep."""
    table = Table(
        title="What was found",
        title_justify="left",
        box=None,
        header_style="bold",
        pad_edge=False,
        padding=(0, 2, 0, 2),
    )
    for column in ("block", "region", "instances", "EC2 says", "ends (UTC)", "status", "which is"):
        table.add_column(column, no_wrap=column != "which is")
    for case in cases:
        block = seen[case.pk]
        table.add_row(case.pk, case.region, case.instances, block.state, short(block.end), block.status, case.about)
    return table


def outcomes(cases: list[Case], seen: dict[str, Seen], wrong: dict[str, list[str]]) -> Table:
    """What became of each block."""
    table = Table(
        title="What became of them",
        title_justify="left",
        box=None,
        header_style="bold",
        pad_edge=False,
        padding=(0, 2, 0, 2),
    )
    for column in (
        "",
        "block",
        "outcome",
        "record",
        "fee (USD)",
        "old end",
        "new end",
        "next group actions (min/max/desired)",
    ):
        table.add_column(
            column, justify="right" if column.startswith("fee") else "left", no_wrap=not column.startswith("next")
        )
    for case in cases:
        block = seen[case.pk]
        extended = block.end is not None and block.end != block.first_end
        mark = Text("✗", style="bold red") if wrong.get(case.pk) else Text("✓", style="green")
        ended = block.extension
        outcome = ended.last_state if ended.closed else "nothing bought" if ended.execution is None else "still running"
        new_end = Text(short(block.end), style="bold green") if extended else "-"
        if block.new_blocks:
            outcome, new_end = f"{outcome}, so a new block", Text(short(block.new_blocks[0].end), style="bold green")
        table.add_row(
            mark, case.pk, outcome, block.status, _fee(block), short(block.first_end), new_end,
            told_actions(block) if case.group else "no group",
        )  # fmt: skip
    return table


def following(
    cases: list[Case], seen: dict[str, Seen], counts: list[tuple[datetime, dict[str, int]]], wrong: dict[str, list[str]]
) -> Table:
    """How many instances each group had at each of some moments."""
    table = Table(
        title="Instances in each group",
        title_justify="left",
        box=None,
        header_style="bold",
        pad_edge=False,
        padding=(0, 2, 0, 2),
    )
    for column in ("", "group", "block starts", "block ends"):
        table.add_column(column, no_wrap=True)
    for moment, _ in counts:
        table.add_column(f"at {short(moment)}", justify="right", no_wrap=True)
    for case in cases:
        if case.group:
            block = seen[case.pk]
            mark = Text("✗", style="bold red") if wrong.get(case.pk) else Text("✓", style="green")
            table.add_row(
                mark, case.group, short(block.start), short(block.end),
                *(str(instances.get(case.pk, "-")) for _, instances in counts),
            )  # fmt: skip
    return table


def _fee(block: Seen) -> str:
    if block.new_blocks:
        return f"{block.new_fee:,}"
    paid = [fee for fee, status in block.orders if status != "payment-failed"]
    return f"{sum(paid, Decimal(0)):,}" if paid else "not charged" if block.orders else "-"
