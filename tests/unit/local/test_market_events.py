"""Events and their order; faults; what a call leaves behind."""

from datetime import UTC, datetime, timedelta
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError, ConnectionClosedError, ReadTimeoutError
from hypothesis import given, settings
from hypothesis import strategies as st
from moto import mock_aws

from local.botocore_market import attach
from local.clock import MarketClock
from local.market import Market, MarketError

START = datetime(2026, 5, 1, tzinfo=UTC)


def heard(market: Market) -> list[tuple[str, str]]:
    return [(event["time"], event["detail-type"]) for event in market.events]


# -- events


def test_delivered_and_warning_are_whole_envelopes_case_b01(market: Market, load: Any, at: Any) -> None:
    received: list[dict[str, Any]] = []
    market.on_event(received.append)
    load({"start": "2026-05-02T11:30:00Z"})
    at("2026-05-04T12:00")
    assert [(event["time"], event["detail-type"]) for event in received] == [
        ("2026-05-02T11:30:00Z", "Capacity Block Delivered"),
        ("2026-05-04T10:50:00Z", "Capacity Block Expiration Warning"),
    ]
    event = received[1]
    assert event.keys() == {
        "version",
        "id",
        "detail-type",
        "source",
        "account",
        "time",
        "region",
        "resources",
        "detail",
    }
    assert (event["source"], event["account"], event["region"]) == ("aws.ec2", "111122223333", "us-east-1")
    assert event["resources"] == ["arn:aws:ec2:us-east-1:111122223333:capacity-reservation/cr-0a1"]
    assert event["detail"] == {"capacity-reservation-id": "cr-0a1", "end-date": "2026-05-04T11:30:00Z"}


def test_the_older_spelling_case_b01(market: Market, load: Any, at: Any) -> None:
    market.older_event_names = True
    load({})
    at("2026-05-04T12:00")
    assert heard(market) == [("2026-05-04T10:50:00Z", "Capacity Block Reservation Expiration Warning")]


def test_instances_are_warned_and_consumers_too(market: Market, load: Any, at: Any) -> None:
    load(
        {"shared_with": ["444455556666"]},
        groups=({"desired": 1}, {"name": "theirs", "owner_id": "444455556666", "desired": 1}),
    )
    at("2026-05-04T10:55")
    assert sorted((event["account"], event["detail-type"]) for event in market.events) == [
        ("111122223333", "Capacity Block Expiration Warning"),
        ("111122223333", "EC2 Capacity Reservation Instance Interruption Warning"),
        ("444455556666", "Capacity Block Expiration Warning"),
        ("444455556666", "EC2 Capacity Reservation Instance Interruption Warning"),
    ]
    detail = next(event["detail"] for event in market.events if "Interruption" in event["detail-type"])
    assert detail["instance-lifecycle"] == "capacity-block"
    assert detail["instance-termination-time"] == "2026-05-04T11:00:00Z"


def test_an_extension_voids_the_old_warning_and_brings_a_new_one(market: Market, load: Any, buy: Any, at: Any) -> None:
    load({})
    buy()
    at("2026-05-30T00:00")
    warnings = [time for time, kind in heard(market) if kind == "Capacity Block Expiration Warning"]
    assert warnings == ["2026-05-05T10:50:00Z"]


def test_purchases_are_in_cloudtrail_dry_runs_and_refusals_with_their_code(
    market: Market, ec2: Any, load: Any, at: Any
) -> None:
    load({})
    offering = ec2.describe_capacity_block_extension_offerings(
        CapacityReservationId="cr-0a1", CapacityBlockExtensionDurationHours=24
    )["CapacityBlockExtensionOfferings"][0]
    params = {
        "CapacityReservationId": "cr-0a1",
        "CapacityBlockExtensionOfferingId": offering["CapacityBlockExtensionOfferingId"],
    }
    with pytest.raises(ClientError):
        ec2.purchase_capacity_block_extension(**params, DryRun=True)
    ec2.purchase_capacity_block_extension(**params)
    assert heard(market) == [], "CloudTrail is late"
    at("2026-05-01T00:02")
    first, second = (event["detail"] for event in market.events)
    assert (first["eventSource"], first["eventName"]) == ("ec2.amazonaws.com", "PurchaseCapacityBlockExtension")
    assert first["errorCode"] == "Client.DryRunOperation"
    assert "errorCode" not in second
    bought = second["responseElements"]["PurchaseCapacityBlockExtensionResponse"]["CapacityBlockExtensions"][0]
    assert bought["UpfrontFee"] == "3986.69"


