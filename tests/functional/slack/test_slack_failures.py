"""Slack that is slow, away, full or refusing: no decision is lost, none is made twice, and the channel catches up."""

import json
from datetime import timedelta
from pathlib import Path

import boto3
import pytest
from approval_story import ID, PARAMETERS, SLACK, START, Story

from local.engine.world import World
from local.slack import secret

MARIA, JO = "U0MARIA01", "U0JOHN001"
BOTH = ["maria@example.com", "U0JOHN001"]
MINUTES_3 = timedelta(minutes=3)


def settle(story, span=timedelta(0)):
    story.world.run_for(span)


@pytest.mark.parametrize("kind", ["down", "rate_limited", "internal_error", "channel_not_found", "invalid_auth"])
def test_while_slack_does_not_take_it_mail_asks_and_slack_follows(story, slack, kind):
    slack.fail("chat.postMessage", kind, times=2)
    execution = story.enrol(approvers=BOTH).ask()
    assert len(story.mails("maria@example.com")) == 1
    assert slack.messages == []
    settle(story, MINUTES_3)
    (message,) = slack.messages
    assert message.buttons()
    slack.press(JO, "approve")
    settle(story)
    assert execution.output["decision"] == "approved"
    assert story.world.failures == []


@pytest.mark.parametrize("kind", ["down", "rate_limited", "service_unavailable"])
def test_with_people_in_slack_only_asking_is_tried_again(story, slack, kind):
    slack.fail("chat.postMessage", kind)
    execution = story.ask()
    assert slack.messages == []
    settle(story, timedelta(minutes=1))
    (message,) = slack.messages
    assert (execution.status, len(message.buttons())) == ("RUNNING", 2)


@pytest.mark.parametrize("kind", ["channel_not_found", "not_in_channel", "invalid_auth", "account_inactive"])
def test_with_people_in_slack_only_a_refusal_is_an_error_at_once(story, slack, kind):
    slack.fail("chat.postMessage", kind, times=9)
    execution = story.ask()
    assert (execution.status, execution.error) == ("FAILED", "NobodyToldError")
    assert kind in execution.cause
    assert "docs/slack.md" in execution.cause


def test_an_answer_of_slack_that_is_lost_makes_at_most_a_second_message_and_no_second_decision(story, slack):
    slack.fail("chat.postMessage", "lost_answer")
    execution = story.ask()
    settle(story, timedelta(minutes=1))
    first, second = slack.messages
    assert first.blocks == second.blocks
    assert slack.press(MARIA, "approve", first.ts).private == []
    settle(story)
    assert execution.output["decision"] == "approved"
    assert second.buttons() == []
    pressed = slack.press(JO, "approve", first.ts)
    assert "Your answer changed nothing" in pressed.private[0]
    assert [name for name, _ in story.told()].count("Approval Decided") == 1


def test_two_that_post_at_the_same_moment_leave_one_message(story, slack, monkeypatch):
    story.ask()
    (message,) = slack.messages
    kept = {name: story.item()[name] for name in ("slack_ts", "slack_channel")}
    post = slack._post

    def post_late(given):
        posted = post(given)
        story.put("approval", ID, {**story.item(), **kept})  # another invocation was faster
        return posted

    story.put("approval", ID, {name: value for name, value in story.item().items() if not name.startswith("slack_")})
    monkeypatch.setattr(slack, "_post", post_late)
    detail = {
        "environment": "team-vision",
        "reservation_id": "cr-0a1",
        "approval_id": ID,
        "now": "2026-05-04T06:00:00Z",
    }
    story.world.publish({"source": "blockkeeper", "detail-type": "Approval Requested", "detail": detail})
    settle(story)
    assert slack.standing() == [message]


def test_a_decision_stands_while_the_message_cannot_be_updated(story, slack):
    execution = story.ask()
    slack.fail("chat.update", "down", times=2)
    slack.press(MARIA, "approve")
    settle(story)
    (message,) = slack.messages
    assert execution.output["decision"] == "approved"
    assert message.buttons(), "not updated yet"
    late = slack.press(JO, "approve", message.ts)
    assert "Your answer changed nothing" in late.private[0]
    settle(story, MINUTES_3)
    assert message.buttons() == []
    assert story.world.failures == []


