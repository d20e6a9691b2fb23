"""A session in another account of the organization, through the role that the operator deployed there."""

from typing import Any

import boto3
import botocore.session
from botocore.credentials import AssumeRoleCredentialFetcher, DeferredRefreshableCredentials


def member_session(account: str, role_name: str) -> Any:
    """A session whose credentials are the role's and renew themselves before they end (STS AssumeRole, one hour)."""
    own = boto3._get_default_session()  # noqa: SLF001 - see aws/clients.py
    fetcher = AssumeRoleCredentialFetcher(
        client_creator=own._session.create_client,  # noqa: SLF001 - botocore's own way to wire an assumed role
        source_credentials=own.get_credentials(),
        role_arn=f"arn:{own.get_partition_for_region(own.region_name)}:iam::{account}:role/{role_name}",
        extra_args={"RoleSessionName": "blockkeeper"},
    )
    session: Any = botocore.session.get_session()
    session._credentials = DeferredRefreshableCredentials(  # noqa: SLF001 - see above
        method="assume-role", refresh_using=fetcher.fetch_credentials
    )
    return boto3.Session(botocore_session=session, region_name=own.region_name)
