"""Questions in Slack on the deployed stack, through the local Slack: real packaging, IAM, API Gateway, signatures and events."""

import hashlib
import hmac
import json
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from waiting import eventually

from local.slack import BOT_TOKEN, SIGNING_SECRET
from local.stack import request

pytestmark = pytest.mark.e2e
MARIA, JO, INTERN = "U0MARIA01", "U0JOHN001", "U0INTERN1"
BLOCKS = {
    "slack-yes": "cr-0e2e0000000005001",
    "slack-no": "cr-0e2e0000000005002",
    "slack-two": "cr-0e2e0000000005003",
}


@pytest.fixture(scope="module")
def in_slack(deployed):
    """Due blocks after one sweep, asked in Slack: record -> reservation."""
    for pk, reservation_id in BLOCKS.items():
        deployed.block(reservation_id)
        quorum = 2 if pk == "slack-two" else 1
        deployed.enrol(pk, reservation_id, approvers=[MARIA, f"T0LOCAL01:{JO}"], quorum=quorum)
    deployed.stack.start("DetectExpiryArn", "e2e-slack")
    eventually(lambda: all(deployed.question_in_slack(pk) for pk in BLOCKS))
    return BLOCKS


def press(deployed, pk, user, action, **more):
    return deployed.stack.slack(
        press={"user": user, "action_id": action, "ts": deployed.question_in_slack(pk)["ts"], **more}
    )


@pytest.mark.usefixtures("fast")
def test_a_yes_buys_once_and_the_channel_sees_all_of_it(deployed, in_slack):
    reservation_id, before = in_slack["slack-yes"], deployed.end(in_slack["slack-yes"])
    with ThreadPoolExecutor() as pool:
        pressed = list(pool.map(lambda _: press(deployed, "slack-yes", MARIA, "approve"), range(2)))
    assert [each["status"] for each in pressed] == [200, 200], "double click (case B06)"
    assert eventually(lambda: deployed.ended_in(reservation_id)) == "Extension confirmed"
    assert deployed.end(reservation_id) == before + timedelta(days=7)
    assert len(deployed.orders(reservation_id)) == 1
    eventually(lambda: "Done: the block now ends" in deployed.question_in_slack("slack-yes")["words"])
    assert deployed.buttons_in_slack("slack-yes") == []
    assert f"*Approved* by <@{MARIA}>" in deployed.question_in_slack("slack-yes")["words"]
    thread = deployed.thread_in_slack("slack-yes")
    assert [each["text"].partition(" until")[0] for each in thread] == [
        "slack-yes: ordered for 3,488.35 USD",
        "slack-yes now runs",
    ]
    assert all(each["broadcast"] for each in thread)


def test_a_no_with_a_reason(deployed, in_slack):
    pressed = press(deployed, "slack-no", JO, "reject")
    assert pressed["form"]["callback_id"] == "reject", pressed
    assert deployed.ended_in(in_slack["slack-no"]) is None
    sent = deployed.stack.slack(submit={"user": JO, "reason": "Größe <b> & *fett*"})
    assert (sent["status"], sent["form"]) == (200, None)
    assert eventually(lambda: deployed.ended_in(in_slack["slack-no"])) == "Extension rejected"
    assert deployed.orders(in_slack["slack-no"]) == []
    eventually(lambda: "Reason: Größe &lt;b&gt; &amp; *fett*" in deployed.question_in_slack("slack-no")["words"])
    assert deployed.buttons_in_slack("slack-no") == []


def test_who_may_not_and_what_is_forged_changes_nothing(deployed, in_slack):
    assert "not one of the approvers" in press(deployed, "slack-two", INTERN, "approve")["private"][-1]
    assert "not one of the approvers" in press(deployed, "slack-two", MARIA, "approve", team="T0OTHER01")["private"][-1]
    url = f"{deployed.stack.api_url}/slack/interactions"
    stamp = str(int(deployed.now().timestamp()))
    for headers in ({}, {"x-slack-signature": "v0=" + "0" * 64, "x-slack-request-timestamp": stamp}):
        assert request("POST", url, "payload=%7B%7D", **headers).status == 401
    # What Slack itself has signed is taken while it is fresh, and only then: whoever has seen it cannot send it again later.
    for age, status in ((timedelta(0), 400), (timedelta(minutes=6), 401), (timedelta(minutes=-6), 401)):
        headers = signed("payload=%7B%7D", deployed.now() - age)
        assert request("POST", url, "payload=%7B%7D", **headers).status == status
    assert deployed.buttons_in_slack("slack-two")
    assert deployed.ended_in(in_slack["slack-two"]) is None


@pytest.mark.usefixtures("in_slack")
def test_a_quorum_is_counted_by_people(deployed):
    assert "1 more" in press(deployed, "slack-two", MARIA, "approve")["private"][-1]
    eventually(lambda: "1 of 2 said yes so far" in deployed.question_in_slack("slack-two")["words"])
    assert press(deployed, "slack-two", JO, "approve")["status"] == 200
    eventually(lambda: f"*Approved* by <@{JO}>" in deployed.question_in_slack("slack-two")["words"])
    assert (
        "Your answer changed nothing"
        in press(deployed, "slack-two", MARIA, "approve", value=approval(deployed, "slack-two"))["private"][-1]
    )


@pytest.mark.usefixtures("in_slack")
def test_no_secret_of_slack_is_in_logs_or_histories_case_b41(deployed):
    logs = deployed.aws.client("logs")
    pages = logs.get_paginator("filter_log_events").paginate(logGroupName="/blockkeeper/blockkeeper")
    lines = [event["message"] for page in pages for event in page["events"]]
    assert any("slack_interactions" in line for line in lines), "the functions' own lines are among them"
    histories = []
    for machine in deployed.states.list_state_machines()["stateMachines"]:
        for execution in deployed.states.list_executions(stateMachineArn=machine["stateMachineArn"])["executions"]:
            history = deployed.states.get_paginator("get_execution_history").paginate(
                executionArn=execution["executionArn"]
            )
            histories += [json.dumps(page["events"], default=str) for page in history]
    everything = "\n".join([*lines, *histories, deployed.aws.log.read_text("utf-8", "replace")])
    for secret in (BOT_TOKEN, SIGNING_SECRET, "hooks.slack.com", ".trigger", "v0="):
        assert secret not in everything


def signed(body, at):
    """Slack's headers (Slack's documentation, "Verifying requests from Slack")."""
    stamp = str(int(at.timestamp()))
    digest = hmac.new(SIGNING_SECRET.encode(), f"v0:{stamp}:{body}".encode(), hashlib.sha256).hexdigest()
    return {"x-slack-request-timestamp": stamp, "x-slack-signature": f"v0={digest}"}


def approval(deployed, pk):
    (found,) = [
        each["approval_id"] for each in deployed.stack.api("GET", "/approvals").body if each["environment"] == pk
    ]
    return found
