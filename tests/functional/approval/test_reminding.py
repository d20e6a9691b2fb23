"""While nobody answers: reminders, the second list, and what the policy then says, on a virtual clock."""

from datetime import timedelta

import pytest
from approval_story import DECIDE_BY, ID, START

HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)
MARIA, JO, HEAD = "maria@example.com", "jo@example.com", "head@example.com"
# A question that is open for 26.5 hours.
LATER = {"decide_by": "2026-05-05T08:30:00Z"}


def subjects(story, recipient):
    return [mail.subject.partition(" team-vision")[0] for mail in story.mails(recipient)]


def decided(story):
    return [(detail["decision"], detail["decided_by"]) for name, detail in story.told() if name == "Approval Decided"]


def test_reminders_come_at_their_marks_once_each_however_often_it_is_asked_case_b12(story):
    execution = story.enrol(reminder_hours=[24, 6, 2]).ask(**LATER)
    for run in range(6 * 12):
        story.ask(f"again-{run}", **LATER)
        story.world.run_for(5 * MINUTE)
    assert subjects(story, MARIA) == ["Extend", "Reminder: extend"], "the mark of 24 h lies 2.5 h after the question"
    story.world.run_until_idle()
    for recipient in (MARIA, JO):
        assert subjects(story, recipient) == ["Extend", *["Reminder: extend"] * 3]
    assert execution.output["decision"] == "expired"
    asked = [detail.get("reminder") for name, detail in story.told() if name == "Approval Requested"]
    assert asked == [None, "2026-05-04T08:30:00Z", "2026-05-05T02:30:00Z", "2026-05-05T06:30:00Z"]
    assert decided(story) == [("expired", None)]


def test_the_old_link_answers_the_new_wait(story):
    execution = story.enrol(reminder_hours=[2]).ask()
    link, token = story.link(), story.item()["task_token"]
    story.world.run_for(HOUR)
    assert story.item()["task_token"] != token, "a wait of its own"
    assert story.link() == link
    story.answer(link)
    assert (execution.status, execution.output["decided_by"]) == ("SUCCEEDED", MARIA)


def test_who_has_said_yes_is_not_reminded(story):
    story.enrol(reminder_hours=[2], quorum=2).ask()
    story.answer(story.link())
    story.world.run_for(HOUR)
    assert (len(story.mails(MARIA)), len(story.mails(JO))) == (1, 2)


def test_a_crash_while_reminding_reminds_nobody_twice_case_b12(story):
    execution = story.enrol(reminder_hours=[2]).ask()
    story.world.engine.crash("AskApprovers", when="after")
    story.world.run_for(HOUR)
    assert execution.status == "RUNNING"
    assert (len(story.mails(MARIA)), len(story.mails(JO))) == (2, 2)


def test_marks_that_had_passed_when_it_was_asked_remind_nobody_case_b12(story):
    story.enrol(reminder_hours=[24, 6, 3]).ask()
    story.world.run_until_idle()
    assert len(story.mails(MARIA)) == 1


def test_the_second_list_is_asked_in_time_and_may_then_answer(story):
    execution = story.enrol(escalate_to=[HEAD], escalate_hours=1).ask()
    assert story.mails(HEAD) == []
    story.world.run_until(DECIDE_BY - HOUR)
    assert (len(story.mails(HEAD)), len(story.mails(MARIA))) == (1, 1)
    page = story.page(story.link(HEAD))
    assert f"You answer as {HEAD}" in page.body
    story.answer(story.link(HEAD))
    assert (execution.output["decision"], execution.output["decided_by"]) == ("approved", HEAD)


def test_after_the_escalation_the_first_list_may_still_answer(story):
    execution = story.enrol(escalate_to=[HEAD], escalate_hours=1).ask()
    story.world.run_until(DECIDE_BY - HOUR)
    story.answer(story.link(MARIA), "reject")
    assert execution.output["decided_by"] == MARIA
    assert "Rejected by maria@example.com" in story.page(story.link(HEAD)).body


def test_the_record_may_change_while_a_question_is_open(story):
    execution = story.enrol(reminder_hours=[2]).ask()
    story.enrol(approvers=[], reminder_hours=[])
    story.world.run_for(HOUR)
    assert (execution.status, len(story.mails(MARIA))) == ("RUNNING", 2)


POLICY = {"on_timeout": "approve"}


