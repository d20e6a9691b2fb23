"""Environment records through the API's own handler."""

import base64
import json
import threading

import pytest
from api_client import COMPLETE, NOW, SAMPLE
from moto.dynamodb.responses import DynamoHandler

from blockkeeper.aws import environments
from blockkeeper.aws.table import ConditionFailedError, get_item, put_request, transact, write
from blockkeeper.domain.environment import Status, parse_environment
from blockkeeper.domain.instants import parse_instant
from blockkeeper.domain.reservation import parse_reservation

STORED = {name: value for name, value in COMPLETE.items() if name != "PK"}


def fields_of(answer):
    return [detail["field"] for detail in answer.body["error"]["details"]]


# ---------------------------------------------------------------- AWS's sample, whose clients must work unchanged


def test_nine_fields_enrol_and_nothing_is_bought_until_policy_is_complete(api):
    answer = api("POST", "/", SAMPLE)
    assert answer.status == 201
    assert {name: answer.body[name] for name in SAMPLE} == SAMPLE
    assert answer.body["status"] == "PENDING"
    assert "max_upfront_fee is not set" in answer.body["error"]
    assert answer.body["require_approval"] is True


def test_missing_approver_is_said_with_its_remedy(api):
    answer = api("POST", "/", {**SAMPLE, "max_upfront_fee": "1.00"})
    assert answer.status == 201
    assert answer.body["status"] == "PENDING"
    assert "approvers is empty and require_approval is true" in answer.body["error"]
    mended = api("PUT", "/team-vision", {"approvers": ["maria@example.com"]})
    assert mended.status == 200
    assert "error" not in mended.body


def test_who_is_asked_by_default_is_no_missing_approver(api, monkeypatch):
    monkeypatch.setenv("APPROVER_EMAILS", "ops@example.com")
    enrolled = api("POST", "/", {**SAMPLE, "max_upfront_fee": "1.00"})
    assert "error" not in enrolled.body
    assert "error" not in api("PUT", "/team-vision", {"extend_by_days": 14}).body
    assert "approvers" not in api("GET", "/blocks").body[0]["next_step"]


def test_a_warning_stands_beside_the_record_and_may_come_back_with_it(api):
    assert "warnings" not in api("POST", "/", COMPLETE).body, "a client sees nothing new where all is well"
    answer = api("PUT", "/team-vision", {"extension_lookahead_days": 20})
    assert answer.status == 200
    (warning,) = answer.body["warnings"]
    assert "up to 3 extensions are bought in a row" in warning
    (listed,) = api("GET", "/").body
    assert listed["warnings"] == [warning]
    assert api("PUT", "/", listed).status == 200
    assert "warnings" not in get_item("environment", "team-vision"), (
        "it is computed, so that it cannot outlive its reason"
    )
    assert "warnings" not in api("PUT", "/team-vision", {"extend_until": "2026-06-01T00:00:00Z"}).body


def test_sample_client_script(api):
    """The calls of the sample's own test script: PK in query and body, all at the root."""
    sample = {**SAMPLE, "approval": False, "status": "ACTIVE", "end_time": "2026-05-04T11:30:00.123456+00:00"}
    assert api("GET", "/").body == []
    assert api("POST", "/", sample, headers={"Content-Type": "application/json", "x-api-key": "k"}).status == 201
    got = api("GET", "/", PK="team-vision")
    assert got.status == 200
    entry = got.body
    assert entry["end_time"] == "2026-05-04T11:30:00Z"
    assert entry["status"] == "PENDING"
    assert "approval" not in entry
    entry["name"] += "-UPDATED"
    assert api("PUT", "/", entry).status == 200
    assert api("GET", "/team-vision").body["name"] == "Vision training-UPDATED"
    patched = api("PATCH", "/", {"PK": "team-vision", "approval": True})
    assert patched.status == 409
    assert "nothing to approve" in patched.body["error"]["message"]
    assert [entry["PK"] for entry in api("GET", "/").body] == ["team-vision"]
    deleted = api("DELETE", "/", PK="team-vision")
    assert (deleted.status, deleted.body["status"]) == (200, "Deleted")
    assert api("GET", "/").body == []


def test_sample_record_without_name_is_named_by_pk(api):
    record = {name: value for name, value in SAMPLE.items() if name != "name"}
    assert api("POST", "/", record).body["name"] == "team-vision"


def test_pk_is_asked_for(api):
    for method in ("PUT", "PATCH", "DELETE"):
        answer = api(method, "/", {"name": "x"} if method == "PUT" else None)
        assert answer.status == 400
        assert fields_of(answer) == ["PK"]


# ---------------------------------------------------------------- create, read, change, delete