def test_an_update_that_fails_for_good_is_not_lost_unseen_and_the_next_event_mends_it(story, slack):
    story.ask()
    slack.fail("chat.update", "rate_limited", times=3)
    slack.press(MARIA, "approve")
    settle(story, timedelta(minutes=10))
    assert [name for name, _ in story.world.failures] == ["TellSlack"]
    assert slack.messages[0].buttons()
    detail = {
        "environment": "team-vision",
        "reservation_id": "cr-0a1",
        "account": "123456789012",
        "region": "us-east-1",
        "end_date": "2026-05-04T11:30:00Z",
        "approval_id": ID,
        "now": "2026-05-04T06:00:00Z",
        "outcome": "payment_failed",
        "reason": "the payment failed",
    }
    story.world.publish({"source": "blockkeeper", "detail-type": "Extension Failed", "detail": detail})
    settle(story)
    assert slack.messages[0].buttons() == []
    assert "Not extended: the payment failed." in slack.messages[0].words()


def test_a_notice_that_fails_is_posted_later_and_once(story, slack):
    slack.fail("chat.postMessage", "down")
    detail = {
        "environment": "team-vision",
        "reservation_id": "cr-0a1",
        "account": "123456789012",
        "region": "us-east-1",
        "end_date": "2026-05-04T11:30:00Z",
        "reason": "too late",
    }
    for _ in range(2):
        story.world.publish({"source": "blockkeeper", "detail-type": "Block Expiring", "detail": detail})
    settle(story, MINUTES_3)
    assert len(slack.messages) == 1
    assert story.world.failures == []


def test_a_notice_that_another_invocation_is_posting_waits(story, slack):
    """The first was stopped between its claim and the message, and is not tried again: somebody must look (LostEvents)."""
    story.put("slack-notice", "cr-0a1#2026-05-04T11:30:00Z#Block Expiring#", {"claimed_by": "another"})
    detail = {
        "environment": "team-vision",
        "reservation_id": "cr-0a1",
        "account": "123456789012",
        "region": "us-east-1",
        "end_date": "2026-05-04T11:30:00Z",
    }
    story.world.publish({"source": "blockkeeper", "detail-type": "Block Expiring", "detail": detail})
    settle(story, MINUTES_3)
    assert slack.messages == []
    assert [name for name, _ in story.world.failures] == ["TellSlack"]


@pytest.mark.parametrize("kind", ["down", "expired_trigger_id", "rate_limited", "lost_answer"])
def test_a_form_that_does_not_open_decides_nothing(story, slack, kind):
    story.ask()
    slack.fail("views.open", kind)
    pressed = slack.press(MARIA, "reject")
    assert (pressed.status, story.status()) == (200, "OPEN")
    assert "nothing was decided" in pressed.private[0]
    if kind != "lost_answer":
        assert slack.press(MARIA, "reject").form is not None


def test_a_private_answer_that_does_not_arrive_changes_nothing(story, slack):
    story.ask()
    slack.fail("chat.postEphemeral", "down")
    pressed = slack.press("U0INTERN1", "approve")
    assert (pressed.status, pressed.private, story.status()) == (200, [], "OPEN")


def test_a_table_that_cannot_be_written_is_said_in_private(story, slack):
    story.ask()
    slack.press(JO, "reject")
    emitter = story.world._session.get_component("event_emitter")

    def refuse(params, **_):
        from botocore.awsrequest import AWSResponse

        error = {
            "Error": {"Code": "AccessDeniedException", "Message": "made by the test"},
            "ResponseMetadata": {"HTTPStatusCode": 400},
        }
        return AWSResponse(params["url"], 400, {}, None), error

    emitter.register("before-call.dynamodb.UpdateItem", refuse)
    pressed = slack.press(MARIA, "approve")
    assert (pressed.status, story.status()) == (200, "OPEN")
    assert "could not write that down in time" in pressed.private[0]
    sent = slack.submit(JO)
    assert "could not write that down in time" in sent.form["blocks"][0]["text"]["text"]
    emitter.unregister("before-call.dynamodb.UpdateItem", refuse)


