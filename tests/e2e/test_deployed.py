"""The main scenarios on the deployed stack: real packaging, IAM, HTTP, mails and events."""

import io
import json
import os
import subprocess
import sys
import zipfile
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlencode

import pytest
from waiting import DECISION_LEAD, eventually

from local.stack import request

pytestmark = pytest.mark.e2e
FEE = "3488.35"  # 5.191 USD x 4 instances x 168 hours

PURCHASE = """
import boto3, botocore.exceptions
def handler(event, context):
    try:
        boto3.client("ec2").purchase_capacity_block_extension(**event)
    except botocore.exceptions.ClientError as error:
        return error.response["Error"]["Code"]
    return "bought"
"""


def form(decision):
    return urlencode({"decision": decision, "reason": "e2e"})


@pytest.mark.usefixtures("fast")
def test_approved_by_link_it_is_bought_once_and_the_end_moves(deployed, asked):
    reservation_id, link = asked["says-yes"], deployed.link("says-yes")
    before = deployed.end(reservation_id)
    page = request("GET", link)
    assert page.status == 200
    assert "3,488.35" in page.body
    assert request("HEAD", link).status == 200
    assert deployed.orders(reservation_id) == [], "looking decides nothing (case B07)"

    assert request("POST", link, form("approve")).status == 200

    assert eventually(lambda: deployed.ended_in(reservation_id)) == "Extension confirmed"
    assert deployed.end(reservation_id) == before + timedelta(days=7)
    assert [order["UpfrontFee"] for order in deployed.orders(reservation_id)] == [FEE]
    assert deployed.record("says-yes")["status"] == "EXTENDED"
    again = request("POST", link, form("approve"))
    assert again.status < 500
    assert len(deployed.orders(reservation_id)) == 1, "a yes is used once"


def test_rejected_by_link_nothing_is_bought(deployed, asked):
    reservation_id, link = asked["says-no"], deployed.link("says-no")
    assert request("POST", link, form("reject")).status == 200
    assert eventually(lambda: deployed.ended_in(reservation_id)) == "Extension rejected"
    assert deployed.orders(reservation_id) == []
    assert deployed.record("says-no")["status"] == "EXTENSION_REJECTED"


@pytest.mark.usefixtures("asked")
def test_an_altered_link_decides_nothing(deployed):
    link = deployed.link("says-nothing")
    altered = link[:-1] + ("A" if link[-1] != "A" else "B")
    assert 400 <= request("POST", altered, form("approve")).status < 500
    (approval,) = [a for a in deployed.stack.api("GET", "/approvals").body if a["environment"] == "says-nothing"]
    assert approval["status"] == "OPEN"


def test_the_api_wants_its_key(deployed):
    assert request("GET", f"{deployed.stack.api_url}/").status == 403
    assert deployed.stack.api("GET", "/").status == 200


def test_the_command_line_reads_the_deployed_stack(deployed, asked):
    command = [str(Path(sys.executable).with_name("blockkeeper")), "status", "--json"]
    environment = {"PATH": os.environ["PATH"], **deployed.aws.environment()}
    shown = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert shown.returncode == 0, shown.stderr
    assert all(pk in shown.stdout for pk in asked)
    json.loads(shown.stdout)


def test_the_doctor_reads_all_that_it_looks_at_with_its_own_role_and_tells_what_it_finds_once(deployed):
    reservation_id = "cr-0e2e0000000000d0c"
    deployed.block(reservation_id, start="now-2d", end="now+20d@11:30")
    group = {"name": "sick", "region": "us-east-1", "availability_zone": "us-east-1b", "reservation_id": reservation_id}
    nodes = {"kubernetes.io/cluster/ml": "owned"}
    deployed.aws.control("POST", "fleet", {"groups": [group | {"min": 0, "max": 4, "desired": 4, "tags": nodes}]})
    deployed.enrol("sick", reservation_id, groups=[{"auto_scaling_group": "sick"}])
    answers = [_invoke(deployed, "Doctor", {"time": f"{deployed.now():%Y-%m-%dT%H:%M:%SZ}"}) for _ in range(2)]
    assert [answer["unread"] for answer in answers] == [[], []]
    assert answers[0]["new"] >= 2
    assert answers[1]["new"] == 0
    mails = eventually(lambda: [mail for mail in deployed.stack.mails() if "sick@example.com" in mail["To"]])
    assert [mail["Subject"] for mail in mails] == ["sick: 2 findings"]
    assert "is in us-east-1a; the group launches in us-east-1b only" in mails[0]["BodyText"]


