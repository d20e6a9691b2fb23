"""Makes and checks approvers' links: the API's address from Parameter Store, the signing key from Secrets Manager.

Both are read when they are needed, which is when a person is involved: a rotated key counts at once everywhere.
"""

import json
import os
from collections.abc import Iterator, Mapping
from datetime import datetime

from botocore.exceptions import ClientError

from blockkeeper.aws.clients import client
from blockkeeper.domain.approval import ApprovalRequest
from blockkeeper.domain.signed_link import SignedLink, read_link, signed_link

SHORTEST_KEY = 32


class UnusableKeyError(Exception):
    """The secret LINK_KEY_SECRET holds no key that could sign; without one nobody can be asked."""


def links(request: ApprovalRequest, now: datetime) -> dict[str, str]:
    """For each person with a mail address who may answer now their own link, which decides until the request's `decide_by`.

    Raises:
        UnusableKeyError, ClientError: no key, or no address of the API.
    """
    parameter = client("ssm").get_parameter(Name=os.environ["API_URL_PARAMETER"])
    base, key = parameter["Parameter"]["Value"].rstrip("/"), _key("AWSCURRENT")
    mailed = [approver for approver in request.asked(now) if "@" in approver]
    return {approver: signed_link(base, request.approval_id, approver, request.decide_by, key) for approver in mailed}


def check_link(approval_id: str, parameters: Mapping[str, str]) -> SignedLink:
    """Check a link that came back, against the current key and the one before it.

    Raises:
        IncompleteLinkError, AlteredLinkError: see `read_link`.
        UnusableKeyError, ClientError: the key could not be read; that says nothing about the link.
    """
    return read_link(approval_id, parameters, _keys())


def _keys() -> Iterator[bytes]:
    yield _key("AWSCURRENT")
    try:
        yield _key("AWSPREVIOUS")
    except ClientError as error:
        # A secret that was never rotated has no previous version (GetSecretValue).
        if error.response["Error"]["Code"] != "ResourceNotFoundException":
            raise


def _key(stage: str) -> bytes:
    secret = client("secretsmanager").get_secret_value(SecretId=os.environ["LINK_KEY_SECRET"], VersionStage=stage)
    try:
        key = json.loads(secret["SecretString"])["key"]
    except (KeyError, TypeError, ValueError):
        key = None
    if not isinstance(key, str) or len(key) < SHORTEST_KEY:
        # `from None`: a parser's error quotes what it could not read.
        raise UnusableKeyError(
            f'the secret LINK_KEY_SECRET must be {{"key": "<at least {SHORTEST_KEY} characters>"}} (rotate it, or set it)'
        ) from None
    return key.encode()
