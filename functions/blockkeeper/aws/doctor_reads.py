"""What the doctor reads of AWS, as facts for its checks. A read that fails raises; absence is said only where AWS says it."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import timedelta
from functools import cached_property
from typing import Any

from botocore.exceptions import ClientError

from blockkeeper.aws.clients import client
from blockkeeper.aws.quotas import capacity_block_vcpus
from blockkeeper.domain.doctor_account import Mailbox, Mailing
from blockkeeper.domain.doctor_compute_environments import ComputeEnvironment
from blockkeeper.domain.doctor_groups import GroupSetup, Hook, LaunchTemplate, QueueRule, Subnet
from blockkeeper.domain.doctor_node_groups import NodeGroup

DEFAULT_HEARTBEAT_SECONDS = 3600
TERMINATING = "autoscaling:EC2_INSTANCE_TERMINATING"
TERMINATE_ACTION = "EC2 Instance-terminate Lifecycle Action"
_NO_TEMPLATE = frozenset(
    {
        "InvalidLaunchTemplateId.NotFound",
        "InvalidLaunchTemplateId.NotFoundException",
        "InvalidLaunchTemplateId.VersionNotFound",
        "InvalidLaunchTemplateName.NotFoundException",
    }
)
_NO_IMAGE = frozenset({"InvalidAMIID.NotFound", "InvalidAMIID.Unavailable"})
_NO_QUEUE = frozenset({"AWS.SimpleQueueService.NonExistentQueue", "QueueDoesNotExist"})

Entry = dict[str, Any]


class Place:
    """The groups of one account and Region; what several of them share is read once."""

    def __init__(self, account: str, region: str) -> None:
        self.account, self.region = account, region
        self._subnets: dict[str, Subnet] = {}
        self._platforms: dict[str, str | None] = {}
        self._queues: dict[str, bool] = {}

    def group(self, name: str, node_group: tuple[str, str] | None = None) -> GroupSetup | None:
        """A group with everything that its checks need; None when there is no such group.

        Args:
            node_group: cluster and name of the EKS managed node group that it is beneath.

        Raises:
            ClientError, BotoCoreError: a part of it could not be read.
        """
        answer = self._client("autoscaling").describe_auto_scaling_groups(AutoScalingGroupNames=[name])
        entry = next((each for each in answer["AutoScalingGroups"] if each["AutoScalingGroupName"] == name), None)
        return None if entry is None else self._setup(entry, node_group)

    def node_group(self, cluster: str, name: str) -> NodeGroup | None:
        """An EKS managed node group with the Auto Scaling groups beneath it; None when there is no such node group.

        Raises:
            ClientError, BotoCoreError: a part of it could not be read.
        """
        try:
            entry = self._client("eks").describe_nodegroup(clusterName=cluster, nodegroupName=name)["nodegroup"]
        except ClientError as error:
            if error.response["Error"]["Code"] == "ResourceNotFoundException":
                return None
            raise
        beneath = [each["name"] for each in (entry.get("resources") or {}).get("autoScalingGroups") or []]
        issues = (entry.get("health") or {}).get("issues") or []
        setups = [setup for each in beneath if (setup := self.group(each, (cluster, name))) is not None]
        return NodeGroup(
            cluster=cluster,
            name=name,
            region=self.region,
            capacity_type=entry.get("capacityType"),
            issues=tuple(f"{each.get('code')}: {each.get('message')}" for each in issues),
            beneath=tuple(setups),
        )

    def compute_environment(self, name: str) -> ComputeEnvironment | None:
        """A compute environment of Batch with what it launches by; None when there is no such one.

        Raises:
            ClientError, BotoCoreError: a part of it could not be read.
        """
        answer = self._client("batch").describe_compute_environments(computeEnvironments=[name])
        if not answer["computeEnvironments"]:
            return None
        entry = answer["computeEnvironments"][0]
        resources = entry.get("computeResources") or {}
        keys = {
            "launchTemplateId": "LaunchTemplateId",
            "launchTemplateName": "LaunchTemplateName",
            "version": "Version",
        }
        chosen = {keys[key]: value for key, value in (resources.get("launchTemplate") or {}).items() if key in keys}
        template = self._template(chosen) if chosen else None
        group = template.resource_group if template else None
        setup = GroupSetup(
            name=name,
            region=self.region,
            template=template,
            template_named=_named(chosen) if chosen else None,
            types=tuple(resources.get("instanceTypes") or ()),
            grouped=frozenset(self._grouped(group)) if group else frozenset(),
            subnets=self._subnets_of(",".join(resources.get("subnets") or ())),
            compute_environment=True,
        )
        return ComputeEnvironment(
            kind=(str(entry.get("type")), str(resources.get("type"))),
            status=str(entry.get("status")),
            reason=str(entry.get("statusReason")),
            enabled=entry.get("state") == "ENABLED",
            setup=setup,
        )

    def _setup(self, entry: Entry, node_group: tuple[str, str] | None) -> GroupSetup:
        name = entry["AutoScalingGroupName"]
        policy = entry.get("MixedInstancesPolicy") or {}
        chosen = (policy.get("LaunchTemplate") or {}).get("LaunchTemplateSpecification") or entry.get("LaunchTemplate")
        overrides = (policy.get("LaunchTemplate") or {}).get("Overrides") or []
        target = (entry.get("CapacityReservationSpecification") or {}).get("CapacityReservationTarget") or {}
        arns = tuple(target.get("CapacityReservationResourceGroupArns") or ())
        template = self._template(chosen) if chosen else None
        targeted = arns or ((template.resource_group,) if template and template.resource_group else ())
        hooks = self._client("autoscaling").describe_lifecycle_hooks(AutoScalingGroupName=name)["LifecycleHooks"]
        tags = {tag["Key"]: bool(tag.get("PropagateAtLaunch")) for tag in entry.get("Tags") or []}
        setup = GroupSetup(
            name=name,
            region=self.region,
            minimum=entry["MinSize"],
            maximum=entry["MaxSize"],
            desired=entry["DesiredCapacity"],
            template=template,
            template_named=None if chosen is None else _named(chosen),
            launch_configuration=entry.get("LaunchConfigurationName"),
            mixed=bool(policy),
            segments=tuple(_segments(policy)),
            types=tuple(each["InstanceType"] for each in overrides if each.get("InstanceType")),
            reservation_ids=tuple(target.get("CapacityReservationIds") or ()),
            resource_groups=arns,
            grouped=frozenset(each for arn in targeted for each in self._grouped(arn)),
            subnets=self._subnets_of(entry.get("VPCZoneIdentifier") or ""),
            zones=tuple(entry.get("AvailabilityZones") or ()),
            hooks=tuple(_hook(each) for each in hooks if each.get("LifecycleTransition") == TERMINATING),
            protected=bool(entry.get("NewInstancesProtectedFromScaleIn"))
            or any(each.get("ProtectedFromScaleIn") for each in entry.get("Instances") or []),
            suspended=frozenset(each["ProcessName"] for each in entry.get("SuspendedProcesses") or []),
            warm_pool="WarmPoolConfiguration" in entry,
            tags=tags,
            node_group=node_group,
        )
        # Asked for Kubernetes nodes only: who drains other instances is not for us to say.
        return replace(setup, handler_rules=self._rules_for(name)) if setup.kubernetes else setup

    def _template(self, chosen: Entry) -> LaunchTemplate | None:
        which = {key: chosen[key] for key in ("LaunchTemplateId", "LaunchTemplateName") if chosen.get(key)}
        if "LaunchTemplateId" in which:
            which.pop("LaunchTemplateName", None)
        version = chosen.get("Version") or "$Default"
        try:
            answer = self._client("ec2").describe_launch_template_versions(**which, Versions=[version])
        except ClientError as error:
            if error.response["Error"]["Code"] in _NO_TEMPLATE:
                return None
            raise
        if not answer["LaunchTemplateVersions"]:
            return None
        found = answer["LaunchTemplateVersions"][0]
        content = found["LaunchTemplateData"]
        target = (content.get("CapacityReservationSpecification") or {}).get("CapacityReservationTarget") or {}
        image = content.get("ImageId")
        return LaunchTemplate(
            template_id=found["LaunchTemplateId"],
            version=version,
            instance_type=content.get("InstanceType"),
            market_type=(content.get("InstanceMarketOptions") or {}).get("MarketType"),
            reservation_id=target.get("CapacityReservationId"),
            resource_group=target.get("CapacityReservationResourceGroupArn"),
            image_id=image,
            image_platform=self._platform(image) if image else None,
        )

    def _platform(self, image: str) -> str | None:
        """Platform of an AMI; None when it is named by a parameter (`resolve:ssm:...`), or EC2 shows no such AMI."""
        if not image.startswith("ami-"):
            return None
        if image not in self._platforms:
            try:
                images = self._client("ec2").describe_images(ImageIds=[image])["Images"]
            except ClientError as error:
                if error.response["Error"]["Code"] not in _NO_IMAGE:
                    raise
                images = []
            self._platforms[image] = images[0].get("PlatformDetails") if images else None
        return self._platforms[image]

    def _subnets_of(self, identifiers: str) -> tuple[Subnet, ...]:
        wanted = [each.strip() for each in identifiers.split(",") if each.strip()]
        if new := [each for each in wanted if each not in self._subnets]:
            for each in self._client("ec2").describe_subnets(SubnetIds=new)["Subnets"]:
                subnet = Subnet(each["SubnetId"], each["AvailabilityZone"], each["AvailabilityZoneId"])
                self._subnets[subnet.subnet_id] = subnet
        return tuple(self._subnets[each] for each in wanted if each in self._subnets)

    def _grouped(self, arn: str) -> Iterable[str]:
        pages = self._client("resource-groups").get_paginator("list_group_resources").paginate(Group=arn)
        for page in pages:
            for each in page.get("Resources") or []:
                yield each["Identifier"]["ResourceArn"].rpartition("/")[2]

    @cached_property
    def _rules(self) -> list[tuple[str, Entry, list[str]]]:
        """Enabled rules on Auto Scaling's terminate actions: name, pattern, ARNs of the queues that they go to."""
        found = []
        for page in self._client("events").get_paginator("list_rules").paginate():
            for rule in page["Rules"]:
                pattern = _pattern(rule.get("EventPattern"))
                enabled = str(rule.get("State", "")).startswith("ENABLED")
                lets_through = _may_name(pattern, "source", "aws.autoscaling") and _may_name(
                    pattern, "detail-type", TERMINATE_ACTION
                )
                if enabled and lets_through:
                    targets = self._client("events").list_targets_by_rule(Rule=rule["Name"])["Targets"]
                    queues = [each["Arn"] for each in targets if ":sqs:" in each["Arn"]]
                    found.append((rule["Name"], pattern, queues))
        return found

    def _rules_for(self, group: str) -> tuple[QueueRule, ...]:
        return tuple(
            QueueRule(name, queue.rpartition(":")[2], self._queue_exists(queue))
            for name, pattern, queues in self._rules
            for queue in queues
            if _may_name(pattern.get("detail") or {}, "AutoScalingGroupName", group)
        )

    def _queue_exists(self, arn: str) -> bool | None:
        """Whether the queue is there; None for one of another account or Region, which is not ours to look at."""
        *_, region, account, name = arn.split(":")
        if (region, account) != (self.region, self.account):
            return None
        if arn not in self._queues:
            try:
                self._client("sqs").get_queue_url(QueueName=name)
            except ClientError as error:
                if error.response["Error"]["Code"] not in _NO_QUEUE:
                    raise
                self._queues[arn] = False
            else:
                self._queues[arn] = True
        return self._queues[arn]

    def vcpus(self, instance_type: str) -> int:
        """Number of vCPUs of an instance type (DescribeInstanceTypes, DefaultVCpus)."""
        answer = self._client("ec2").describe_instance_types(InstanceTypes=[instance_type])
        return int(answer["InstanceTypes"][0]["VCpuInfo"]["DefaultVCpus"])

    def quota(self, family: str) -> float | None:
        """The account's quota of concurrent Capacity Blocks of a family, in vCPUs; None for a family without a code."""
        return capacity_block_vcpus(family, self.region, self.account)

    def _client(self, service: str) -> Any:
        return client(service, self.region, self.account)


