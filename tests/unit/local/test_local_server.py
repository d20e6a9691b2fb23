"""The market behind MiniStack, over HTTP."""

import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from botocore.config import Config
from botocore.exceptions import ClientError, ConnectionClosedError, ReadTimeoutError

from local import server
from local.server import LocalAws

ROOT = Path(__file__).parents[3]
FLEET = {
    "blocks": [
        {
            "reservation_id": "cr-0a1",
            "region": "us-east-1",
            "instance_type": "p5.48xlarge",
            "instance_count": 4,
            "availability_zone": "us-east-1a",
            "start": "2026-04-29T11:30:00Z",
            "end": "2026-05-04T11:30:00Z",
            "hourly_rate": "41.528",
        },
        {
            "reservation_id": "cr-0b1",
            "region": "us-west-2",
            "owner_id": "444455556666",
            "shared_with": [],
            "instance_type": "p5.48xlarge",
            "instance_count": 4,
            "availability_zone": "us-west-2a",
            "start": "2026-04-29T11:30:00Z",
            "end": "2026-05-04T11:30:00Z",
        },
    ],
    "groups": [
        {
            "name": "train",
            "region": "us-east-1",
            "availability_zone": "us-east-1a",
            "reservation_id": "cr-0a1",
            "min": 0,
            "max": 4,
            "desired": 2,
        }
    ],
}
TRUST = {
    "Version": "2012-10-17",
    "Statement": [
        {"Effect": "Allow", "Principal": {"AWS": "arn:aws:iam::111122223333:root"}, "Action": "sts:AssumeRole"}
    ],
}


@pytest.fixture(scope="module")
def aws() -> Iterator[LocalAws]:
    with server.start(speed=0, start_at=datetime(2026, 5, 1, tzinfo=UTC)) as aws:
        aws.control("POST", "fleet", FLEET)
        yield aws


@pytest.fixture(autouse=True)
def no_faults(aws: LocalAws) -> None:
    aws.control("DELETE", "faults")


def eventually(what: Callable[[], Any], seconds: float = 20) -> Any:
    give_up = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < give_up, "it did not happen"
        time.sleep(0.05)
    return found


def test_ec2_and_auto_scaling_answer_over_http(aws: LocalAws) -> None:
    (block,) = aws.client("ec2").describe_capacity_reservations()["CapacityReservations"]
    assert (block["CapacityReservationId"], block["AvailableInstanceCount"]) == ("cr-0a1", 2)
    (group,) = aws.client("autoscaling").describe_auto_scaling_groups()["AutoScalingGroups"]
    assert len(group["Instances"]) == 2
    with pytest.raises(ClientError, match="NotFound"):
        aws.client("ec2").describe_capacity_reservations(CapacityReservationIds=["cr-0ff"])
    assert len(aws.client("ec2").describe_vpcs()["Vpcs"]) == 1, "MiniStack's own calls stay"


def test_a_member_account_has_its_own_blocks_and_an_assumed_role_sees_them(aws: LocalAws) -> None:
    member = aws.client("ec2", "us-west-2", account="444455556666")
    assert [
        each["CapacityReservationId"] for each in member.describe_capacity_reservations()["CapacityReservations"]
    ] == ["cr-0b1"]
    iam = aws.client("iam", account="444455556666")
    iam.create_role(RoleName="member", AssumeRolePolicyDocument=json.dumps(TRUST))
    allowed = {
        "Version": "2012-10-17",
        "Statement": [{"Effect": "Allow", "Action": "ec2:DescribeCapacityReservations", "Resource": "*"}],
    }
    iam.put_role_policy(RoleName="member", PolicyName="read", PolicyDocument=json.dumps(allowed))
    assumed = aws.client("sts").assume_role(RoleArn="arn:aws:iam::444455556666:role/member", RoleSessionName="sweep")[
        "Credentials"
    ]
    role = session_of(assumed).client("ec2", endpoint_url=aws.endpoint, region_name="us-west-2")
    assert len(role.describe_capacity_reservations()["CapacityReservations"]) == 1
    with pytest.raises(ClientError, match="UnauthorizedOperation"):
        role.describe_capacity_block_extension_history()


