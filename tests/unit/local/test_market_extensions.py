from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from local.market import rules

END = datetime(2026, 5, 4, 11, 30, tzinfo=UTC)


def search(ec2: Any, hours: int = 24, reservation_id: str = "cr-0a1", **more: Any) -> list[dict[str, Any]]:
    found = ec2.describe_capacity_block_extension_offerings(
        CapacityReservationId=reservation_id, CapacityBlockExtensionDurationHours=hours, **more
    )
    return list(found["CapacityBlockExtensionOfferings"])


def history(ec2: Any, **params: Any) -> list[dict[str, Any]]:
    return list(ec2.describe_capacity_block_extension_history(**params)["CapacityBlockExtensions"])


def end_date(ec2: Any) -> datetime:
    return datetime.fromisoformat(
        str(ec2.describe_capacity_reservations()["CapacityReservations"][0]["EndDate"])
    ).astimezone(UTC)


# -- offerings


def test_an_offering_starts_at_the_end_and_costs_rate_times_hours_times_instances(ec2: Any, load: Any) -> None:
    load({})
    (offering,) = search(ec2)
    assert offering["CapacityBlockExtensionStartDate"] == END
    assert offering["CapacityBlockExtensionEndDate"] == END + timedelta(hours=24)
    assert offering["CapacityBlockExtensionDurationHours"] == 24
    assert offering["UpfrontFee"] == "3986.69"
    assert (offering["CurrencyCode"], offering["InstanceCount"]) == ("USD", 4)
    assert offering["CapacityBlockExtensionOfferingId"].startswith("cbe-")
    assert search(ec2)[0] == offering, "the same while the fee and the end stand"


@pytest.mark.parametrize(
    ("amount", "text"),
    [("53.64", "53.64"), ("10283.5", "10283.50"), ("511", "511"), ("3986.688", "3986.69"), ("511.000", "511")],
)
def test_a_fee_is_written_as_ec2_writes_it(amount: str, text: str) -> None:
    assert rules.fee_text(Decimal(amount)) == text


def test_legal_lengths(ec2: Any, load: Any, market: Any, refused: Any) -> None:
    load({})
    market.throttle.enabled = False
    legal = [hours for hours in range(1, 4400) if hours in rules.LEGAL_HOURS]
    assert len(legal) == 38
    assert (legal[0], legal[13], legal[14], legal[-1]) == (24, 336, 504, 4368)
    for hours in (24, 336, 504, 4368):
        assert search(ec2, hours)
    for hours in (1, 6, 12, 36, 15 * 24, 20 * 24, 22 * 24, 183 * 24, 27 * 168):
        assert refused(search, ec2=ec2, hours=hours) == "InvalidParameterValue"


def test_no_offering_is_a_normal_answer(ec2: Any, load: Any) -> None:
    load({"offering": {"available": False}})
    assert search(ec2) == []


def test_some_lengths_only(ec2: Any, load: Any) -> None:
    load({"offering": {"hours": [24]}})
    assert search(ec2, 48) == []
    assert len(search(ec2, 24)) == 1


def test_a_fee_of_the_fleet(ec2: Any, load: Any) -> None:
    load({"offering": {"fee": "10283.50"}})
    assert search(ec2)[0]["UpfrontFee"] == "10283.50"


@pytest.mark.parametrize(
    ("moment", "code"),
    [
        ("2026-05-04T10:30", None),
        ("2026-05-04T10:31", "IncorrectState"),
        ("2026-05-04T11:31", "IncorrectState"),
    ],
)
def test_the_window_closes_an_hour_before_the_end(
    ec2: Any, load: Any, at: Any, refused: Any, moment: str, code: str | None
) -> None:
    load({})
    at(moment)
    if code is None:
        assert search(ec2)
    else:
        assert refused(search, ec2=ec2) == code


def test_the_window_opens_56_days_before_the_end(ec2: Any, load: Any, at: Any, refused: Any) -> None:
    load({"end": "2026-07-01T11:30:00Z"})
    at("2026-05-06T11:29")
    assert refused(search, ec2=ec2) == "IncorrectState"
    at("2026-05-06T11:30")
    assert search(ec2)


