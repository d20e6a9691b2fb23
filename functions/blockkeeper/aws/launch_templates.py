"""What a group launches: its launch template's version and its subnets, in one account and Region.

Each write may be repeated: a version is made under a client token of its own, and an update says what stands afterwards.
"""

from collections.abc import Iterable
from typing import Any

from botocore.exceptions import ClientError

from blockkeeper.aws.clients import client

Entry = dict[str, Any]

NO_TEMPLATE = frozenset({"InvalidLaunchTemplateId.NotFound", "InvalidLaunchTemplateId.VersionNotFound"})


class LaunchTemplates:
    """Reads and writes; each raises ClientError."""

    def __init__(self, region: str, account: str) -> None:
        self._ec2 = client("ec2", region, account)
        self._scaling = client("autoscaling", region, account)

    def group(self, name: str) -> Entry | None:
        """A group's entry of DescribeAutoScalingGroups; None when there is none."""
        found = self._scaling.describe_auto_scaling_groups(AutoScalingGroupNames=[name])["AutoScalingGroups"]
        return found[0] if found else None

    def data(self, template_id: str, version: str) -> Entry | None:
        """LaunchTemplateData of one version (DescribeLaunchTemplateVersions); None when there is no such version."""
        try:
            answer = self._ec2.describe_launch_template_versions(LaunchTemplateId=template_id, Versions=[version])
        except ClientError as error:
            if error.response["Error"]["Code"] in NO_TEMPLATE:
                return None
            raise
        versions = answer["LaunchTemplateVersions"]
        return versions[0]["LaunchTemplateData"] if versions else None

    def subnets(self, ids: Iterable[str]) -> list[Entry]:
        """Subnets by id, those that exist (DescribeSubnets)."""
        wanted = sorted(set(ids))
        if not wanted:
            return []
        return self._describe_subnets([{"Name": "subnet-id", "Values": wanted}])

    def subnets_in(self, vpc_ids: Iterable[str], zone: str) -> list[Entry]:
        """Subnets of VPCs in one zone (DescribeSubnets)."""
        where = [
            {"Name": "vpc-id", "Values": sorted(set(vpc_ids))},
            {"Name": "availability-zone", "Values": [zone]},
        ]
        return self._describe_subnets(where)

    def _describe_subnets(self, filters: list[Entry]) -> list[Entry]:
        pages = self._ec2.get_paginator("describe_subnets").paginate(Filters=filters)
        return [subnet for page in pages for subnet in page["Subnets"]]

    def new_version(self, template_id: str, source: str, change: Entry, why: str, token: str) -> str:
        """Make a version that differs from `source` in `change`, once for a token, and answer its number."""
        answer = self._ec2.create_launch_template_version(
            LaunchTemplateId=template_id,
            SourceVersion=source,
            VersionDescription=why,
            LaunchTemplateData=change,
            ClientToken=token,
        )
        return str(answer["LaunchTemplateVersion"]["VersionNumber"])

    def use(self, group: str, template_id: str, version: str, subnets: list[str]) -> None:
        """Let a group launch that version into those subnets, none: the present ones, from now on (UpdateAutoScalingGroup)."""
        template = {"LaunchTemplateId": template_id, "Version": version}
        where = {"VPCZoneIdentifier": ",".join(subnets)} if subnets else {}
        self._scaling.update_auto_scaling_group(AutoScalingGroupName=group, LaunchTemplate=template, **where)