def test_post_stores_numbers_as_int_and_answers_what_get_reads(api):
    created = api("POST", "/", {**COMPLETE, "extend_by_days": 7.0, "groups": [{"auto_scaling_group": "train"}]})
    assert created.status == 201
    assert created.headers["ETag"] == '"1"'
    read = api("GET", "/team-vision")
    assert read.body == created.body
    stored = get_item("environment", "team-vision")
    assert type(stored["extend_by_days"]) is int
    assert "PK" not in stored
    assert parse_environment(read.body).max_upfront_fee is not None


def test_post_of_a_taken_pk_is_a_conflict_and_changes_nothing(api):
    api.enrol()
    answer = api("POST", "/", {**COMPLETE, "name": "other"})
    assert answer.status == 409
    assert answer.body["error"]["code"] == "already_exists"
    assert "PUT /team-vision" in answer.body["error"]["message"]
    assert api("GET", "/team-vision").body["name"] == "Vision training"


def test_unknown_pk(api):
    for method, path in (("GET", "/nobody"), ("DELETE", "/nobody"), ("PATCH", "/nobody")):
        answer = api(method, path)
        assert (answer.status, answer.body["error"]["code"]) == (404, "not_found")


def test_put_changes_named_fields_and_keeps_the_others(api):
    api.enrol(team="vision")
    answer = api("PUT", "/team-vision", {"extend_by_days": 14})
    assert answer.status == 200
    assert answer.body["extend_by_days"] == 14
    assert answer.body["approvers"] == ["maria@example.com"]
    assert answer.body["team"] == "vision"
    assert answer.headers["ETag"] == '"2"'


def test_put_null_takes_a_field_back_to_its_default(api):
    api.enrol(team="vision", quorum=1, extension_lookahead_days=9)
    answer = api("PUT", "/team-vision", {"team": None, "extension_lookahead_days": None})
    assert "team" not in answer.body
    assert answer.body["extension_lookahead_days"] == 2
    refused = api("PUT", "/team-vision", {"region": None})
    assert (refused.status, fields_of(refused)) == (400, ["region"])


def test_put_checks_the_whole_record_that_would_come_out(api):
    api.enrol(fallback_days=[3])
    answer = api("PUT", "/team-vision", {"extend_by_days": 2})
    assert answer.status == 400
    assert fields_of(answer) == ["fallback_days[0]"]


def test_put_of_an_unknown_pk_enrols_it(api):
    answer = api("PUT", "/team-vision", {name: value for name, value in COMPLETE.items() if name != "PK"})
    assert answer.status == 201
    assert api("GET", "/team-vision").status == 200
    assert api("PUT", "/other", {"name": "x"}).status == 400


def test_put_cannot_rename(api):
    api.enrol()
    answer = api("PUT", "/team-vision", {"PK": "other"})
    assert (answer.status, fields_of(answer)) == (400, ["PK"])


def test_put_of_what_was_got_ignores_what_we_keep(api, now):
    api.enrol()
    environments.set_status("team-vision", Status.ACTIVE, None, now, state="active", instance_count=8)
    got = api("GET", "/team-vision").body
    answer = api("PUT", "/team-vision", {**got, "status": "EXTENDED", "version": 99, "state": "nonsense", "error": "x"})
    assert answer.status == 200
    assert (answer.body["status"], answer.body["state"], answer.body["version"]) == ("ACTIVE", "active", 3)
    assert "error" not in answer.body


def test_end_time_of_ec2_stands_against_a_clients_memory(api, now):
    api.enrol()
    moved = parse_instant("2026-05-11T11:30:00Z")
    environments.set_status("team-vision", Status.EXTENDED, None, now, state="active", end_time=moved)
    answer = api("PUT", "/team-vision", {"end_time": SAMPLE["end_time"], "name": "new"})
    assert answer.body["end_time"] == "2026-05-11T11:30:00Z"


@pytest.mark.parametrize("change", [{"capacity_block_id": "cr-0b2"}, {"region": "us-west-2"}])
def test_turning_to_another_block_forgets_what_ec2_said_of_the_old_one(api, now, change):
    api.enrol(groups=[{"auto_scaling_group": "train"}])
    environments.set_status(
        "team-vision", Status.EXTENDED, "old trouble", now, state="active", owner_id="111122223333", groups_armed="f"
    )
    answer = api("PUT", "/team-vision", change)
    assert answer.body["status"] == "PENDING"
    assert not {"state", "owner_id", "groups_armed", "end_time", "error"} & set(answer.body)


def test_payment_pending_keeps_record_and_block_together(api, now):
    api.enrol()
    environments.set_status("team-vision", Status.EXTENSION_PAYMENT_PENDING, None, now)
    for answer in (api("DELETE", "/team-vision"), api("PUT", "/team-vision", {"capacity_block_id": "cr-0b2"})):
        assert (answer.status, answer.body["error"]["code"]) == (409, "payment_pending")
        assert "wait for its status to change" in answer.body["error"]["message"]
    assert api("PUT", "/team-vision", {"name": "renamed"}).body["status"] == "EXTENSION_PAYMENT_PENDING"