def test_node_groups_and_compute_environments_are_there_with_iam_on_their_arns(aws: LocalAws) -> None:
    place = {"region": "us-east-1", "availability_zone": "us-east-1a"}
    node_group = {"cluster": "ml", "name": "gpu", "min": 0, "max": 1, "desired": 0, **place}
    environment = {"name": "training", "instance_type": "p5.48xlarge", "min_vcpus": 0, "max_vcpus": 0, **place}
    aws.control("POST", "fleet", {"node_groups": [node_group], "compute_environments": [environment]})
    iam = aws.client("iam")
    iam.create_role(RoleName="scaler", AssumeRolePolicyDocument=json.dumps(TRUST))
    statements = [
        {"Effect": "Allow", "Action": ["eks:*"], "Resource": "arn:aws:eks:*:111122223333:nodegroup/*/*/*"},
        {"Effect": "Allow", "Action": "batch:Describe*", "Resource": "*"},
        {
            "Effect": "Allow",
            "Action": "batch:UpdateComputeEnvironment",
            "Resource": "arn:aws:batch:*:111122223333:compute-environment/training",
        },
    ]
    document = json.dumps({"Version": "2012-10-17", "Statement": statements})
    iam.put_role_policy(RoleName="scaler", PolicyName="scale", PolicyDocument=document)
    assumed = aws.client("sts").assume_role(RoleArn="arn:aws:iam::111122223333:role/scaler", RoleSessionName="scale")
    session = session_of(assumed["Credentials"])
    eks, batch = (session.client(name, "us-east-1", endpoint_url=aws.endpoint) for name in ("eks", "batch"))
    sizes = {"minSize": 0, "maxSize": 4, "desiredSize": 4}
    eks.update_nodegroup_config(clusterName="ml", nodegroupName="gpu", scalingConfig=sizes)
    assert eks.describe_nodegroup(clusterName="ml", nodegroupName="gpu")["nodegroup"]["status"] == "UPDATING"
    batch.update_compute_environment(computeEnvironment="training", computeResources={"maxvCpus": 768})
    (shown,) = batch.describe_compute_environments(computeEnvironments=["training"])["computeEnvironments"]
    assert shown["status"] == "UPDATING"
    with pytest.raises(ClientError, match="not authorized"):
        batch.update_compute_environment(computeEnvironment="other", computeResources={"maxvCpus": 768})


def session_of(credentials: dict[str, str]) -> Any:
    import boto3

    return boto3.Session(credentials["AccessKeyId"], credentials["SecretAccessKey"], credentials["SessionToken"])


@pytest.mark.parametrize(
    ("kind", "raised"), [("timeout_after", ReadTimeoutError), ("lost_answer", ConnectionClosedError)]
)
def test_a_lost_answer_is_lost_on_the_wire(aws: LocalAws, kind: str, raised: type[Exception]) -> None:
    aws.control("POST", "faults", {"kind": kind, "operation": "DescribeCapacityBlocks"})
    impatient = Config(read_timeout=1, retries={"total_max_attempts": 1})
    credentials = {"AccessKeyId": aws.account, "SecretAccessKey": "x", "SessionToken": ""}
    client = session_of(credentials).client("ec2", "us-east-1", endpoint_url=aws.endpoint, config=impatient)
    with pytest.raises(raised):
        client.describe_capacity_blocks()
    assert client.describe_capacity_blocks()["CapacityBlocks"]


