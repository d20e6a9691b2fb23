"""The month's limits: of two blocks that do not fit together exactly one is bought; what was not bought gives its money back."""

from datetime import timedelta
from decimal import Decimal

import pytest

from blockkeeper.aws import ledger
from blockkeeper.domain.budget import BudgetLeft
from local.engine.world import ACCOUNT

from .conftest import END, START, Story, a_story

FEE = Decimal("3986.69")


def two_blocks(story, **fields):
    for pk, block in {"train": "cr-0a1", "serve": "cr-0b2"}.items():
        story.block(block).enrol(pk, capacity_block_id=block, **fields)
    return story


def extend_both(story):
    """Both at once; the engine lets them take turns state by state."""
    started = []
    for pk, block in {"train": "cr-0a1", "serve": "cr-0b2"}.items():
        given = {"environment": pk, "reservation_id": block, "account": ACCOUNT, "region": "us-east-1"}
        given["end_date"] = "2026-05-04T11:30:00Z"
        started.append(story.world.start("ExtendBlock", given, f"{block}-20260504T1130Z"))
    story.world.run_until_idle()
    return started


@pytest.mark.parametrize(
    ("parameters", "record"),
    [
        ({"MonthlyLimit": "6000"}, {}),
        ({"MonthlyLimit": "50000", "TeamLimits": "speech=1,vision=6000"}, {"team": "vision"}),
        ({"MonthlyLimit": "6000", "TeamLimits": "vision=50000"}, {"team": "vision"}),
    ],
)
def test_of_two_blocks_that_do_not_fit_together_exactly_one_is_bought(parameters, record):
    with a_story(**parameters) as world:
        story = two_blocks(Story(world), **record)
        executions = extend_both(story)
        assert sorted(each.path[-1] for each in executions) == ["Extension confirmed", "Over budget"]
        assert len(story.orders()) == 1
        over = next(each for each in executions if each.path[-1] == "Over budget")
        assert ("TeamLimits of vision" if parameters["MonthlyLimit"] == "50000" else "MonthlyLimit") in over.cause
        assert {item["id"]: Decimal(item["reserved"]) / 1_000_000 for item in story.items("budget")} == (
            {"2026-05": FEE, "2026-05#vision": FEE} if record else {"2026-05": FEE}
        )


def test_teams_that_have_room_of_their_own_do_not_hinder_each_other():
    with a_story(MonthlyLimit="8000", TeamLimits="vision=4000,speech=4000") as world:
        story = Story(world)
        story.block("cr-0a1").enrol("train", team="vision")
        story.block("cr-0b2").enrol("serve", capacity_block_id="cr-0b2", team="speech")
        assert [each.path[-1] for each in extend_both(story)] == ["Extension confirmed"] * 2


def test_a_refusal_gives_the_money_back_to_stack_and_team():
    with a_story(TeamLimits="vision=4000") as world:
        story = Story(world)
        story.block().enrol(team="vision")
        world.market.faults.add(kind="denied", operation="PurchaseCapacityBlockExtension", times=None)
        execution = story.extend()
        world.run_until_idle()
        assert execution.path[-1] == "Purchase refused"
        assert {item["id"]: item["reserved"] for item in story.items("budget")} == {"2026-05": 0, "2026-05#vision": 0}


def test_what_is_left_is_shown_of_stack_and_team(monkeypatch):
    with a_story(TeamLimits="vision=4000") as world:
        story = Story(world)
        story.block().enrol(team="vision").extend()
        world.run_until_idle()
        for name, value in {
            "TABLE_NAME": story._table,
            "ACCOUNT_ID": ACCOUNT,
            "MONTHLY_LIMIT": "50000",
            "TEAM_LIMITS": "vision=4000,speech=100",
        }.items():
            monkeypatch.setenv(name, value)
        assert ledger.budget_left("vision", START) == BudgetLeft(50000 - FEE, 4000 - FEE)
        assert ledger.budget_left("speech", START) == BudgetLeft(50000 - FEE, Decimal(100))
        assert ledger.budget_left("other", START) == BudgetLeft(50000 - FEE, None)
        assert ledger.budget_left(None, START + timedelta(days=31)) == BudgetLeft(Decimal(50000), None)
        # A limit that was lowered below what is spent leaves nothing, not less.
        monkeypatch.setenv("MONTHLY_LIMIT", "100")
        assert ledger.budget_left(None, END).stack == 0
