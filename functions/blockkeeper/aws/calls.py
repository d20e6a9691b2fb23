"""Every AWS call that the product makes, so that a boto3 which does not know one is found before the call is needed (case B40).

A functional test holds this list against the calls that the functions really make.
"""

from collections.abc import Mapping

import boto3

CALLS: Mapping[str, frozenset[str]] = {
    "autoscaling": frozenset(
        {
            "BatchDeleteScheduledAction",
            "BatchPutScheduledUpdateGroupAction",
            "CreateOrUpdateTags",
            "DeleteLifecycleHook",
            "DeleteTags",
            "DescribeAutoScalingGroups",
            "DescribeLifecycleHooks",
            "DescribeScalingActivities",
            "DescribeScheduledActions",
            "PutLifecycleHook",
            "UpdateAutoScalingGroup",
        }
    ),
    "batch": frozenset({"DescribeComputeEnvironments", "UpdateComputeEnvironment"}),
    "dynamodb": frozenset({"DeleteItem", "GetItem", "PutItem", "Query", "TransactWriteItems", "UpdateItem"}),
    "ec2": frozenset(
        {
            "CreateLaunchTemplateVersion",
            "DescribeCapacityBlockExtensionHistory",
            "DescribeCapacityBlockExtensionOfferings",
            "DescribeCapacityBlockOfferings",
            "DescribeCapacityReservations",
            "DescribeImages",
            "DescribeInstanceTypes",
            "DescribeLaunchTemplateVersions",
            "DescribeSubnets",
            "PurchaseCapacityBlock",
            "PurchaseCapacityBlockExtension",
        }
    ),
    "eks": frozenset({"DescribeNodegroup", "UpdateNodegroupConfig"}),
    "events": frozenset({"ListRules", "ListTargetsByRule", "PutEvents"}),
    "iam": frozenset({"SimulatePrincipalPolicy"}),
    "resource-groups": frozenset({"ListGroupResources"}),
    "secretsmanager": frozenset({"GetSecretValue"}),
    "service-quotas": frozenset({"GetAWSDefaultServiceQuota", "GetServiceQuota"}),
    "sesv2": frozenset({"GetAccount", "GetEmailIdentity", "GetSuppressedDestination", "SendEmail"}),
    "sns": frozenset({"Publish"}),
    "sqs": frozenset({"GetQueueUrl"}),
    "ssm": frozenset({"GetParameter"}),
    "stepfunctions": frozenset({"SendTaskSuccess"}),
    "sts": frozenset({"AssumeRole", "GetCallerIdentity"}),
}


def unknown_calls() -> list[str]:
    """Calls that boto3 here does not know, such as `ec2:PurchaseCapacityBlockExtension`; its models are read, nothing is called."""
    loader = boto3._get_default_session()._session.get_component("data_loader")  # noqa: SLF001 - clients would load far more
    known = {}
    for service in CALLS:
        available = service in loader.list_available_services("service-2")
        known[service] = set(loader.load_service_model(service, "service-2")["operations"]) if available else set()
    return [f"{service}:{call}" for service, calls in CALLS.items() for call in sorted(calls - known[service])]
