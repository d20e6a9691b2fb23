"""`blockkeeper replace`: the rehearsal of plan B spends and writes nothing, and the start starts once."""

import json
from datetime import UTC, datetime

import boto3
import pytest
from jsonschema import Draft202012Validator

from blockkeeper.aws import table
from blockkeeper.schema_check import schema

from .conftest import ACCOUNT, BLOCK

BUY, SEARCH = "PurchaseCapacityBlock", "DescribeCapacityBlockOfferings"
NAME = f"{BLOCK}-20260504T1130Z-replace"
KEY = f"{BLOCK}#2026-05-04T11:30:00Z#block"
REPLACE = {"max_gap_hours": 4, "max_upfront_fee": "4000"}
# 22.5 hours of four p5.48xlarge
NEW = {
    "region": "us-east-1",
    "availability_zone": "us-east-1b",
    "instance_type": "p5.48xlarge",
    "instance_count": 4,
    "start": "2026-05-04T13:00:00Z",
    "end": "2026-05-05T11:30:00Z",
    "hourly_rate": "41.528",
}
TOO_LATE_TO_EXTEND = datetime(2026, 5, 4, 9, 0, tzinfo=UTC)


def steps(ran):
    return {step["name"]: (step["verdict"], step["words"]) for step in ran.json["steps"]}


@pytest.fixture
def for_sale(cli):
    """A block that is enrolled with a plan B, when it is too late to extend it, and a new one that EC2 sells."""

    def begin(**fields):
        cli.block()
        cli.enrol(**{"replace": REPLACE} | fields)
        cli.market.load_fleet({"offerings": [NEW]})
        cli.market.clock.set(TOO_LATE_TO_EXTEND)
        return cli

    return begin


def test_the_rehearsal_shows_each_step_and_spends_nothing_b47(for_sale):
    cli = for_sale()
    before = cli.everything()
    ran = cli("replace", "team-vision", "--dry-run", "--json")
    assert (ran.code, ran.json["verdict"]) == (0, "ok")
    shown = steps(ran)
    assert list(shown) == ["record", "block", "deadlines", "ledger", "offering", "policy", "budget", "dry run", "then"]
    assert (
        "a new block of 1 day in any zone, at most 4,000.00 USD, approval by 1 of maria@example.com"
        in shown["record"][1]
    )
    assert "too late to extend since 2026-05-04T08:30:00Z" in shown["deadlines"][1]
    # 11:30 + 4 hours; - 5 minutes - 2 hours to pay; T - 30 minutes
    assert "starts until 2026-05-04T15:30:00Z and is searched until 2026-05-04T13:25:00Z" in shown["deadlines"][1]
    assert shown["deadlines"][1].endswith("its groups go over to it from 2026-05-04T11:00:00Z")
    assert "22 hours in us-east-1b" in shown["offering"][1]
    assert "3,737.52 USD" in shown["offering"][1]
    assert shown["dry run"] == ("ok", "EC2 would take the order")
    assert "replace-block would ask maria@example.com" in shown["then"][1]
    assert "PurchaseMode is dry-run" in shown["then"][1]
    assert cli.everything() == before
    assert [call.params.get("DryRun") for call in cli.calls(BUY)] == [True]
    assert cli.executions(cli.plan_b) == []


def test_the_rehearsal_is_readable_in_80_columns(for_sale):
    out = for_sale()("replace", BLOCK, "--dry-run").out
    assert max(map(len, out.splitlines())) <= 80
    assert "8. dry run: ok" in out


def test_the_rehearsal_tries_the_shorter_lengths_as_the_workflow_does(for_sale):
    cli = for_sale(extend_by_days=7, fallback_days=[3, 1])
    ran = cli("replace", "team-vision", "--dry-run", "--json")
    assert ran.json["verdict"] == "ok"
    assert [call.params["CapacityDurationHours"] for call in cli.calls(SEARCH)] == [168, 72, 24]


@pytest.mark.parametrize(
    ("fields", "step", "words"),
    [
        ({"replace": None}, "ledger", "replace is not set"),
        ({"approvers": []}, "ledger", "nobody could say yes"),
        ({"replace": REPLACE | {"max_upfront_fee": "3000"}}, "offering", "above replace.max_upfront_fee 3,000.00 USD"),
        ({"replace": REPLACE | {"max_gap_hours": 1}}, "offering", "later than max_gap_hours allows"),
        ({"extend_by_days": 2}, "offering", "EC2 offers no block of 4 p5.48xlarge for 48 hours"),
    ],
)
def test_the_rehearsal_stops_where_the_workflow_would_b16(for_sale, fields, step, words):
    cli = for_sale(**fields)
    ran = cli("replace", "team-vision", "--dry-run", "--json")
    assert (ran.code, ran.json["verdict"]) == (1, "stop")
    assert ran.json["steps"][-1]["name"] == step
    assert words in ran.json["steps"][-1]["words"]
    assert "team-vision would get no new block" in ran.err
    assert cli.calls(BUY) == []


def test_a_month_that_has_reserved_the_rest_leaves_no_room(for_sale):
    cli = for_sale()
    table.write(table.update_request("budget", "2026-05", add={"reserved": 46_262_490_000}))
    ran = cli("replace", "team-vision", "--dry-run", "--json")
    assert (ran.code, list(steps(ran))[-1]) == (1, "budget")
    assert "46,262.49 USD of MonthlyLimit 50,000.00 USD" in steps(ran)["budget"][1]
    assert cli.calls(BUY) == []


