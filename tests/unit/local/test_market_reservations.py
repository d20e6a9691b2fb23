from datetime import UTC, datetime
from typing import Any

import pytest

from local.market import Market, MarketError
from local.market.fleet import moment

NOW = datetime(2026, 5, 1, 10, 0, tzinfo=UTC)


def reservations(ec2: Any, **params: Any) -> dict[str, dict[str, Any]]:
    return {
        each["CapacityReservationId"]: each
        for each in ec2.describe_capacity_reservations(**params)["CapacityReservations"]
    }


def test_a_block_before_its_start_counts_0_and_has_its_size_in_a_tag(ec2: Any, load: Any, at: Any) -> None:
    load({"start": "2026-05-02T11:30:00Z", "tags": {"team": "nlp"}})
    shown = reservations(ec2)["cr-0a1"]
    assert (shown["State"], shown["TotalInstanceCount"], shown["AvailableInstanceCount"]) == ("scheduled", 0, 0)
    tags = {tag["Key"]: tag["Value"] for tag in shown["Tags"]}
    assert tags == {
        "team": "nlp",
        "aws:ec2capacityreservation:incrementalRequestedQuantity": "4",
        "aws:ec2capacityreservation:capacityReservationType": "capacity-block",
    }
    at("2026-05-02T11:30")
    shown = reservations(ec2)["cr-0a1"]
    assert (shown["State"], shown["TotalInstanceCount"], shown["AvailableInstanceCount"]) == ("active", 4, 4)
    assert (shown["EndDateType"], shown["InstanceMatchCriteria"], shown["ReservationType"]) == (
        "limited",
        "targeted",
        "capacity-block",
    )
    at("2026-05-04T11:30")
    assert reservations(ec2)["cr-0a1"]["State"] == "expired"


def test_a_block_may_start_late_case_b36(ec2: Any, load: Any, at: Any) -> None:
    load({"start": "2026-05-03T11:30:00Z", "delivered_after_minutes": 4})
    at("2026-05-03T11:33")
    assert reservations(ec2)["cr-0a1"]["State"] == "scheduled"
    at("2026-05-03T11:34")
    assert reservations(ec2)["cr-0a1"]["State"] == "active"


def test_an_expired_block_is_forgotten_later(ec2: Any, load: Any, at: Any, refused: Any) -> None:
    load({})
    at("2026-05-11T11:29")
    assert "cr-0a1" in reservations(ec2, CapacityReservationIds=["cr-0a1"])
    at("2026-05-11T11:31")
    assert reservations(ec2) == {}
    code = refused(ec2.describe_capacity_reservations, CapacityReservationIds=["cr-0a1"])
    assert code == "InvalidCapacityReservationId.NotFound"


def test_odd_entries_stand_beside_blocks_case_b14(ec2: Any, load: Any, at: Any) -> None:
    load(
        {},
        {"reservation_id": "cr-0b1", "reservation_type": "default", "end": None},
        {"reservation_id": "cr-0b2", "reservation_type": "default"},
        {"reservation_id": "cr-0b3", "reservation_type": None},
        {"reservation_id": "cr-0b4", "state": "assessing", "end": None, "reservation_type": "default"},
        {"reservation_id": "cr-0b5", "state": "something-new"},
    )
    at("2026-05-20T00:00")
    shown = reservations(ec2)
    assert "cr-0a1" not in shown, "forgotten"
    assert "EndDate" not in shown["cr-0b1"]
    assert shown["cr-0b1"]["EndDateType"] == "unlimited"
    assert shown["cr-0b2"]["ReservationType"] == "default"
    assert "ReservationType" not in shown["cr-0b3"]
    assert shown["cr-0b4"]["State"] == "assessing"
    assert shown["cr-0b5"]["State"] == "something-new"


def test_a_foreign_block_is_seen_with_its_owner_and_only_in_its_region(ec2: Any, load: Any, session: Any) -> None:
    load({"owner_id": "444455556666"}, {"reservation_id": "cr-0b1", "owner_id": "444455556666", "shared_with": []})
    assert {key: each["OwnerId"] for key, each in reservations(ec2).items()} == {"cr-0a1": "444455556666"}
    assert reservations(session.client("ec2", "us-west-2")) == {}


@pytest.mark.parametrize(
    ("name", "value", "found"),
    [
        ("reservation-type", "capacity-block", ["cr-0a1", "cr-0a2"]),
        ("reservation-type", "default", ["cr-0b1"]),
        ("state", "active", ["cr-0a1", "cr-0b1"]),
        ("instance-type", "p5*", ["cr-0a1", "cr-0b1"]),
        ("instance-type", "p6-b?00.48xlarge", ["cr-0a2"]),
        ("owner-id", "111122223333", ["cr-0a1", "cr-0a2", "cr-0b1"]),
        ("availability-zone", "us-east-1b", ["cr-0a2"]),
        ("end-date-type", "unlimited", ["cr-0b1"]),
        ("start-date", "2026-05-02*", ["cr-0a2"]),
        ("instance-match-criteria", "open", ["cr-0b1"]),
        ("tenancy", "dedicated", []),
        ("instance-platform", "Linux/UNIX", ["cr-0a1", "cr-0a2", "cr-0b1"]),
    ],
)
def test_filters(ec2: Any, load: Any, name: str, value: str, found: list[str]) -> None:
    load(
        {},
        {
            "reservation_id": "cr-0a2",
            "instance_type": "p6-b200.48xlarge",
            "availability_zone": "us-east-1b",
            "start": "2026-05-02T11:30:00Z",
        },
        {"reservation_id": "cr-0b1", "reservation_type": "default", "end": None},
    )
    assert sorted(reservations(ec2, Filters=[{"Name": name, "Values": [value]}])) == found


