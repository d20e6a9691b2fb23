"""Questions by mail, page and API on the deployed stack, the clock moved from mark to mark: real packaging, IAM, HTTP, events."""

import json
import re
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from urllib.parse import urlencode

import pytest
from waiting import DECISION_LEAD, eventually

from local.stack import request

pytestmark = pytest.mark.e2e
MARIA, JO = "U0MARIA01", "U0JOHN001"
FEE = "3488"  # 5.191 USD x 4 instances x 168 hours, in whole dollars
RECORDS = {
    "mail-two": {"approvers": ["mail-two@example.com", "mail-two-b@example.com"]},
    "mail-quorum": {"approvers": ["mail-quorum@example.com", "mail-quorum-b@example.com"], "quorum": 2},
    "mail-robot": {
        "approvers": ["mail-robot@example.com", "mail-robot-b@example.com"],
        "enrolled_by": "mail-robot@example.com",
    },
    "api-yes": {},
    "api-no": {},
    "moved": {"approvers": ["moved@example.com", MARIA]},
    "marks": {
        "approvers": ["marks@example.com", JO],
        "reminder_hours": [2],
        "escalate_to": ["marks-head@example.com", MARIA],
        "escalate_hours": 1,
    },
}
BLOCKS = {pk: f"cr-0e2e000000000700{nth}" for nth, pk in enumerate(RECORDS)}


@pytest.fixture(scope="module")
def asked(deployed):
    """Due blocks after one sweep, their approvers asked. What the bus carries goes into a queue."""
    events, queues = deployed.aws.client("events"), deployed.aws.client("sqs")
    url = queues.create_queue(QueueName="e2e-approvals")["QueueUrl"]
    arn = queues.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    events.put_rule(Name="e2e-approvals", EventPattern=json.dumps({"source": ["blockkeeper"]}))
    events.put_targets(Rule="e2e-approvals", Targets=[{"Id": "queue", "Arn": arn}])
    for pk, reservation_id in BLOCKS.items():
        deployed.block(reservation_id, end="now+5h@11:30")
        deployed.enrol(pk, reservation_id, **{"reminder_hours": [], **RECORDS[pk]})
    deployed.stack.start("DetectExpiryArn", "e2e-approvals")
    eventually(lambda: all(link(deployed, pk) for pk in RECORDS), patience=300)
    return Bus(queues, url)


class Bus:
    """Our own events so far."""

    def __init__(self, queues, url):
        self._queues, self._url, self._seen = queues, url, []

    def events(self, detail_type=None):
        while messages := self._queues.receive_message(QueueUrl=self._url, MaxNumberOfMessages=10).get("Messages"):
            for message in messages:
                self._seen.append(json.loads(message["Body"]))
                self._queues.delete_message(QueueUrl=self._url, ReceiptHandle=message["ReceiptHandle"])
        return [each for each in self._seen if detail_type in (None, each["detail-type"])]


def mails(deployed, recipient):
    return [mail for mail in deployed.stack.mails() if mail["To"] == [recipient]]


def link(deployed, person):
    for mail in mails(deployed, person if "@" in person else f"{person}@example.com"):
        if found := re.search(r"http://\S+/decide/\S+", mail["BodyText"]):
            return found[0]
    return None


def answer(address, decision, **fields):
    return request("POST", address, urlencode({"decision": decision, "reason": "e2e", **fields}))


def approval(deployed, pk):
    (found,) = deployed.stack.api("GET", f"/approvals?environment={pk}").body
    return found


def ends(deployed, pk, status):
    """The request has ended so, its workflow knows, and nothing but a yes has bought anything."""
    eventually(
        lambda: approval(deployed, pk).get("delivery") == "delivered" and approval(deployed, pk)["status"] == status
    )
    assert status == "APPROVED" or deployed.orders(BLOCKS[pk]) == []


@pytest.mark.usefixtures("asked")
def test_a_robot_opens_runs_and_sends_the_page_and_decides_nothing_case_b07(deployed):
    for person in RECORDS["mail-robot"]["approvers"]:
        address = link(deployed, person)
        for more in ("", "&decision=approve", "&decision=reject"):
            assert request("GET", address + more).status == 200
            assert request("HEAD", address + more).status == 200
        for decision in ("approve", "reject"):
            assert answer(address, decision, amount="").status == 400
        for forged in (address[:-1] + ("A" if address[-1] != "A" else "B"), address.replace("expires=1", "expires=2")):
            assert answer(forged, "approve", amount=FEE).status == 403
    bare = link(deployed, "mail-robot").partition("?")[0]
    assert request("GET", bare).status == 200
    assert answer(bare, "approve", amount=FEE).status == 400
    assert (approval(deployed, "mail-robot")["status"], approval(deployed, "mail-robot").get("votes")) == ("OPEN", {})


