"""What a person is told in one line, and the exit code that a script sees.

| code | meaning |
|---|---|
| 0 | done |
| 1 | refused, or it failed |
| 2 | the command was called wrongly |
| 3 | AWS or the API could not be reached, or knows no credentials of ours |
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from botocore.exceptions import ClientError

REFUSED, USAGE, UNREACHABLE = 1, 2, 3


class CommandError(Exception):
    """What, why and the remedy, in one line."""

    exit_code = REFUSED


class UsageError(CommandError):
    """The command was called wrongly."""

    exit_code = USAGE


class UnreachableError(CommandError):
    """AWS or the API could not be reached, or does not know the caller."""

    exit_code = UNREACHABLE


_SIGN_IN = "sign in (such as `aws sso login`), or choose another profile with --profile"
_EXPIRED = {"ExpiredToken", "ExpiredTokenException", "RequestExpired", "TokenRefreshRequired"}
_UNKNOWN_CALLER = {
    "AuthFailure",
    "InvalidAccessKeyId",
    "InvalidClientTokenId",
    "InvalidSignatureException",
    "OptInRequired",
    "SignatureDoesNotMatch",
    "UnrecognizedClientException",
}
_DENIED = {"AccessDenied", "AccessDeniedException", "UnauthorizedOperation"}
_THROTTLED = {
    # boto3 does not take the first for a throttle, so it does not try again by itself.
    "CapacityBlockDescribeLimitExceeded",
    "ProvisionedThroughputExceededException",
    "RequestLimitExceeded",
    "Throttling",
    "ThrottlingException",
    "TooManyRequestsException",
}
NO_BLOCK = {"InvalidCapacityReservationId.NotFound", "InvalidCapacityReservationId.Malformed"}
# A refusal of EC2 names the action only in newer answers; the prefix is that of the service whose call it was.
_IAM_PREFIX = {
    "AssumeRole": "sts",
    "DescribeExecution": "states",
    "DescribeStacks": "cloudformation",
    "GetCallerIdentity": "sts",
    "GetItem": "dynamodb",
    "GetParameters": "ssm",
    "GetSecretValue": "secretsmanager",
    "Query": "dynamodb",
    "StartExecution": "states",
}


def explain(error: Exception) -> CommandError | None:
    """An expected error in words for a person; None when the error is a fault of ours, which deserves its traceback."""
    if isinstance(error, CommandError):
        return error

    from botocore import exceptions as aws

    from blockkeeper.aws.ec2 import BlockNotFoundError
    from blockkeeper.domain.reservation import UnreadableReservationError

    if isinstance(error, aws.ClientError):
        return _explain_refusal(error)
    if isinstance(error, BlockNotFoundError):
        return CommandError(f"{error}; check the id, and --region")
    if isinstance(error, UnreadableReservationError):
        return CommandError(f"EC2's answer cannot be read: {error}; nothing is done with such a block")
    if isinstance(error, aws.ProfileNotFound):
        return UsageError(f"{error}; `aws configure list-profiles` shows those that are")
    if isinstance(error, aws.NoRegionError):
        return UsageError("no Region is known; pass --region, or set AWS_REGION")
    if isinstance(error, aws.HTTPClientError | aws.ConnectionError):
        return UnreachableError(f"AWS does not answer ({_first_line(error)}); check the network, and AWS_ENDPOINT_URL")
    if isinstance(error, aws.NoCredentialsError | aws.PartialCredentialsError):
        return UnreachableError(f"no AWS credentials were found; {_SIGN_IN}")
    if isinstance(error, aws.BotoCoreError):
        # Among them all that can go wrong with SSO tokens and credential processes.
        return UnreachableError(f"AWS cannot be called: {_first_line(error)}; {_SIGN_IN}")
    return None


def error_code(error: ClientError) -> str:
    """The code of a refusal of AWS."""
    return str(error.response.get("Error", {}).get("Code", ""))


def missing_action(error: ClientError) -> str | None:
    """The IAM action that the caller lacks, such as `ssm:GetParameters`; None when it was not refused for that."""
    if error_code(error) not in _DENIED:
        return None
    message = error.response.get("Error", {}).get("Message", "")
    named = re.search(r"to perform:?\s+([a-z0-9-]+:[A-Za-z]+)", message)
    return named[1] if named else f"{_IAM_PREFIX.get(error.operation_name, 'ec2')}:{error.operation_name}"


def _explain_refusal(error: ClientError) -> CommandError:
    code, operation = error_code(error), error.operation_name
    message = _first_line(error.response.get("Error", {}).get("Message", ""))
    if action := missing_action(error):
        return CommandError(f"access denied: your identity may not do {action}; allow it, or use another --profile")
    if code in _EXPIRED:
        return UnreachableError(f"the AWS credentials have expired; {_SIGN_IN}")
    if code in _UNKNOWN_CALLER:
        return UnreachableError(f"AWS does not accept these credentials ({code}); {_SIGN_IN}")
    if code in _THROTTLED:
        return CommandError(f"AWS limits how often {operation} may be called ({code}); wait a minute and repeat")
    if code in NO_BLOCK:
        return CommandError(f"EC2 knows no such reservation: {message} (check the id, and --region)")
    return CommandError(f"{operation} was refused: {code}: {message}")


def _first_line(message: Any) -> str:
    return " ".join(str(message).split())[:400]
