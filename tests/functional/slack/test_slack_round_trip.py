"""Questions in Slack, answered there: the real template, handlers and workflow, and a Slack on this machine."""

import json
from datetime import timedelta

import pytest
from approval_story import DECIDE_BY, ID

MARIA, JO, INTERN = "U0MARIA01", "U0JOHN001", "U0INTERN1"
WHO = f"slack:T0LOCAL01:{MARIA}"
MINUTE = timedelta(minutes=1)


def settle(story):
    """Let what was started at this moment come to rest."""
    story.world.run_until(story.world.now())


def test_a_yes_in_slack_ends_the_wait_and_takes_the_buttons_away(story, slack):
    execution = story.ask()
    (message,) = slack.messages
    assert "<@U0MARIA01> <@U0JOHN001>" in message.words()
    assert [button["value"] for button in message.buttons()] == [ID, ID], (
        "buttons carry the request's id and nothing else"
    )
    assert "7,973.38 USD" in message.buttons()[0]["confirm"]["text"]["text"]
    assert story.mails() == []
    pressed = slack.press(MARIA, "approve")
    settle(story)
    assert (pressed.status, pressed.body, pressed.private) == (200, "", [])
    assert (execution.status, execution.output["decision"], execution.output["decided_by"]) == (
        "SUCCEEDED",
        "approved",
        WHO,
    )
    assert (story.item()["delivery"], story.undelivered()) == ("delivered", False)
    assert message.buttons() == []
    assert f"*Approved* by <@{MARIA}>" in message.words()
    assert "What becomes of it is told here." in message.words()


def test_a_no_asks_for_the_reason_and_decides_only_with_the_form(story, slack):
    execution = story.ask()
    pressed = slack.press(JO, "reject")
    assert pressed.status == 200
    assert pressed.form["private_metadata"] == ID
    assert (execution.status, story.status()) == ("RUNNING", "OPEN"), "opening the form decides nothing"
    sent = slack.submit(JO, "*Training* is done für <heute> & 😀")
    settle(story)
    assert (sent.status, sent.body, sent.form) == (200, "", None)
    assert (execution.output["decision"], execution.output["decided_by"]) == ("rejected", f"slack:T0LOCAL01:{JO}")
    assert execution.output["reason"] == "*Training* is done für <heute> & 😀"
    assert "Reason: *Training* is done für &lt;heute&gt; &amp; 😀" in slack.messages[0].words()
    assert slack.messages[0].buttons() == []


@pytest.mark.parametrize("reason", [None, "", "  \r\n "])
def test_a_no_needs_no_reason(story, slack, reason):
    execution = story.ask()
    slack.press(JO, "reject")
    slack.submit(JO, reason)
    settle(story)
    assert (execution.output["decision"], execution.output["reason"]) == ("rejected", None)


def test_the_same_click_twice_decides_once_case_b06(story, slack):
    execution = story.ask()
    payload = slack.click(MARIA, "approve")
    assert slack.sign_and_send(payload) == (200, "")
    story.world.run_for(timedelta(seconds=4))
    assert slack.sign_and_send(payload, retry=1) == (200, "")
    assert execution.output["decided_by"] == WHO
    sent = [call for call in story.world.calls if call.operation == "SendTaskSuccess"]
    assert len(sent) == 1
    assert [name for name, _ in story.told()].count("Approval Decided") == 1
    assert "Your answer changed nothing." in slack.told(MARIA)[-1]


def test_of_two_people_in_the_same_second_the_first_decides_case_b06(story, slack):
    execution = story.ask()
    yes, no = slack.click(MARIA, "approve"), slack.click(JO, "reject")
    assert slack.sign_and_send(yes)[0] == slack.sign_and_send(no)[0] == 200
    settle(story)
    assert execution.output["decision"] == "approved"
    (told,) = slack.told(JO)
    assert told.startswith(f"*Approved* by <@{MARIA}> on Mon 4 May 2026, 06:00 UTC")
    assert slack.forms == {}, "whoever is too late gets no form"


