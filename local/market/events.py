"""EventBridge envelopes of what EC2 and Auto Scaling announce, and CloudTrail's record of a purchase."""

import uuid
from datetime import datetime
from typing import Any

from local.market.errors import MarketError

DELIVERED = "Capacity Block Delivered"
EXPIRATION_WARNING = "Capacity Block Expiration Warning"
OLDER_SPELLING = {
    DELIVERED: "Capacity Block Reservation Delivered",
    EXPIRATION_WARNING: "Capacity Block Reservation Expiration Warning",
}
INTERRUPTION_WARNING = "EC2 Capacity Reservation Instance Interruption Warning"
API_CALL = "AWS API Call via CloudTrail"


def instant_text(at: datetime) -> str:
    """A moment as AWS writes it: `2026-05-04T11:30:00Z`."""
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")


def envelope(
    number: int,
    *,
    source: str,
    detail_type: str,
    account: str,
    region: str,
    at: datetime,
    resources: list[str],
    detail: dict[str, Any],
) -> dict[str, Any]:
    """A whole EventBridge event; its id depends on its number alone, so that a replayed scenario is the same."""
    return {
        "version": "0",
        "id": str(uuid.uuid5(uuid.NAMESPACE_OID, f"{account}/{region}/{number}")),
        "detail-type": detail_type,
        "source": source,
        "account": account,
        "time": instant_text(at),
        "region": region,
        "resources": resources,
        "detail": detail,
    }


def api_call_detail(
    *,
    service: str,
    operation: str,
    account: str,
    region: str,
    at: datetime,
    params: dict[str, Any],
    outcome: dict[str, Any] | MarketError,
) -> dict[str, Any]:
    """CloudTrail's record of a management call; EC2's error codes carry the prefix `Client.`."""
    detail: dict[str, Any] = {
        "eventVersion": "1.11",
        "userIdentity": {"type": "Root", "accountId": account, "arn": f"arn:aws:iam::{account}:root"},
        "eventTime": instant_text(at),
        "eventSource": f"{service}.amazonaws.com",
        "eventName": operation,
        "awsRegion": region,
        "sourceIPAddress": "127.0.0.1",
        "requestParameters": {f"{operation}Request": plain(params)},
        "responseElements": None if isinstance(outcome, MarketError) else {f"{operation}Response": plain(outcome)},
        "readOnly": False,
        "eventType": "AwsApiCall",
        "managementEvent": True,
        "recipientAccountId": account,
        "eventCategory": "Management",
    }
    if isinstance(outcome, MarketError):
        detail["errorCode"], detail["errorMessage"] = f"Client.{outcome.code}", outcome.message
    return detail


def plain(value: Any) -> Any:
    """The value with its times as text, as JSON carries it."""
    if isinstance(value, datetime):
        return instant_text(value)
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    return value
