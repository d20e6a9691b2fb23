"""Every rule of the template as CloudFormation will see it: what it lets through, and where an undeliverable event goes."""

import json
from pathlib import Path
from typing import Any

import pytest

from blockkeeper.domain.outcome import CONSEQUENCES
from local.engine.event_pattern import matches
from local.gates.translate import translated

ROOT = Path(__file__).resolve().parents[2]
EC2_EVENTS = {
    "ec2-event.delivered",
    "ec2-event.delivered-older-name",
    "ec2-event.expiration-warning",
    "ec2-event.expiration-warning-older-name",
}
# The samples that each rule must let through; it must stop every other one.
WANTED = {
    "DetectExpiryCapacityBlockEvents": EC2_EVENTS,
    "DetectExpiryInstanceWarnings": {"ec2-event.interruption-warning"},
    "DetectExpiryPurchases": {"ec2-event.purchase-extension"},
    "TellPeopleOutcomes": {
        "Extension Confirmed",
        "Extension Failed",
        "Block Expiring",
        "Findings Changed",
        "Approval Requested",
        "Approval Decided",
    },
    "TellSlackChanges": {
        "Approval Requested",
        "Approval Voted",
        "Approval Decided",
        "Extension Offered",
        "Extension Purchased",
        "Extension Confirmed",
        "Extension Failed",
        "Block Expiring",
        "Findings Changed",
    },
}
# A warning is of no use to anyone later than 40 minutes after EC2 sent it: that is the block's end.
WARNING_LIVES_SECONDS = 40 * 60
DEFAULT_AGE_SECONDS = 24 * 60 * 60


def samples() -> dict[str, dict[str, Any]]:
    """EC2's events from the samples, and our own by their detail-types."""
    from_ec2 = {path.stem: json.loads(path.read_text("utf-8")) for path in (ROOT / "events").glob("ec2-event.*.json")}
    ours = {consequence.detail_type for consequence in CONSEQUENCES.values()} | {
        "Groups Scaled",
        "Approval Requested",
        "Findings Changed",
        "Approval Voted",
        "Approval Decided",
    }
    return from_ec2 | {name: {"source": "blockkeeper", "detail-type": name, "detail": {}} for name in ours}


@pytest.fixture(scope="module")
def resources() -> dict[str, Any]:
    found: dict[str, Any] = translated(ROOT / "template.yaml")["Resources"]
    return found


@pytest.fixture(scope="module")
def rules(resources: dict[str, Any]) -> dict[str, Any]:
    return {name: each["Properties"] for name, each in resources.items() if each["Type"] == "AWS::Events::Rule"}


def test_case_b01_each_rule_is_known_here(rules):
    assert rules.keys() == WANTED.keys()


def test_case_b01_the_samples_have_both_spellings():
    names = {samples()[name]["detail-type"] for name in EC2_EVENTS}
    assert names == {
        "Capacity Block Delivered",
        "Capacity Block Reservation Delivered",
        "Capacity Block Expiration Warning",
        "Capacity Block Reservation Expiration Warning",
    }


@pytest.mark.parametrize("rule", WANTED)
def test_case_b01_a_rule_lets_through_what_it_is_for_and_nothing_else(rules, rule):
    pattern = rules[rule]["EventPattern"]
    assert {name for name, event in samples().items() if matches(pattern, event)} == WANTED[rule]


@pytest.mark.parametrize("rule", WANTED)
def test_case_b01_no_pattern_has_the_key_that_only_the_documents_print(rules, rule):
    assert "detail_type" not in json.dumps(rules[rule]["EventPattern"])


@pytest.mark.parametrize("rule", WANTED)
def test_case_b42_an_undelivered_event_is_kept_and_a_stale_one_is_given_up(rules, resources, rule):
    (target,) = rules[rule]["Targets"]
    assert target["DeadLetterConfig"]["Arn"] == {"Fn::GetAtt": ["LostEvents", "Arn"]}
    assert target["RetryPolicy"]["MaximumEventAgeInSeconds"] < DEFAULT_AGE_SECONDS
    assert "LostEventsPolicy" in resources


