"""Attacks on who decides: what must hold when nobody was asked, or not who should be."""

from datetime import timedelta

from .conftest import END, Story, a_story

MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)


def test_a_policy_decides_nothing_that_nobody_was_told_of():
    """on_timeout: approve stands for people who did not answer, not for people who were never asked."""
    with a_story(SenderEmail="") as world:
        live = Story(world)
        execution = live.block().enrol(require_approval=True, on_timeout="approve").extend()
        world.run_until(END - 4 * HOUR)
        world.run_until_idle()
        assert live.links() == []
        assert [each["status"] for each in live.items("approval")] == ["EXPIRED"]
        assert (live.orders(), execution.path[-1]) == ([], "Approval expired")