def test_a_scheduled_block_can_be_extended(load: Any, buy: Any) -> None:
    load({"start": "2026-05-02T11:30:00Z"})
    assert buy()["CapacityBlockExtensionStatus"] == "payment-pending"


@pytest.mark.parametrize(
    ("block", "code"),
    [
        ({"owner_id": "444455556666"}, "OperationNotPermitted"),
        ({"reservation_type": "default"}, "InvalidParameterValue"),
        ({"reservation_type": None}, "InvalidParameterValue"),
        ({"state": "payment-failed"}, "IncorrectState"),
        ({"state": "something-new"}, "IncorrectState"),
    ],
)
def test_what_cannot_be_extended(ec2: Any, load: Any, refused: Any, block: dict[str, Any], code: str) -> None:
    load(block)
    assert refused(search, ec2=ec2) == code


def test_unknown_and_malformed_reservations(ec2: Any, refused: Any) -> None:
    assert refused(search, ec2=ec2, reservation_id="cr-0ff") == "InvalidCapacityReservationId.NotFound"
    assert refused(search, ec2=ec2, reservation_id="x") == "InvalidCapacityReservationId.Malformed"


# -- purchase and payment


def test_the_end_moves_only_some_time_after_the_payment_case_b03(ec2: Any, load: Any, buy: Any, at: Any) -> None:
    load({"payment": {"minutes": 20, "end_moves_after_minutes": 3}})
    bought = buy()
    assert bought["CapacityBlockExtensionStatus"] == "payment-pending"
    assert bought["UpfrontFee"] == "3986.69"
    at("2026-05-01T00:19")
    assert [each["CapacityBlockExtensionStatus"] for each in history(ec2)] == ["payment-pending"]
    at("2026-05-01T00:20")
    assert [each["CapacityBlockExtensionStatus"] for each in history(ec2)] == ["payment-succeeded"]
    assert end_date(ec2) == END
    at("2026-05-01T00:23")
    assert end_date(ec2) == END + timedelta(hours=24)


def test_a_failed_payment_leaves_the_end(ec2: Any, load: Any, buy: Any, at: Any) -> None:
    load({"payment": {"outcome": "payment-failed", "minutes": 5}})
    buy()
    at("2026-05-01T00:05")
    assert [each["CapacityBlockExtensionStatus"] for each in history(ec2)] == ["payment-failed"]
    at("2026-05-04T11:00")
    assert end_date(ec2) == END


@pytest.mark.parametrize(
    ("bought_at", "minutes", "decided_at", "status"),
    [
        ("2026-05-01T00:00", 720, "2026-05-01T12:00", "payment-succeeded"),
        ("2026-05-01T00:00", 721, "2026-05-01T12:00", "payment-failed"),
        ("2026-05-04T10:30", 25, "2026-05-04T10:55", "payment-succeeded"),
        ("2026-05-04T10:30", 26, "2026-05-04T10:55", "payment-failed"),
    ],
)
def test_payment_within_12_hours_and_35_minutes_before_the_end(
    ec2: Any, load: Any, buy: Any, at: Any, bought_at: str, minutes: int, decided_at: str, status: str
) -> None:
    load({"payment": {"minutes": minutes}})
    at(bought_at)
    buy()
    assert history(ec2)[0]["CapacityBlockExtensionStatus"] == "payment-pending"
    at(decided_at)
    assert history(ec2)[0]["CapacityBlockExtensionStatus"] == status


def test_one_pending_extension_at_a_time_then_the_next(ec2: Any, load: Any, buy: Any, at: Any, refused: Any) -> None:
    load({})
    buy()
    assert refused(buy) == "IncorrectState"
    at("2026-05-01T01:00")
    buy(48)
    at("2026-05-01T02:00")
    assert end_date(ec2) == END + timedelta(hours=72)
    assert [each["CapacityBlockExtensionDurationHours"] for each in history(ec2)] == [24, 48]