def test_the_policy_approves_what_nobody_answered_and_says_so_case_b16(story):
    execution = story.enrol(**POLICY).ask()
    assert "policy approves it (on_timeout)" in story.page(story.link()).body
    story.world.run_until_idle()
    assert execution.stopped_at == DECIDE_BY - 15 * MINUTE
    assert (execution.output["decision"], execution.output["decided_by"]) == ("approved", "policy:on_timeout")
    assert "Approved by policy, since nobody answered" in story.page(story.link()).body
    assert decided(story) == [("approved", "policy:on_timeout")]


def test_a_no_outweighs_the_policy(story):
    execution = story.enrol(**POLICY).ask()
    story.answer(story.link(), "reject")
    story.world.run_until_idle()
    assert execution.output["decision"] == "rejected"


@pytest.mark.parametrize(
    "change",
    [
        {"on_timeout": None},
        {"on_timeout": "reject"},
        {"on_timeout": "true"},
        {"max_upfront_fee": None},
        {"max_upfront_fee": "7973.37"},
    ],
)
def test_the_policy_needs_its_word_and_its_ceiling_when_it_decides_case_b16(story, change):
    execution = story.enrol(**POLICY).ask()
    story.enrol(**{**POLICY, **change})
    story.world.run_until_idle()
    assert execution.output["decision"] == "expired"
    assert story.status() == "EXPIRED"


def test_a_policy_without_a_record_buys_nothing_case_b16(story):
    execution = story.enrol(**POLICY).ask()
    story._dynamodb.delete_item(TableName=story._table, Key={"kind": {"S": "environment"}, "id": {"S": "team-vision"}})
    story.world.run_until_idle()
    assert execution.output["decision"] == "expired"


def test_a_policy_without_time_to_ask_buys_nothing_case_b16(story):
    execution = story.enrol(**POLICY).ask(decide_by="2026-05-04T06:14:00Z")
    assert (execution.output["decision"], story.item(), story.mails()) == ("expired", None, [])


def bus_is_away(story, times):
    """EventBridge refuses the next events, as it does those of a source that is not ours to use."""
    left = [times]

    def refuse(params, **_):
        if left[0]:
            left[0] -= 1
            params["body"] = params["body"].replace('"Source": "blockkeeper"', '"Source": "aws.blockkeeper"')
            assert "aws.blockkeeper" in params["body"]

    story.world._session.get_component("event_emitter").register_first("before-call.eventbridge.PutEvents", refuse)


def sweep(story):
    story.world.run_for(15 * MINUTE)
    story.world.invoke("ListTargets", {"input": {}, "now": story.world.now().strftime("%Y-%m-%dT%H:%M:%SZ")})


@pytest.mark.parametrize("end", ["approved", "rejected", "expired"])
def test_an_end_that_was_not_published_is_published_by_the_sweep_once(story, end):
    story.enrol().ask()
    bus_is_away(story, 1)
    if end == "expired":
        story.world.run_until(DECIDE_BY)
    else:
        story.answer(story.link(), end.removesuffix("d").removesuffix("e") + ("e" if end == "approved" else ""))
    assert (story.status().lower(), decided(story), story.undelivered()) == (end, [], True)
    sweep(story)
    sweep(story)
    assert ([decision for decision, _ in decided(story)], story.undelivered()) == ([end], False)


def test_the_record_says_who_what_when_and_which_way_case_b41(story):
    story.enrol(enrolled_by=MARIA).ask()
    story.answer(story.link())
    story.answer(story.link(JO), "reject", "too dear")
    lines = [line for line in story.world.logs.getvalue().splitlines() if '"audit":true' in line.replace(": ", ":")]
    assert len(lines) == 2
    refused, ended = lines
    assert "four_eyes" in refused
    assert all(words in ended for words in ("approval ended", ID, "REJECTED", '"page"', "2026-05-04T06:00:00Z"))
    assert "@example.com" not in story.world.logs.getvalue()
    ((_, detail),) = [told for told in story.told() if told[0] == "Approval Decided"]
    assert (detail["via"], detail["reason"], detail["decided_at"]) == ("page", "too dear", "2026-05-04T06:00:00Z")


def test_who_enrolled_the_block_is_refused_on_the_page_and_it_stays_open_case_b21(story):
    execution = story.enrol(enrolled_by=MARIA).ask()
    answer = story.answer(story.link())
    assert answer.status == 200
    assert "another approver must say yes" in answer.body
    assert (story.status(), execution.status) == ("OPEN", "RUNNING")
    story.answer(story.link(JO))
    assert execution.output["decided_by"] == JO


def test_who_asked_for_the_purchase_is_refused_too_case_b21(story):
    execution = story.enrol().ask(requested_by=MARIA)
    story.answer(story.link())
    assert execution.status == "RUNNING"
    assert story.world.now() == START
