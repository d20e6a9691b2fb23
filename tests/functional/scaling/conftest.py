"""The stage of the scaling stories: a world whose market has groups that launch and drain by the clock.

The block of 4 instances runs from 2026-05-03 11:30 to 2026-05-04 11:30 UTC.
"""

from datetime import UTC, datetime, timedelta

import boto3
import pytest
from boto3.dynamodb.types import TypeDeserializer, TypeSerializer

from local.engine.execution import Execution
from local.engine.sandbox import Sandboxes
from local.engine.world import ACCOUNT, REGION, World

NOW = datetime(2026, 5, 1, 8, 0, tzinfo=UTC)
WRITES = {
    "BatchPutScheduledUpdateGroupAction",
    "BatchDeleteScheduledAction",
    "UpdateAutoScalingGroup",
    "PutLifecycleHook",
    "DeleteLifecycleHook",
    "CreateOrUpdateTags",
    "DeleteTags",
    "UpdateNodegroupConfig",
    "UpdateComputeEnvironment",
}
START, END = "blockkeeper-cr-0a1-start", "blockkeeper-cr-0a1-end"


def at(hour: int, minute: int, day: int = 4) -> datetime:
    return datetime(2026, 5, day, hour, minute, tzinfo=UTC)


class Story:
    def __init__(self, world: World) -> None:
        self.world = world
        self.market = world.market
        self.scaling = boto3.client("autoscaling", region_name=REGION)
        self.eks = boto3.client("eks", region_name=REGION)
        self.batch = boto3.client("batch", region_name=REGION)
        self._dynamodb = boto3.client("dynamodb", region_name=REGION)
        (self._table,) = self._dynamodb.list_tables()["TableNames"]
        self._runs = 0

    def block(self, reservation_id="cr-0a1", **fields):
        block = {
            "reservation_id": reservation_id,
            "region": REGION,
            "instance_type": "p5.48xlarge",
            "instance_count": 4,
            "availability_zone": "us-east-1a",
            "start": "2026-05-03T11:30:00Z",
            "end": "2026-05-04T11:30:00Z",
        }
        self.market.load_fleet({"blocks": [block | fields]})

    def group(self, name="train", **fields):
        group = {
            "name": name,
            "region": REGION,
            "availability_zone": "us-east-1a",
            "reservation_id": "cr-0a1",
            "min": 0,
            "max": 0,
            "desired": 0,
        }
        self.market.load_fleet({"groups": [group | fields]})

    def node_group(self, name="gpu", **fields):
        node_group = {
            "cluster": "ml",
            "name": name,
            "region": REGION,
            "availability_zone": "us-east-1a",
            "reservation_id": "cr-0a1",
            "min": 0,
            "max": 1,
            "desired": 0,
        }
        self.market.load_fleet({"node_groups": [node_group | fields]})

    def compute_environment(self, name="training", **fields):
        environment = {
            "name": name,
            "region": REGION,
            "availability_zone": "us-east-1a",
            "reservation_id": "cr-0a1",
            "instance_type": "p5.48xlarge",
            "min_vcpus": 0,
            "max_vcpus": 0,
        }
        self.market.load_fleet({"compute_environments": [environment | fields]})

    def eks_sizes(self, name="gpu"):
        config = self.eks.describe_nodegroup(clusterName="ml", nodegroupName=name)["nodegroup"]["scalingConfig"]
        return config["minSize"], config["maxSize"], config["desiredSize"]

    def vcpus(self, name="training"):
        (found,) = self.batch.describe_compute_environments(computeEnvironments=[name])["computeEnvironments"]
        resources = found["computeResources"]
        return resources["minvCpus"], resources["maxvCpus"], resources["desiredvCpus"]

    def move_end(self, end, reservation_id="cr-0a1"):
        self.market.blocks.move_end(self.market.blocks.get(reservation_id, REGION), end)

    def enrol(self, pk="team-vision", groups=("train",), **fields):
        record = {
            "name": pk,
            "capacity_block_id": "cr-0a1",
            "region": REGION,
            "owner_id": ACCOUNT,
            "instance_type": "p5.48xlarge",
            "extend_by_days": 1,
            "extension_lookahead_days": 2,
            "require_approval": True,
            "groups": [{"auto_scaling_group": group} if isinstance(group, str) else group for group in groups],
            "version": 1,
        }
        item = {"kind": "environment", "id": pk, **record, **fields}
        self._dynamodb.put_item(
            TableName=self._table, Item={name: TypeSerializer().serialize(value) for name, value in item.items()}
        )

    def leave(self, pk="team-vision"):
        self._dynamodb.delete_item(TableName=self._table, Key={"kind": {"S": "environment"}, "id": {"S": pk}})

    def record(self, pk="team-vision"):
        key = {"kind": {"S": "environment"}, "id": {"S": pk}}
        item = self._dynamodb.get_item(TableName=self._table, Key=key)["Item"]
        return {name: TypeDeserializer().deserialize(value) for name, value in item.items()}

    def run(self, pk="team-vision", reservation_id="cr-0a1", until=None) -> Execution:
        self._runs += 1
        given = {"environment": pk, "reservation_id": reservation_id, "account": ACCOUNT, "region": REGION}
        if until is not None:
            given["until"] = f"{until:%Y-%m-%dT%H:%M:%SZ}"
        execution = self.world.start("ScaleGroupsWorkflow", given, f"run-{self._runs}")
        self.world.run_until(self.world.now() + timedelta(minutes=2))
        return execution

    def armed(self, group="train"):
        answer = self.scaling.describe_scheduled_actions(AutoScalingGroupName=group)
        return {
            action["ScheduledActionName"]: (action["StartTime"], action.get("MaxSize"))
            for action in answer["ScheduledUpdateGroupActions"]
        }

    def sizes(self, group="train"):
        (found,) = self.scaling.describe_auto_scaling_groups(AutoScalingGroupNames=[group])["AutoScalingGroups"]
        return found["MinSize"], found["MaxSize"], found["DesiredCapacity"]

    def instances(self, group="train"):
        (found,) = self.scaling.describe_auto_scaling_groups(AutoScalingGroupNames=[group])["AutoScalingGroups"]
        return len(found["Instances"])

    def writes(self):
        return [call.operation for call in self.market.calls if call.operation in WRITES]

    def told(self):
        return [event["detail"] for event in self.world.events if event["detail-type"] == "Groups Scaled"]


