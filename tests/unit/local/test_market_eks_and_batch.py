"""Node groups of EKS and compute environments of Batch in the market: what AWS refuses is refused, and changes take their time."""

from typing import Any

import pytest
from botocore.exceptions import ClientError

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
        }
    ],
    "node_groups": [
        {
            "cluster": "ml",
            "name": "gpu",
            "region": "us-east-1",
            "availability_zone": "us-east-1a",
            "reservation_id": "cr-0a1",
            "min": 0,
            "max": 4,
            "desired": 2,
        }
    ],
    "compute_environments": [
        {
            "name": "training",
            "region": "us-east-1",
            "availability_zone": "us-east-1a",
            "reservation_id": "cr-0a1",
            "instance_type": "p5.48xlarge",
            "min_vcpus": 0,
            "max_vcpus": 384,
            "asked_vcpus": 192,
        }
    ],
}


@pytest.fixture
def eks(session, market) -> Any:
    market.load_fleet(FLEET)
    return session.client("eks")


@pytest.fixture
def batch(session, market) -> Any:
    market.load_fleet(FLEET)
    return session.client("batch")


def resize(eks: Any, **sizes: int) -> Any:
    return eks.update_nodegroup_config(clusterName="ml", nodegroupName="gpu", scalingConfig=sizes)


def code(call: Any) -> str:
    with pytest.raises(ClientError) as refused:
        call()
    return f"{refused.value.response['Error']['Code']}: {refused.value.response['Error']['Message']}"


def test_a_node_group_shows_its_sizes_and_the_group_beneath(eks, session):
    shown = eks.describe_nodegroup(clusterName="ml", nodegroupName="gpu")["nodegroup"]
    assert (shown["status"], shown["capacityType"]) == ("ACTIVE", "CAPACITY_BLOCK")
    assert shown["scalingConfig"] == {"minSize": 0, "maxSize": 4, "desiredSize": 2}
    (beneath,) = shown["resources"]["autoScalingGroups"]
    found = session.client("autoscaling").describe_scheduled_actions(AutoScalingGroupName=beneath["name"])
    (own,) = found["ScheduledUpdateGroupActions"]
    assert own["ScheduledActionName"] == "Amazon EKS Node Group Capacity Scaledown Before Reservation End"
    assert f"{own['StartTime']:%dT%H:%M}" == "04T10:50"


def test_an_update_takes_a_minute_and_no_other_is_taken_meanwhile(eks, at):
    update = resize(eks, desiredSize=3)["update"]
    assert (update["status"], update["type"]) == ("InProgress", "ConfigUpdate")
    assert code(lambda: resize(eks, desiredSize=1)).startswith(
        "ResourceInUseException: Nodegroup gpu currently has update"
    )
    assert eks.describe_nodegroup(clusterName="ml", nodegroupName="gpu")["nodegroup"]["status"] == "UPDATING"
    at("2026-05-01T00:02")
    shown = eks.describe_nodegroup(clusterName="ml", nodegroupName="gpu")["nodegroup"]
    assert (shown["status"], shown["scalingConfig"]["desiredSize"]) == ("ACTIVE", 3)


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        ({"minSize": 3}, "Minimum capacity 3 can't be greater than desired size 2"),
        ({"desiredSize": 5}, "desired capacity 5 can't be greater than max size 4"),
    ],
)
def test_sizes_that_eks_refuses_are_refused(eks, sizes, words):
    assert code(lambda: resize(eks, **sizes)) == f"InvalidParameterException: {words}"


def test_a_compute_environment_takes_scaling_updates_one_at_a_time(batch, at):
    def shown() -> Any:
        (found,) = batch.describe_compute_environments(computeEnvironments=["training"])["computeEnvironments"]
        return found["status"], found["computeResources"]["maxvCpus"], found["computeResources"]["desiredvCpus"]

    def update(**sizes: int) -> Any:
        return batch.update_compute_environment(computeEnvironment="training", computeResources=sizes)

    assert shown() == ("VALID", 384, 192)
    refused = code(lambda: update(desiredvCpus=0))
    assert refused.startswith("ClientException: Manually scaling down compute environment is not supported.")
    update(maxvCpus=0)
    assert shown() == ("UPDATING", 384, 192)
    assert code(lambda: update(maxvCpus=1)) == "ClientException: Cannot update, resource is being modified."
    at("2026-05-01T00:01")
    assert shown() == ("VALID", 0, 192), "a job that runs keeps its instance"
