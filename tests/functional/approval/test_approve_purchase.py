"""The workflow approve-purchase with its real handlers, mails and pages, told on a virtual clock."""

import json
from datetime import timedelta

import pytest
from approval_story import DECIDE_BY, ID, PARAMETERS, REQUEST, START, Story
from botocore.awsrequest import AWSResponse

from local.engine.world import World

MINUTE = timedelta(minutes=1)
YES = {
    "decision": "approved",
    "approval_id": ID,
    "decided_by": "maria@example.com",
    "decided_at": "2026-05-04T06:00:00Z",
    "reason": "needed",
}


def test_a_yes_ends_the_wait_with_who_and_why(story):
    execution = story.enrol().ask()
    assert execution.status == "RUNNING"
    assert [mail.destinations["ToAddresses"] for mail in story.mails()] == [["maria@example.com"], ["jo@example.com"]]
    story.answer(story.link(), "approve", "needed")
    assert (execution.status, execution.output) == ("SUCCEEDED", YES)
    assert execution.path == ["Close or wait", "Is there time to wait", "Ask the approvers"]
    assert (story.item()["status"], story.item()["delivery"], story.undelivered()) == ("APPROVED", "delivered", False)
    assert [(name, detail["approval_id"], detail.get("decision")) for name, detail in story.told()] == [
        ("Approval Requested", ID, None),
        ("Approval Decided", ID, "approved"),
    ]


def test_a_no_ends_the_wait(story):
    execution = story.enrol().ask()
    story.answer(story.link("jo@example.com"), "reject")
    assert (execution.status, execution.output["decision"], execution.output["decided_by"]) == (
        "SUCCEEDED",
        "rejected",
        "jo@example.com",
    )
    assert execution.output["reason"] is None


def test_no_answer_is_a_no_at_the_deadline_case_b04(story):
    execution = story.enrol().ask()
    story.world.run_until_idle()
    assert (execution.status, execution.output["decision"]) == ("SUCCEEDED", "expired")
    assert execution.stopped_at == DECIDE_BY
    assert "nobody answered" in execution.output["reason"]
    assert execution.path[-1] == "Answered"
    assert story.status() == "EXPIRED"


def test_the_late_click_is_told_politely_case_b04(story):
    story.enrol().ask()
    link = story.link()
    story.world.run_until(DECIDE_BY + MINUTE)
    for answer in (story.answer(link), story.answer(link, "reject")):
        assert answer.status == 200
        assert "Too late" in answer.body
        assert "nothing was bought" in answer.body
    assert story.status() == "EXPIRED"
    assert "<form" not in story.page(link).body


def test_a_click_at_the_deadline_before_anybody_closed_is_late_case_b04(story, monkeypatch):
    """The workflow may still wait when the clock shows the deadline: the deadline counts, not the workflow."""
    story.enrol().ask()
    monkeypatch.setattr(story.world.clock, "now", lambda: DECIDE_BY)
    assert "Too late" in story.answer(story.link()).body
    assert story.status() != "APPROVED"


@pytest.mark.parametrize("code", ["TaskTimedOut", "ThrottlingException"])
def test_a_yes_just_before_the_timeout_counts_case_b04(story, monkeypatch, code):
    """The decision is written, the wait ends before the workflow hears of it: the recorded decision is the answer."""
    execution = story.enrol().ask()
    story.world.run_until(DECIDE_BY - timedelta(seconds=1))
    with monkeypatch.context() as patch:
        story.break_callback(patch, code)
        answer = story.answer(story.link())
    assert answer.status == 200
    assert ("no longer waits" if code == "TaskTimedOut" else "told again within minutes") in answer.body
    story.world.run_until_idle()
    assert execution.path[-1] == "Answered"
    assert (execution.output["decision"], execution.output["decided_by"]) == ("approved", "maria@example.com")
    assert (story.status(), story.item()["delivery"], story.undelivered()) == ("APPROVED", "delivered", False)


def test_a_decision_that_did_not_get_through_is_delivered_by_the_next_sweep(story, monkeypatch):
    execution = story.enrol().ask()
    with monkeypatch.context() as patch:
        story.break_callback(patch, "ThrottlingException")
        assert "told again within minutes" in story.answer(story.link(), reason="needed").body
    assert (execution.status, story.status(), story.undelivered()) == ("RUNNING", "APPROVED", True)
    assert "delivery" not in story.item()

    def sweep():
        story.world.invoke("ListTargets", {"input": {}, "now": story.world.now().strftime("%Y-%m-%dT%H:%M:%SZ")})
        story.world.run_until(story.world.now())

    sweep()
    assert execution.status == "RUNNING", "whoever decides may still be at it"
    story.world.run_for(15 * MINUTE)
    sweep()
    assert (execution.status, execution.output) == ("SUCCEEDED", YES)
    assert (story.item()["delivery"], story.undelivered()) == ("delivered", False)
    sweep()
    assert [name for name, _ in story.told()].count("Approval Decided") == 1