def test_a_listener_may_call_the_market(market: Market, load: Any, at: Any) -> None:
    seen: list[str] = []

    def listen(event: dict[str, Any]) -> None:
        shown = market.call("ec2", "DescribeCapacityReservations", {}, event["region"])
        seen.append(shown["CapacityReservations"][0]["State"])

    market.on_event(listen)
    load({"start": "2026-05-02T11:30:00Z"})
    at("2026-05-02T11:30")
    assert seen == ["active"]


# -- order


def test_a_jump_over_a_month_lets_everything_happen_in_its_order(
    market: Market, scaling: Any, load: Any, buy: Any, at: Any
) -> None:
    load({"payment": {"minutes": 25, "end_moves_after_minutes": 3}}, groups=({"desired": 2},))
    at("2026-05-04T10:30")
    buy()
    at("2026-06-04T00:00")
    assert heard(market) == [
        ("2026-05-04T10:32:00Z", "AWS API Call via CloudTrail"),
        ("2026-05-04T10:50:00Z", "Capacity Block Expiration Warning"),  # the payment was still open
        ("2026-05-04T10:50:00Z", "EC2 Capacity Reservation Instance Interruption Warning"),
        ("2026-05-04T10:50:00Z", "EC2 Capacity Reservation Instance Interruption Warning"),
        ("2026-05-05T10:50:00Z", "Capacity Block Expiration Warning"),
        ("2026-05-05T10:50:00Z", "EC2 Capacity Reservation Instance Interruption Warning"),
        ("2026-05-05T10:50:00Z", "EC2 Capacity Reservation Instance Interruption Warning"),
    ]
    ends = [
        activity["StartTime"]
        for activity in scaling.describe_scaling_activities(AutoScalingGroupName="train")["Activities"]
        if activity["Description"].startswith("Terminating")
    ]
    assert ends == [datetime(2026, 5, 5, 11, 0, tzinfo=UTC)] * 2, "paid at T-35, so that nothing ended at T-30"


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(min_value=1, max_value=3000), max_size=12), st.integers(min_value=1, max_value=900))
def test_how_the_clock_is_moved_changes_nothing(steps: list[int], payment: int) -> None:
    def story(minutes: list[int]) -> list[tuple[str, str]]:
        clock = MarketClock(START, speed=0)
        market = Market(clock)
        block = {
            "reservation_id": "cr-0a1",
            "region": "us-east-1",
            "instance_type": "p5.48xlarge",
            "instance_count": 4,
            "availability_zone": "us-east-1a",
            "start": "now+5h",
            "end": "now+30h",
            "hourly_rate": "41.528",
            "payment": {"minutes": payment},
        }
        group = {
            "name": "train",
            "region": "us-east-1",
            "availability_zone": "us-east-1a",
            "reservation_id": "cr-0a1",
            "min": 0,
            "max": 4,
            "desired": 3,
            "lifecycle_hooks": [{"name": "drain", "heartbeat_seconds": 600}],
        }
        market.load_fleet({"blocks": [block], "groups": [group]})
        search = {"CapacityReservationId": "cr-0a1", "CapacityBlockExtensionDurationHours": 24}
        found = market.call("ec2", "DescribeCapacityBlockExtensionOfferings", search, "us-east-1")
        offering_id = found["CapacityBlockExtensionOfferings"][0]["CapacityBlockExtensionOfferingId"]
        order = {"CapacityReservationId": "cr-0a1", "CapacityBlockExtensionOfferingId": offering_id}
        market.call("ec2", "PurchaseCapacityBlockExtension", order, "us-east-1")
        for each in minutes:
            clock.advance(timedelta(minutes=each))
            market.tick()
        clock.set(START + timedelta(days=60))
        market.tick()
        (only,) = market.groups.by_key.values()
        activities = [(str(each["StartTime"]), each["Description"]) for each in only.activities]
        return heard(market) + activities

    assert story(steps) == story([])


