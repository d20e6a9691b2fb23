"""The story "Extended in time" on the deployed stack, with the groups of examples/ deployed beside it by CloudFormation.

tests/functional/workflows/test_extended_in_time.py tells the same story in one process; its times are the same.
"""

import json
import os
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path

import pytest
from waiting import eventually

from tests.stories.extended_in_time import GROUPS, NODES, PLAIN, begin, tell

pytestmark = pytest.mark.e2e
EXAMPLES = Path(__file__).parents[2] / "examples"
SUBNET = {
    "subnet_id": "subnet-0570000000000001",
    "vpc_id": "vpc-0570000000000001",
    "region": "us-east-1",
    "availability_zone": "us-east-1a",
}
# The one image that the local AWS has a public parameter for.
IMAGE = "/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-x86_64"
# While a workflow waits: looks of half a second each before the market's clock moves on by a minute.
LOOKS_PER_MINUTE = 3
CLUSTER = {
    "ClusterName": "ml",
    "ClusterEndpoint": "https://example.gr7.us-east-1.eks.amazonaws.com",
    "ClusterCertificateAuthority": "LS0tLS1CRUdJTg==",
    "ClusterServiceCidr": "10.100.0.0/16",
    "ConnectCluster": "false",  # the local CloudFormation knows neither access entries nor pod identities
}


class OnTheDeployedStack:
    def __init__(self, deployed, outputs):
        self.deployed, self.outputs = deployed, outputs
        self.first_day = (deployed.now() + timedelta(days=1)).date()

    def go(self, at):
        self.deployed.jump(at)

    def see(self, what):
        return eventually(what)

    def settle(self, what):
        give_up = self.deployed.now() + timedelta(minutes=30)
        while not any(what() or time.sleep(0.5) for _ in range(LOOKS_PER_MINUTE)):
            assert self.deployed.now() < give_up
            self.deployed.jump(self.deployed.now() + timedelta(minutes=1))

    def client(self, service):
        return self.deployed.aws.client(service)

    def block(self, fields):
        self.deployed.aws.control("POST", "fleet", {"blocks": [fields]})

    def enrol(self, record):
        answer = self.deployed.stack.api("POST", "/", record)
        assert answer.status == 201, answer.body

    def record(self, pk):
        return self.deployed.record(pk)

    def fail_next_payment(self, reservation_id):
        fault = {"kind": "payment_failure", "reservation_id": reservation_id}
        self.deployed.aws.control("POST", "faults", fault)

    def ended(self, reservation_id):
        found = self.deployed.states.list_executions(stateMachineArn=self.deployed.stack.outputs["ExtendBlockArn"])
        ours = [each for each in found["executions"] if each["name"].startswith(reservation_id)]
        described = [
            self.deployed.states.describe_execution(executionArn=each["executionArn"])
            for each in sorted(ours, key=lambda each: each["startDate"])
        ]
        return [each.get("error") or each["status"] for each in described if each["status"] != "RUNNING"]

    def scale_in_messages(self, group):
        """What the example's own rule has put into its own queue; complete once there is one message for each instance."""
        queue = {"QueueUrl": self.outputs[group]["QueueUrl"], "MaxNumberOfMessages": 10, "VisibilityTimeout": 0}
        messages = self.client("sqs").receive_message(**queue).get("Messages", [])
        return [json.loads(message["Body"])["detail"] for message in messages] if len(messages) == 4 else []

    def doctors_findings(self, pk):
        """What `blockkeeper doctor` finds wrong, without reads that the local AWS does not know."""
        command = [str(Path(sys.executable).with_name("blockkeeper")), "doctor", pk, "--json"]
        environment = {"PATH": os.environ["PATH"], **self.deployed.aws.environment()}
        shown = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
        found = json.loads(shown.stdout)
        return [f"{each['check']}: {each['problem']}" for each in found if each["severity"] != "unknown"]


def deploy(deployed, stack, example, **parameters):
    """Deploy an example as its page does; answers the stack's outputs."""
    cloudformation = deployed.aws.client("cloudformation")
    cloudformation.create_stack(
        StackName=stack,
        TemplateBody=(EXAMPLES / example / "template.yaml").read_text("utf-8"),
        Parameters=[{"ParameterKey": name, "ParameterValue": value} for name, value in parameters.items()],
        Capabilities=["CAPABILITY_IAM"],
    )

    def ended():
        (found,) = cloudformation.describe_stacks(StackName=stack)["Stacks"]
        return None if found["StackStatus"].endswith("_IN_PROGRESS") else found

    found = eventually(ended)
    assert found["StackStatus"] == "CREATE_COMPLETE", found
    return {output["OutputKey"]: output["OutputValue"] for output in found["Outputs"]}


@pytest.fixture
def engine(deployed):
    deployed.aws.control("POST", "fleet", {"subnets": [SUBNET]})
    common = {
        "InstanceType": "p5.4xlarge",
        "SubnetId": SUBNET["subnet_id"],
        "SecurityGroupIds": "sg-0570000000000001",
    }
    plain = {**common, "ReservationId": PLAIN.reservation_id, "Image": IMAGE}
    nodes = {**common, "ReservationId": NODES.reservation_id, "NodeImage": IMAGE, **CLUSTER}
    outputs = {
        PLAIN.name: deploy(deployed, PLAIN.name, "auto-scaling-group", **plain),
        NODES.name: deploy(deployed, NODES.name, "eks-self-managed", **nodes),
    }
    deployed.speed(0)
    yield OnTheDeployedStack(deployed, outputs)
    deployed.speed(1)


def test_cases_b03_b08_b36_extended_in_time_with_the_examples_groups(engine):
    teller = begin(engine)
    for group in GROUPS:
        assert engine.doctors_findings(group.name) == [], "an example is as the doctor wants it"
    tell(teller)
