"""Every bad field is told with its name, the rule and the remedy."""

import json
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blockkeeper.domain.durations import LEGAL_DAYS
from blockkeeper.domain.enrolment import changed_record, new_record, pk_problem, rule_problems, wanted_record
from blockkeeper.domain.environment import parse_environment
from blockkeeper.domain.instants import parse_instant
from blockkeeper.schema_check import LONGEST_SHOWN, schema_problems

NOW = parse_instant("2026-05-01T12:00:00Z")
RECORD = json.loads((Path(__file__).parents[3] / "events" / "environment.json").read_text())

SHAPES = [
    ("PK", "-x", "PK", "letters, digits, dots", "team-vision"),
    ("PK", "a" * 129, "PK", "1 to 128", "team-vision"),
    ("PK", "a\n", "PK", "1 to 128", "team-vision"),
    ("PK", 7, "PK", "must be text", "team-vision"),
    ("name", "a\nb", "name", "one line", "short name"),
    ("name", "", "name", "1 to 200", "short name"),
    ("capacity_block_id", "cb-0123", "capacity_block_id", "cr-", "cb-"),
    ("capacity_block_id", "cr-0a1\n", "capacity_block_id", "cr-", "CapacityReservationId"),
    ("capacity_block_id", None, "capacity_block_id", "must be text", "CapacityReservationId"),
    ("region", "us-east-1a", "region", "not of an Availability Zone", "us-east-1"),
    ("instance_type", "P5", "instance_type", "EC2 instance type", "p5.48xlarge"),
    ("end_time", "2026-05-04T11:30:00", "end_time", "offset", "2026-05-04T11:30:00Z"),
    ("end_time", "tomorrow", "end_time", "ISO 8601", "2026-05-04T11:30:00Z"),
    ("extend_by_days", 0, "extend_by_days", "1 to 14 days, then whole weeks", "use 1 to 14"),
    ("extend_by_days", 183, "extend_by_days", "1 to 14 days, then whole weeks", "182"),
    ("extend_by_days", 1.5, "extend_by_days", "whole number", "use 1 to 14"),
    ("extend_by_days", "7", "extend_by_days", "whole number", "use 1 to 14"),
    ("extend_by_days", True, "extend_by_days", "whole number", "use 1 to 14"),
    ("extension_lookahead_days", 57, "extension_lookahead_days", "56 days", "use 1 to 56"),
    ("extension_lookahead_days", 0, "extension_lookahead_days", "a decision needs a day", "use 1 to 56"),
    ("require_approval", "false", "require_approval", "true or false", "without quotation marks"),  # case B16
    ("approvers", "maria@example.com", "approvers", "a list", '["maria@example.com"]'),
    ("approvers", ["maria"], "approvers[0]", "e-mail address or a Slack user id", "maria@example.com"),
    ("approvers", ["maria@example.com\nBcc: x@y.zz"], "approvers[0]", "e-mail address", "maria@example.com"),
    ("approvers", ["C024BE7LH"], "approvers[0]", "Slack user id", "U024BE7LH"),
    ("quorum", 0, "quorum", "1 to 20", "number of approvers"),
    ("max_upfront_fee", 12000, "max_upfront_fee", "must be text", "quotation marks"),
    ("max_upfront_fee", "12,000", "max_upfront_fee", "without sign, comma", '"12000.00"'),
    ("max_upfront_fee", "-1", "max_upfront_fee", "without sign", '"12000.00"'),
    ("max_upfront_fee", "1e9", "max_upfront_fee", "exponent", '"12000.00"'),
    ("max_upfront_fee", "٣", "max_upfront_fee", "amount in USD", '"12000.00"'),
    ("extend_until", "2026-06-30", "extend_until", "offset", "2026-05-04T11:30:00Z"),
    ("fallback_days", [1, 1], "fallback_days", "different lengths", "[7, 1]"),
    ("fallback_days", [0], "fallback_days[0]", "1 to 14 days", "use 1 to 14"),
    ("replace", {"max_gap_hours": 1}, "replace.max_upfront_fee", "amount in USD", '"12000.00"'),
    ("replace", {"max_gap_hours": -1, "max_upfront_fee": "1"}, "replace.max_gap_hours", "1344", "use 0 to 1344"),
    ("groups", [{}], "groups[0]", "an EKS node group or a compute environment of AWS Batch", "name one of"),
    ("groups", [{"eks_cluster": "c"}], "groups[0]", "an EKS node group", "eks_cluster with eks_nodegroup"),
    (
        "groups",
        [{"batch_compute_environment": "b", "auto_scaling_group": "a"}],
        "groups[0]",
        "a group is",
        "name one of",
    ),
    (
        "groups",
        [{"batch_compute_environment": "b", "terminate_hook_minutes": 5}],
        "groups[0]",
        "a group is",
        "name one of",
    ),
    (
        "groups",
        [{"auto_scaling_group": "a", "terminate_hook_minutes": 121}],
        "groups[0].terminate_hook_minutes",
        "up to 120",
        "beside auto_scaling_group",
    ),
    (
        "groups",
        [{"auto_scaling_group": "a", "eks_cluster": "c", "eks_nodegroup": "n"}],
        "groups[0]",
        "a group is",
        "name one of",
    ),
    ("groups", [{"auto_scaling_group": "arn:aws:x"}], "groups[0].auto_scaling_group", "not its ARN", "train"),
    ("groups", [{"auto_scaling_group": "a", "drain_minutes": -1}], "groups[0].drain_minutes", "minutes", "0 to 2880"),
    ("groups", [{"auto_scaling_group": "a", "instances": 0}], "groups[0].instances", "1 to 256", "block's size"),
    ("team", "a b", "team", "1 to 64", "vision"),
    ("aprovers", [], "aprovers", "refused", "did you mean approvers?"),
    ("zzz", 1, "zzz", "refused", "known are PK, name"),
]
RULES = [
    ("PK", "slack", "PK", "own words", "another name"),
    ("extend_by_days", 15, "extend_by_days", "1 to 14 days, then whole weeks up to 26", "use 14 or 21"),
    ("fallback_days", [7], "fallback_days[0]", "shorter than extend_by_days, which is 7", "smaller"),
    ("fallback_days", [6, 15], "fallback_days[1]", "1 to 14 days", "use 14 or 21"),
    ("approvers", ["maria@example.com", "MARIA@example.com"], "approvers", "one voice", "once"),
    ("approvers", ["U024BE7LH", "T012AB3CD:U024BE7LH"], "approvers", "one voice", "once"),
    ("quorum", 3, "quorum", "at most the number of approvers, which is 2", "use 2"),
    ("extend_until", "2026-05-01T12:00:00Z", "extend_until", "it is now 2026-05-01T12:00:00Z", "later time"),
    (
        "groups",
        [{"auto_scaling_group": "a"}, {"auto_scaling_group": "a", "instances": 1}],
        "groups[1]",
        "once",
        "leave it out",
    ),
]