def test_the_warning_of_an_interruptible_reservation_is_not_ours(rules):
    event = samples()["ec2-event.interruption-warning"]
    detail = {**event["detail"], "azId": "use1-az1"}
    del detail["instance-lifecycle"]
    assert not matches(rules["DetectExpiryInstanceWarnings"]["EventPattern"], {**event, "detail": detail})


@pytest.mark.parametrize("rule", ["DetectExpiryCapacityBlockEvents", "DetectExpiryInstanceWarnings"])
def test_case_b42_a_warning_is_not_delivered_after_the_block_has_ended(rules, rule):
    (target,) = rules[rule]["Targets"]
    assert target["RetryPolicy"]["MaximumEventAgeInSeconds"] < WARNING_LIVES_SECONDS


def test_case_b42_the_schedule_keeps_what_it_cannot_deliver(resources):
    schedules = [each["Properties"] for each in resources.values() if each["Type"] == "AWS::Scheduler::Schedule"]
    assert len(schedules) == 2
    for schedule in schedules:
        assert schedule["Target"]["DeadLetterConfig"]["Arn"] == {"Fn::GetAtt": ["LostEvents", "Arn"]}
        assert schedule["Target"]["RetryPolicy"]["MaximumEventAgeInSeconds"] < DEFAULT_AGE_SECONDS


def test_case_b42_a_rules_role_may_start_exactly_its_machine(rules, resources):
    machines = 0
    for rule in rules.values():
        (target,) = rule["Targets"]
        if "RoleArn" not in target:
            continue  # a function is called by permission of its own, below
        role = resources[target["RoleArn"]["Fn::GetAtt"][0]]["Properties"]
        statements = [each for policy in role["Policies"] for each in policy["PolicyDocument"]["Statement"]]
        assert [(each["Action"], each["Resource"]) for each in statements] == [("states:StartExecution", target["Arn"])]
        machines += 1
    assert machines == 3


def test_case_b42_a_rule_may_call_exactly_its_function(rules, resources):
    permissions = [
        (each["Properties"]["FunctionName"], each["Properties"]["SourceArn"])
        for each in resources.values()
        if each["Type"] == "AWS::Lambda::Permission" and each["Properties"]["Principal"] == "events.amazonaws.com"
    ]
    wanted = [
        ({"Ref": target["Arn"]["Fn::GetAtt"][0]}, {"Fn::GetAtt": [name, "Arn"]})
        for name, rule in rules.items()
        for target in rule["Targets"]
        if "RoleArn" not in target
    ]
    assert len(wanted) == 2
    assert sorted(permissions, key=str) == sorted(wanted, key=str)


def test_case_b42_somebody_is_told_of_lost_events(resources):
    alarms = [each["Properties"] for each in resources.values() if each["Type"] == "AWS::CloudWatch::Alarm"]
    (alarm,) = [
        each
        for each in alarms
        if {"Fn::GetAtt": ["LostEvents", "QueueName"]} in [d["Value"] for d in each["Dimensions"]]
    ]
    assert alarm["AlarmActions"]
    assert (alarm["Threshold"], alarm["ComparisonOperator"]) == (0, "GreaterThanThreshold")


def test_every_resource_that_is_depended_on_exists(resources):
    """CloudFormation refuses the whole template otherwise; the linters do not look behind the transform."""
    missing = {}
    for name, resource in resources.items():
        wanted = resource.get("DependsOn", [])
        gone = {wanted} - resources.keys() if isinstance(wanted, str) else set(wanted) - resources.keys()
        missing |= {name: gone} if gone else {}
    assert missing == {}


def test_an_alarm_can_reach_its_topic(resources):
    assert "KmsMasterKeyId" not in resources["Alarms"].get("Properties", {})