def read_mailing(sender: str, recipients: Iterable[str]) -> Mailing:
    """What SES says of the account, the sender, and each recipient.

    Raises:
        ClientError, BotoCoreError: SES could not be read.
    """
    ses = client("sesv2")
    account = ses.get_account()
    production = bool(account.get("ProductionAccessEnabled"))
    # Whoever is known verified needs no second look: many approvers share a domain.
    known: dict[str, bool] = {}
    mailboxes = {
        address: Mailbox(None if production else _verified(ses, address, known), _suppressed(ses, address))
        for address in sorted(set(recipients))
    }
    return Mailing(
        sender=sender,
        sender_verified=bool(sender) and _verified(ses, sender, known),
        sending=account.get("SendingEnabled") is not False and account.get("EnforcementStatus") != "SHUTDOWN",
        production=production,
        mailboxes=mailboxes,
    )


def purchase_decision(account: str, role_arn: str, action: str, reservation_arn: str) -> tuple[str, bool]:
    """IAM's word on whether a role may order, and the organization's (SimulatePrincipalPolicy); nothing is ordered."""
    try:
        answer = client("iam", None, account).simulate_principal_policy(
            PolicySourceArn=role_arn, ActionNames=[action], ResourceArns=[reservation_arn]
        )
    except ClientError as error:
        if error.response["Error"]["Code"] == "NoSuchEntity":
            return "there is no such role", True
        raise
    result = answer["EvaluationResults"][0]
    organization = (result.get("OrganizationsDecisionDetail") or {}).get("AllowedByOrganizations")
    return result["EvalDecision"], organization is not False


