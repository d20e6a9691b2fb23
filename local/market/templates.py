"""Launch templates with their versions, and the subnets that groups launch into: what points a group at a block.

Sources: EC2 API Reference, CreateLaunchTemplateVersion and DescribeLaunchTemplateVersions; EC2 Auto Scaling User Guide, "Use
Capacity Blocks": a template names the market type `capacity-block` and one reservation.
"""

import hashlib
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from local.market.blocks import tag_list, zone_id
from local.market.caller import Caller
from local.market.errors import MarketError, dry_run, invalid_parameter
from local.market.listing import ec2_page, matching

if TYPE_CHECKING:
    from local.market.market import Market


@dataclass
class Template:
    """A launch template; `versions` are its launch data in order, so that version 1 is the first."""

    template_id: str
    name: str
    account: str
    region: str
    created: datetime
    versions: list[dict[str, Any]]
    descriptions: dict[int, str] = field(default_factory=dict)
    default: int = 1
    tokens: dict[str, int] = field(default_factory=dict)
    """Version that each ClientToken made."""

    def number(self, version: str) -> int:
        """The number of a version that a caller names.

        Raises:
            MarketError: there is no such version.
        """
        number = {"$Latest": len(self.versions), "$Default": self.default}.get(version)
        if number is None:
            number = int(version) if version.isdecimal() else 0
        if not 1 <= number <= len(self.versions):
            raise MarketError(
                "InvalidLaunchTemplateId.VersionNotFound",
                f"Could not find the specified version {version} for the launch template with ID {self.template_id}.",
            )
        return number

    def data(self, version: str) -> dict[str, Any]:
        return self.versions[self.number(version) - 1]


@dataclass(frozen=True)
class Subnet:
    """A subnet in one zone."""

    subnet_id: str
    vpc_id: str
    account: str
    region: str
    availability_zone: str
    tags: dict[str, str]


class Templates:
    """All launch templates and subnets."""

    def __init__(self, market: "Market") -> None:
        self._market = market
        self._templates: list[Template] = []
        self.subnets: list[Subnet] = []

    def operations(self) -> dict[str, Any]:
        return {
            "CreateLaunchTemplate": self._create,
            "CreateLaunchTemplateVersion": self._create_version,
            "DescribeLaunchTemplates": self._describe,
            "DescribeLaunchTemplateVersions": self._describe_versions,
            "DescribeSubnets": self._describe_subnets,
        }

    def add(self, template: Template) -> None:
        self._templates.append(template)

    def named(self, wanted: dict[str, Any], caller: Caller) -> Template | None:
        """The template that `LaunchTemplateId` or `LaunchTemplateName` names; None when there is none."""
        by_id, by_name = wanted.get("LaunchTemplateId"), wanted.get("LaunchTemplateName")
        for each in self._of(caller):
            if each.template_id == by_id or (by_id is None and each.name == by_name):
                return each
        return None

    def target(self, specification: dict[str, Any] | None, caller: Caller) -> str | None:
        """The reservation that a group's launch template, in the version that it names, launches into."""
        template = self.named(specification or {}, caller)
        if template is None or specification is None:
            return None
        wanted = template.data(specification.get("Version", "$Default")).get("CapacityReservationSpecification", {})
        target: str | None = wanted.get("CapacityReservationTarget", {}).get("CapacityReservationId")
        return target

    def zones(self, vpc_zone_identifier: str) -> list[str]:
        """The zones of a group's subnets; subnets that only the server around the market knows are left out."""
        wanted = [each.strip() for each in vpc_zone_identifier.split(",")]
        return sorted({each.availability_zone for each in self.subnets if each.subnet_id in wanted})

    def _of(self, caller: Caller) -> list[Template]:
        return [each for each in self._templates if (each.account, each.region) == caller]

    def _find(self, params: dict[str, Any], caller: Caller) -> Template:
        found = self.named(params, caller)
        if found is None:
            named = params.get("LaunchTemplateId") or params.get("LaunchTemplateName")
            code = "InvalidLaunchTemplateId.NotFound" if params.get("LaunchTemplateId") else None
            raise MarketError(
                code or "InvalidLaunchTemplateName.NotFoundException", f"The launch template {named} does not exist."
            )
        return found

    # -- calls

    def _create(self, params: dict[str, Any], caller: Caller) -> dict[str, Any]:
        name = params["LaunchTemplateName"]
        if self.named({"LaunchTemplateName": name}, caller) is not None:
            raise MarketError("InvalidLaunchTemplateName.AlreadyExistsException", f"Launch template {name} exists.")
        if params.get("DryRun"):
            raise dry_run()
        data = params["LaunchTemplateData"]
        template = Template(self._market.identifier("lt"), name, *caller, self._market.now, [data])
        self.add(template)
        return {"LaunchTemplate": _as_template(template)}

    def _create_version(self, params: dict[str, Any], caller: Caller) -> dict[str, Any]:
        template = self._find(params, caller)
        source = template.data(params["SourceVersion"]) if params.get("SourceVersion") else {}
        if params.get("DryRun"):
            raise dry_run()
        token = params.get("ClientToken")
        number = template.tokens.get(token) if token else None
        if number is None:
            template.versions.append({**source, **params["LaunchTemplateData"]})
            number = len(template.versions)
            template.descriptions[number] = params.get("VersionDescription", "")
            if token:
                template.tokens[token] = number
        return {"LaunchTemplateVersion": _as_version(template, number)}

    def _describe(self, params: dict[str, Any], caller: Caller) -> dict[str, Any]:
        ids, names = params.get("LaunchTemplateIds"), params.get("LaunchTemplateNames")
        wanted = [{"LaunchTemplateId": each} for each in ids or ()]
        wanted += [{"LaunchTemplateName": each} for each in names or ()]
        templates = [self._find(each, caller) for each in wanted] if wanted else self._of(caller)
        page, token = ec2_page(templates, params)
        answer: dict[str, Any] = {"LaunchTemplates": [_as_template(each) for each in page]}
        return answer if token is None else {**answer, "NextToken": token}

    def _describe_versions(self, params: dict[str, Any], caller: Caller) -> dict[str, Any]:
        if not (params.get("LaunchTemplateId") or params.get("LaunchTemplateName") or params.get("Versions")):
            raise invalid_parameter("Specify a launch template, or the versions $Latest or $Default.")
        named = params.get("LaunchTemplateId") or params.get("LaunchTemplateName")
        templates = [self._find(params, caller)] if named else self._of(caller)
        shown = [
            _as_version(template, number)
            for template in templates
            for number in (
                [template.number(each) for each in params["Versions"]]
                if params.get("Versions")
                else range(len(template.versions), 0, -1)
            )
        ]
        page, token = ec2_page(shown, params)
        answer: dict[str, Any] = {"LaunchTemplateVersions": page}
        return answer if token is None else {**answer, "NextToken": token}

    def _describe_subnets(self, params: dict[str, Any], caller: Caller) -> dict[str, Any]:
        mine = [each for each in self.subnets if (each.account, each.region) == caller]
        wanted = params.get("SubnetIds") or []
        for each in wanted:
            if each not in {subnet.subnet_id for subnet in mine}:
                raise MarketError("InvalidSubnetID.NotFound", f"The subnet ID '{each}' does not exist")
        found = [each for each in mine if not wanted or each.subnet_id in wanted]
        page, token = ec2_page(matching(found, params.get("Filters"), _SUBNET_FILTERS), params)
        answer: dict[str, Any] = {"Subnets": [_as_subnet(each) for each in page]}
        return answer if token is None else {**answer, "NextToken": token}