def test_a_form_that_was_open_while_another_decided_says_so(story, slack):
    story.ask()
    slack.press(JO, "reject")
    slack.press(MARIA, "approve")
    sent = slack.submit(JO, "too dear")
    assert f"*Approved* by <@{MARIA}>" in sent.form["blocks"][0]["text"]["text"]
    assert story.item()["status"] == "APPROVED"


@pytest.mark.parametrize(
    ("approvers", "user", "team", "home"),
    [
        (["T0LOCAL01:U0MARIA01", "U0JOHN001"], INTERN, "T0LOCAL01", None),
        (["T0LOCAL01:U0MARIA01"], MARIA, "T0OTHER01", None),
        (["U0MARIA01"], MARIA, "T0OTHER01", None),
        (["U0MARIA01"], MARIA, "T0OTHER01", "T0LOCAL01"),
        (["U0MARIA01"], MARIA, "T0LOCAL01", "T0OTHER01"),
        (["T0OTHER01:U0MARIA01"], MARIA, "T0LOCAL01", None),
        (["U0MARIA01"], "B0LOCAL01", "T0LOCAL01", None),
    ],
    ids=["not listed", "other team", "bare id, other team", "other installation", "guest", "listed elsewhere", "bot"],
)
@pytest.mark.parametrize("action", ["approve", "reject"])
def test_who_is_no_approver_is_told_in_private_case_b21(story, slack, approvers, user, team, home, action):
    slack.people.setdefault(user, user)
    execution = story.enrol(approvers=approvers).ask()
    pressed = slack.press(user, action, team=team, home=home)
    assert pressed.status == 200
    assert pressed.private == ["You are not one of the approvers of this request; nothing was changed."]
    assert (execution.status, story.status(), slack.forms) == ("RUNNING", "OPEN", {})
    assert slack.messages[0].buttons(), "the request stays open"
    assert '"who":"slack:' in story.world.logs.getvalue()


def test_a_guest_of_another_workspace_may_answer_when_listed_with_it_case_b21(story, slack):
    execution = story.enrol(approvers=["T0OTHER01:U0MARIA01"]).ask()
    slack.press(MARIA, "approve", home="T0OTHER01")
    settle(story)
    assert execution.output["decided_by"] == "slack:T0OTHER01:U0MARIA01"


def test_a_guest_of_another_workspace_may_say_no_case_b21(story, slack):
    execution = story.enrol(approvers=["T0OTHER01:U0MARIA01"]).ask()
    slack.press(MARIA, "reject", home="T0OTHER01")
    refused = slack.submit(MARIA, "no", team="T0EVIL001", home="T0OTHER01")
    assert "not one of the approvers" in refused.form["blocks"][0]["text"]["text"], "another installation of the app"
    slack.press(MARIA, "reject", home="T0OTHER01")
    slack.submit(MARIA, "no", home="T0OTHER01")
    settle(story)
    assert execution.output["decided_by"] == "slack:T0OTHER01:U0MARIA01"


def test_a_name_is_no_identity_case_b21(story, slack):
    story.ask()
    payload = slack.click(INTERN, "approve")
    payload["user"] |= {"name": "maria", "username": MARIA, "display_name": "U0MARIA01"}
    slack.sign_and_send(payload)
    assert story.status() == "OPEN"


def test_a_click_that_comes_too_late_is_told_so_case_b04(story, slack):
    execution = story.ask()
    payload = slack.click(MARIA, "approve")
    story.world.run_until(DECIDE_BY + MINUTE)
    assert execution.output["decision"] == "expired"
    (message,) = slack.messages
    assert "Expired, nothing was bought" in message.words()
    assert message.buttons() == []
    assert slack.sign_and_send(payload)[0] == 200
    assert "Too late" in slack.told(MARIA)[0]
    assert "nothing was bought" in slack.told(MARIA)[0]
    assert message.ts == slack.messages[-1].ts


