"""Approvers hear what became of a block, from our own events on the bus."""

import json
from datetime import timedelta
from pathlib import Path

import pytest
from approval_story import ID, PARAMETERS, START, Story
from moto.sns.models import sns_backends

from local.engine.world import World

SAMPLE = Path(__file__).parents[3] / "events" / "blockkeeper-event.extension-confirmed.json"
DETAIL = json.loads(SAMPLE.read_text())["detail"]


def publish(story, detail_type, **changes):
    story.world.publish({"source": "blockkeeper", "detail-type": detail_type, "detail": DETAIL | changes})
    story.world.run_until_idle()


@pytest.mark.parametrize(
    ("detail_type", "subject"),
    [
        ("Extension Confirmed", "team-vision now runs until Tue 5 May 2026, 11:30 UTC"),
        ("Extension Failed", "team-vision is not extended and ends on Mon 4 May 2026, 11:30 UTC"),
        ("Block Expiring", "team-vision ends on Mon 4 May 2026, 11:30 UTC; it is too late to extend"),
    ],
)
def test_each_approver_gets_one_mail(story, detail_type, subject):
    story.enrol(approvers=["maria@example.com", "U024BE7LH", "jo@example.com"])
    publish(story, detail_type)
    assert [(mail.destinations["ToAddresses"], mail.subject) for mail in story.mails()] == [
        (["maria@example.com"], subject),
        (["jo@example.com"], subject),
    ]


@pytest.mark.parametrize("detail_type", ["Extension Offered", "Extension Purchased", "Groups Scaled"])
def test_other_events_are_told_to_nobody_case_b12(story, detail_type):
    story.enrol()
    publish(story, detail_type)
    assert story.mails() == notices() == []


def test_one_refused_mail_keeps_nobody_else_from_theirs(story):
    story.refuse_mail("maria@example.com")
    story.enrol()
    publish(story, "Extension Failed")
    assert [mail.destinations["ToAddresses"] for mail in story.mails()] == [["jo@example.com"]]
    assert story.world.failures == []
    assert "maria@example.com" not in story.world.logs.getvalue()


def test_a_busy_mail_service_is_tried_again(story):
    for recipient in ("maria@example.com", "jo@example.com"):
        story.refuse_mail(recipient, "TooManyRequestsException", 429, times=1)
    story.enrol()
    publish(story, "Extension Failed")
    assert len(story.mails()) == 2
    assert story.world.now() == START + timedelta(minutes=1)


def test_a_block_without_anybody_to_tell_is_counted(story):
    story.enrol(approvers=[])
    publish(story, "Extension Failed")
    publish(story, "Extension Failed", environment="gone")
    assert story.mails() == []
    assert story.world.failures == []
    assert story.world.logs.getvalue().count('"NobodyTold":[1.0]') == 2
    assert len(notices()) == 2, "whoever follows the topic hears all the same"


@pytest.mark.parametrize(
    ("enrolled", "environment"),
    [([], "team-vision"), (["U024BE7LH"], "team-vision"), (["maria@example.com"], "gone")],
    ids=["nobody", "only in Slack", "record gone"],
)
def test_what_the_records_approvers_cannot_read_is_mailed_to_those_of_the_stack(sandboxes, enrolled, environment):
    with World(
        START, parameters=PARAMETERS | {"ApproverEmails": "ops@example.com"}, schedules=False, sandboxes=sandboxes
    ) as world:
        story = Story(world).enrol(approvers=enrolled)
        publish(story, "Extension Failed", environment=environment, reason="EC2 could not take the payment")
        assert [mail.destinations["ToAddresses"] for mail in story.mails()] == [["ops@example.com"]]
        assert "could not take the payment" in str(vars(story.mails()[0]))
        assert "NobodyTold" not in story.world.logs.getvalue()


def test_a_channel_in_slack_is_a_reader(sandboxes):
    with World(
        START,
        parameters=PARAMETERS | {"SlackChannel": "C024BE91L", "SlackSecretName": "slack"},
        schedules=False,
        sandboxes=sandboxes,
    ) as world:
        story = Story(world).enrol(approvers=["U024BE7LH"])
        publish(story, "Extension Failed")
        assert "NobodyTold" not in story.world.logs.getvalue()


def test_an_event_that_cannot_be_read_is_not_lost_silently(story):
    story.enrol()
    publish(story, "Extension Failed", end_date="soon")
    assert [function for function, _ in story.world.failures] == ["TellPeople"]


def notices():
    """What the topic was given: (subject, text, what a chat channel shows)."""
    (topic,) = [
        found for arn, found in sns_backends["123456789012"]["us-east-1"].topics.items() if "Notifications" in arn
    ]
    found = []
    for _, message, subject, *_ in topic.sent_notifications:
        forms = json.loads(message)
        found.append((subject, forms["default"], json.loads(forms["https"])))
    return found


def test_an_event_that_comes_twice_is_told_once_case_b12(story):
    story.enrol()
    for _ in range(3):
        publish(story, "Extension Failed", reason="the payment failed")
    assert (len(story.mails()), len(notices())) == (2, 1)
    publish(story, "Extension Failed", reason="no extension is offered")
    publish(story, "Extension Failed", reason="the payment failed", end_date="2026-05-05T11:30:00Z")
    assert (len(story.mails()), len(notices())) == (6, 3)


def test_a_retry_tells_only_who_has_not_heard_case_b12(story):
    story.refuse_mail("jo@example.com", "TooManyRequestsException", 429, times=1)
    story.enrol()
    publish(story, "Extension Failed")
    assert [mail.destinations["ToAddresses"] for mail in story.mails()] == [["maria@example.com"], ["jo@example.com"]]
    assert len(notices()) == 1


def test_the_topic_hears_of_question_reminder_decision_and_gets_no_power_case_b41(story):
    story.enrol(reminder_hours=[2], time_zone="Europe/Berlin").ask()
    story.world.run_for(timedelta(hours=1))
    story.answer(story.link(), "approve", "needed")
    asked, reminded, decided = notices()
    assert asked[0].startswith("team-vision waits for an answer until Mon 4 May 2026, 08:30 UTC (10:30 Europe/Berlin)")
    assert "Still nobody has decided" in reminded[1]
    assert "approved, by maria@example.com" in decided[1]
    address = f"{story.base()}/decide/{ID}"
    for subject, text, chat in (asked, reminded, decided):
        assert address in text.splitlines()
        assert (chat["version"], chat["source"], chat["content"]["title"]) == ("1.0", "custom", subject)
        assert "signature" not in text + json.dumps(chat)
    page = story.page(address)
    assert page.status == 200
    assert "This request is closed" in page.body
    assert "<form" not in page.body
    assert "7,973.38" not in page.body + story.page(address, "HEAD").body
    assert story.answer(address).status == 400


def test_a_subject_for_the_topic_is_plain_case_b46(story):
    story.enrol()
    publish(story, "Extension Failed", environment="e" * 128)
    ((subject, _, _),) = notices()
    assert subject.isascii()
    assert len(subject) < 100
