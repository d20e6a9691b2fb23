"""Nothing of ours stays armed on a group for a block that no record names any more, whichever way the record went."""

import json

import pytest

from .conftest import END, START, at

BODY = {
    "capacity_block_id": "cr-0a1",
    "region": "us-east-1",
    "instance_type": "p5.48xlarge",
    "extend_by_days": 1,
    "groups": [{"auto_scaling_group": "train", "terminate_hook_minutes": 10}],
}


def send(story, method, path, body=None):
    headers = {"x-api-key": story.world.api_key(), "content-type": "application/json"}
    answer = story.world.request(method, path, body=None if body is None else json.dumps(body), headers=headers)
    return answer.status, json.loads(answer.body)


@pytest.fixture
def enrolled(live):
    live.block()
    live.block("cr-0b2")
    live.group()
    assert send(live, "POST", "/", {"PK": "team", **BODY})[0] == 201
    live.world.run_until(at(11, 15, day=3))
    assert set(live.armed()) == {START, END}
    return live


def left(story):
    answer = story._dynamodb.query(
        TableName=story._table,
        KeyConditionExpression="kind = :kind",
        ExpressionAttributeValues={":kind": {"S": "leftover"}},
    )
    return [item["id"]["S"] for item in answer["Items"]]


def hooks(story):
    return story.scaling.describe_lifecycle_hooks(AutoScalingGroupName="train")["LifecycleHooks"]


def test_case_b10_a_deleted_record_is_disarmed_by_the_next_sweep(enrolled):
    assert len(hooks(enrolled)) == 1
    assert send(enrolled, "DELETE", "/team")[0] == 200
    assert left(enrolled) == ["us-east-1#cr-0a1#team"]
    enrolled.world.run_until(at(12, 15, day=3))
    assert (enrolled.armed(), hooks(enrolled), left(enrolled)) == ({}, [], [])


def test_case_b10_a_record_that_turns_to_another_block_leaves_nothing_of_the_first(enrolled):
    assert send(enrolled, "PUT", "/team", {"capacity_block_id": "cr-0b2"})[0] == 200
    enrolled.world.run_until(at(12, 15, day=3))
    assert set(enrolled.armed()) == {"blockkeeper-cr-0b2-end"}
    assert left(enrolled) == []
    assert len(hooks(enrolled)) == 1, "the record still wants it"


def test_groups_that_a_change_takes_off_the_record_are_disarmed(enrolled):
    assert send(enrolled, "PUT", "/team", {"groups": []})[0] == 200
    assert left(enrolled) == [], "the record itself remembers"
    enrolled.world.run_until(at(12, 15, day=3))
    assert (enrolled.armed(), hooks(enrolled)) == ({}, [])
    assert "groups_followed" not in enrolled.record("team")


def test_a_record_that_never_had_groups_leaves_nothing(live):
    live.block()
    send(live, "POST", "/", {"PK": "team", **BODY, "groups": []})
    send(live, "DELETE", "/team")
    assert left(live) == []


def test_while_disarming_fails_it_is_tried_at_each_sweep(enrolled):
    enrolled.market.faults.add(kind="denied", operation="BatchDeleteScheduledAction", times=1)
    send(enrolled, "DELETE", "/team")
    enrolled.world.run_until(at(11, 30, day=3))
    assert left(enrolled) == ["us-east-1#cr-0a1#team"]
    assert END in enrolled.armed()
    enrolled.world.run_until(at(12, 15, day=3))
    assert (enrolled.armed(), left(enrolled)) == ({}, [])


def test_a_record_that_is_enrolled_again_at_once_keeps_its_groups(enrolled):
    send(enrolled, "DELETE", "/team")
    assert send(enrolled, "POST", "/", {"PK": "team", **BODY})[0] == 201
    enrolled.world.run_until(at(12, 15, day=3))
    assert set(enrolled.armed()) == {END}
    assert enrolled.instances() == 4
    assert left(enrolled) == []


def test_case_b32_two_records_for_one_block_and_one_group_are_refused_with_both_ids(enrolled):
    status, answer = send(enrolled, "POST", "/", {"PK": "other", **BODY})
    assert status == 400
    assert "groups[0] is train, which record team names for cr-0a1, too" in str(answer)
    assert "take it off other or off team" in str(answer)


def test_case_b32_records_that_want_more_than_the_block_has_are_refused_with_their_ids(enrolled):
    wanted = [{"auto_scaling_group": "serve", "instances": 1}]
    status, answer = send(enrolled, "POST", "/", {"PK": "other", **BODY, "groups": wanted})
    assert status == 400
    assert "groups want 5 instances together; cr-0a1 has 4, and records other, team follow it" in str(answer)
    assert send(enrolled, "PUT", "/team", {"groups": [{"auto_scaling_group": "train", "instances": 3}]})[0] == 200
    assert send(enrolled, "POST", "/", {"PK": "other", **BODY, "groups": wanted})[0] == 201
    assert send(enrolled, "PUT", "/team", {"groups": BODY["groups"]})[0] == 400


def test_case_b32_one_group_may_follow_two_blocks(enrolled):
    assert send(enrolled, "POST", "/", {"PK": "next", **BODY, "capacity_block_id": "cr-0b2"})[0] == 201


def test_case_b32_two_records_that_came_by_other_ways_are_reported_and_the_first_one_counts(story):
    story.block()
    story.group()
    story.enrol("a", groups=[{"auto_scaling_group": "train", "instances": 3}])
    story.enrol("b", groups=[{"auto_scaling_group": "train", "instances": 1}])
    story.run("b")
    assert "records a and b both name it for cr-0a1; the share of a counts" in story.record("b")["groups_error"]
    assert story.armed()[START][1] == 3


def test_ec2s_warning_of_an_instance_starts_a_last_check(live):
    live.block()
    live.group(protects_new_instances=True)
    live.enrol()
    live.world.run_until(at(10, 49))
    before = len(live.world.executions("DetectExpiry"))
    live.world.run_until(at(10, 51))
    started = live.world.executions("DetectExpiry")[before:]
    assert len(started) == 5, "the block's warning, and one for each of four instances"
    assert {execution.status for execution in started} == {"SUCCEEDED"}
    assert '"UnknownEvent":[1.0]' not in live.world.logs.getvalue()