def test_the_whole_sample_is_right():
    assert schema_problems("environment", RECORD) == []
    assert rule_problems(RECORD, NOW) == []


@pytest.mark.parametrize(("name", "value", "field", "rule", "remedy"), SHAPES)
def test_a_bad_shape_names_field_rule_and_remedy(name, value, field, rule, remedy):
    problem = next(
        problem for problem in schema_problems("environment", {**RECORD, name: value}) if problem.field == field
    )
    assert rule in problem.rule
    assert remedy in problem.remedy
    assert str(problem) == f"{field} {problem.found}; {problem.rule} ({problem.remedy})"


@pytest.mark.parametrize(("name", "value", "field", "rule", "remedy"), RULES)
def test_a_broken_rule_names_field_rule_and_remedy(name, value, field, rule, remedy):
    record = {**RECORD, name: value}
    assert schema_problems("environment", record) == []
    (problem,) = rule_problems(record, NOW)
    assert problem.field == field
    assert rule in problem.rule
    assert remedy in problem.remedy


@pytest.mark.parametrize("name", ["PK", "capacity_block_id", "region", "instance_type", "extend_by_days"])
def test_a_missing_field_is_told(name):
    record = {field: value for field, value in RECORD.items() if field != name}
    (problem,) = schema_problems("environment", record)
    assert (problem.field, problem.found) == (name, "is missing")


