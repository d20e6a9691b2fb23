from typing import Any

import pytest

SUBNETS = [
    {"subnet_id": "subnet-a", "vpc_id": "vpc-1", "region": "us-east-1", "availability_zone": "us-east-1a"},
    {
        "subnet_id": "subnet-b",
        "vpc_id": "vpc-1",
        "region": "us-east-1",
        "availability_zone": "us-east-1b",
        "tags": {"tier": "private"},
    },
]
NEW = {"reservation_id": "cr-0b2", "availability_zone": "us-east-1b", "start": "2026-05-01T00:00:00Z"}
TO_NEW = {"CapacityReservationSpecification": {"CapacityReservationTarget": {"CapacityReservationId": "cr-0b2"}}}


def launched_into(ec2: Any) -> list[str]:
    answer = ec2.describe_instances(Filters=[{"Name": "instance-state-name", "Values": ["running"]}])
    return [each["CapacityReservationId"] for r in answer["Reservations"] for each in r["Instances"]]


@pytest.fixture
def group(load: Any, scaling: Any) -> dict[str, Any]:
    load({}, NEW, groups=({"subnets": ["subnet-a"]},), subnets=SUBNETS)
    (found,) = scaling.describe_auto_scaling_groups()["AutoScalingGroups"]
    return dict(found)


def test_a_group_launches_into_the_block_of_its_template(ec2: Any, scaling: Any, group: dict[str, Any]) -> None:
    assert group["LaunchTemplate"]["Version"] == "1"
    assert group["VPCZoneIdentifier"] == "subnet-a"
    assert "CapacityReservationSpecification" not in group
    scaling.set_desired_capacity(AutoScalingGroupName="train", DesiredCapacity=2)
    assert launched_into(ec2) == ["cr-0a1", "cr-0a1"]


def test_a_new_version_inherits_and_points_elsewhere(ec2: Any, scaling: Any, group: dict[str, Any]) -> None:
    template = group["LaunchTemplate"]["LaunchTemplateId"]
    made = [
        ec2.create_launch_template_version(
            LaunchTemplateId=template, SourceVersion="1", LaunchTemplateData=TO_NEW, ClientToken="once"
        )["LaunchTemplateVersion"]
        for _ in range(2)
    ]
    assert [each["VersionNumber"] for each in made] == [2, 2], "a client token makes one version"
    assert made[0]["LaunchTemplateData"]["InstanceMarketOptions"] == {"MarketType": "capacity-block"}
    update = scaling.update_auto_scaling_group
    update(AutoScalingGroupName="train", LaunchTemplate={"LaunchTemplateId": template, "Version": "2"})
    scaling.set_desired_capacity(AutoScalingGroupName="train", DesiredCapacity=1)
    assert launched_into(ec2) == [], "its subnet is in another zone than the block"
    update(AutoScalingGroupName="train", VPCZoneIdentifier="subnet-b")
    assert launched_into(ec2) == ["cr-0b2"]
    (version,) = ec2.describe_launch_template_versions(LaunchTemplateId=template, Versions=["$Latest"])[
        "LaunchTemplateVersions"
    ]
    assert (version["VersionNumber"], version["DefaultVersion"]) == (2, False)


@pytest.mark.usefixtures("group")
def test_subnets_by_filter(ec2: Any, refused: Any) -> None:
    found = ec2.describe_subnets(Filters=[{"Name": "availability-zone", "Values": ["us-east-1b"]}])["Subnets"]
    assert [(each["SubnetId"], each["VpcId"]) for each in found] == [("subnet-b", "vpc-1")]
    assert refused(ec2.describe_subnets, SubnetIds=["subnet-z"]) == "InvalidSubnetID.NotFound"


def test_refusals(ec2: Any, group: dict[str, Any], refused: Any) -> None:
    template = group["LaunchTemplate"]["LaunchTemplateId"]
    call = ec2.create_launch_template_version
    given = {"LaunchTemplateData": TO_NEW}
    assert refused(call, LaunchTemplateId="lt-0", **given) == "InvalidLaunchTemplateId.NotFound"
    wrong = {"LaunchTemplateId": template, "SourceVersion": "7"}
    assert refused(call, **wrong, **given) == "InvalidLaunchTemplateId.VersionNotFound"
    assert refused(call, LaunchTemplateId=template, DryRun=True, **given) == "DryRunOperation"
    assert refused(ec2.create_launch_template, LaunchTemplateName="train", **given) == (
        "InvalidLaunchTemplateName.AlreadyExistsException"
    )
    assert [each["LaunchTemplateName"] for each in ec2.describe_launch_templates()["LaunchTemplates"]] == ["train"]
