"""`blockkeeper offers` against the market."""

import time
from datetime import timedelta

import pytest

from blockkeeper.domain.durations import LEGAL_DAYS

from .conftest import BLOCK, END, NOW

SEARCH = "DescribeCapacityBlockExtensionOfferings"


def test_lengths_are_shown_cheapest_first_with_fee_per_instance_hour_and_new_end(cli):
    cli.block()
    ran = cli("offers", BLOCK, "--json", "--days", "7", "--days", "1")
    assert ran.code == 0
    assert ran.json["environment"] is None
    assert [(o["days"], o["upfront_fee"], o["fee_per_instance_hour"], o["new_end"]) for o in ran.json["offerings"]] == [
        (1, "3986.69", "41.5280", "2026-05-05T11:30:00Z"),
        (7, "27906.82", "41.5280", "2026-05-11T11:30:00Z"),
    ]
    text = cli("offers", BLOCK, "--days", "7", "--days", "1").out
    assert max(map(len, text.splitlines())) <= 80
    assert text.index("3,986.69 USD") < text.index("27,906.82 USD")
    for words in ("41.53 USD", "2026-05-11 11:30", "not enrolled", "2026-03-09 11:30", "2026-05-04 10:30", "cbe-"):
        assert words in text


def test_without_a_record_the_usual_lengths_are_asked_for(cli):
    cli.block()
    assert [o["days"] for o in cli("offers", BLOCK, "--json").json["offerings"]] == [1, 7, 14]


@pytest.mark.parametrize("target", ["team-vision", BLOCK])
def test_a_records_length_and_ceiling_count(cli, target):
    cli.block()
    cli.enrol(extend_by_days=7)
    ran = cli("offers", target, "--json")
    (offering,) = ran.json["offerings"]
    assert (offering["days"], ran.json["environment"]) == (7, "team-vision")
    assert "above max_upfront_fee 12,000.00 USD" in offering["objection"]
    assert "above max_upfront_fee" in " ".join(cli("offers", target).out.split())


def test_a_new_end_past_extend_until_is_marked(cli):
    cli.block()
    cli.enrol(extend_until="2026-05-05T00:00:00Z")
    (offering,) = cli("offers", "team-vision", "--json").json["offerings"]
    assert "past extend_until" in offering["objection"]


def test_a_length_that_ec2_does_not_sell_is_refused_before_any_call_b11(cli):
    ran = cli("offers", BLOCK, "--days", "15")
    assert ran.code == 2
    assert "--days is 15; EC2 sells 1 to 14 days, then whole weeks up to 26 (use 14 or 21)" in ran.err
    assert not cli.market.calls
    assert not cli.requests


def test_no_offering_and_other_lengths_are_a_normal_answer_b11(cli):
    cli.block(offering={"available": False})
    ran = cli("offers", BLOCK, "--json", "--days", "1")
    assert ran.code == 0
    assert ran.json["offerings"] == []
    assert ran.json["not_offered"] == [{"days": 1, "reason": "EC2 offers no extension of 24 hours"}]
    assert "1 day: EC2 offers no extension of 24 hours" in cli("offers", BLOCK, "--days", "1").out
    cli.block("cr-000000000000000a1")
    cli.market.faults.add(kind="other_durations", operation=SEARCH)
    assert cli("offers", "cr-000000000000000a1", "--json", "--days", "1").json["offerings"] == []


@pytest.mark.parametrize(
    ("now", "words"),
    [
        (END - timedelta(minutes=60), "closed at 2026-05-04T10:30:00Z"),
        (END - timedelta(days=56, seconds=1), "opens at 2026-03-09T11:30:00Z"),
    ],
)
def test_outside_the_window_nothing_is_searched_b02(cli, now, words):
    cli.block(start="2026-03-01T11:30:00Z", state="active")
    cli.market.clock.set(now)
    ran = cli("offers", BLOCK, "--json")
    assert ran.code == 1
    assert words in ran.err
    assert (ran.json["open"], ran.json["offerings"]) == (False, [])
    assert not cli.calls(SEARCH)


def test_just_inside_the_window_it_is_searched(cli):
    cli.block(start="2026-03-01T11:30:00Z", state="active")
    for now in (END - timedelta(days=56), END - timedelta(minutes=60, seconds=1)):
        cli.market.clock.set(now)
        assert cli("offers", BLOCK, "--json", "--days", "1").json["offerings"]


def test_all_lengths_are_asked_for_no_faster_than_ec2_allows(cli, monkeypatch):
    cli.block()
    waited = []

    def sleep(seconds):
        waited.append(seconds)
        cli.market.clock.advance(timedelta(seconds=seconds))

    monkeypatch.setattr(time, "sleep", sleep)
    ran = cli("offers", BLOCK, "--json", *(word for days in LEGAL_DAYS for word in ("--days", str(days))))
    assert ran.code == 0
    assert len(ran.json["offerings"]) == len(LEGAL_DAYS)
    assert [call.error for call in cli.calls(SEARCH)] == [None] * len(LEGAL_DAYS)
    assert len(waited) == len(LEGAL_DAYS) - 10
    assert "at once" in ran.err


