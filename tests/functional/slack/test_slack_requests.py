"""What reaches POST /slack/interactions and does not come from Slack, or not as expected (cases B05 and B41)."""

import base64
import json
from datetime import timedelta
from urllib.parse import urlencode

import pytest
from approval_story import ID

from local.slack import BOT_TOKEN, SIGNING_SECRET

MARIA = "U0MARIA01"


def post(story, body, headers, **more):
    return story.world.request("POST", "/slack/interactions", body=body, headers=headers, **more)


@pytest.fixture
def click(story, slack):
    """The body of a signed click on Approve, with text that is no ASCII."""
    story.ask()
    payload = slack.click(MARIA, "approve")
    payload["message"]["text"] = "*p5* für Größe 😀 + %20 &amp;"
    return urlencode({"payload": json.dumps(payload, ensure_ascii=False)})


def without(headers, name):
    return {key: value for key, value in headers.items() if key != name}


@pytest.mark.parametrize("encoded", [False, True])
@pytest.mark.parametrize("case", [str, str.lower, str.upper, str.swapcase])
def test_signed_bytes_count_however_they_travel_case_b05(story, slack, click, encoded, case):
    headers = {case(name): value for name, value in slack.signed_headers(click).items()}
    assert post(story, click, headers, base64=encoded).status == 200
    assert story.status() == "APPROVED"


def test_a_body_that_is_not_percent_encoded_is_read_as_signed_case_b05(story, slack):
    story.ask()
    payload = slack.click(MARIA, "approve")
    payload["message"]["text"] = "*p5* für Größe"
    raw = "payload=" + json.dumps(payload, ensure_ascii=False).replace("%", "%25").replace("&", "%26").replace(
        "+", "%2B"
    )
    assert post(story, raw, slack.signed_headers(raw), base64=True).status == 200
    assert story.status() == "APPROVED"


FORGED = {
    "no signature": lambda slack, body: without(slack.signed_headers(body), "X-Slack-Signature"),
    "no timestamp": lambda slack, body: without(slack.signed_headers(body), "X-Slack-Request-Timestamp"),
    "no headers": lambda *_: {},
    "six minutes old": lambda slack, body: slack.signed_headers(body, slack.now() - timedelta(minutes=6)),
    "six minutes ahead": lambda slack, body: slack.signed_headers(body, slack.now() + timedelta(minutes=6)),
    "another body's": lambda slack, body: slack.signed_headers(body + "x"),
    "another secret's": lambda slack, body: slack.signed_headers(body) | {"X-Slack-Signature": "v0=" + "0" * 64},
    "timestamp moved": lambda slack, body: (
        slack.signed_headers(body) | {"X-Slack-Request-Timestamp": f"{int(slack.now().timestamp()) + 1}"}
    ),
    "junk timestamp": lambda slack, body: slack.signed_headers(body) | {"X-Slack-Request-Timestamp": "junk"},
    "empty timestamp": lambda slack, body: slack.signed_headers(body) | {"X-Slack-Request-Timestamp": ""},
    "signature of umlauts": lambda slack, body: slack.signed_headers(body) | {"X-Slack-Signature": "v0=ü"},
}


@pytest.mark.parametrize("forged", FORGED)
def test_a_forged_request_is_401_and_starts_nothing_case_b05(story, slack, click, forged):
    before = len(story.world.calls)
    answer = post(story, click, FORGED[forged](slack, click), base64=True)
    assert (answer.status, answer.body) == (401, "")
    assert {call.service for call in story.world.calls[before:]} <= {"Secrets Manager", "secretsmanager"}
    assert story.status() == "OPEN"
    assert slack.private == []


def test_a_replayed_request_decides_nothing_again_case_b06(story, slack, click):
    headers = slack.signed_headers(click)
    assert post(story, click, headers).status == 200
    assert post(story, click, headers).status == 200
    assert "Your answer changed nothing" in slack.told(MARIA)[-1]
    story.world.run_for(timedelta(minutes=6))
    assert post(story, click, headers).status == 401


def test_base64_that_is_none_is_401(story, slack, click):
    event = {
        "httpMethod": "POST",
        "headers": slack.signed_headers(click),
        "requestContext": {"requestTimeEpoch": round(story.world.now().timestamp() * 1000)},
        "body": "%%%",
        "isBase64Encoded": True,
    }
    assert story.world.invoke("SlackInteractions", event)["statusCode"] == 401
    event |= {"body": base64.b64encode(b"\xff\xfe").decode()}
    assert story.world.invoke("SlackInteractions", event)["statusCode"] == 401