@pytest.fixture(scope="module")
def sandboxes():
    return Sandboxes()


@pytest.fixture
def story(sandboxes):
    parameters = {"PurchaseMode": "dry-run", "MonthlyLimit": "0", "SenderEmail": "blockkeeper@example.com"}
    with World(NOW, parameters=parameters, schedules=False, sandboxes=sandboxes) as world:
        # Without EC2's events nothing but scheduled actions and this test's own runs moves a group.
        world.market.faults.add(kind="drop_event", times=None)
        yield Story(world)


@pytest.fixture
def live(sandboxes):
    """With the sweep's own schedule and EC2's events: nobody helps. It sweeps seldom, so that boundaries lie between sweeps."""
    parameters = {
        "PurchaseMode": "dry-run",
        "MonthlyLimit": "0",
        "SenderEmail": "blockkeeper@example.com",
        "ScheduleExpression": "rate(1 hour)",
    }
    with World(at(10, 10, day=3), parameters=parameters, sandboxes=sandboxes) as world:
        yield Story(world)


@pytest.fixture
def no_pauses(monkeypatch):
    """boto3's own retries wait in real time; the state machine's wait on the virtual clock."""
    monkeypatch.setattr("botocore.endpoint.time.sleep", lambda _: None)


def problems(execution):
    return [problem for group in execution.output["groups"] for problem in group["problems"]]