def test_a_sweep_that_cannot_deliver_either_leaves_it_to_the_next(story, monkeypatch):
    story.enrol().ask()
    story.break_callback(monkeypatch, "InternalError")
    story.answer(story.link())
    story.world.run_for(15 * MINUTE)
    story.world.invoke("ListTargets", {"input": {}, "now": "2026-05-04T06:15:00Z"})
    assert (story.status(), story.undelivered()) == ("APPROVED", True)


def test_a_second_start_after_the_decision_is_answered_at_once(story):
    story.enrol().ask()
    story.answer(story.link(), reason="needed")
    mails = len(story.mails())
    again = story.ask("second")
    assert (again.status, again.output) == ("SUCCEEDED", YES)
    assert len(story.mails()) == mails


def test_a_second_start_after_the_decision_and_the_deadline_is_answered_too(story):
    story.enrol().ask()
    story.answer(story.link(), reason="needed")
    story.world.run_until(DECIDE_BY + MINUTE)
    again = story.ask("second")
    assert (again.output, again.path[-1]) == (YES, "Answered")


def test_a_second_start_after_a_no_does_not_ask_for_a_yes(story):
    story.enrol().ask()
    story.answer(story.link(), "reject")
    assert story.ask("second").output["decision"] == "rejected"


def test_a_wait_that_is_entered_again_gets_the_answer_of_the_old_link(story):
    first = story.enrol().ask()
    link = story.link()
    story.world.engine.stop(first)
    second = story.ask("second")
    assert second.status == "RUNNING"
    assert story.answer(link).status == 200
    assert (second.status, second.output["decision"]) == ("SUCCEEDED", "approved")


def test_one_request_for_a_block_and_its_end_however_often_it_is_asked_case_b12(story):
    story.enrol()
    for run in range(12):
        story.ask(f"run-{run}")
        story.world.run_for(5 * MINUTE)
    assert len(story.mails("maria@example.com")) == 1
    assert [name for name, _ in story.told()] == ["Approval Requested"]
    story.ask(
        "next",
        approval_id="cr-0a1-20260505T1130Z-1",
        current_end="2026-05-05T11:30:00Z",
        new_end="2026-05-06T11:30:00Z",
    )
    assert len(story.mails("maria@example.com")) == 2


def test_a_crash_after_asking_mails_nobody_twice_case_b12(story):
    story.world.engine.crash("AskApprovers", when="after")
    execution = story.enrol().ask()
    story.world.run_for(MINUTE)
    assert execution.status == "RUNNING"
    assert len(story.mails()) == 2
    assert [name for name, _ in story.told()] == ["Approval Requested"]
    story.answer(story.link(), reason="needed")
    assert execution.output["decision"] == "approved"


@pytest.mark.parametrize(
    ("record", "words"),
    [
        ({"approvers": []}, "approvers is empty"),
        ({"approvers": None}, "approvers is empty"),
        ({"quorum": 3}, "quorum is 3"),
        ({"approvers": ["U024BE7LH"]}, "set SlackSecretName and SlackChannel"),
    ],
)
def test_nobody_to_ask_fails_and_buys_nothing_case_b16(story, record, words):
    execution = story.enrol(**record).ask()
    story.world.run_until_idle()
    assert (execution.status, execution.error) == ("FAILED", "NobodyToAskError")
    assert words in execution.cause
    assert story.mails() == []
    assert story.told() == []


def test_a_block_that_is_not_enrolled_any_more_has_nobody_to_ask(story):
    execution = story.ask()
    assert (execution.status, execution.error) == ("FAILED", "NobodyToAskError")
    assert "not enrolled" in execution.cause


def test_one_mail_refused_of_two_leaves_the_other_approver(story):
    story.refuse_mail("maria@example.com")
    execution = story.enrol().ask()
    assert execution.status == "RUNNING"
    assert len(story.mails()) == 1
    assert story.told()[0][1]["told"] == 1
    assert "an approver was not told" in story.world.logs.getvalue()
    assert '"ApproverNotTold"' in story.world.logs.getvalue()
    story.answer(story.link("jo@example.com"))
    assert execution.output["decided_by"] == "jo@example.com"


def test_every_mail_refused_fails_by_name_and_is_not_tried_again(story):
    story.refuse_mail("maria@example.com")
    story.refuse_mail("jo@example.com", "MailFromDomainNotVerifiedException")
    execution = story.enrol().ask()
    assert (execution.status, execution.error) == ("FAILED", "NobodyToldError")
    assert "MailFromDomainNotVerifiedException, MessageRejected" in execution.cause
    assert "@" not in json.loads(execution.cause)["errorMessage"]
    assert story.told() == []


def test_without_a_sender_nobody_is_told(sandboxes):
    with World(START, parameters=PARAMETERS | {"SenderEmail": ""}, schedules=False, sandboxes=sandboxes) as world:
        execution = Story(world).enrol().ask()
        assert (execution.status, execution.error) == ("FAILED", "NobodyToldError")
        assert "SenderEmail is not set" in execution.cause


