"""The conditional writes behind a decision, on moto's DynamoDB: who is first, and what a race leaves behind."""

import json
from datetime import UTC, datetime, timedelta

import boto3
import pytest
from approval_story import ID, REQUEST
from moto import mock_aws

from blockkeeper.aws import approvals, clients
from blockkeeper.aws.table import get_item
from blockkeeper.domain.approval import Answer, ApprovalStatus, Decision, Delivery, open_request, outcome

NOW = datetime(2026, 5, 4, 8, 0, tzinfo=UTC)
MARIA, JO = "maria@example.com", "jo@example.com"
VARIABLES = {
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "testing",
    "TABLE_NAME": "approvals",
    "ACCOUNT_ID": "123456789012",
}


told_events: list[tuple[str, str]] = []


@pytest.fixture
def sent(monkeypatch):
    """A table, and what was told to which task token."""
    for name, value in VARIABLES.items():
        monkeypatch.setenv(name, value)
    told = []
    told_events.clear()

    def tell(request, token):
        told.append((token, outcome(request)["decision"]))
        return Delivery.DELIVERED

    monkeypatch.setattr(approvals, "_tell", tell)
    monkeypatch.setattr(
        approvals.bus, "publish", lambda name, detail: told_events.append((name, detail.get("decision")))
    )
    _forget_clients()
    with mock_aws():
        boto3.client("dynamodb").create_table(
            TableName="approvals",
            KeySchema=[{"AttributeName": "kind", "KeyType": "HASH"}, {"AttributeName": "id", "KeyType": "RANGE"}],
            AttributeDefinitions=[
                {"AttributeName": "kind", "AttributeType": "S"},
                {"AttributeName": "id", "AttributeType": "S"},
            ],
            BillingMode="PAY_PER_REQUEST",
        )
        yield told
    _forget_clients()


def _forget_clients():
    clients.client.cache_clear()
    clients._session.cache_clear()


def ask(token="token-1", quorum=1):  # noqa: S107 - invented
    return approvals.open_or_join(open_request(REQUEST, [MARIA, JO], quorum, NOW), token, dry_run=False)


def meanwhile(monkeypatch, *happens):
    """After each of the next reads of a request, and before anything is written on it, something else happens."""
    left = list(happens)

    def read(kind, item_id):
        item = get_item(kind, item_id)
        if left:
            left.pop(0)()
        return item

    monkeypatch.setattr(approvals, "get_item", read)


def test_of_two_people_in_the_same_second_the_first_writer_wins_case_b06(sent, monkeypatch):
    ask()
    meanwhile(monkeypatch, lambda: approvals.decide(ID, Decision.REJECT, JO, "too dear", NOW))
    decided = approvals.decide(ID, Decision.APPROVE, MARIA, None, NOW)
    assert decided.answer is Answer.ALREADY_DECIDED
    assert "Rejected by jo@example.com" in decided.message
    assert sent == [("token-1", "rejected")]
    assert told_events == [("Approval Decided", "rejected")]
    assert get_item("approval", ID)["status"] == "REJECTED"


def test_two_votes_of_a_quorum_in_the_same_second_both_count(sent, monkeypatch):
    ask(quorum=2)
    meanwhile(monkeypatch, lambda: approvals.decide(ID, Decision.APPROVE, JO, None, NOW))
    assert approvals.decide(ID, Decision.APPROVE, MARIA, None, NOW).answer is Answer.RECORDED
    assert sent == [("token-1", "approved")]
    assert get_item("approval", ID)["votes"] == {MARIA: "approve", JO: "approve"}


def test_a_wait_that_is_entered_again_during_a_decision_gets_it(sent, monkeypatch):
    ask()
    meanwhile(monkeypatch, lambda: ask("token-2"))
    approvals.decide(ID, Decision.APPROVE, MARIA, None, NOW)
    assert sent == [("token-2", "approved")]