def test_a_purchase_moves_the_end_when_the_clock_is_set_and_rules_hear_of_it(aws: LocalAws) -> None:
    queue = aws.client("sqs").create_queue(QueueName="heard")["QueueUrl"]
    events = aws.client("events")
    pattern = {
        "source": ["aws.ec2"],
        "detail-type": ["Capacity Block Expiration Warning", "AWS API Call via CloudTrail"],
    }
    events.put_rule(Name="heard", EventPattern=json.dumps(pattern))
    events.put_targets(Rule="heard", Targets=[{"Id": "q", "Arn": "arn:aws:sqs:us-east-1:111122223333:heard"}])
    ec2 = aws.client("ec2")
    (offering,) = ec2.describe_capacity_block_extension_offerings(
        CapacityReservationId="cr-0a1", CapacityBlockExtensionDurationHours=24
    )["CapacityBlockExtensionOfferings"]
    ec2.purchase_capacity_block_extension(
        CapacityReservationId="cr-0a1", CapacityBlockExtensionOfferingId=offering["CapacityBlockExtensionOfferingId"]
    )
    aws.control("POST", "clock", {"set": "2026-05-05T10:50:00Z"})
    (block,) = ec2.describe_capacity_reservations()["CapacityReservations"]
    assert block["EndDate"] == datetime(2026, 5, 5, 11, 30, tzinfo=UTC)
    heard: list[tuple[str, str]] = []

    def receive() -> bool:
        for message in aws.client("sqs").receive_message(QueueUrl=queue, MaxNumberOfMessages=10).get("Messages", []):
            event = json.loads(message["Body"])
            heard.append((event["time"], event["detail-type"]))
        return len(heard) == 2

    eventually(receive)
    assert sorted(heard) == [
        ("2026-05-01T00:02:00Z", "AWS API Call via CloudTrail"),
        ("2026-05-05T10:50:00Z", "Capacity Block Expiration Warning"),
    ]


def test_control_shows_and_refuses(aws: LocalAws) -> None:
    state = aws.control("GET", "state")
    assert {block["CapacityReservationId"] for block in state["blocks"]} == {"cr-0a1", "cr-0b1"}
    assert state["groups"][0]["sizes"] == [0, 2, 4]
    calls = aws.control("GET", "calls")
    assert calls["counts"]["DescribeCapacityReservations"] >= 1
    assert {"at", "operation", "account", "region", "error"} <= calls["calls"][0].keys()
    assert isinstance(aws.control("GET", "events"), list)
    for method, path, body, message in [
        ("POST", "clock", {"speeed": 3}, "speeed"),
        ("POST", "faults", {"kind": "explosion"}, "explosion"),
        ("POST", "fleet", {"blocs": []}, "blocs"),
        ("GET", "nothing", None, "no such control"),
    ]:
        with pytest.raises(ValueError, match=message):
            aws.control(method, path, body)


def test_an_api_url_is_made_local(aws: LocalAws) -> None:
    url = aws.api_url("https://4e31f273.execute-api.us-east-1.amazonaws.com/v1")
    assert url == f"{aws.endpoint}/_aws/execute-api/4e31f273/v1"


def test_the_server_ends_when_it_is_told_to() -> None:
    aws = server.start()
    assert aws.control("GET", "clock")["speed"] == 1.0
    aws.stop()
    with pytest.raises(OSError, match="refused"):
        aws.control("GET", "clock")


def test_the_server_ends_with_its_parent() -> None:
    script = "from local import server; import time; print(server.start().port, flush=True); time.sleep(600)"
    parent = subprocess.Popen([sys.executable, "-c", script], cwd=ROOT, stdout=subprocess.PIPE)
    try:
        assert parent.stdout is not None
        port = int(parent.stdout.readline())
        assert reachable(port)
    finally:
        parent.kill()
        parent.wait()
    eventually(lambda: not reachable(port))


def reachable(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_quotas_and_the_suppression_list_are_those_that_the_control_sets(aws: LocalAws):
    quotas, ses = aws.client("service-quotas"), aws.client("sesv2")
    code = "L-DA6814F2"
    assert quotas.get_service_quota(ServiceCode="ec2", QuotaCode=code)["Quota"]["Value"] > 0
    with pytest.raises(ses.exceptions.NotFoundException):
        ses.get_suppressed_destination(EmailAddress="ann+a@example.com")
    aws.control("POST", "account", {"quotas": {code: None}, "suppressed": {"ann+a@example.com": "BOUNCE"}})
    with pytest.raises(quotas.exceptions.NoSuchResourceException):
        quotas.get_service_quota(ServiceCode="ec2", QuotaCode=code)
    assert quotas.get_aws_default_service_quota(ServiceCode="ec2", QuotaCode=code)["Quota"]["Value"] == 0
    assert (
        ses.get_suppressed_destination(EmailAddress="ann+a@example.com")["SuppressedDestination"]["Reason"] == "BOUNCE"
    )