def test_a_record_spoilt_by_other_ways_is_mended_by_put(api):
    write(put_request("environment", "team-vision", {"status": "FROZEN", "name": "x", "capacity_block_id": "cr-0a1"}))
    assert api("GET", "/").body[0]["status"] == "FROZEN"
    answer = api("PUT", "/team-vision", COMPLETE)
    assert (answer.status, answer.body["status"]) == (200, "PENDING")


def test_extend_until_that_has_passed_since_does_not_block_other_changes(api):
    api.enrol(extend_until="2026-05-02T00:00:00Z")
    later = "2026-05-03T00:00:00Z"
    assert api("PUT", "/team-vision", {"name": "renamed"}, now=later).status == 200
    refused = api("PUT", "/team-vision", {"extend_until": "2026-05-02T12:00:00Z"}, now=later)
    assert (refused.status, fields_of(refused)) == (400, ["extend_until"])


# ---------------------------------------------------------------- locking


def test_if_match(api):
    etag = api.enrol().headers["ETag"]
    assert api("PUT", "/team-vision", {"name": "a"}, headers={"If-Match": etag}).status == 200
    stale = api("PUT", "/team-vision", {"name": "b"}, headers={"if-match": etag})
    assert (stale.status, stale.body["error"]["code"]) == (412, "changed_meanwhile")
    assert 'its ETag is "2"' in stale.body["error"]["message"]
    assert api("DELETE", "/team-vision", headers={"If-Match": etag}).status == 412
    assert api("PUT", "/nobody", COMPLETE | {"PK": "nobody"}, headers={"If-Match": "*"}).status == 412
    assert api("DELETE", "/team-vision", headers={"If-Match": '"9", "2"'}).status == 200


def test_a_change_is_repeated_on_what_another_writer_wrote_meanwhile(api, now, monkeypatch):
    api.enrol()
    real, interrupted = environments.replace, []

    def interrupt(record, version, leftover):
        if not interrupted:
            interrupted.append(version)
            environments.set_status("team-vision", Status.ACTIVE, None, now, state="active")
        real(record, version, leftover)

    monkeypatch.setattr(environments, "replace", interrupt)
    answer = api("PUT", "/team-vision", {"name": "renamed"})
    assert (answer.body["name"], answer.body["status"], answer.body["version"]) == ("renamed", "ACTIVE", 3)


def test_a_change_that_never_gets_its_turn_is_a_conflict(api, monkeypatch):
    api.enrol()

    def always_late(*_):
        raise ConditionFailedError

    monkeypatch.setattr(environments, "replace", always_late)
    monkeypatch.setattr(environments, "delete", always_late)
    for answer in (api("PUT", "/team-vision", {"name": "x"}), api("DELETE", "/team-vision")):
        assert (answer.status, answer.body["error"]["code"]) == (409, "changed_meanwhile")


def test_of_two_creators_one_wins(api, monkeypatch):
    # DynamoDB carries out the writes of an item one after another; moto looks at the condition and writes in two steps.
    call, one_at_a_time = DynamoHandler.call_action, threading.Lock()

    def alone(handler):
        with one_at_a_time:
            return call(handler)

    monkeypatch.setattr(DynamoHandler, "call_action", alone)
    answers = []
    threads = [threading.Thread(target=lambda: answers.append(api("POST", "/", COMPLETE).status)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers) == [201, 409, 409, 409]


# ---------------------------------------------------------------- lists


def test_250_records_as_one_array_and_as_pages(api):
    names = [f"team-{i:03}" for i in range(250)]
    for first in range(0, 250, 50):
        transact([put_request("environment", name, {**STORED, "version": 1}) for name in names[first : first + 50]])
    assert [record["PK"] for record in api("GET", "/").body] == names
    pages = [[record["PK"] for record in answer.body] for answer in api.pages("/", limit="100")]
    assert [len(page) for page in pages] == [100, 100, 50]
    assert [name for page in pages for name in page] == names
    assert [len(answer.body) for answer in api.pages("/blocks", limit="125")] == [125, 125]


@pytest.mark.parametrize(
    "query", [{"limit": "0"}, {"limit": "x"}, {"limit": "1001"}, {"limit": "²"}, {"cursor": "%"}, {"cursor": ""}]
)
def test_bad_paging(api, query):
    assert api("GET", "/", **query).status == 400


def test_a_list_too_long_for_one_answer_says_so(api, monkeypatch):
    monkeypatch.setattr("api.http.MOST_ANSWER_BYTES", 900)
    api.enrol()
    api.enrol(PK="other")
    answer = api("GET", "/")
    assert (answer.status, answer.body["error"]["code"]) == (400, "answer_too_large")


# ---------------------------------------------------------------- bodies


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        ("", 400),
        ("{", 400),
        ("[]", 400),
        ("null", 400),
        ('"text"', 400),
        ("NaN", 400),
        ('{"PK": "a", "PK": "b"}', 400),
        ('{"name": "\\ud800"}', 400),
        ("[" * 50_000, 400),
        ('{"a": ' * 9_000, 400),
        ("9" * 5_000, 400),
        (" " * 70_000, 413),
    ],
)
def test_bodies_that_are_no_record(api, raw, status):
    answer = api("POST", "/", raw=raw)
    assert answer.status == status
    assert answer.body["error"]["message"]