@pytest.mark.parametrize(("code", "status"), [("TooManyRequestsException", 429), ("InternalFailure", 500)])
def test_a_busy_mail_service_is_tried_again(story, code, status):
    for recipient in ("maria@example.com", "jo@example.com"):
        story.refuse_mail(recipient, code, status, times=1)
    execution = story.enrol().ask()
    story.world.run_for(MINUTE)
    assert execution.status == "RUNNING"
    assert len(story.mails()) == 2
    assert "Ask the approvers > Retry[1]" in story.world.engine.coverage["ApprovePurchase"]


def test_a_mail_service_that_stays_busy_fails_by_name(story):
    for recipient in ("maria@example.com", "jo@example.com"):
        story.refuse_mail(recipient, "InternalFailure", 503)
    execution = story.enrol().ask()
    story.world.run_for(timedelta(minutes=30))
    assert (execution.status, execution.error) == ("FAILED", "MailBusyError")


@pytest.mark.parametrize("decide_by", ["2026-05-04T06:00:00Z", "2026-05-04T05:00:00Z"])
def test_without_time_left_nobody_is_asked_case_b04(story, decide_by):
    execution = story.enrol().ask(decide_by=decide_by)
    assert (execution.status, execution.output["decision"]) == ("SUCCEEDED", "expired")
    assert "nobody was asked" in execution.output["reason"]
    assert execution.path == ["Close or wait", "Is there time to wait", "Answered"]
    assert (story.mails(), story.item()) == ([], None)


def test_a_last_second_is_asked_for(story):
    execution = story.enrol().ask(decide_by="2026-05-04T06:00:01Z")
    assert len(story.mails()) == 2
    story.world.run_until_idle()
    assert execution.output["decision"] == "expired"


def test_a_question_that_is_no_question_asks_nobody(story):
    execution = story.enrol().ask(upfront_fee="7,973.38", instance_count=0)
    assert (execution.status, execution.error) == ("FAILED", "InvalidRequestError")
    for words in ("upfront_fee", "instance_count", "without sign, comma or exponent"):
        assert words in execution.cause
    assert (story.mails(), story.item()) == ([], None)


@pytest.mark.parametrize(
    "change",
    [
        {"ceiling": "12000"},
        {"new_end": "2026-05-06T11:30:00Z"},
        {"current_end": "2026-05-05T11:30:00Z"},
        {"reservation_id": "cr-0b2"},
    ],
)
def test_a_yes_does_not_pass_to_another_question_case_b16(story, change):
    story.enrol().ask()
    story.answer(story.link(), reason="needed")
    other = story.ask("other", **change)
    assert (other.status, other.error) == ("FAILED", "DifferentRequestError")


def test_an_open_question_does_not_turn_into_another_case_b16(story):
    first = story.enrol().ask()
    assert story.ask("other", ceiling="12000").error == "DifferentRequestError"
    story.answer(story.link())
    assert first.output["decision"] == "approved"
    assert story.item()["ceiling"] == REQUEST["ceiling"]


def test_a_quorum_of_two_waits_for_the_second_yes(story):
    execution = story.enrol(quorum=2).ask()
    assert "1 more of the approvers must say yes" in story.answer(story.link()).body
    assert "1 more of the approvers" in story.answer(story.link()).body
    assert (execution.status, story.status()) == ("RUNNING", "OPEN")
    story.answer(story.link("jo@example.com"))
    assert (execution.output["decision"], execution.output["decided_by"]) == ("approved", "jo@example.com")


def test_closing_survives_a_crash(story):
    story.world.engine.crash("CloseApproval", when="after")
    execution = story.enrol().ask()
    story.world.run_until_idle()
    assert (execution.status, execution.output["decision"]) == ("SUCCEEDED", "expired")


def test_a_bus_that_is_away_does_not_undo_a_decision(story):
    execution = story.enrol().ask()

    def away(params, **_):
        body = {"FailedEntryCount": 1, "Entries": [{"ErrorCode": "InternalFailure", "ErrorMessage": "away"}]}
        return AWSResponse(params["url"], 200, {}, None), body | {"ResponseMetadata": {"HTTPStatusCode": 200}}

    emitter = story.world._session.get_component("event_emitter")
    emitter.register_first("before-call.eventbridge.PutEvents", away)
    assert "Your answer is recorded." in story.answer(story.link()).body
    assert execution.output["decision"] == "approved"
    assert '"EventNotPublished"' in story.world.logs.getvalue()


def test_a_decision_between_looking_and_asking_answers_the_new_wait(story):
    """The one who asks finds it decided: it mails nobody and tells the workflow at once."""
    story.enrol().ask()
    story.answer(story.link(), reason="needed")
    mails = len(story.mails())
    told = story.world.invoke(
        "AskApprovers", {"task_token": "of a wait that has ended", "request": REQUEST, "now": "2026-05-04T06:00:00Z"}
    )
    assert (told, len(story.mails()), story.undelivered()) == ({"told": 2}, mails, False)
    assert story.item()["delivery"] == "delivered", "that nobody waits there does not undo it"
