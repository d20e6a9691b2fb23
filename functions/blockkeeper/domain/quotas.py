"""Quotas of concurrent Capacity Blocks: which code a family's has. Source: Amazon EC2 quotas, "Capacity Blocks quotas"."""

from collections.abc import Mapping

# "Concurrent <family> Capacity Blocks per account", in vCPUs; the families that AWS's page has a code for.
QUOTA_CODES: Mapping[str, str] = {
    "p4d": "L-2C8F52B3",
    "p5": "L-DA6814F2",
    "p5e": "L-C45F30BC",
    "p5en": "L-4F9BB70B",
    "trn1": "L-2E30FD7D",
    "trn2": "L-64569A79",
}


def family(instance_type: str) -> str:
    """The family of an instance type: `p5en` of `p5en.48xlarge`."""
    return instance_type.partition(".")[0]


def quota_name(kind: str) -> str:
    """The quota's name in Service Quotas, for a family."""
    return f"Concurrent {kind.capitalize()} Capacity Blocks per account"


def zero_quota(kind: str, region: str) -> str:
    """What a person is told when the quota is 0, with the remedy; a wait does not help against it."""
    return (
        f"the quota {quota_name(kind)} is 0 in {region}, so EC2 shows no offering; ask for more: aws service-quotas "
        f"request-service-quota-increase --region {region} --service-code ec2 --quota-code {QUOTA_CODES[kind]} "
        "--desired-value <vCPUs>"
    )


def maybe_zero_quota(kind: str) -> str:
    """What a person is told when nobody can say whether the quota is 0."""
    return f"or the quota {quota_name(kind)} is 0, which could not be read here: look it up under Service Quotas, Amazon EC2"
