from datetime import UTC, datetime
from typing import Any

import pytest

SUPPLY = {
    "region": "us-east-1",
    "availability_zone": "us-east-1b",
    "instance_type": "p5.48xlarge",
    "instance_count": 8,
    "start": "2026-05-04T16:13:00Z",
    "end": "2026-05-06T11:30:00Z",
    "hourly_rate": "41.528",
}


@pytest.fixture
def supply(load: Any) -> None:
    load(
        offerings=[
            SUPPLY,
            SUPPLY
            | {"availability_zone": "us-east-1-atl-2a", "start": "2026-05-05T11:30:00Z", "end": "2026-05-07T11:30:00Z"},
        ]
    )


def search(ec2: Any, **params: Any) -> list[dict[str, Any]]:
    asked = {"InstanceType": "p5.48xlarge", "InstanceCount": 4, "CapacityDurationHours": 48, **params}
    return list(ec2.describe_capacity_block_offerings(**asked)["CapacityBlockOfferings"])


@pytest.mark.usefixtures("supply")
def test_an_offering_may_be_shorter_than_asked(ec2: Any) -> None:
    (offering,) = search(ec2)
    assert (offering["CapacityBlockDurationHours"], offering["CapacityBlockDurationMinutes"]) == (43, 17)
    assert (offering["InstanceCount"], offering["ZoneType"]) == (4, "availability-zone")
    assert offering["UpfrontFee"] == "7189.88"
    assert search(ec2, CapacityDurationHours=24 * 7) == []
    assert search(ec2, InstanceCount=16) == []


@pytest.mark.usefixtures("supply")
def test_ranges_and_local_zones(ec2: Any) -> None:
    assert len(search(ec2, AllAvailabilityZones=True)) == 2
    assert search(ec2, StartDateRange=datetime(2026, 5, 4, 17, tzinfo=UTC)) == []
    assert search(ec2, EndDateRange=datetime(2026, 5, 6, 11, tzinfo=UTC)) == []


@pytest.mark.usefixtures("supply")
def test_refusals(ec2: Any, refused: Any) -> None:
    assert refused(search, ec2=ec2, CapacityDurationHours=36) == "InvalidParameterValue"
    assert refused(search, ec2=ec2, InstanceCount=3) == "InvalidParameterValue"
    assert refused(search, ec2=ec2, UltraserverType="u-p6e-gb200x72") == "InvalidParameterValue"
    assert refused(search, ec2=ec2, DryRun=True) == "DryRunOperation"
    call = ec2.purchase_capacity_block
    assert (
        refused(call, CapacityBlockOfferingId="x", InstancePlatform="Linux/UNIX")
        == "InvalidCapacityBlockOfferingIdMalformed"
    )
    assert (
        refused(call, CapacityBlockOfferingId="cb-1", InstancePlatform="Linux/UNIX")
        == "InvalidCapacityBlockOfferingIdNotFound"
    )
    offering_id = search(ec2)[0]["CapacityBlockOfferingId"]
    assert refused(call, CapacityBlockOfferingId=offering_id, InstancePlatform="Windows") == "InvalidParameterValue"
    assert (
        refused(call, CapacityBlockOfferingId=offering_id, InstancePlatform="Linux/UNIX", DryRun=True)
        == "DryRunOperation"
    )


@pytest.mark.usefixtures("supply")
def test_a_purchase_is_pending_then_scheduled_then_active(ec2: Any, at: Any) -> None:
    offering_id = search(ec2)[0]["CapacityBlockOfferingId"]
    tags = [{"ResourceType": "capacity-reservation", "Tags": [{"Key": "team", "Value": "nlp"}]}]
    bought = ec2.purchase_capacity_block(
        CapacityBlockOfferingId=offering_id, InstancePlatform="Linux/UNIX", TagSpecifications=tags
    )
    reservation_id = bought["CapacityReservation"]["CapacityReservationId"]
    assert bought["CapacityReservation"]["State"] == "payment-pending"
    assert bought["CapacityBlocks"][0]["CapacityReservationIds"] == [reservation_id]
    assert {"Key": "team", "Value": "nlp"} in bought["CapacityReservation"]["Tags"]

    def state() -> str:
        shown = ec2.describe_capacity_reservations(CapacityReservationIds=[reservation_id])
        return str(shown["CapacityReservations"][0]["State"])

    at("2026-05-01T00:20")
    assert state() == "scheduled"
    at("2026-05-04T16:13")
    assert state() == "active"
    assert len(search(ec2)) == 0, "the supply started"


@pytest.mark.usefixtures("supply")
def test_a_failed_payment_releases_the_block(ec2: Any, at: Any, market: Any) -> None:
    market.faults.add(kind="payment_failure", operation="PurchaseCapacityBlock")
    bought = ec2.purchase_capacity_block(
        CapacityBlockOfferingId=search(ec2)[0]["CapacityBlockOfferingId"], InstancePlatform="Linux/UNIX"
    )
    at("2026-05-10T00:00")
    shown = ec2.describe_capacity_reservations(
        CapacityReservationIds=[bought["CapacityReservation"]["CapacityReservationId"]]
    )
    assert shown["CapacityReservations"][0]["State"] == "payment-failed"


@pytest.mark.usefixtures("supply")
def test_a_price_change_ends_the_offering(ec2: Any, market: Any, refused: Any) -> None:
    offering_id = search(ec2)[0]["CapacityBlockOfferingId"]
    market.faults.add(kind="price_change", operation="PurchaseCapacityBlock", percent="10")
    call = ec2.purchase_capacity_block
    assert (
        refused(call, CapacityBlockOfferingId=offering_id, InstancePlatform="Linux/UNIX")
        == "InvalidCapacityBlockOfferingIdExpired"
    )
    assert search(ec2)[0]["UpfrontFee"] == "7908.87"
