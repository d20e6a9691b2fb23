"""Service Quotas: how many vCPUs of Capacity Blocks of a family an account may have at once."""

from botocore.exceptions import ClientError

from blockkeeper.aws.clients import client
from blockkeeper.domain.quotas import QUOTA_CODES


def capacity_block_vcpus(kind: str, region: str, account: str) -> float | None:
    """The account's quota for a family such as `p5`; None for a family whose quota has no code that AWS's page names.

    Raises:
        ClientError, BotoCoreError: Service Quotas could not be read.
    """
    code = QUOTA_CODES.get(kind)
    if code is None:
        return None
    quotas = client("service-quotas", region, account)
    try:
        answer = quotas.get_service_quota(ServiceCode="ec2", QuotaCode=code)
    except ClientError as error:
        if error.response["Error"]["Code"] != "NoSuchResourceException":
            raise
        # An account whose quota was never changed may have no value of its own.
        answer = quotas.get_aws_default_service_quota(ServiceCode="ec2", QuotaCode=code)
    return float(answer["Quota"]["Value"])
