"""The two calls that spend money. Only buy-extension and buy-block import this module, and each one's role may make its own call.

PurchaseCapacityBlockExtension and PurchaseCapacityBlock have no idempotency token: this client sends each once and gives up before
the function's own timeout, so that the function lives to write down what it knows (docs/adr/001-buying-once.md).
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from blockkeeper.aws.clients import client

ONCE = Config(retries={"total_max_attempts": 1, "mode": "standard"}, connect_timeout=3, read_timeout=20)

# Codes with which EC2 says that it did not take the order (EC2 API Reference, "Error codes"). A throttle is refused before the
# request is looked at, whatever its HTTP status. Any other answer leaves the outcome open.
REFUSALS = frozenset(
    {
        "AuthFailure",
        "Blocked",
        "CapacityBlockDescribeLimitExceeded",
        "ExpiredToken",
        "IncorrectState",
        "InvalidCapacityBlockOfferingIdExpired",
        "InvalidCapacityBlockOfferingIdMalformed",
        "InvalidCapacityBlockOfferingIdNotFound",
        "InvalidCapacityReservationId.Malformed",
        "InvalidCapacityReservationId.NotFound",
        "InvalidCapacityReservationState",
        "InvalidParameterValue",
        "MissingParameter",
        "OperationNotPermitted",
        "OptInRequired",
        "PendingVerification",
        "RequestExpired",
        "RequestLimitExceeded",
        "UnauthorizedOperation",
        "UnsupportedOperation",
        "ValidationError",
    }
)


class Answer(StrEnum):
    """What the call came to. `UNKNOWN`: EC2 may have taken the order."""

    TAKEN = "taken"
    REFUSED = "refused"
    UNKNOWN = "unknown"
    DRY_RUN = "dry_run"


@dataclass(frozen=True, slots=True)
class Order:
    """The answer and its reason; `code` is EC2's error code."""

    answer: Answer
    reason: str
    code: str | None = None


def purchase_extension(reservation_id: str, offering_id: str, region: str, account: str, *, live: bool) -> Order:
    """Order one extension, once; with `live` false only ask whether it would be allowed (DryRun), which spends nothing."""
    return _send(
        region,
        account,
        "purchase_capacity_block_extension",
        CapacityReservationId=reservation_id,
        CapacityBlockExtensionOfferingId=offering_id,
        DryRun=not live,
    )


def purchase_block(
    offering_id: str, platform: str, tags: dict[str, str], region: str, account: str, *, live: bool
) -> Order:
    """Order one new block, once; with `live` false only ask whether it would be allowed (DryRun), which spends nothing.

    Args:
        platform: InstancePlatform, such as ``Linux/UNIX``; that of the old block.
        tags: put on the reservation as it is made, so that the block can be found when the answer is lost.
    """
    tagged = [{"Key": key, "Value": value} for key, value in tags.items()]
    return _send(
        region,
        account,
        "purchase_capacity_block",
        CapacityBlockOfferingId=offering_id,
        InstancePlatform=platform,
        TagSpecifications=[{"ResourceType": "capacity-reservation", "Tags": tagged}],
        DryRun=not live,
    )


def _send(region: str, account: str, call: str, **params: Any) -> Order:
    live = not params["DryRun"]
    try:
        getattr(client("ec2", region, account, ONCE), call)(**params)
    except ClientError as error:
        code = error.response.get("Error", {}).get("Code", "")
        if code == "DryRunOperation" and not live:
            return Order(Answer.DRY_RUN, "PurchaseMode is dry-run: EC2 would have taken the order", code)
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 500)
        if code in REFUSALS and (status < 500 or code == "RequestLimitExceeded"):  # noqa: PLR2004 - HTTP server error
            return Order(Answer.REFUSED, f"EC2 refused the order: {code}", code)
        return Order(Answer.UNKNOWN, f"EC2 answered {code} ({status}); it may have taken the order", code)
    except BotoCoreError as error:
        return Order(Answer.UNKNOWN, f"no answer from EC2 ({type(error).__name__}); it may have taken the order")
    # What the answer says is not looked at: the history and EndDate are the truth (design rule 3).
    return Order(Answer.TAKEN, "EC2 took the order")