def test_next_due_steps_through_everything(market: Market, clock: MarketClock, load: Any) -> None:
    load({"start": "2026-05-02T11:30:00Z"})
    moments = []
    while (due := market.next_due()) is not None:
        clock.set(due)
        market.tick()
        moments.append(f"{due:%d %H:%M}")
    assert moments == ["02 11:30", "04 10:50", "04 11:00", "04 11:30"]


# -- faults


def read(ec2: Any) -> int:
    return len(ec2.describe_capacity_reservations()["CapacityReservations"])


@pytest.mark.parametrize(
    ("kind", "code", "status"),
    [
        ("throttle", "RequestLimitExceeded", 503),
        ("describe_limit", "CapacityBlockDescribeLimitExceeded", 400),
        ("denied", "UnauthorizedOperation", 403),
        ("error_before", "InternalError", 500),
    ],
)
def test_refusing_faults_strike_as_often_as_told(
    market: Market, ec2: Any, load: Any, kind: Any, code: str, status: int
) -> None:
    load({})
    market.faults.add(kind=kind, operation="DescribeCapacityReservations", times=2)
    for _ in range(2):
        with pytest.raises(ClientError) as error:
            read(ec2)
        assert error.value.response["Error"]["Code"] == code
        assert error.value.response["ResponseMetadata"]["HTTPStatusCode"] == status
    assert read(ec2) == 1


def test_a_fault_keeps_to_its_region_and_reservation_case_b18(
    market: Market, ec2: Any, session: Any, load: Any, refused: Any
) -> None:
    load({}, {"reservation_id": "cr-0a2"})
    market.faults.add(kind="denied", operation="DescribeCapacityReservations", region="us-west-2", times=None)
    assert read(ec2) == 2
    assert refused(session.client("ec2", "us-west-2").describe_capacity_reservations) == "UnauthorizedOperation"
    market.faults.clear()
    market.faults.add(kind="empty_offerings", reservation_id="cr-0a2")
    for reservation_id, count in (("cr-0a1", 1), ("cr-0a2", 0), ("cr-0a2", 1)):
        found = ec2.describe_capacity_block_extension_offerings(
            CapacityReservationId=reservation_id, CapacityBlockExtensionDurationHours=24
        )
        assert len(found["CapacityBlockExtensionOfferings"]) == count


@pytest.mark.parametrize(
    ("kind", "raised"),
    [("error_after", ClientError), ("timeout_after", ReadTimeoutError), ("lost_answer", ConnectionClosedError)],
)
def test_an_order_whose_answer_is_lost_is_bought_case_b17(
    market: Market, ec2: Any, load: Any, buy: Any, kind: Any, raised: type[Exception]
) -> None:
    load({})
    market.faults.add(kind=kind, operation="PurchaseCapacityBlockExtension")
    with pytest.raises(raised):
        buy()
    assert market.call_counts["PurchaseCapacityBlockExtension"] == 1
    assert len(ec2.describe_capacity_block_extension_history()["CapacityBlockExtensions"]) == 1


def test_the_sdk_retries_as_it_would_against_aws_case_b17(market: Market, session: Any, load: Any) -> None:
    load({})
    market.faults.add(kind="error_before", operation="DescribeCapacityReservations", times=1)
    client = session.client("ec2", config=Config(retries={"mode": "standard", "total_max_attempts": 2}))
    assert read(client) == 1
    assert market.call_counts["DescribeCapacityReservations"] == 2


def test_payment_failure(market: Market, ec2: Any, load: Any, buy: Any, at: Any) -> None:
    load({})
    market.faults.add(kind="payment_failure", reservation_id="cr-0a1")
    buy()
    at("2026-05-02T00:00")
    (bought,) = ec2.describe_capacity_block_extension_history()["CapacityBlockExtensions"]
    assert bought["CapacityBlockExtensionStatus"] == "payment-failed"