def test_it_starts_plan_b_under_its_own_name_and_once_b25(for_sale):
    cli = for_sale()
    ran = cli("replace", "team-vision", "--yes", "--json")
    assert ran.code == 0
    assert ran.json["name"] == NAME
    described = boto3.client("stepfunctions").describe_execution(executionArn=ran.json["execution_arn"])
    given = json.loads(described["input"])
    Draft202012Validator(schema("extend-block")).validate(given)
    assert given == {
        "environment": "team-vision",
        "reservation_id": BLOCK,
        "account": ACCOUNT,
        "region": "us-east-1",
        "end_date": "2026-05-04T11:30:00Z",
        "requested_by": "moto",
    }
    again = cli("replace", BLOCK, "--yes")
    assert (again.code, cli.executions(cli.plan_b), cli.executions()) == (0, [NAME], [])
    assert "replace-block" in again.out
    assert cli.calls(BUY) == []


def test_after_one_that_stopped_it_starts_under_a_name_by_hand(for_sale):
    cli = for_sale()
    first = cli("replace", "team-vision", "--yes", "--json").json["execution_arn"]
    boto3.client("stepfunctions").stop_execution(executionArn=first)
    ran = cli("replace", "team-vision", "--yes", "--json", "--as", "jo@example.com")
    assert (ran.code, ran.json["name"]) == (0, f"{NAME}-by-hand-20260504T0900Z")
    assert ran.json["input"]["requested_by"] == "jo@example.com"


def test_what_was_bought_already_is_said_and_gone_on_with(for_sale):
    """The remedy when a replace-block stopped after its purchase."""
    cli = for_sale(require_approval=False)
    (offered,) = cli("offers", "team-vision", "--new", "--json").json["offerings"]
    tags = [{"ResourceType": "capacity-reservation", "Tags": [{"Key": "blockkeeper:purchase", "Value": KEY}]}]
    wanted = {"CapacityBlockOfferingId": offered["offering_id"], "InstancePlatform": "Linux/UNIX"}
    bought = cli.market.call("ec2", BUY, wanted | {"TagSpecifications": tags}, "us-east-1")["CapacityReservation"]
    rehearsed = cli("replace", "team-vision", "--dry-run", "--json")
    assert (rehearsed.code, rehearsed.json["verdict"]) == (0, "wait")
    ran = cli("replace", "team-vision", "--yes")
    assert ran.code == 0
    assert (
        f"first of all: EC2 shows our block {bought['CapacityReservationId']} as payment-pending; nothing more is ordered, "
        "and what is left to do is done"
    ) in ran.err
    assert "bought at once" not in ran.err
    assert cli.executions(cli.plan_b) == [NAME]


@pytest.mark.parametrize(
    ("fields", "at", "words"),
    [
        ({}, datetime(2026, 5, 4, 13, 25, tzinfo=UTC), "the last moment to decide was 2026-05-04T13:25:00Z"),
        ({"replace": None}, TOO_LATE_TO_EXTEND, "replace is not set"),
    ],
)
def test_what_would_end_at_once_is_said_and_not_started(for_sale, fields, at, words):
    cli = for_sale(**fields)
    cli.market.clock.set(at)
    ran = cli("replace", "team-vision", "--yes")
    assert ran.code == 1
    assert f"replace-block would buy nothing and is not started: {words}" in ran.err
    assert cli.executions(cli.plan_b) == []


def test_who_starts_it_out_of_turn_is_told_what_it_puts_an_end_to(for_sale):
    cli = for_sale(require_approval=False)
    cli.set_status(
        "team-vision",
        "EXTENSION_REJECTED",
        extension_outcome={"end_date": "2026-05-04T11:30:00Z", "outcome": "rejected"},
    )
    cli.market.clock.set(datetime(2026, 5, 4, 8, 0, tzinfo=UTC))
    cli.terminal()
    ran = cli("replace", "team-vision", given="n\n")
    assert (ran.code, cli.executions(cli.plan_b)) == (1, [])
    for words in (
        "the block can be extended until 2026-05-04T08:30:00Z; once a new block is bought no extension is",
        "its extension ended as rejected, after which no new block is searched without you",
        "what its policy allows is bought at once",
        "Start replace-block?",
    ):
        assert words in ran.err
    assert cli("replace", "team-vision", given="y\n").code == 0
    assert cli.executions(cli.plan_b) == [NAME]


def test_a_block_that_is_being_extended_is_waited_for_b20(for_sale):
    cli = for_sale()
    cli.market.clock.set(datetime(2026, 5, 4, 8, 0, tzinfo=UTC))
    (offering,) = cli("offers", BLOCK, "--json", "--days", "1").json["offerings"]
    wanted = {"CapacityReservationId": BLOCK, "CapacityBlockExtensionOfferingId": offering["offering_id"]}
    cli.market.call("ec2", "PurchaseCapacityBlockExtension", wanted, "us-east-1")
    ran = cli("replace", "team-vision", "--dry-run", "--json")
    assert (ran.code, ran.json["verdict"]) == (0, "wait")
    assert (
        "the old block is being extended: payment-pending; nothing is ordered while that is so"
        in steps(ran)["ledger"][1]
    )


def test_a_block_that_is_not_enrolled_is_not_replaced(cli):
    cli.block()
    ran = cli("replace", BLOCK, "--yes")
    assert ran.code == 1
    assert f"{BLOCK} is not enrolled" in ran.err
