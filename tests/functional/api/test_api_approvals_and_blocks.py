"""Approvals and blocks through the API's own handler."""

from datetime import timedelta

import boto3
import pytest
from api_client import COMPLETE, NOW
from moto.stepfunctions.models import stepfunctions_backends

from blockkeeper.aws import environments
from blockkeeper.aws.table import get_item, put_request, write
from blockkeeper.domain.environment import Status
from blockkeeper.domain.instants import format_instant, parse_instant
from blockkeeper.schema_check import schema_problems

TOKEN = "AQCEAAAAKgAAAAMAAAAA-secret-task-token"
APPROVAL = "cr-0123456789abcdef0-20260504T1130Z-1"


@pytest.fixture
def told(monkeypatch):
    """What SendTaskSuccess was called with; moto takes any made-up token (case B46), so only the call is of interest."""
    calls = []
    backend = stepfunctions_backends["123456789012"]["us-east-1"]
    monkeypatch.setattr(type(backend), "send_task_success", lambda _, task_token, _output: calls.append(task_token))
    return calls


def ask(approval_id=APPROVAL, **fields):
    item = {
        "environment": "team-vision",
        "reservation_id": COMPLETE["capacity_block_id"],
        "account": "111122223333",
        "region": "us-east-1",
        "current_end": "2026-05-04T11:30:00Z",
        "new_end": "2026-05-11T11:30:00Z",
        "duration_hours": 168,
        "instance_type": "p5.48xlarge",
        "instance_count": 8,
        "offering_id": "cbe-0a1",
        "upfront_fee": "55813.63",
        "ceiling": "55813.63",
        "decide_by": "2026-05-04T08:30:00Z",
        "approvers": ["maria@example.com"],
        "quorum": 1,
        "opened_at": NOW,
        "status": "OPEN",
        "votes": {},
        "task_token": TOKEN,
        "version": 1,
    }
    write(put_request("approval", approval_id, {**item, **fields}))


def test_listing_never_shows_the_task_token(api):
    ask()
    ask("cr-0b2-20260504T1130Z-1", status="REJECTED", decided_by="maria@example.com", decided_at=NOW)
    listed = api("GET", "/approvals")
    assert [entry["approval_id"] for entry in listed.body] == [APPROVAL, "cr-0b2-20260504T1130Z-1"]
    assert all(schema_problems("approval", entry) == [] for entry in listed.body)
    only = api("GET", "/approvals", status="REJECTED")
    assert [entry["status"] for entry in only.body] == ["REJECTED"]
    assert api("GET", "/approvals", status="MAYBE").status == 400
    assert TOKEN not in listed.text + only.text


def test_pages_of_approvals_keep_the_filter(api):
    for i in range(25):
        ask(f"cr-0a1-20260504T1130Z-{i:02}", status="REJECTED" if i % 2 else "OPEN")
    pages = [
        [entry["approval_id"] for entry in page.body] for page in api.pages("/approvals", status="OPEN", limit="5")
    ]
    assert [len(page) for page in pages] == [5, 5, 3]
    assert [name for page in pages for name in page] == [f"cr-0a1-20260504T1130Z-{i:02}" for i in range(0, 25, 2)]


def test_an_open_request_whose_time_is_over_shows_as_expired(api, told):
    ask()
    api.enrol()
    late = "2026-05-04T08:30:00Z"
    assert api("GET", "/approvals", now=late).body[0]["status"] == "EXPIRED"
    assert api("GET", "/approvals", status="OPEN", now=late).body == []
    answer = api("POST", f"/approvals/{APPROVAL}/approve", now=late)  # case B04
    assert (answer.status, answer.body["error"]["code"]) == (409, "expired")
    assert api("PATCH", "/team-vision", now=late).body["error"]["code"] == "nothing_to_approve"
    assert told == []


@pytest.mark.parametrize(("verb", "status"), [("approve", "APPROVED"), ("reject", "REJECTED")])
def test_an_answer_is_recorded_with_who_and_why(api, told, verb, status):
    ask()
    body = {"approver": "maria@example.com", "reason": "three more days"}
    answer = api("POST", f"/approvals/{APPROVAL}/{verb}", body)
    assert answer.status == 200
    assert schema_problems("approval", answer.body) == []
    assert (answer.body["status"], answer.body["decided_by"]) == (status, "api:maria@example.com")
    assert (answer.body["reason"], answer.body["decided_at"]) == ("three more days", NOW)
    assert TOKEN not in answer.text
    assert get_item("approval", APPROVAL)["status"] == status
    assert told == [TOKEN]


def test_without_a_name_the_key_answers(api, told):
    ask()
    assert api("POST", f"/approvals/{APPROVAL}/approve").body["decided_by"] == "api:api-key"
    assert len(told) == 1


