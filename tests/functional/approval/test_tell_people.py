"""Approvers hear what became of a block, from our own events on the bus."""

import json
from datetime import timedelta
from pathlib import Path

import pytest
from approval_story import START

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


@pytest.mark.parametrize(
    "detail_type", ["Extension Offered", "Extension Purchased", "Approval Requested", "Groups Scaled"]
)
def test_other_events_are_told_to_nobody_case_b12(story, detail_type):
    story.enrol()
    publish(story, detail_type)
    assert story.mails() == []


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


def test_an_event_that_cannot_be_read_is_not_lost_silently(story):
    story.enrol()
    publish(story, "Extension Failed", end_date="soon")
    assert [function for function, _ in story.world.failures] == ["TellPeople"]
