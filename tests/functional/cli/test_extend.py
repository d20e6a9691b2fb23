"""`blockkeeper extend`: the rehearsal spends and writes nothing, and the start starts once."""

import json
from datetime import UTC, datetime

import boto3
import pytest
from jsonschema import Draft202012Validator

from blockkeeper.schema_check import schema

from .conftest import ACCOUNT, BLOCK, NOW

BUY = "PurchaseCapacityBlockExtension"
NAME = f"{BLOCK}-20260504T1130Z"


def bought(cli):
    return [call for call in cli.calls(BUY) if not call.params.get("DryRun")]


def steps(ran):
    return {step["name"]: (step["verdict"], step["words"]) for step in ran.json["steps"]}


def test_the_rehearsal_shows_each_step_and_spends_nothing_b47(cli):
    cli.block()
    cli.enrol()
    before = cli.everything()
    ran = cli("extend", "team-vision", "--dry-run", "--json")
    assert ran.code == 0
    assert ran.json["verdict"] == "ok"
    shown = steps(ran)
    assert list(shown) == ["record", "block", "deadlines", "ledger", "offering", "policy", "budget", "dry run", "then"]
    assert "approval by 1 of maria@example.com" in shown["record"][1]
    assert "decide by 2026-05-04T08:30:00Z" in shown["deadlines"][1]
    assert "3,986.69 USD" in shown["offering"][1]
    assert shown["dry run"] == ("ok", "EC2 would take the order")
    assert "would ask maria@example.com" in shown["then"][1]
    assert "PurchaseMode is dry-run" in shown["then"][1]
    assert cli.everything() == before
    assert len(cli.calls(BUY)) == 1
    assert bought(cli) == []
    assert cli.executions() == []


def test_the_rehearsal_tries_the_shorter_lengths_as_the_workflow_does(cli):
    cli.block(offering={"available": True, "hours": [24]})
    cli.enrol(extend_by_days=7, fallback_days=[3, 1])
    ran = cli("extend", "team-vision", "--dry-run", "--json")
    assert ran.json["verdict"] == "ok"
    assert "new end 2026-05-05T11:30:00Z" in steps(ran)["offering"][1]
    searched = cli.calls("DescribeCapacityBlockExtensionOfferings")
    assert [call.params["CapacityBlockExtensionDurationHours"] for call in searched] == [168, 72, 24]


def test_the_rehearsal_is_readable_in_80_columns(cli):
    cli.block()
    cli.enrol()
    out = cli("extend", BLOCK, "--dry-run").out
    assert max(map(len, out.splitlines())) <= 80
    assert "8. dry run: ok" in out


@pytest.mark.parametrize(
    ("fields", "step", "words"),
    [
        ({"max_upfront_fee": "3000"}, "offering", "above max_upfront_fee 3,000.00 USD"),
        ({"max_upfront_fee": None}, "ledger", "max_upfront_fee is not set"),
        ({"approvers": []}, "ledger", "nobody could say yes"),
        ({"extend_until": "2026-05-05T00:00:00Z"}, "policy", "past extend_until"),
        ({"extend_by_days": 182, "max_upfront_fee": "999999"}, "budget", "does not fit"),
    ],
)
def test_the_rehearsal_stops_where_the_workflow_would_b16(cli, fields, step, words):
    cli.block()
    cli.enrol(**fields)
    ran = cli("extend", "team-vision", "--dry-run", "--json")
    assert ran.code == 1
    assert ran.json["verdict"] == "stop"
    assert ran.json["steps"][-1]["name"] == step
    assert words in ran.json["steps"][-1]["words"]
    assert words in ran.err
    assert cli.calls(BUY) == []


def test_a_month_that_has_reserved_the_rest_leaves_no_room(cli):
    from blockkeeper.aws import table

    cli.block()
    cli.enrol()
    table.write(table.update_request("budget", f"{NOW:%Y-%m}", add={"reserved": 46_013_320_000}))
    ran = cli("extend", "team-vision", "--dry-run", "--json")
    assert ran.code == 1
    assert "46,013.32 USD of MonthlyLimit 50,000.00 USD" in steps(ran)["budget"][1]
    table.write(table.update_request("budget", f"{NOW:%Y-%m}", add={"reserved": -10_000}))
    assert cli("extend", "team-vision", "--dry-run").code == 0


def test_a_caller_who_may_not_buy_is_no_obstacle(cli):
    cli.block()
    cli.enrol()
    cli.market.faults.add(kind="denied", operation=BUY)
    ran = cli("extend", "team-vision", "--dry-run", "--json")
    assert ran.code == 0
    assert steps(ran)["dry run"][0] == "unknown"
    assert f"ec2:{BUY}" in steps(ran)["dry run"][1]


def test_an_order_that_ec2_would_refuse_is_shown(cli):
    cli.block()
    cli.enrol()
    cli.market.faults.add(kind="price_change", operation=BUY, percent="10")
    ran = cli("extend", "team-vision", "--dry-run", "--json")
    assert ran.code == 1
    assert "InvalidCapacityBlockOfferingIdExpired" in steps(ran)["dry run"][1]


def test_a_pending_extension_of_somebody_else_is_waited_for_b20(cli):
    cli.block()
    cli.enrol()
    (offering,) = cli("offers", BLOCK, "--json", "--days", "1").json["offerings"]
    wanted = {"CapacityReservationId": BLOCK, "CapacityBlockExtensionOfferingId": offering["offering_id"]}
    cli.market.call("ec2", BUY, wanted, "us-east-1")
    ran = cli("extend", "team-vision", "--dry-run", "--json")
    assert (ran.code, ran.json["verdict"]) == (0, "wait")
    assert "somebody else ordered an extension" in steps(ran)["ledger"][1]


