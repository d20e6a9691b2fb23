"""A block that one account owns and another uses: groups are arranged where they are, and nobody complains of them elsewhere."""

from datetime import timedelta

import pytest

from local.engine.world import ACCOUNT, REGION, World

from .conftest import Story, at

USER = "444455556666"
HOUR = timedelta(hours=1)


@pytest.fixture
def lent(sandboxes):
    parameters = {
        "PurchaseMode": "dry-run",
        "MonthlyLimit": "0",
        "SenderEmail": "blockkeeper@example.com",
        "ScheduleExpression": "rate(1 hour)",
        "Targets": f"{ACCOUNT}:{REGION},{USER}:{REGION}",
    }
    # A warm function keeps the credentials that it got in another account, and those are of another test's world.
    sandboxes.cold()
    with World(at(10, 10, day=3), parameters=parameters, sandboxes=sandboxes) as world:
        story = Story(world)
        story.block(shared_with=[USER])
        yield story
    sandboxes.cold()


def theirs(story, name="train", kind="groups"):
    return getattr(story.market, kind).by_key[USER, REGION, name]


def runs(story, account):
    executions = story.world.executions("ScaleGroupsWorkflow")
    return [each for each in executions if each.input["account"] == account]


def test_the_users_groups_follow_and_the_owners_account_says_nothing_of_them(lent):
    lent.group(owner_id=USER)
    lent.compute_environment(owner_id=USER)
    lent.enrol(
        groups=[
            {"auto_scaling_group": "train", "instances": 3},
            {"batch_compute_environment": "training", "instances": 1},
        ]
    )
    lent.world.run_for(HOUR)
    assert lent.record().get("groups_error") is None
    assert lent.record()["groups_armed"]
    assert runs(lent, USER)
    assert [each.output["groups"] for each in runs(lent, ACCOUNT)] == [[]], "no group of the owner's"
    lent.world.run_until(at(11, 50, day=3))
    assert (theirs(lent).desired, len(theirs(lent).members)) == (3, 3)
    before = len(runs(lent, ACCOUNT))
    lent.world.run_for(6 * HOUR)
    assert len(runs(lent, ACCOUNT)) == before, "what is arranged is not looked at by each sweep"
    assert "no such group" not in lent.world.logs.getvalue()
    assert '"GroupsNotArranged":[1.0]' not in lent.world.logs.getvalue()


def test_a_group_that_no_account_has_is_told(lent):
    lent.enrol(groups=["trian"])
    lent.world.run_for(HOUR)
    assert "trian: is no Auto Scaling group of this account and Region" in lent.record()["groups_error"]


def test_a_group_of_that_name_in_an_account_that_does_not_see_the_block_is_another(lent):
    lent.market.blocks.get("cr-0a1", REGION).shared_with = frozenset()
    lent.group(owner_id=USER)
    lent.enrol()
    lent.world.run_for(HOUR)
    assert "train: is no Auto Scaling group of this account and Region" in lent.record()["groups_error"]


def test_groups_in_both_accounts_are_both_arranged(lent):
    lent.group(owner_id=USER)
    lent.group("own")
    lent.enrol(groups=[{"auto_scaling_group": name, "instances": 2} for name in ("train", "own")])
    lent.world.run_until(at(11, 50, day=3))
    assert lent.record().get("groups_error") is None
    assert (lent.instances("own"), len(theirs(lent).members)) == (2, 2)
