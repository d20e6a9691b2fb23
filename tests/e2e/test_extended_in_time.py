"""The story "Extended in time" on the deployed stack, with the groups of examples/ deployed beside it by CloudFormation.

tests/functional/workflows/test_extended_in_time.py tells the same story in one process; its times are the same.
"""

from pathlib import Path

import pytest
from on_the_deployed_stack import OnTheDeployedStack
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
CLUSTER = {
    "ClusterName": "ml",
    "ClusterEndpoint": "https://example.gr7.us-east-1.eks.amazonaws.com",
    "ClusterCertificateAuthority": "LS0tLS1CRUdJTg==",
    "ClusterServiceCidr": "10.100.0.0/16",
    "ConnectCluster": "false",  # the local CloudFormation knows neither access entries nor pod identities
}


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