def test_cases_b17_b26_a_sweep_settles_what_others_left_behind(deployed):
    """With the function's own role, and with DynamoDB's filter as it is deployed."""
    reservation_id, table = "cr-0e2e0000000000d0d", deployed.stack.outputs["TableName"]
    deployed.block(reservation_id, start="now-2d", end="now+20d@11:30", payment={"minutes": 60})
    dynamodb, end = deployed.aws.client("dynamodb"), deployed.end(reservation_id)
    wanted = {"CapacityReservationId": reservation_id}
    (offer,) = deployed.ec2.describe_capacity_block_extension_offerings(
        **wanted, CapacityBlockExtensionDurationHours=24
    )["CapacityBlockExtensionOfferings"]
    offering = offer["CapacityBlockExtensionOfferingId"]
    deployed.ec2.purchase_capacity_block_extension(**wanted, CapacityBlockExtensionOfferingId=offering)
    order = {
        "environment": {"S": "left"},
        "account": {"S": deployed.aws.account},
        "region": {"S": "us-east-1"},
        "reservation_id": {"S": reservation_id},
        "budgets": {"L": [{"S": "1999-01"}]},
        "upfront_fee": {"S": "100"},
        "new_end": {"S": f"{end + timedelta(days=1):%Y-%m-%dT%H:%M:%SZ}"},
        "intended_at": {"S": "1999-01-01T08:00:00Z"},
    }
    unknown = {"state": {"S": "UNKNOWN"}, "offering_id": {"S": offering}}
    stale = {"state": {"S": "INTENT"}, "offering_id": {"S": "cbe-never-sent"}}
    ids = [f"{reservation_id}#{end:%Y-%m-%dT%H:%M:%SZ}", f"{reservation_id}#1999-01-02T11:30:00Z"]
    keys = [{"kind": {"S": "purchase"}, "id": {"S": key}} for key in ids]
    budget = {"kind": {"S": "budget"}, "id": {"S": "1999-01"}}
    for item in (keys[0] | order | unknown, keys[1] | order | stale, budget | {"reserved": {"N": "200000000"}}):
        dynamodb.put_item(TableName=table, Item=item)
    deployed.stack.start("DetectExpiryArn", "settles")

    def states():
        items = [dynamodb.get_item(TableName=table, Key=key, ConsistentRead=True)["Item"] for key in keys]
        return [item["state"]["S"] for item in items]

    assert eventually(lambda: states() == ["BOUGHT", "REFUSED"])
    assert dynamodb.get_item(TableName=table, Key=budget)["Item"]["reserved"]["N"] == "100000000"


def _invoke(deployed, function, event):
    resource = {"StackName": "blockkeeper", "LogicalResourceId": function}
    described = deployed.aws.client("cloudformation").describe_stack_resource(**resource)
    name = described["StackResourceDetail"]["PhysicalResourceId"]
    answer = deployed.aws.client("lambda").invoke(FunctionName=name, Payload=json.dumps(event))
    payload = json.loads(answer["Payload"].read())
    assert "FunctionError" not in answer, payload
    return payload


@pytest.mark.parametrize("older_names", [False, True])
def test_case_b01_ec2s_event_starts_a_sweep_in_either_spelling(deployed, older_names):
    reservation_id = f"cr-0e2e000000000001{int(older_names)}"
    deployed.aws.control("POST", "market", {"older_event_names": older_names})
    deployed.block(reservation_id, start="now+2m", end="now+20d@11:30")
    deployed.jump(deployed.now() + timedelta(minutes=3))

    def started_by():
        pages = deployed.states.get_paginator("list_executions").paginate(
            stateMachineArn=deployed.stack.outputs["DetectExpiryArn"]
        )
        for execution in (each for page in pages for each in page["executions"]):
            given = json.loads(deployed.states.describe_execution(executionArn=execution["executionArn"])["input"])
            if given.get("detail", {}).get("capacity-reservation-id") == reservation_id:
                return given["detail-type"], execution["executionArn"]
        return None

    detail_type, execution = eventually(started_by)
    assert detail_type == ("Capacity Block Reservation Delivered" if older_names else "Capacity Block Delivered")

    def status():
        found = deployed.states.describe_execution(executionArn=execution)["status"]
        return None if found == "RUNNING" else found

    assert eventually(status) == "SUCCEEDED"


@pytest.mark.parametrize(
    ("role_of", "may"),
    [("SearchOfferings", False), ("ApiFunction", False), ("Doctor", False), ("BuyExtension", True)],
)
def test_only_the_buyers_role_may_purchase(deployed, asked, role_of, may):
    resource = {"StackName": "blockkeeper", "LogicalResourceId": f"{role_of}Role"}
    described = deployed.aws.client("cloudformation").describe_stack_resource(**resource)
    role = described["StackResourceDetail"]["PhysicalResourceId"]
    functions = deployed.aws.client("lambda")
    functions.create_function(
        FunctionName=f"purchase-as-{role_of}",
        Runtime=f"python3.{sys.version_info.minor}",
        Role=f"arn:aws:iam::{deployed.aws.account}:role/{role}",
        Handler="app.handler",
        Code={"ZipFile": zipped("app.py", PURCHASE)},
        Timeout=60,
    )
    reservation_id = asked["says-nothing"]
    order = {"CapacityReservationId": reservation_id, "CapacityBlockExtensionOfferingId": "cbe-unknown", "DryRun": True}
    answer = functions.invoke(FunctionName=f"purchase-as-{role_of}", Payload=json.dumps(order))
    code = json.load(answer["Payload"])
    assert code == ("InvalidCapacityBlockOfferingIdNotFound" if may else "UnauthorizedOperation")
    assert deployed.orders(reservation_id) == []


def zipped(name, text):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr(name, text)
    return packed.getvalue()


def test_case_b04_unanswered_it_expires_at_the_last_moment_and_a_late_yes_buys_nothing(deployed, asked):
    """The last test: it moves the clock by a day."""
    reservation_id, link = asked["says-nothing"], deployed.link("says-nothing")
    assert deployed.ended_in(reservation_id) is None
    deployed.jump(deployed.end(reservation_id) - DECISION_LEAD + timedelta(seconds=30))
    assert eventually(lambda: deployed.ended_in(reservation_id)) == "Approval expired"
    late = request("POST", link, form("approve"))
    assert late.status == 200
    assert "nothing" in late.body.lower()
    assert deployed.orders(reservation_id) == []
