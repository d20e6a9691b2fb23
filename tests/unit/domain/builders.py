"""Blocks, records and offerings for tests: each test names only what it is about."""

from datetime import UTC, datetime, timedelta
from typing import Any

from blockkeeper.domain.environment import Environment, parse_environment
from blockkeeper.domain.reservation import Reservation, parse_reservation

ACCOUNT = "111122223333"
END = datetime(2026, 5, 4, 11, 30, tzinfo=UTC)
MARGIN = timedelta(hours=2)


def record(**fields: Any) -> dict[str, Any]:
    return {
        "PK": "train",
        "name": "train",
        "capacity_block_id": "cr-0a1",
        "region": "us-east-1",
        "instance_type": "p5.48xlarge",
        "end_time": "2026-05-04T11:30:00Z",
        "extend_by_days": 1,
        "extension_lookahead_days": 2,
        "require_approval": True,
        "approvers": ["ann@example.com"],
        "max_upfront_fee": "12000",
        "status": "NO_ACTION_REQUIRED",
    } | fields


def environment(**fields: Any) -> Environment:
    return parse_environment(record(**fields))


def entry(**fields: Any) -> dict[str, Any]:
    """An entry of DescribeCapacityReservations."""
    return {
        "CapacityReservationId": "cr-0a1",
        "OwnerId": ACCOUNT,
        "ReservationType": "capacity-block",
        "InstanceType": "p5.48xlarge",
        "AvailabilityZone": "us-east-1a",
        "TotalInstanceCount": 4,
        "State": "active",
        "StartDate": END - timedelta(days=7),
        "EndDate": END,
    } | fields


def reservation(**fields: Any) -> Reservation:
    return parse_reservation(entry(**fields), "us-east-1")


def offering(**fields: Any) -> dict[str, Any]:
    """An entry of DescribeCapacityBlockExtensionOfferings: 24 hours for 10,283.50 USD."""
    return {
        "CapacityBlockExtensionOfferingId": "cbe-1",
        "CapacityBlockExtensionDurationHours": 24,
        "CapacityBlockExtensionStartDate": END,
        "CapacityBlockExtensionEndDate": END + timedelta(days=1),
        "UpfrontFee": "10283.50",
        "CurrencyCode": "USD",
    } | fields


def extension(**fields: Any) -> dict[str, Any]:
    """An entry of DescribeCapacityBlockExtensionHistory."""
    return {
        "CapacityReservationId": "cr-0a1",
        "CapacityBlockExtensionOfferingId": "cbe-1",
        "CapacityBlockExtensionStatus": "payment-pending",
        "CapacityBlockExtensionStartDate": END,
        "CapacityBlockExtensionEndDate": END + timedelta(days=1),
        "UpfrontFee": "10283.50",
    } | fields
