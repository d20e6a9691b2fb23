"""What a calendar month (UTC) may spend on Capacity Blocks: over the whole stack, and for each team that has a limit of its own."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal

from blockkeeper.domain.money import format_usd


@dataclass(frozen=True, slots=True)
class Limits:
    """USD per calendar month: `stack` over everything, `teams` of each team that has its own; the others have only the stack's."""

    stack: Decimal
    teams: Mapping[str, Decimal] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Budget:
    """One sum that a purchase counts in. `limit` None: it is counted, so that a limit set later knows it, and not limited."""

    item_id: str
    limit: Decimal | None
    name: str

    def refusal(self, fee: Decimal) -> str:
        """Why the fee does not fit, with the remedy."""
        month = self.item_id.partition("#")[0]
        return (
            f"{format_usd(fee)} does not fit into {self.name} {format_usd(self.limit or Decimal(0))} beside what {month} has "
            f"reserved; raise {self.name.partition(' ')[0]}, or wait for the next month"
        )


@dataclass(frozen=True, slots=True)
class BudgetLeft:
    """What is left of a month, USD, never below 0. `team` is None when the team has no limit of its own."""

    stack: Decimal
    team: Decimal | None


def budgets(limits: Limits, team: str | None, now: datetime) -> tuple[Budget, ...]:
    """The sums that a purchase for `team` counts in when it is made at `now`; all of them must have room."""
    month = f"{now:%Y-%m}"
    stack = Budget(month, limits.stack, "MonthlyLimit")
    if team is None:
        return (stack,)
    return (stack, Budget(f"{month}#{team}", limits.teams.get(team), f"TeamLimits of {team}"))