@pytest.mark.usefixtures("asked")
def test_who_enrolled_it_cannot_approve_it_alone_case_b21(deployed):
    refused = answer(link(deployed, "mail-robot"), "approve", amount=FEE)
    assert "another approver must say yes" in refused.body
    unnamed = deployed.stack.api("PATCH", "/mail-robot", {"approval": True})
    assert (unnamed.status, unnamed.body["error"]["code"]) == (409, "not_named")
    assert "Your answer is recorded." in answer(link(deployed, "mail-robot-b@example.com"), "reject", amount=FEE).body
    ends(deployed, "mail-robot", "REJECTED")


@pytest.mark.usefixtures("asked")
def test_two_people_in_the_same_second_and_one_decision_case_b06(deployed):
    people = RECORDS["mail-two"]["approvers"]
    addresses = [link(deployed, person) for person in people]
    with ThreadPoolExecutor() as both:
        said = list(both.map(lambda address: answer(address, "reject", amount=FEE).body, [*addresses, *addresses]))
    assert sum("Your answer is recorded." in body for body in said) == 1
    assert sum("Your answer changed nothing" in body for body in said) == 3
    ends(deployed, "mail-two", "REJECTED")


@pytest.mark.usefixtures("asked")
def test_a_quorum_waits_for_the_second_yes(deployed):
    first, second = (link(deployed, person) for person in RECORDS["mail-quorum"]["approvers"])
    assert "1 more of the approvers must say yes" in answer(first, "approve", amount=FEE).body
    assert "1 more of the approvers must say yes" in answer(first, "approve", amount=FEE).body
    assert approval(deployed, "mail-quorum")["status"] == "OPEN"
    assert "Your answer is recorded." in answer(second, "approve", amount=FEE).body
    ends(deployed, "mail-quorum", "APPROVED")


@pytest.mark.usefixtures("asked")
def test_the_api_answers_as_awss_sample_clients_do(deployed):
    assert deployed.stack.api("PATCH", "/api-yes", {"approval": True}).status == 200
    ends(deployed, "api-yes", "APPROVED")
    rejected = deployed.stack.api("POST", f"/approvals/{approval(deployed, 'api-no')['approval_id']}/reject", {})
    assert rejected.status == 200
    ends(deployed, "api-no", "REJECTED")


@pytest.mark.usefixtures("asked")
def test_a_question_about_an_end_that_somebody_moved_is_closed_case_b20(deployed):
    asked_for = {"CapacityReservationId": BLOCKS["moved"]}
    (offer,) = deployed.ec2.describe_capacity_block_extension_offerings(
        CapacityBlockExtensionDurationHours=168, **asked_for
    )["CapacityBlockExtensionOfferings"]
    deployed.ec2.purchase_capacity_block_extension(
        CapacityBlockExtensionOfferingId=offer["CapacityBlockExtensionOfferingId"], **asked_for
    )
    before = deployed.end(BLOCKS["moved"])
    deployed.jump(deployed.now() + timedelta(minutes=12))  # paid after 6, and EC2 moves the end some minutes later
    eventually(lambda: deployed.end(BLOCKS["moved"]) > before)
    deployed.stack.start("DetectExpiryArn", "e2e-approvals-moved")
    eventually(lambda: approval(deployed, "moved")["status"] == "SUPERSEDED")
    assert "Nothing was bought through this request" in request("GET", link(deployed, "moved")).body
    eventually(lambda: "No longer needed" in deployed.question_in_slack("moved")["words"])
    assert deployed.buttons_in_slack("moved") == []
    assert len(deployed.orders(BLOCKS["moved"])) == 1