def test_base64_body(api):
    encoded = base64.b64encode(json.dumps({**COMPLETE, "name": "Größe"}).encode()).decode()
    assert api("POST", "/", raw=encoded, encoded=True).body["name"] == "Größe"
    assert api("POST", "/", raw="***", encoded=True).status == 400
    assert api("POST", "/", raw=base64.b64encode(b"\xff\xfe").decode(), encoded=True).status == 400


def test_media_types(api):
    body = json.dumps(COMPLETE)
    assert api("POST", "/", raw=body, headers={"content-type": "text/csv"}).status == 415
    assert (
        api("POST", "/", raw=body, headers={"CONTENT-TYPE": "application/merge-patch+json; charset=utf-8"}).status
        == 201
    )


def test_all_faults_are_told_at_once(api):
    answer = api(
        "POST", "/", {**COMPLETE, "extend_by_days": 15, "region": "us-east-1a", "max_upfront_fee": 12, "aprovers": []}
    )
    assert answer.status == 400
    assert set(fields_of(answer)) == {"aprovers", "extend_by_days", "max_upfront_fee", "region"}
    expected = "extend_by_days is 15; EC2 sells 1 to 14 days, then whole weeks up to 26 (use 14 or 21)"
    assert expected in [detail["message"] for detail in answer.body["error"]["details"]]
    assert api("GET", "/").body == []


@pytest.mark.parametrize("word", ["blocks", "approvals", "openapi.json", "decide", "slack"])
def test_own_words_are_no_names(api, word):
    answer = api("POST", "/", {**COMPLETE, "PK": word})
    assert (answer.status, fields_of(answer)) == (400, ["PK"])


# ---------------------------------------------------------------- enrolment by tag


def reservation(tag):
    entry = {
        "CapacityReservationId": "cr-0a1",
        "OwnerId": "111122223333",
        "InstanceType": "p5.48xlarge",
        "State": "active",
        "EndDate": parse_instant("2026-05-04T11:30:00Z"),
        "TotalInstanceCount": 8,
        "Tags": [{"Key": "blockkeeper:environment", "Value": tag}],
    }
    return parse_reservation(entry, "us-east-1")


def test_a_tagged_block_is_enrolled_and_buys_nothing(api, now):
    assert environments.enrol_tagged(reservation("team-vision"), now) is None
    record = api("GET", "/team-vision").body
    assert (record["capacity_block_id"], record["require_approval"], record["extend_by_days"]) == ("cr-0a1", True, 1)
    assert (record["extension_lookahead_days"], record["state"], record["instance_count"]) == (2, "active", 8)
    assert "max_upfront_fee is not set" in record["error"]
    assert environments.load_environment("team-vision").end_time == parse_instant("2026-05-04T11:30:00Z")


def test_a_tag_does_not_change_a_record_and_a_bad_one_stops_nothing(api, now):
    api.enrol()
    assert "a record team-vision exists" in environments.enrol_tagged(reservation("team-vision"), now)
    assert "begins with a letter or digit" in environments.enrol_tagged(reservation("../x"), now)
    assert "own words" in environments.enrol_tagged(reservation("blocks"), now)
    assert [record["capacity_block_id"] for record in api("GET", "/").body] == [COMPLETE["capacity_block_id"]]


# ---------------------------------------------------------------- writes of others


def test_set_status_writes_once_and_makes_no_record_again(api, now):
    api.enrol()
    end = parse_instant("2026-05-11T11:30:00Z")
    environments.set_status("team-vision", Status.EXTENDED, "x", now, version=1, end_time=end, owner_id=None)
    record = api("GET", "/team-vision").body
    assert (record["status"], record["error"], record["end_time"], record["version"]) == (
        "EXTENDED",
        "x",
        "2026-05-11T11:30:00Z",
        2,
    )
    assert record["updated_at"] == NOW
    with pytest.raises(ConditionFailedError):
        environments.set_status("team-vision", Status.ERROR, None, now, version=1)
    api("DELETE", "/team-vision")
    with pytest.raises(ConditionFailedError):
        environments.set_status("team-vision", Status.ERROR, None, now)
    assert api("GET", "/").body == []