@pytest.mark.parametrize("days", range(1, 183))
def test_exactly_the_38_legal_lengths_pass(days):
    record = {**RECORD, "extend_by_days": days, "fallback_days": []}
    problems = [*schema_problems("environment", record), *rule_problems(record, NOW)]
    assert (problems == []) == (days in LEGAL_DAYS)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("region", "us-gov-west-1"),
        ("region", "eusc-de-east-1"),
        ("region", "ap-southeast-3"),
        ("instance_type", "u-p6e-gb200x72"),
        ("instance_type", "trn2.3xlarge"),
        ("capacity_block_id", "cr-test12345"),
        ("capacity_block_id", "cr-0a1"),
        ("end_time", "2026-05-04T11:30:00.123456+00:00"),
        ("end_time", "2026-05-04T13:30:00+02:00"),
        ("approvers", ["W012A3CDE", "T012AB3CD:U024BE7LH", "o'brien+gpu@team.example.co.uk"]),
        ("extend_by_days", 7.0),
        ("max_upfront_fee", "511"),
        ("quorum", 2),
    ],
)
def test_what_ec2_and_the_samples_clients_write_is_accepted(name, value):
    record = {**RECORD, name: value}
    assert [*schema_problems("environment", record), *rule_problems(record, NOW)] == []


def test_long_values_are_cut_and_containers_not_shown():
    (problem,) = schema_problems("environment", {**RECORD, "team": "x" * 5000})
    assert len(problem.found) < LONGEST_SHOWN + 10
    (problem,) = schema_problems("environment", {**RECORD, "team": {"key": "s3cret"}})
    assert "s3cret" not in str(problem)


def test_times_are_stored_in_utc_and_numbers_whole():
    record = new_record({**RECORD, "extend_until": "2026-06-30T14:00:00+02:00", "extend_by_days": 7.0}, NOW)
    assert record["extend_until"] == "2026-06-30T12:00:00Z"
    assert type(record["extend_by_days"]) is int
    assert (record["version"], record["updated_at"]) == (1, "2026-05-01T12:00:00Z")


def test_a_client_cannot_write_what_we_keep():
    record = new_record({**RECORD, "status": "EXTENDED", "version": 8, "owner_id": "1"}, NOW)
    assert (record["status"], record["version"], record.get("owner_id")) == ("PENDING", 1, None)


def test_taking_the_ceiling_away_is_said_at_once_and_mended_when_it_is_back():
    before = new_record(RECORD, NOW)
    without = changed_record(before, wanted_record(before, {"max_upfront_fee": None}), NOW)
    assert "max_upfront_fee is not set" in without["error"]
    back = changed_record(without, wanted_record(without, {"max_upfront_fee": "1"}), NOW)
    assert "error" not in back
    assert back["version"] == 3


def test_another_error_outlives_a_change_of_policy():
    before = {**new_record(RECORD, NOW), "error": "EC2 does not show the block"}
    assert changed_record(before, wanted_record(before, {"name": "x"}), NOW)["error"] == "EC2 does not show the block"


@pytest.mark.parametrize("pk", ["", ".", "-a", "a/b", "a b", "é", "a" * 129, "blocks", "a\n", "²"])
def test_a_pk_without_a_body_is_checked_as_in_one(pk):
    problem = pk_problem(pk)
    assert problem is not None
    assert problem.field == "PK"


PKS = st.one_of(st.text(max_size=5), st.from_regex(r"[A-Za-z0-9._-]{1,130}", fullmatch=True))


@given(PKS)
def test_pk_means_the_same_in_path_and_body(pk):
    record = {**RECORD, "PK": pk}
    in_body = [*schema_problems("environment", record), *rule_problems(record, NOW)]
    assert (pk_problem(pk) is None) == (in_body == [])


@given(
    st.fixed_dictionaries(
        {
            "extend_by_days": st.sampled_from(LEGAL_DAYS),
            "extension_lookahead_days": st.integers(1, 56),
            "require_approval": st.booleans(),
            "approvers": st.lists(st.sampled_from(["a@example.com", "b@example.com", "U024BE7LH"]), unique=True),
        },
        optional={"max_upfront_fee": st.from_regex(r"\d{1,6}(\.\d\d)?", fullmatch=True).filter(str.isascii)},
    )
)
def test_an_accepted_record_can_always_be_read_and_says_what_it_lacks(body):
    record = {**RECORD, "fallback_days": [], **body}
    if "max_upfront_fee" not in body:
        record.pop("max_upfront_fee")
    assert [*schema_problems("environment", record), *rule_problems(record, NOW)] == []
    stored = new_record(record, NOW + timedelta(minutes=1))
    assert parse_environment(stored).extend_by_days == body["extend_by_days"]
    complete = "max_upfront_fee" in body and (not body["require_approval"] or body["approvers"])
    assert ("error" not in stored) == bool(complete)
