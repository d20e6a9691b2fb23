"""What an example's pages and records promise is what its template makes."""

import json
import re
from datetime import timedelta
from pathlib import Path

import pytest
import yaml

from blockkeeper.domain.durations import LEGAL_DAYS
from blockkeeper.schema_check import schema_problems
from local.engine.template import _Loader

EXAMPLES = sorted(path.parent for path in (Path(__file__).parents[3] / "examples").glob("*/template.yaml"))


@pytest.fixture(params=EXAMPLES, ids=lambda folder: folder.name)
def folder(request):
    return request.param


@pytest.fixture
def template(folder):
    return yaml.load((folder / "template.yaml").read_text("utf-8"), _Loader)  # noqa: S506 - a SafeLoader


def properties(template, logical_id):
    return template["Resources"][logical_id]["Properties"]


def test_there_are_examples():
    assert [folder.name for folder in EXAMPLES] == ["auto-scaling-group", "eks-self-managed"]


def test_the_record_is_accepted_and_names_the_group_that_the_page_deploys(folder):
    record = json.loads((folder / "environment.json").read_text("utf-8"))
    assert schema_problems("environment", record) == []
    assert record["extend_by_days"] in LEGAL_DAYS
    (stack,) = set(re.findall(r"--stack-name ([\w-]+)", page(folder)))
    assert [group["auto_scaling_group"] for group in record["groups"]] == [stack]


def test_the_page_names_every_parameter(folder, template):
    table = [line for line in page(folder).splitlines() if line.startswith("| `")]
    named = {name for line in table for name in re.findall(r"`(\w+)`", line.split("|")[1])}
    assert named == set(template["Parameters"])
    (given,) = re.findall(r"--parameter-overrides(.+?)```", page(folder), re.DOTALL)
    required = {name for name, parameter in template["Parameters"].items() if "Default" not in parameter}
    assert required <= set(re.findall(r"(\w+)=", given)) <= set(template["Parameters"])


def test_it_launches_into_the_block_alone_and_stands_at_zero(template):
    data = properties(template, "LaunchTemplate")["LaunchTemplateData"]
    assert data["InstanceMarketOptions"] == {"MarketType": "capacity-block"}
    target = data["CapacityReservationSpecification"]["CapacityReservationTarget"]
    assert target == {"CapacityReservationId": {"Ref": "ReservationId"}}
    group = properties(template, "Group")
    assert [group[size] for size in ("MinSize", "MaxSize", "DesiredCapacity")] == ["0", "0", "0"]
    assert group["VPCZoneIdentifier"] == [{"Ref": "SubnetId"}], "the zone of the block, and no other"
    assert group["LaunchTemplate"]["Version"] == {"Fn::GetAtt": "LaunchTemplate.LatestVersionNumber"}


def test_the_page_computes_the_scale_in_from_the_hook(folder, template):
    """T is 11:30, so EC2 terminates from 11:00 on; before that the hook, Auto Scaling's two minutes, and five in reserve."""
    hook = timedelta(seconds=template["Parameters"]["DrainSeconds"]["Default"])
    assert properties(template, "DrainHook")["HeartbeatTimeout"] == {"Ref": "DrainSeconds"}
    assert properties(template, "DrainHook")["LifecycleTransition"] == "autoscaling:EC2_INSTANCE_TERMINATING"
    scale_in = timedelta(hours=11) - hook - timedelta(minutes=2) - timedelta(minutes=5)
    assert f"at {str(scale_in)[:-3]} (0 / 0 / 0)" in page(folder)


def test_node_termination_handler_hears_of_the_scale_in_and_may_end_it():
    folder = next(folder for folder in EXAMPLES if folder.name == "eks-self-managed")
    template = yaml.load((folder / "template.yaml").read_text("utf-8"), _Loader)  # noqa: S506 - a SafeLoader
    tags = {str(tag["Key"]): tag for tag in properties(template, "Group")["Tags"]}
    assert tags["aws-node-termination-handler/managed"]["PropagateAtLaunch"] is True
    assert tags["{'Fn::Sub': 'kubernetes.io/cluster/${ClusterName}'}"]["Value"] == "owned"
    pattern = properties(template, "ScaleInRule")["EventPattern"]
    assert pattern["source"] == ["aws.autoscaling"]
    assert pattern["detail-type"] == ["EC2 Instance-terminate Lifecycle Action"]
    statements = properties(template, "HandlerRole")["Policies"][0]["PolicyDocument"]["Statement"]
    allowed = {action for each in statements for action in [each["Action"]] if isinstance(action, str)}
    allowed |= {action for each in statements if isinstance(each["Action"], list) for action in each["Action"]}
    assert allowed == {
        "autoscaling:CompleteLifecycleAction",
        "autoscaling:DescribeAutoScalingInstances",
        "autoscaling:DescribeTags",
        "ec2:DescribeInstances",
        "sqs:DeleteMessage",
        "sqs:ReceiveMessage",
    }, "what its guide asks for, and no more"


def page(folder):
    return (folder / "README.md").read_text("utf-8")
