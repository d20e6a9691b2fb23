"""What a month may spend: of the stack and of each team."""

from datetime import UTC, datetime
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blockkeeper import settings
from blockkeeper.domain.budget import Limits, budgets
from blockkeeper.domain.money import UnreadableFeeError

NOW = datetime(2026, 5, 31, 23, 59, tzinfo=UTC)
USD = st.decimals(min_value=0, max_value=999_999, places=2)


def test_a_purchase_counts_in_the_stacks_month_and_in_its_teams():
    limits = Limits(Decimal(50000), {"vision": Decimal(20000)})
    stack, team = budgets(limits, "vision", NOW)
    assert (stack.item_id, stack.limit, team.item_id, team.limit) == (
        "2026-05",
        Decimal(50000),
        "2026-05#vision",
        Decimal(20000),
    )
    assert "raise TeamLimits" in team.refusal(Decimal(1))
    assert "raise MonthlyLimit" in stack.refusal(Decimal(1))


def test_a_team_without_a_limit_is_counted_and_not_limited():
    stack, team = budgets(Limits(Decimal(1)), "speech", NOW)
    assert (stack.limit, team.item_id, team.limit) == (Decimal(1), "2026-05#speech", None)
    assert len(budgets(Limits(Decimal(1), {"vision": Decimal(0)}), None, NOW)) == 1


@given(st.dictionaries(st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,9}", fullmatch=True), USD, max_size=5), USD)
def test_limits_are_read_exactly_as_they_were_written(teams, stack):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MONTHLY_LIMIT", str(stack))
        patch.setenv("TEAM_LIMITS", ",".join(f"{team}={limit}" for team, limit in teams.items()))
        assert settings.limits() == Limits(stack, teams)


def test_missing_limits_mean_nothing_and_the_lower_of_two_counts(monkeypatch):
    monkeypatch.delenv("MONTHLY_LIMIT", raising=False)
    monkeypatch.setenv("TEAM_LIMITS", "vision=2, vision=1 ,")
    assert settings.limits() == Limits(Decimal(0), {"vision": Decimal(1)})


@pytest.mark.parametrize("text", ["vision", "vision=", "=5", "vision=-1", "vision=1e9", "vision=all"])
def test_a_team_limit_that_cannot_be_read_is_an_error_not_no_limit(monkeypatch, text):
    monkeypatch.setenv("TEAM_LIMITS", text)
    with pytest.raises((UnreadableFeeError, ValueError), match=r"TeamLimits|amount"):
        settings.limits()