def test_reminded_escalated_and_expired_at_their_marks_cases_b04_b12(deployed, asked):
    def reminded():
        requested = [each["detail"] for each in asked.events("Approval Requested")]
        return ["reminder" in each for each in requested if each["environment"] == "marks"]

    decide_by = datetime.fromisoformat(approval(deployed, "marks")["decide_by"])
    assert decide_by == deployed.end(BLOCKS["marks"]) - DECISION_LEAD
    deployed.jump(decide_by - timedelta(hours=2) + timedelta(seconds=5))
    eventually(lambda: len(mails(deployed, "marks@example.com")) == 2)
    assert mails(deployed, "marks@example.com")[1]["Subject"].startswith("Reminder: ")
    # Whoever asks publishes after mailing: an hour that passes in between would start the next wait beside it.
    eventually(lambda: reminded() == [False, True])
    assert mails(deployed, "marks-head@example.com") == []
    (reminder,) = eventually(lambda: deployed.thread_in_slack("marks"))
    assert (f"<@{JO}>" in reminder["words"], MARIA in reminder["words"]) == (True, False)
    click = {"action_id": "approve", "ts": deployed.question_in_slack("marks")["ts"]}
    assert "not one of the approvers" in deployed.stack.slack(press={"user": MARIA, **click})["private"][-1]
    click["value"] = approval(deployed, "marks")["approval_id"]
    deployed.jump(decide_by - timedelta(hours=1) + timedelta(seconds=5))
    eventually(lambda: link(deployed, "marks-head@example.com"))
    assert len(mails(deployed, "marks@example.com")) == 2
    _, escalated = eventually(lambda: len(told := deployed.thread_in_slack("marks")) > 1 and told)
    assert f"<@{MARIA}>" in escalated["words"]
    deployed.jump(decide_by + timedelta(seconds=5))
    ends(deployed, "marks", "EXPIRED")
    late = answer(link(deployed, "marks-head@example.com"), "approve", amount=FEE)
    assert (late.status, "nothing was bought" in late.body) == (200, True)
    eventually(lambda: "Expired, nothing was bought" in deployed.question_in_slack("marks")["words"])
    assert deployed.buttons_in_slack("marks") == []
    assert "Too late" in deployed.stack.slack(press={"user": MARIA, **click})["private"][-1]
    assert deployed.orders(BLOCKS["marks"]) == []
    assert reminded() == [False, True, True], "the question, the reminder, and the second list"


def test_every_end_was_published_once(asked):
    ended = {"mail-robot": "rejected", "mail-two": "rejected", "mail-quorum": "approved", "api-yes": "approved"}
    ended |= {"api-no": "rejected", "moved": "superseded", "marks": "expired"}

    def told():
        decided = [each["detail"] for each in asked.events("Approval Decided")]
        return sorted((each["environment"], each["decision"]) for each in decided if each["environment"] in ended)

    assert eventually(lambda: len(told()) >= len(ended) and told()) == sorted(ended.items())


def test_nothing_that_opens_a_door_is_in_logs_histories_or_events_case_b41(deployed, asked):
    table = deployed.aws.client("dynamodb").scan(TableName=deployed.stack.outputs["TableName"])["Items"]
    secrets = [item["task_token"]["S"] for item in table if "task_token" in item]
    secrets += [found for mail in deployed.stack.mails() for found in re.findall(r"signature=(\S+)", mail["BodyText"])]
    manager = deployed.aws.client("secretsmanager")
    for each in manager.list_secrets()["SecretList"]:
        if re.search("LinkKey|ApiKey", each["Name"]):
            secrets += json.loads(manager.get_secret_value(SecretId=each["ARN"])["SecretString"]).values()
    assert len(secrets) > 2 * len(RECORDS)
    pages = (
        deployed.aws.client("logs").get_paginator("filter_log_events").paginate(logGroupName="/blockkeeper/blockkeeper")
    )
    lines = [event["message"] for page in pages for event in page["events"]]
    assert any("approval ended" in line for line in lines), "the functions' own lines are among them"
    histories = []
    for machine in deployed.states.list_state_machines()["stateMachines"]:
        for execution in deployed.states.list_executions(stateMachineArn=machine["stateMachineArn"])["executions"]:
            history = deployed.states.get_paginator("get_execution_history").paginate(
                executionArn=execution["executionArn"]
            )
            histories += [event for page in history for event in page["events"]]
    # What Step Functions itself notes of a call that hands out a task token holds the token, here as on AWS; nothing of ours does.
    ours = [json.dumps(event, default=str) for event in histories if "taskScheduledEventDetails" not in event]
    everything = {
        "logs": "\n".join(lines),
        "histories": "\n".join(ours),
        "events": json.dumps(asked.events()),
        "server": deployed.aws.log.read_text("utf-8", "replace"),
    }
    for secret in secrets:
        assert [where for where, text in everything.items() if secret in text] == []