@pytest.mark.parametrize(("change", "fee"), [({"percent": "10"}, "4385.36"), ({"value": "12000"}, "12000")])
def test_price_changes_between_search_and_purchase_case_b11(
    market: Market, load: Any, buy: Any, refused: Any, change: dict[str, str], fee: str
) -> None:
    load({})
    market.faults.add(kind="price_change", operation="PurchaseCapacityBlockExtension", **change)
    assert refused(buy) == "InvalidCapacityBlockOfferingIdExpired"
    assert buy()["UpfrontFee"] == fee


def test_offerings_of_another_length_case_b11(market: Market, ec2: Any, load: Any) -> None:
    load({})
    market.faults.add(kind="other_durations")
    found = ec2.describe_capacity_block_extension_offerings(
        CapacityReservationId="cr-0a1", CapacityBlockExtensionDurationHours=24
    )
    assert [each["CapacityBlockExtensionDurationHours"] for each in found["CapacityBlockExtensionOfferings"]] == [41]


def test_events_are_dropped_and_doubled_case_b25(market: Market, load: Any, at: Any) -> None:
    market.faults.add(kind="drop_event", operation="Capacity Block Delivered")
    market.faults.add(kind="duplicate_event", operation="Capacity Block Expiration Warning")
    load({"start": "2026-05-02T11:30:00Z"})
    at("2026-05-04T12:00")
    assert heard(market) == [("2026-05-04T10:50:00Z", "Capacity Block Expiration Warning")] * 2
    assert market.events[0]["id"] == market.events[1]["id"]


def test_faults_that_make_no_sense_are_refused(market: Market) -> None:
    with pytest.raises(ValueError, match="kind is 'explosion'"):
        market.faults.add(kind="explosion")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="percent and value"):
        market.faults.add(kind="price_change")


# -- the SDK's door


def test_calls_are_logged(market: Market, ec2: Any, load: Any) -> None:
    load({})
    read(ec2)
    call = market.calls[-1]
    assert (call.operation, call.account, call.region, call.error) == (
        "DescribeCapacityReservations",
        "111122223333",
        "us-east-1",
        None,
    )
    with pytest.raises(MarketError):
        market.call("ec2", "DescribeCapacityReservations", {"CapacityReservationIds": ["cr-0ff"]}, "us-east-1")
    assert market.calls[-1].error == "InvalidCapacityReservationId.NotFound"


def test_stands_beside_moto_and_knows_an_assumed_roles_account(
    market: Market, load: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    load({"owner_id": "444455556666", "shared_with": []})
    for name, value in {
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "x",
        "AWS_DEFAULT_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    with mock_aws():
        session = boto3.Session()
        attach(session, market)
        assert read(session.client("ec2")) == 0
        assert len(session.client("ec2").describe_vpcs()["Vpcs"]) == 1, "moto answers what the market does not know"
        table = session.resource("dynamodb").create_table(
            TableName="t",
            KeySchema=[{"AttributeName": "PK", "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": "PK", "AttributeType": "S"}],
            BillingMode="PAY_PER_REQUEST",
        )
        table.put_item(Item={"PK": "a"})
        role = session.client("sts").assume_role(
            RoleArn="arn:aws:iam::444455556666:role/member", RoleSessionName="sweep"
        )
        credentials = role["Credentials"]
        member = boto3.Session(
            credentials["AccessKeyId"],
            credentials["SecretAccessKey"],
            credentials["SessionToken"],
            region_name="us-east-1",
        )
        attach(member, market)
        assert read(member.client("ec2")) == 1


def test_every_operation_exists_in_the_sdk_and_a_bad_parameter_is_refused(market: Market) -> None:
    from local.market import wire

    for service, operation in market.operations():
        assert wire.service_model(service).operation_model(operation).name == operation
    with pytest.raises(MarketError, match="MissingParameter"):
        wire.parse_request("ec2", "PurchaseCapacityBlockExtension", {"CapacityReservationId": "cr-0a1"})
    with pytest.raises(MarketError, match="InvalidParameterValue"):
        wire.parse_request("ec2", "DescribeCapacityReservations", {"MaxResults": "many"})
    with pytest.raises(MarketError, match="InvalidAction"):
        market.call("ec2", "RunInstances", {}, "us-east-1")