def capacity_block_data(instance_type: str, reservation_id: str | None) -> dict[str, Any]:
    """Launch data of a group that lives on a block, or of one that launches On-Demand."""
    data: dict[str, Any] = {"ImageId": "ami-0123456789abcdef0", "InstanceType": instance_type}
    if reservation_id is not None:
        data["InstanceMarketOptions"] = {"MarketType": "capacity-block"}
        target = {"CapacityReservationId": reservation_id}
        data["CapacityReservationSpecification"] = {"CapacityReservationTarget": target}
    return data


def template_id(name: str) -> str:
    """An id for a template of this name, the same each time."""
    return "lt-" + hashlib.sha256(name.encode()).hexdigest()[:17]


def _as_template(template: Template) -> dict[str, Any]:
    return {
        "LaunchTemplateId": template.template_id,
        "LaunchTemplateName": template.name,
        "CreateTime": template.created,
        "CreatedBy": f"arn:aws:iam::{template.account}:root",
        "DefaultVersionNumber": template.default,
        "LatestVersionNumber": len(template.versions),
        "Tags": [],
    }


def _as_version(template: Template, number: int) -> dict[str, Any]:
    return {
        "LaunchTemplateId": template.template_id,
        "LaunchTemplateName": template.name,
        "VersionNumber": number,
        "VersionDescription": template.descriptions.get(number, ""),
        "CreateTime": template.created,
        "CreatedBy": f"arn:aws:iam::{template.account}:root",
        "DefaultVersion": number == template.default,
        "LaunchTemplateData": template.versions[number - 1],
    }


def _as_subnet(subnet: Subnet) -> dict[str, Any]:
    return {
        "SubnetId": subnet.subnet_id,
        "VpcId": subnet.vpc_id,
        "OwnerId": subnet.account,
        "AvailabilityZone": subnet.availability_zone,
        "AvailabilityZoneId": zone_id(subnet.availability_zone, subnet.region),
        "CidrBlock": "10.0.0.0/20",
        "AvailableIpAddressCount": 4091,
        "State": "available",
        "DefaultForAz": False,
        "MapPublicIpOnLaunch": False,
        "Tags": tag_list(subnet.tags),
    }


_SUBNET_FILTERS: dict[str, Any] = {
    "availability-zone": lambda s: s.availability_zone,
    "subnet-id": lambda s: s.subnet_id,
    "vpc-id": lambda s: s.vpc_id,
    "state": lambda _: "available",
    "tag-key": lambda s: list(s.tags),
    "tag:": lambda s: list(s.tags.items()),
}