def assume(account: str) -> None:
    """Act in another account once (STS GetCallerIdentity, which needs no permission).

    Raises:
        ClientError: its role cannot be assumed.
    """
    client("sts", None, account).get_caller_identity()


def _verified(ses: Any, address: str, known: dict[str, bool]) -> bool:
    """Whether an address, its domain or a parent domain is an identity that may send."""
    domain = address.rpartition("@")[2]
    parents = [domain.split(".", i)[-1] for i in range(domain.count("."))]
    for identity in [address, *parents]:
        if identity not in known:
            try:
                answer = ses.get_email_identity(EmailIdentity=identity)
                known[identity] = answer.get("VerifiedForSendingStatus") is True
            except ClientError as error:
                if error.response["Error"]["Code"] != "NotFoundException":
                    raise
                known[identity] = False
        if known[identity]:
            return True
    return False


def _suppressed(ses: Any, address: str) -> str | None:
    try:
        answer = ses.get_suppressed_destination(EmailAddress=address)
    except ClientError as error:
        if error.response["Error"]["Code"] == "NotFoundException":
            return None
        raise
    return str(answer["SuppressedDestination"]["Reason"])


def _named(chosen: Mapping[str, Any]) -> str:
    which = chosen.get("LaunchTemplateId") or chosen.get("LaunchTemplateName")
    return f"{which} version {chosen.get('Version') or '$Default'}"


def _segments(policy: Mapping[str, Any]) -> Iterable[str]:
    for segment in (policy.get("InstancesDistribution") or {}).get("DistributionSegments") or []:
        yield from segment.get("TargetCapacityTypes") or []


def _hook(entry: Mapping[str, Any]) -> Hook:
    seconds = entry.get("HeartbeatTimeout") or DEFAULT_HEARTBEAT_SECONDS
    return Hook(entry["LifecycleHookName"], timedelta(seconds=seconds), entry.get("NotificationTargetARN"))


def _pattern(text: str | None) -> Entry:
    pattern = json.loads(text) if text else None
    # A rule without a pattern is a schedule: it lets no event through.
    return pattern if isinstance(pattern, dict) else {"source": []}


def _may_name(pattern: Mapping[str, Any], key: str, value: str) -> bool:
    """Whether a pattern may let an event through whose `key` is `value`; operators other than `prefix` get the benefit of doubt."""
    wanted = pattern.get(key)
    if wanted is None:
        return True
    return any(
        each == value or (isinstance(each, dict) and ("prefix" not in each or value.startswith(str(each["prefix"]))))
        for each in wanted
    )