def test_a_decision_during_a_new_wait_answers_the_new_wait(sent, monkeypatch):
    ask()
    meanwhile(monkeypatch, lambda: approvals.decide(ID, Decision.APPROVE, MARIA, None, NOW))
    asked = ask("token-2")
    assert asked.request.status is ApprovalStatus.APPROVED
    assert sent == [("token-1", "approved"), ("token-2", "approved")]


@pytest.mark.usefixtures("sent")
def test_a_decision_during_closing_counts_case_b04(monkeypatch):
    ask()
    meanwhile(monkeypatch, lambda: approvals.decide(ID, Decision.APPROVE, MARIA, None, NOW))
    assert approvals.expire(ID, NOW, may_buy=False).status is ApprovalStatus.APPROVED


def test_closing_during_a_decision_counts_case_b04(sent, monkeypatch):
    ask()
    meanwhile(monkeypatch, lambda: approvals.expire(ID, NOW, may_buy=False))
    decided = approvals.decide(ID, Decision.APPROVE, MARIA, None, NOW)
    assert decided.answer is Answer.EXPIRED
    assert "nothing was bought" in decided.message
    assert sent == []


def test_the_marker_of_a_decision_that_was_forestalled_is_cleared_by_the_sweep(sent, monkeypatch):
    ask()
    meanwhile(monkeypatch, lambda: approvals.expire(ID, NOW, may_buy=False))
    approvals.decide(ID, Decision.APPROVE, MARIA, None, NOW)
    assert get_item("undelivered", ID) is not None
    assert approvals.redeliver_decisions(NOW + timedelta(minutes=15)) == 0
    assert get_item("undelivered", ID) is None
    assert sent == []


@pytest.mark.usefixtures("sent")
def test_a_request_that_always_changes_is_not_decided_blindly(monkeypatch):
    ask(quorum=2)
    bump = boto3.client("dynamodb")

    def change():
        key = {"kind": {"S": "approval"}, "id": {"S": ID}}
        values = {":one": {"N": "1"}}
        bump.update_item(
            TableName="approvals", Key=key, UpdateExpression="ADD version :one", ExpressionAttributeValues=values
        )

    meanwhile(monkeypatch, *[change] * 20)
    with pytest.raises(approvals.TooManyAnswersError):
        approvals.decide(ID, Decision.APPROVE, MARIA, None, NOW)
    with pytest.raises(approvals.TooManyAnswersError):
        approvals.expire(ID, NOW, may_buy=False)
    assert get_item("approval", ID)["status"] == "OPEN"


def test_a_request_that_became_pointless_tells_its_workflow_and_its_readers(sent):
    ask()
    closed = approvals.supersede(ID, "The block was extended by hand.", NOW)
    assert (closed.status, closed.delivery) == (ApprovalStatus.SUPERSEDED, Delivery.DELIVERED)
    assert sent == [("token-1", "superseded")]
    assert approvals.decide(ID, Decision.APPROVE, MARIA, None, NOW).answer is Answer.SUPERSEDED
    assert approvals.supersede(ID, "again", NOW).reason == "The block was extended by hand."
    assert len(sent) == 1


def test_nobody_is_an_approver_by_asking_case_b21(sent):
    ask()
    assert approvals.decide(ID, Decision.APPROVE, "mallory@example.com", None, NOW).answer is Answer.NOT_AN_APPROVER
    assert approvals.decide("cr-0a1-nothing-1", Decision.APPROVE, MARIA, None, NOW).answer is Answer.NO_SUCH_REQUEST
    assert approvals.supersede("cr-0a1-nothing-1", "x", NOW) is None
    assert (sent, get_item("approval", ID)["votes"]) == ([], {})


@pytest.mark.usefixtures("sent")
def test_requests_are_listed_without_what_opens_doors_case_b41():
    ask()
    (listed,) = approvals.list_requests("cr-0a1")
    assert listed == approvals.load_request(ID)
    assert "token-1" not in repr(listed)
    assert list(approvals.list_requests("cr-0b2")) == []
    assert approvals.load_request("cr-0b2-x-1") is None
    assert json.dumps(get_item("approval", ID)).count("token-1") == 1
