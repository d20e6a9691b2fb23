"""The two ways in which a service answers a scaling call badly: ask again, or do not. Shared by Auto Scaling, EKS and Batch."""

from collections.abc import Iterator
from contextlib import contextmanager

from botocore.exceptions import BotoCoreError, ClientError

BUSY_CODES = frozenset(
    {
        "ResourceContention",
        "ResourceContentionFault",
        "ScalingActivityInProgress",
        "ScalingActivityInProgressFault",
        "ServiceUnavailable",
        "InternalFailure",
        "Throttling",
        "ThrottlingException",
        "TooManyRequestsException",
        "RequestLimitExceeded",
    }
)


class GroupBusyError(Exception):
    """The service asks for patience (throttled, another update in progress, no answer); the same call may be made again."""


class GroupRefusedError(Exception):
    """The service refuses the call, or would: the message has its code and the reason."""


class GroupMissingError(GroupRefusedError):
    """There is no such group in the account and Region."""


@contextmanager
def refusals() -> Iterator[None]:
    """Turn botocore's errors into the two that callers tell apart; access denied and all else is a refusal that names its code."""
    try:
        yield
    except ClientError as error:
        code = error.response["Error"].get("Code", "")
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        message = f"{error.operation_name}: {code}: {error.response['Error'].get('Message', '')}"
        if code in BUSY_CODES or status >= 500:  # noqa: PLR2004 - HTTP's server errors
            raise GroupBusyError(message) from error
        raise (GroupMissingError if code == "ResourceNotFoundException" else GroupRefusedError)(message) from error
    except BotoCoreError as error:
        raise GroupBusyError(str(error)) from error


class GroupChangingError(Exception):
    """The service is still carrying out another change of the group; look again in a minute."""