def test_an_offering_is_used_once(ec2: Any, load: Any, buy: Any, at: Any, refused: Any) -> None:
    load({})
    used = buy()["CapacityBlockExtensionOfferingId"]
    at("2026-05-01T01:00")
    call = ec2.purchase_capacity_block_extension
    assert (
        refused(call, CapacityReservationId="cr-0a1", CapacityBlockExtensionOfferingId=used)
        == "InvalidCapacityBlockOfferingIdExpired"
    )


def test_bad_offering_ids(ec2: Any, load: Any, refused: Any) -> None:
    load({}, {"reservation_id": "cr-0a2"})
    other = search(ec2, reservation_id="cr-0a2")[0]["CapacityBlockExtensionOfferingId"]
    for offering_id, code in {
        "cb-1": "InvalidCapacityBlockOfferingIdMalformed",
        "cbe-1": "InvalidCapacityBlockOfferingIdNotFound",
        other: "InvalidCapacityBlockOfferingIdNotFound",
    }.items():
        call = ec2.purchase_capacity_block_extension
        assert refused(call, CapacityReservationId="cr-0a1", CapacityBlockExtensionOfferingId=offering_id) == code


def test_a_dry_run_buys_nothing_case_b47(ec2: Any, load: Any, refused: Any) -> None:
    load({})
    offering_id = search(ec2)[0]["CapacityBlockExtensionOfferingId"]
    call = ec2.purchase_capacity_block_extension
    code = refused(call, CapacityReservationId="cr-0a1", CapacityBlockExtensionOfferingId=offering_id, DryRun=True)
    assert code == "DryRunOperation"
    assert history(ec2) == []


def test_the_purchase_window_is_checked_at_the_purchase(ec2: Any, load: Any, at: Any, refused: Any) -> None:
    load({})
    offering_id = search(ec2)[0]["CapacityBlockExtensionOfferingId"]
    at("2026-05-04T10:31")
    call = ec2.purchase_capacity_block_extension
    assert (
        refused(call, CapacityReservationId="cr-0a1", CapacityBlockExtensionOfferingId=offering_id) == "IncorrectState"
    )


# -- history


def test_history_filters_and_pages(ec2: Any, load: Any, buy: Any, at: Any, session: Any) -> None:
    load({}, {"reservation_id": "cr-0a2", "payment": {"outcome": "payment-failed", "minutes": 5}})
    buy()
    buy(reservation_id="cr-0a2")
    at("2026-05-01T00:10")
    failed = history(ec2, Filters=[{"Name": "capacity-block-extension-status", "Values": ["payment-failed"]}])
    assert [each["CapacityReservationId"] for each in failed] == ["cr-0a2"]
    assert len(history(ec2, CapacityReservationIds=["cr-0a1"])) == 1
    pages = list(
        ec2.get_paginator("describe_capacity_block_extension_history").paginate(PaginationConfig={"PageSize": 1})
    )
    assert [len(page["CapacityBlockExtensions"]) for page in pages] == [1, 1]
    assert history(session.client("ec2", "us-west-2")) == []


# -- throttling


def test_searches_are_throttled_per_account_region_and_call(
    ec2: Any, load: Any, session: Any, at: Any, refused: Any, market: Any
) -> None:
    load({}, {"reservation_id": "cr-0b1", "region": "us-west-2", "availability_zone": "us-west-2a"})
    for _ in range(10):
        search(ec2)
    assert refused(search, ec2=ec2) == "RequestLimitExceeded"
    assert len(search(session.client("ec2", "us-west-2"), reservation_id="cr-0b1")) == 1, "another Region"
    assert history(ec2) == [], "another call"
    market.call(
        "ec2",
        "DescribeCapacityBlockOfferings",
        {"CapacityDurationHours": 24, "InstanceType": "p5.48xlarge"},
        "us-east-1",
    )
    at("2026-05-01T00:00:06")
    assert refused(search, ec2=ec2) == "RequestLimitExceeded", "0.15 a second: the next one after 6.7 s"
    at("2026-05-01T00:00:07")
    assert search(ec2)
    assert refused(search, ec2=ec2) == "RequestLimitExceeded"


def test_a_read_has_a_bucket_of_100(ec2: Any, load: Any, refused: Any) -> None:
    load({})
    for _ in range(100):
        history(ec2)
    assert refused(history, ec2=ec2) == "RequestLimitExceeded"