def test_a_question_that_is_no_longer_needed_says_so_on_the_message(story, slack):
    story.ask()
    old = slack.click(MARIA, "approve")
    reason = "the block's end was moved by somebody else"
    # As aws.approvals.supersede leaves it (tests/functional/approval/test_approvals_table.py).
    story.put("approval", ID, {**story.item(), "status": "SUPERSEDED", "reason": reason, "version": 2})
    detail = {
        "environment": "team-vision",
        "reservation_id": "cr-0a1",
        "approval_id": ID,
        "now": "2026-05-04T06:00:00Z",
    }
    story.world.publish({"source": "blockkeeper", "detail-type": "Approval Decided", "detail": detail})
    settle(story)
    (message,) = slack.messages
    assert "No longer needed" in message.words()
    assert "the block's end was moved by somebody else" in message.words()
    assert message.buttons() == []
    slack.sign_and_send(old)
    assert "no longer open" in slack.told(MARIA)[0]


def test_whoever_has_not_answered_is_reminded_once_per_mark_case_b12(story, slack):
    story.enrol(approvers=["U0MARIA01", "U0JOHN001"], quorum=2, reminder_hours=[2, 1]).ask()
    slack.press(MARIA, "approve")
    story.world.run_until(DECIDE_BY - timedelta(hours=1, minutes=30))
    question, first = slack.messages
    assert (first.thread_ts, first.broadcast) == (question.ts, True)
    assert "<@U0JOHN001>" in first.words()
    assert "U0MARIA01" not in first.words()
    story.world.run_until(DECIDE_BY - MINUTE)
    assert len(slack.messages) == 3
    story.world.run_until(DECIDE_BY + MINUTE)
    assert len(slack.messages) == 3


def test_after_the_escalation_the_second_list_is_mentioned_and_may_answer(story, slack):
    execution = story.enrol(
        approvers=["U0JOHN001"], reminder_hours=[], escalate_to=["U0MARIA01"], escalate_hours=1
    ).ask()
    assert "not one of the approvers" in slack.press(MARIA, "approve").private[0]
    story.world.run_until(DECIDE_BY - timedelta(minutes=59))
    question, told = slack.messages
    assert "<@U0JOHN001> <@U0MARIA01>" in question.words()
    assert "<@U0MARIA01>" in told.words()
    slack.press(MARIA, "approve")
    settle(story)
    assert execution.output["decided_by"] == WHO


def test_who_enrolled_the_block_cannot_approve_alone(story, slack):
    execution = story.enrol(approvers=["U0MARIA01", "U0JOHN001"], enrolled_by="T0LOCAL01:U0MARIA01").ask()
    pressed = slack.press(MARIA, "approve")
    assert "another approver must say yes" in pressed.private[0]
    assert execution.status == "RUNNING"
    slack.press(JO, "approve")
    settle(story)
    assert execution.output["decision"] == "approved"


def test_a_quorum_is_counted_on_the_message(story, slack):
    execution = story.enrol(approvers=["U0MARIA01", "U0JOHN001"], quorum=2).ask()
    pressed = slack.press(MARIA, "approve")
    settle(story)
    assert "1 more of the approvers must say yes" in pressed.private[0]
    assert "1 of 2 said yes so far; 1 more must." in slack.messages[0].words()
    assert execution.status == "RUNNING"
    slack.press(MARIA, "approve")
    settle(story)
    assert execution.status == "RUNNING", "the same voice twice counts once"
    slack.press(JO, "approve")
    settle(story)
    assert execution.output["decision"] == "approved"


def test_decided_by_mail_or_the_api_the_message_says_so(story, slack):
    story.enrol(approvers=["maria@example.com", "U0JOHN001"]).ask()
    story.answer(story.link(), "approve")
    assert "*Approved* by maria@example.com" in slack.messages[0].words()
    assert slack.messages[0].buttons() == []


def test_mail_and_slack_ask_alike(story, slack):
    story.enrol(approvers=["maria@example.com", "U0JOHN001"]).ask()
    words = slack.messages[0].words()
    body = story.mails()[0].body
    for fact in ("cr-0a1 in us-east-1, account 123456789012", "7,973.38 USD", "p5.48xlarge", "nothing is bought"):
        assert fact in words
        assert fact in body
    assert "&lt;" not in words


def test_without_a_slack_approver_the_channel_reads_and_has_no_buttons(story, slack):
    story.enrol(approvers=["maria@example.com"]).ask()
    (message,) = slack.messages
    assert message.buttons() == []
    assert "asked by mail" in message.words()
    pressed = slack.press(MARIA, "approve", value=ID)
    assert pressed.private == ["You are not one of the approvers of this request; nothing was changed."]