def payload_of(slack, **changes):
    return slack.click(MARIA, "approve") | changes


MALFORMED = {
    "no form": "hello",
    "empty": "",
    "no payload": "x=1",
    "two payloads": "payload={}&payload={}",
    "no json": "payload=%7B",
    "no object": "payload=[]",
    "nested": "payload=" + "[" * 20000,
    "umlauts": "payload=%ff",
}


@pytest.mark.parametrize("body", MALFORMED.values(), ids=MALFORMED)
def test_a_signed_body_that_cannot_be_read_is_400(story, slack, body):
    story.ask()
    assert post(story, body, slack.signed_headers(body)).status == 400
    assert story.status() == "OPEN"


@pytest.mark.parametrize(
    "changes",
    [
        {"type": "shortcut"},
        {"type": None},
        {"user": None},
        {"user": {"id": "maria"}},
        {"user": {"id": ["U0MARIA01"]}},
        {"actions": []},
        {"actions": [{"action_id": "buy", "value": ID}]},
        {"actions": [{"action_id": "approve", "value": "../x"}]},
        {"actions": [{"action_id": "approve", "value": {"id": ID}}]},
        {"actions": [{"action_id": "approve"}]},
        {"channel": None},
        {"trigger_id": None},
        {"type": "view_submission"},
        {"type": "view_submission", "view": {"callback_id": "reject", "private_metadata": ID, "state": {"values": {}}}},
        {
            "type": "view_submission",
            "view": {
                "callback_id": "reject",
                "private_metadata": ID,
                "state": {"values": {"reason": {"reason": {"value": "x" * 501}}}},
            },
        },
    ],
)
def test_a_signed_payload_that_no_message_of_ours_causes_is_400(story, slack, changes):
    story.ask()
    assert slack.sign_and_send(payload_of(slack, **changes))[0] == 400
    assert story.status() == "OPEN"


def test_other_methods_and_paths_lead_nowhere(story):
    for method, path in (("GET", "/slack/interactions"), ("POST", "/slack"), ("POST", "/slack/commands")):
        assert story.world.request(method, path).status == 403


def test_no_secret_is_found_anywhere_afterwards_case_b41(story, slack, click):
    """Bot token, signing secret, signatures, task tokens, forms' keys: in no log, execution, event, message or answer."""
    story.enrol(approvers=["maria@example.com", "U0MARIA01", "U0JOHN001"])
    execution = story.ask("second", approval_id=f"{ID}-2")
    signed = slack.signed_headers(click)
    post(story, click, FORGED["another secret's"](slack, click))
    post(story, click, FORGED["six minutes old"](slack, click))
    slack.fail("chat.postMessage", "invalid_auth")
    third = story.ask("third", approval_id=f"{ID}-3")
    slack.fail("chat.update", "down", times=2)
    slack.fail("chat.postEphemeral", "down")
    slack.press("U0INTERN1", "approve")
    slack.press("U0JOHN001", "reject", next(m for m in slack.messages if f"{ID}-2" in json.dumps(m.blocks)).ts)
    slack.submit("U0JOHN001", "no")
    slack.sign_and_send(payload_of(slack, actions=[{"action_id": "buy", "value": "x"}]))
    story.world.run_for(timedelta(hours=4))
    tokens = [story.item(item_id=f"{ID}{suffix}")["task_token"] for suffix in ("", "-2", "-3")]
    links = [mail.body for mail in story.mails()]
    keys = list(slack._triggers)
    secrets = {
        "bot token": [BOT_TOKEN],
        "signing secret": [SIGNING_SECRET],
        "signature": [signed["X-Slack-Signature"], signed["X-Slack-Signature"][3:]],
        "task token": tokens,
        "key of a form": keys,
        "way to answer a click": ["hooks.slack.com"],
    }
    places = {
        "logs": story.world.logs.getvalue(),
        "events": json.dumps(story.world.events),
        "executions": repr([(vars(each), each.input_text, each.output, each.cause) for each in (execution, third)]),
        "messages": json.dumps([vars(message) for message in slack.messages]) + json.dumps(slack.private),
        "mails": "".join(links),
        "table": json.dumps({**story.item(), "task_token": None}, default=str),
    }
    assert all(all(values) for values in secrets.values())
    found = [
        (secret, place)
        for secret, values in secrets.items()
        for value in values
        for place, text in places.items()
        if value in text
    ]
    assert set(found) == set()