def test_an_undocumented_filter_and_too_many_values_are_refused(ec2: Any, refused: Any) -> None:
    call = ec2.describe_capacity_reservations
    assert refused(call, Filters=[{"Name": "tag:team", "Values": ["nlp"]}]) == "InvalidParameterValue"
    assert refused(call, Filters=[{"Name": "state", "Values": ["x"] * 201}]) == "FilterLimitExceeded"


def test_pages(ec2: Any, load: Any, refused: Any) -> None:
    load(*({"reservation_id": f"cr-{n:03x}"} for n in range(25)))
    pages = list(ec2.get_paginator("describe_capacity_reservations").paginate(PaginationConfig={"PageSize": 10}))
    assert [len(page["CapacityReservations"]) for page in pages] == [10, 10, 5]
    assert len({each["CapacityReservationId"] for page in pages for each in page["CapacityReservations"]}) == 25
    assert "NextToken" not in pages[-1]
    token = pages[0]["NextToken"]
    call = ec2.describe_capacity_reservations
    assert refused(call, NextToken=token, Filters=[{"Name": "state", "Values": ["active"]}]) == "InvalidNextToken"
    assert refused(call, NextToken="made-up") == "InvalidNextToken"


@pytest.mark.parametrize("size", [0, 1001])
def test_page_sizes(market: Market, size: int) -> None:
    with pytest.raises(MarketError, match="InvalidParameterValue"):
        market.call("ec2", "DescribeCapacityReservations", {"MaxResults": size}, "us-east-1")


@pytest.mark.parametrize(
    "operation",
    [
        "describe_capacity_reservations",
        "describe_capacity_blocks",
        "describe_capacity_block_status",
        "describe_capacity_block_extension_history",
    ],
)
def test_dry_run(ec2: Any, refused: Any, operation: str) -> None:
    assert refused(getattr(ec2, operation), DryRun=True) == "DryRunOperation"


def test_ids(ec2: Any, refused: Any) -> None:
    call = ec2.describe_capacity_reservations
    assert refused(call, CapacityReservationIds=["cr-0ff"]) == "InvalidCapacityReservationId.NotFound"
    assert refused(call, CapacityReservationIds=["i-0ff"]) == "InvalidCapacityReservationId.Malformed"


def test_blocks_and_their_status(ec2: Any, load: Any) -> None:
    load(
        {"ultraserver": "u-p6e-gb200x72"},
        {"reservation_id": "cr-0b1", "reservation_type": "default"},
        groups=({"desired": 1},),
    )
    (block,) = ec2.describe_capacity_blocks(Filters=[{"Name": "ultraserver-type", "Values": ["u-p6e*"]}])[
        "CapacityBlocks"
    ]
    assert block["CapacityReservationIds"] == ["cr-0a1"]
    assert (block["State"], block["UltraserverType"]) == ("active", "u-p6e-gb200x72")
    (status,) = ec2.describe_capacity_block_status(CapacityBlockIds=[block["CapacityBlockId"]])["CapacityBlockStatuses"]
    assert (status["TotalCapacity"], status["TotalAvailableCapacity"], status["TotalUnavailableCapacity"]) == (4, 3, 1)
    assert status["InterconnectStatus"] == "ok"
    assert reservations(ec2)["cr-0a1"]["LaunchStatus"] == "launchable"


def test_a_block_of_an_ultraserver_ends_its_instances_an_hour_before(ec2: Any, load: Any, at: Any) -> None:
    load({"ultraserver": "u-p6e-gb200x72"}, groups=({"desired": 2},))
    running = [{"Name": "instance-state-name", "Values": ["running"]}]
    at("2026-05-04T10:29")
    assert len(ec2.describe_instances(Filters=running)["Reservations"]) == 2
    at("2026-05-04T10:30")
    assert ec2.describe_instances(Filters=running)["Reservations"] == []


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("2026-05-04T11:30:00Z", datetime(2026, 5, 4, 11, 30, tzinfo=UTC)),
        ("now", NOW),
        ("now+30h", datetime(2026, 5, 2, 16, 0, tzinfo=UTC)),
        ("now-2d", datetime(2026, 4, 29, 10, 0, tzinfo=UTC)),
        ("now+45m", datetime(2026, 5, 1, 10, 45, tzinfo=UTC)),
        ("now+30h@11:30", datetime(2026, 5, 3, 11, 30, tzinfo=UTC)),
        ("now@11:30", datetime(2026, 5, 1, 11, 30, tzinfo=UTC)),
    ],
)
def test_moments_of_a_fleet(text: str, at: datetime) -> None:
    assert moment(text, NOW) == at


@pytest.mark.parametrize(
    ("fleet", "place"),
    [
        ({"blocks": [{"reservation_id": "cr-1"}]}, "blocks/0"),
        ({"blocs": []}, "the fleet"),
        (
            {
                "groups": [
                    {"name": "g", "region": "us-east-1", "availability_zone": "a", "min": 0, "max": 1, "desired": "2"}
                ]
            },
            "groups/0/desired",
        ),
    ],
)
def test_a_fleet_that_breaks_its_schema_is_refused_with_the_place(
    market: Market, fleet: dict[str, Any], place: str
) -> None:
    with pytest.raises(ValueError, match=f"^{place}: "):
        market.load_fleet(fleet)


def test_environments_pass_through(market: Market) -> None:
    market.load_fleet({"environments": [{"PK": "a"}]})
    assert market.environments == [{"PK": "a"}]