@pytest.fixture
def cold():
    """A stack whose functions keep nothing from other tests."""
    with World(START, parameters=PARAMETERS | SLACK, schedules=False) as world:
        yield Story(world).enrol(approvers=["U0MARIA01"])


def put_secret(text):
    boto3.client("secretsmanager").put_secret_value(SecretId="blockkeeper/slack", SecretString=text)


def test_a_rotated_signing_secret_counts_at_the_next_click(cold, monkeypatch):
    cold.ask()
    slack = cold.world.slack
    assert slack.press("U0INTERN1", "approve").status == 200
    slack.signing_secret = "f" * 32
    put_secret(secret(World._slack_server.api_url, signing_secret=slack.signing_secret))
    assert slack.press(MARIA, "approve").status == 401, "read less than 30 seconds ago"
    _older(cold, monkeypatch)
    assert slack.press(MARIA, "approve").status == 200
    assert cold.status() == "APPROVED"


def test_a_rotated_token_counts_at_the_next_try(cold):
    slack = cold.world.slack
    cold.ask()
    slack.token = "xoxb-another-token"
    put_secret(secret(World._slack_server.api_url, token=slack.token))
    slack.press(MARIA, "approve")
    cold.world.run_for(MINUTES_3)
    assert slack.messages[0].buttons() == []


@pytest.mark.parametrize(
    "text",
    [
        "no json, and secret-0815",
        "[]",
        "null",
        '{"bot_token": "xoxb-secret-0815"}',
        '{"bot_token": "xoxb-secret-0815", "signing_secret": ""}',
        '{"bot_token": "xoxp-secret-0815", "signing_secret": "0123456789abcdef"}',
        '{"bot_token": "xoxb-secret-0815", "signing_secret": "0123456789abcdef", "api_url": "http://evil.example/"}',
        '{"bot_token": "xoxb-secret-0815", "signing_secret": "0123456789abcdef", "api_url": "http://127.0.0.1.evil.example/"}',
    ],
)
def test_a_secret_that_will_not_do_is_an_error_that_does_not_quote_it(cold, text):
    put_secret(text)
    execution = cold.ask()
    assert (execution.status, execution.error) == ("FAILED", "NobodyToldError")
    assert "SlackSecretName" in execution.cause
    answer = cold.world.slack.sign_and_send({"type": "block_actions"})
    assert answer[0] == 503
    assert "0815" not in cold.world.logs.getvalue() + execution.cause + json.dumps(answer)


def test_a_secret_that_is_not_there_is_an_error(cold):
    boto3.client("secretsmanager").delete_secret(SecretId="blockkeeper/slack", ForceDeleteWithoutRecovery=True)
    execution = cold.ask()
    assert execution.error == "NobodyToldError"
    assert "ResourceNotFoundException" in execution.cause


def test_half_a_configuration_asks_nobody_in_slack_case_b16():
    with World(START, parameters=PARAMETERS | {"SlackChannel": "C0LOCAL01"}, schedules=False) as world:
        story = Story(world)
        only_slack = story.enrol(approvers=["U0MARIA01"]).ask()
        assert (only_slack.status, only_slack.error) == ("FAILED", "NobodyToAskError")
        assert world.request("POST", "/slack/interactions", body="payload=1").status == 503
        both = story.enrol(approvers=BOTH).ask("second", approval_id=f"{ID}-2")
        assert both.status == "RUNNING", "mail asks"
        assert "SlackSecretName is not set" in world.logs.getvalue()


def _older(story, monkeypatch):
    """Let what the interactions function has read be a minute old."""
    modules = story.world.sandboxes._modules["SlackInteractions"]
    monkeypatch.setattr(modules["blockkeeper.aws.slack"], "_DOUBTED_SECONDS", -1.0)


def test_findings_of_the_daily_look_are_posted_each_once(story, slack):
    sample = Path(__file__).parents[3] / "events" / "blockkeeper-event.findings-changed.json"
    detail = json.loads(sample.read_text("utf-8"))["detail"]
    for _ in range(2):
        story.world.publish({"source": "blockkeeper", "detail-type": "Findings Changed", "detail": detail})
    story.world.run_until_idle()
    posted = [message for message in slack.messages if "market-type" in message.words() or "train" in message.words()]
    assert len(posted) == 1