def test_case_b06_the_second_answer_changes_nothing(api, told):
    ask()
    api("POST", f"/approvals/{APPROVAL}/approve", {"approver": "maria@example.com"})
    answer = api("POST", f"/approvals/{APPROVAL}/reject", {})
    assert (answer.status, answer.body["error"]["code"]) == (409, "already_decided")
    assert "maria@example.com" in answer.body["error"]["message"]
    assert get_item("approval", APPROVAL)["status"] == "APPROVED"
    assert told == [TOKEN]


@pytest.mark.parametrize("approval_id", ["nobody", "x" * 3000, "größe"])
def test_an_unknown_approval(api, approval_id):
    answer = api("POST", f"/approvals/{approval_id}/approve", {})
    assert (answer.status, answer.body["error"]["code"]) == (404, "not_found")


@pytest.mark.parametrize("body", [{"approver": "a\nb"}, {"approver": ""}, {"reason": "x" * 501}, {"reson": "x"}, []])
def test_a_malformed_answer_leaves_the_request_open(api, told, body):
    ask()
    assert api("POST", f"/approvals/{APPROVAL}/approve", body).status == 400
    assert get_item("approval", APPROVAL)["status"] == "OPEN"
    assert told == []


def test_patch_approves_the_open_request_of_the_record(api, told):
    api.enrol()
    ask("cr-0123456789abcdef0-20260427T1130Z-1", status="APPROVED", decided_by="x", decided_at=NOW)
    ask()
    ask("cr-0123456789abcdef0-20260504T1130Z-2", environment="another")
    answer = api("PATCH", "/team-vision", {"PK": "team-vision", "approval": True})
    assert answer.status == 200
    assert (answer.body["approval_id"], answer.body["status"]) == (APPROVAL, "APPROVED")
    assert told == [TOKEN]


@pytest.mark.parametrize("approval", [False, "true", "false", 1, None])
def test_case_b16_only_true_approves(api, told, approval):
    api.enrol()
    ask()
    answer = api("PATCH", "/", {"PK": "team-vision", "approval": approval})
    assert answer.status == 400
    assert answer.body["error"]["details"][0]["field"] == "approval"
    assert told == []


def test_patch_with_two_open_requests_asks_which(api, told):
    api.enrol()
    ask()
    ask("cr-0123456789abcdef0-20260504T1130Z-2")
    answer = api("PATCH", "/team-vision")
    assert (answer.status, answer.body["error"]["code"]) == (409, "ambiguous")
    assert told == []


def test_a_spoilt_approval_does_not_hide_the_others(api):
    ask()
    write(put_request("approval", "aaa", {"status": "OPEN", "environment": "x", "decide_by": "never"}))
    assert [entry["approval_id"] for entry in api("GET", "/approvals").body] == ["aaa", APPROVAL]


# ---------------------------------------------------------------- blocks


def test_a_block_shows_end_deadlines_and_next_step(api, now):
    api.enrol(groups=[{"auto_scaling_group": "train", "drain_minutes": 20}])
    environments.set_status("team-vision", Status.ACTIVE, None, now, state="active", instance_count=8)
    (row,) = api("GET", "/blocks", now="2026-05-02T11:30:30Z").body
    assert schema_problems("block", row) == []
    assert row["minutes_left"] == 2 * 24 * 60 - 1
    assert row["deadlines"] == {
        "first_search": "2026-05-02T11:30:00Z",
        "decide_by": "2026-05-04T08:30:00Z",
        "order_by": "2026-05-04T10:30:00Z",
        "pay_by": "2026-05-04T10:55:00Z",
        "drain_at": "2026-05-04T10:33:00Z",
        "terminates_at": "2026-05-04T11:00:00Z",
    }
    assert row["next_step"] == "extend-block searches for an extension; it is decided by 2026-05-04T08:30:00Z"
    assert (row["state"], row["instance_count"], row["status"], row["error"]) == ("active", 8, "ACTIVE", None)


def test_an_ultraserver_block_ends_an_hour_before(api):
    api.enrol(instance_type="u-p6e-gb200x72")
    assert api("GET", "/blocks").body[0]["deadlines"]["terminates_at"] == "2026-05-04T10:30:00Z"


def test_one_unreadable_record_does_not_hide_the_other_blocks(api):
    write(put_request("environment", "a-bad-one", {"status": "FROZEN", "end_time": "soon", "extend_by_days": 1}))
    api.enrol()
    rows = api("GET", "/blocks").body
    assert [row["PK"] for row in rows] == ["a-bad-one", "team-vision"]
    assert "cannot be read" in rows[0]["next_step"]
    assert all(schema_problems("block", row) == [] for row in rows)