def test_a_button_for_a_request_that_is_gone(story, slack):
    story.ask()
    pressed = slack.press(MARIA, "approve", value="cr-0a1-20260504T1130Z-9")
    assert pressed.private == ["There is no such request; nothing was changed."]
    pressed = slack.press(MARIA, "reject", value="cr-0a1-20260504T1130Z-9")
    assert pressed.private[-1] == "There is no such request; nothing was changed."


def test_the_workflow_is_told_by_the_next_sweep_when_it_could_not_be_just_then(story, slack, monkeypatch):
    execution = story.ask()
    with monkeypatch.context() as broken:
        story.break_callback(broken)
        pressed = slack.press(MARIA, "approve")
    assert (pressed.status, story.status(), story.undelivered()) == (200, "APPROVED", True)
    assert "told again within minutes" in pressed.private[0]
    story.world.run_for(timedelta(minutes=3))
    story.world.invoke("ListTargets", {"input": {}, "now": "2026-05-04T06:05:00Z"})
    settle(story)
    assert execution.output["decision"] == "approved"


def test_outcomes_are_told_in_the_channel_once_each_case_b12(story, slack):
    story.ask()
    slack.press(MARIA, "approve")
    settle(story)
    detail = {
        "environment": "team-vision",
        "reservation_id": "cr-0a1",
        "account": "123456789012",
        "region": "us-east-1",
        "end_date": "2026-05-04T11:30:00Z",
        "approval_id": ID,
        "now": "2026-05-04T06:00:00Z",
        "reason": "EC2 moved the end",
        "offering": {
            "offering_id": "cbe-0a1",
            "duration_hours": 24,
            "new_end": "2026-05-05T11:30:00Z",
            "upfront_fee": "7973.38",
        },
    }
    for name, more in (
        ("Extension Purchased", {"outcome": "purchased"}),
        ("Extension Purchased", {"outcome": "purchased"}),
        ("Extension Confirmed", {"outcome": "confirmed", "end": "2026-05-05T11:30:00Z"}),
        ("Extension Confirmed", {"outcome": "confirmed", "end": "2026-05-05T11:30:00Z"}),
        ("Extension Purchased", {"outcome": "purchased"}),
    ):
        story.world.publish({"source": "blockkeeper", "detail-type": name, "detail": detail | more})
        settle(story)
    question, *notices = slack.messages
    assert [notice.text for notice in notices] == [
        "team-vision: ordered for 7,973.38 USD",
        "team-vision now runs until Tue 5 May 2026, 11:30 UTC",
    ]
    assert all(notice.thread_ts == question.ts and notice.broadcast for notice in notices)
    assert "Done: the block now ends on Tue 5 May 2026, 11:30 UTC." in question.words(), "a final word stays"


def test_a_block_that_nobody_was_asked_about_is_told_of_too(story, slack):
    for _ in range(2):
        detail = {
            "environment": "team-vision",
            "reservation_id": "cr-0a1",
            "account": "123456789012",
            "region": "us-east-1",
            "end_date": "2026-05-04T11:30:00Z",
            "reason": "it is too late to extend",
        }
        story.world.publish({"source": "blockkeeper", "detail-type": "Block Expiring", "detail": detail})
        settle(story)
    (notice,) = slack.messages
    assert notice.thread_ts is None
    assert "too late to extend" in notice.words()


def test_without_slack_nobody_is_asked_there_and_slack_only_is_an_error_case_b16(story):
    # Another function environment: the parameters are empty.
    story.world.template.parameters.update(SlackSecretName="", SlackChannel="")
    story.world.template.__dict__.pop("functions", None)
    execution = story.ask()
    assert (execution.status, execution.error) == ("FAILED", "NobodyToAskError")
    assert "set SlackSecretName and SlackChannel" in json.dumps(execution.cause)
    answer = story.world.request("POST", "/slack/interactions", body="payload=1")
    assert answer.status == 404
    assert story.world.slack.calls == []