def test_an_order_of_unknown_outcome_is_not_sent_again_b17(cli):
    cli.block()
    cli.enrol()
    cli.purchase(state="UNKNOWN")
    ran = cli("extend", "team-vision", "--dry-run", "--json")
    assert ran.json["verdict"] == "wait"
    assert cli.calls(BUY) == []


def test_a_block_of_another_account_is_not_extended(cli):
    cli.block(owner_id="444455556666")
    cli.enrol()
    ran = cli("extend", "team-vision", "--dry-run")
    assert ran.code == 1
    assert "owned by account 444455556666; only its owner can extend it" in ran.err


def test_it_starts_the_workflow_under_the_name_of_block_and_end(cli):
    cli.block()
    cli.enrol()
    ran = cli("extend", "team-vision", "--yes", "--json")
    assert ran.code == 0
    assert ran.json["name"] == NAME
    assert ran.json["execution_arn"].endswith(f":execution:extend-block:{NAME}")
    described = boto3.client("stepfunctions").describe_execution(executionArn=ran.json["execution_arn"])
    given = json.loads(described["input"])
    Draft202012Validator(schema("extend-block")).validate(given)
    assert given == {
        "environment": "team-vision",
        "reservation_id": BLOCK,
        "account": ACCOUNT,
        "region": "us-east-1",
        "end_date": "2026-05-04T11:30:00Z",
        # The name of the AWS identity, as moto makes it up.
        "requested_by": "moto",
    }
    assert cli.calls(BUY) == []


def test_who_asks_can_be_said(cli):
    cli.block()
    cli.enrol()
    ran = cli("extend", "team-vision", "--yes", "--json", "--as", "maria@example.com")
    assert ran.json["input"]["requested_by"] == "maria@example.com"


def test_a_running_execution_is_named_and_not_doubled_b25(cli):
    cli.block()
    cli.enrol()
    assert "started: arn:" in cli("extend", "team-vision", "--yes").out
    ran = cli("extend", BLOCK, "--yes")
    assert ran.code == 0
    assert cli.executions() == [NAME]


def test_a_running_execution_that_the_service_refuses_to_start_again_is_named(cli):
    cli.block()
    cli.enrol()
    first = cli("extend", "team-vision", "--yes", "--json").json
    # Other input, since somebody else asks: AWS then refuses a name that is running.
    ran = cli("extend", "team-vision", "--yes", "--json", "--as", "jo@example.com")
    assert ran.code == 0
    assert (ran.json["started"], ran.json["execution_arn"]) == (False, first["execution_arn"])
    assert cli.executions() == [NAME]


def test_a_name_that_is_used_up_is_started_by_hand(cli):
    cli.block()
    cli.enrol()
    first = cli("extend", "team-vision", "--yes", "--json").json["execution_arn"]
    boto3.client("stepfunctions").stop_execution(executionArn=first)
    ran = cli("extend", "team-vision", "--yes", "--json")
    assert ran.code == 0
    assert ran.json["name"] == f"{NAME}-by-hand-20260503T1200Z"
    boto3.client("stepfunctions").stop_execution(executionArn=ran.json["execution_arn"])
    ran = cli("extend", "team-vision", "--yes")
    assert ran.code == 1
    assert "wait a minute" in ran.err


def test_nothing_starts_without_a_yes(cli):
    cli.block()
    cli.enrol(require_approval=False)
    ran = cli("extend", "team-vision")
    assert ran.code == 2
    assert "--yes" in ran.err
    assert "bought at once" in ran.err
    cli.terminal()
    assert cli("extend", "team-vision", given="n\n").code == 1
    assert cli.executions() == []
    assert cli("extend", "team-vision", given="y\n").code == 0
    assert cli.executions() == [NAME]


@pytest.mark.parametrize(
    ("fields", "at", "words"),
    [
        ({"max_upfront_fee": None}, None, "max_upfront_fee is not set"),
        ({}, datetime(2026, 5, 4, 8, 30, tzinfo=UTC), "the last moment to decide was 2026-05-04T08:30:00Z"),
    ],
)
def test_what_would_end_at_once_is_said_and_not_started(cli, fields, at, words):
    cli.block()
    cli.enrol(**fields)
    if at:
        cli.market.clock.set(at)
    ran = cli("extend", "team-vision", "--yes")
    assert ran.code == 1
    assert f"extend-block would buy nothing and is not started: {words}" in ran.err
    assert cli.executions() == []


def test_what_it_meets_first_is_said_before_it_starts_b17(cli):
    cli.block()
    cli.enrol()
    cli.purchase(state="UNKNOWN")
    ran = cli("extend", "team-vision", "--yes")
    assert ran.code == 0
    assert "first of all: the order was sent and EC2 shows neither an extension nor a refusal" in ran.err
    assert cli.executions() == [NAME]


def test_a_block_that_is_not_enrolled_is_not_extended(cli):
    cli.block()
    ran = cli("extend", BLOCK, "--yes")
    assert ran.code == 1
    assert f"{BLOCK} is not enrolled" in ran.err


def test_a_block_with_two_records_must_be_named(cli):
    cli.block()
    cli.enrol()
    cli.enrol(PK="team-speech")
    ran = cli("extend", BLOCK, "--yes")
    assert ran.code == 1
    assert "team-speech, team-vision" in ran.err
    assert cli.executions() == []