END = parse_instant(COMPLETE["end_time"])


@pytest.mark.parametrize(
    ("before_end", "fields", "status", "words"),
    [
        ({"days": 3}, {}, "NO_ACTION_REQUIRED", "the search for an extension begins at 2026-05-02T11:30:00Z"),
        ({"days": 1}, {}, "EXTENSION_APPROVAL_REQUIRED", "an approver answers by 2026-05-04T08:30:00Z"),
        ({"days": 1}, {"max_upfront_fee": None}, "PENDING", "nothing is bought: max_upfront_fee is not set"),
        (
            {"days": 1},
            {"extend_until": "2026-05-05T11:29:00Z"},
            "ACTIVE",
            "no extension that the record asks for fits before extend_until 2026-05-05",
        ),
        (
            {"days": 1},
            {"extend_until": "2026-05-10T00:00:00Z"},
            "ACTIVE",
            "no extension that the record asks for fits before extend_until 2026-05-10",
        ),
        (
            {"days": 1},
            {"extend_until": "2026-05-10T00:00:00Z", "fallback_days": [3]},
            "ACTIVE",
            "extend-block searches for an extension",
        ),
        (
            {"days": 1},
            {"region": "eu-west-1"},
            "PENDING",
            "nobody looks at the block: add ACCOUNT:eu-west-1 to Targets",
        ),
        ({"days": 1}, {}, "NO_ACTION_REQUIRED", "the next sweep searches for an extension"),
        ({"hours": 3}, {}, "ACTIVE", "too late to extend; EC2 terminates instances at 2026-05-04T11:00:00Z"),
        (
            {"hours": 3},
            {"groups": [{"auto_scaling_group": "train"}]},
            "ACTIVE",
            "too late to extend; groups drain at 2026-05-04T10:53:00Z",
        ),
        ({"hours": 2}, {}, "EXTENSION_PAYMENT_PENDING", "EC2 takes the payment by 2026-05-04T10:55:00Z"),
        ({"minutes": 37}, {}, "EXPIRING", "groups drain; EC2 terminates instances at 2026-05-04T11:00:00Z"),
        ({"minutes": 30}, {}, "EXPIRING", "EC2 is terminating instances; the block ends at 2026-05-04T11:30:00Z"),
        ({"minutes": 0}, {}, "EXPIRED", "the block has ended; enrol another block or delete the record"),
    ],
)
def test_next_step_at_each_stage(api, now, *, before_end, fields, status, words):
    api("PUT", "/team-vision", {**COMPLETE, **fields})
    environments.set_status("team-vision", Status(status), None, now)
    (row,) = api("GET", "/blocks", now=format_instant(END - timedelta(**before_end))).body
    assert row["next_step"].startswith(words)


@pytest.mark.parametrize(
    ("status", "mirrored", "words"),
    [
        (
            "ERROR",
            {"state": "mothballed"},
            "nothing is bought while EC2 shows the block as mothballed: look at it in the EC2 c",
        ),
        ("PENDING", {"state": "payment-pending"}, "EC2 shows the block as payment-pending; the search waits until"),
        (
            "ERROR",
            {"state": "cancelled"},
            "EC2 shows the block as cancelled: enrol another block, or `blockkeeper remove",
        ),
        (
            "NO_ACTION_REQUIRED",
            {"owner_id": "222233334444"},
            "nobody looks at the block: add 222233334444:us-east-1 to Targets",
        ),
        ("ERROR", {}, "each sweep looks at the block again: mend what the error says"),
    ],
)
def test_what_is_not_bought_is_not_said_to_be_searched(api, now, status, mirrored, words):
    api.enrol()
    environments.set_status("team-vision", Status(status), "an error", now, **mirrored)
    (row,) = api("GET", "/blocks", now=format_instant(END - timedelta(days=1))).body
    assert row["next_step"].startswith(words)
    assert "search" not in row["next_step"].replace("the search waits", "")


def test_before_the_first_sweep_the_end_may_be_unknown(api):
    api("POST", "/", {name: value for name, value in COMPLETE.items() if name != "end_time"})
    (row,) = api("GET", "/blocks").body
    assert (row["minutes_left"], row["deadlines"]) == (None, None)
    assert row["next_step"] == "the next sweep reads the block from EC2"


def test_no_ec2_call_is_made(api, monkeypatch):
    made = []
    real = boto3.session.Session.client
    monkeypatch.setattr(boto3.session.Session, "client", lambda *a, **k: made.append(a[1]) or real(*a, **k))
    api.enrol()
    api("PUT", "/team-vision", {"name": "x"})
    api("GET", "/blocks")
    assert set(made) <= {"dynamodb"}