def test_few_lengths_take_no_pause(cli, monkeypatch):
    cli.block()
    monkeypatch.setattr(time, "sleep", pytest.fail)
    assert cli("offers", BLOCK, *(word for days in range(1, 11) for word in ("--days", str(days)))).code == 0


def test_an_ended_block_is_not_searched(cli):
    cli.block(end="2026-05-03T11:30:00Z", state="expired")
    ran = cli("offers", BLOCK)
    assert ran.code == 1
    assert "EC2 shows the block as expired" in ran.err
    assert not cli.calls(SEARCH)


def test_it_works_without_a_stack(cli):
    cli.block()
    ran = cli("offers", BLOCK, "--stack", "none", "--days", "1")
    assert (ran.code, ran.err) == (0, "")
    assert "not enrolled" in ran.out


def test_a_record_that_could_not_be_read_is_not_taken_for_missing_b18(cli):
    cli.block()
    cli.api_answers = (500, "")
    ran = cli("offers", BLOCK, "--days", "1")
    assert ran.code == 0
    assert "could not be read" in ran.err


def test_an_ordinary_reservation_is_no_block_b14(cli):
    cli.block(reservation_type="default")
    ran = cli("offers", BLOCK)
    assert ran.code == 1
    assert f"{BLOCK} is no Capacity Block" in ran.err
    assert not cli.calls(SEARCH)


def test_an_unknown_id_names_it_and_the_way_out(cli):
    ran = cli("offers", "cr-0000000000000dead")
    assert ran.code == 1
    assert "cr-0000000000000dead" in ran.err
    assert "--region" in ran.err


def test_a_read_that_is_denied_or_limited_is_an_error_b18(cli, monkeypatch):
    cli.block()
    monkeypatch.setattr(time, "sleep", lambda _: None)
    cli.market.faults.add(kind="denied", operation="DescribeCapacityReservations", times=1)
    ran = cli("offers", BLOCK)
    assert ran.code == 1
    assert "ec2:DescribeCapacityReservations" in ran.err
    cli.market.faults.add(kind="describe_limit", operation=SEARCH, times=1)
    ran = cli("offers", BLOCK)
    assert (ran.code, ran.out) == (1, "")
    assert "CapacityBlockDescribeLimitExceeded" in ran.err


def test_a_block_that_has_not_started_shows_its_size_from_its_tag(cli):
    start = NOW + timedelta(hours=20)
    cli.block(
        start=f"{start:%Y-%m-%dT%H:%M:%SZ}",
        end="2026-05-05T11:30:00Z",
        tags={"aws:ec2capacityreservation:incrementalRequestedQuantity": "4"},
    )
    (offering,) = cli("offers", BLOCK, "--json", "--days", "1").json["offerings"]
    assert offering["fee_per_instance_hour"] == "41.5280"


NEW = {
    "region": "us-east-1",
    "instance_type": "p5.48xlarge",
    "instance_count": 4,
    "start": "2026-05-04T13:00:00Z",
    "end": "2026-05-05T11:30:00Z",
    "hourly_rate": "41.528",
}


def test_new_blocks_are_shown_the_best_first_and_what_speaks_against_the_others(cli):
    cli.block()
    cli.enrol(replace={"max_gap_hours": 4, "max_upfront_fee": "4000"})
    early = NEW | {"availability_zone": "us-east-1b"}
    late = NEW | {"availability_zone": "us-east-1a", "start": "2026-05-05T11:30:00Z", "end": "2026-05-06T11:30:00Z"}
    cli.market.load_fleet({"offerings": [late, early]})
    ran = cli("offers", "team-vision", "--new", "--json")
    assert ran.code == 0
    assert ran.json["search_until"] == "2026-05-04T13:25:00Z"
    assert [(o["availability_zone"], o["upfront_fee"], o["best"]) for o in ran.json["offerings"]] == [
        ("us-east-1a", "3986.69", False),
        ("us-east-1b", "3737.52", True),
    ]
    assert "later than max_gap_hours allows" in ran.json["offerings"][0]["objection"]
    text = cli("offers", "team-vision", "--new").out
    assert max(map(len, text.splitlines())) <= 80
    for words in ("3,737.52 USD", "this one", "2026-05-04 13:00", "us-east-1b"):
        assert words in text
    assert not [call for call in cli.market.calls if call.operation.startswith("Purchase")]


def test_no_new_block_is_said_in_words(cli):
    cli.block()
    cli.enrol(replace={"max_gap_hours": 4, "max_upfront_fee": "4000"})
    ran = cli("offers", "team-vision", "--new")
    assert (ran.code, "EC2 offers no block of 4 p5.48xlarge" in " ".join(ran.out.split())) == (0, True)


@pytest.mark.parametrize(
    ("enrolled", "more", "code", "text"),
    [
        (True, [], 1, "replace is not set"),
        (False, [], 1, "is not enrolled; what a new block must be like is said by its record"),
        (True, ["--days", "1"], 2, "--new and --days exclude each other"),
    ],
)
def test_new_blocks_that_cannot_be_bought_are_refused_with_the_reason(cli, enrolled, more, code, text):
    cli.block()
    if enrolled:
        cli.enrol()
    ran = cli("offers", BLOCK, "--new", *more)
    assert (ran.code, text in " ".join(ran.err.split())) == (code, True)
