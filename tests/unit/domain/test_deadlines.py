from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blockkeeper.domain.deadlines import Deadlines
from blockkeeper.domain.durations import LEGAL_DAYS, IllegalDurationError, extension_hours
from blockkeeper.domain.instants import format_instant, parse_instant, stamp
from blockkeeper.domain.money import UnreadableFeeError, format_usd, parse_usd
from blockkeeper.domain.names import extension_name, ledger_id

END = datetime(2026, 5, 4, 11, 30, tzinfo=UTC)


def test_the_deadlines_of_an_ordinary_block():
    deadlines = Deadlines(END)
    assert deadlines.first_search == datetime(2026, 5, 2, 11, 30, tzinfo=UTC)
    assert deadlines.decide_by == datetime(2026, 5, 4, 8, 30, tzinfo=UTC)
    assert deadlines.order_by == datetime(2026, 5, 4, 10, 30, tzinfo=UTC)
    assert deadlines.pay_by == datetime(2026, 5, 4, 10, 55, tzinfo=UTC)
    assert deadlines.terminates_at == datetime(2026, 5, 4, 11, 0, tzinfo=UTC)


def test_an_ultraserver_block_is_terminated_an_hour_before_its_end():
    assert Deadlines(END, ultraserver=True).terminates_at == datetime(2026, 5, 4, 10, 30, tzinfo=UTC)


def test_case_b08_the_scale_in_leaves_time_for_the_longest_hook():
    # A hook of 1,200 s: 11:00 - 20 min - 2 min lateness - 5 min margin, and no later than the case's 10:35.
    drain_at = Deadlines(END).drain_at(longest_hook=timedelta(seconds=1200))
    assert drain_at == datetime(2026, 5, 4, 10, 33, tzinfo=UTC)


def test_nothing_is_searched_earlier_than_ec2_extends():
    assert Deadlines(END, look_ahead=timedelta(days=90)).first_search == END - timedelta(days=56)


@given(
    look_ahead=st.integers(1, 200),
    margin=st.integers(0, 1440),
    hook=st.integers(0, 7200),
    drain=st.integers(0, 240),
    ultraserver=st.booleans(),
)
def test_the_deadlines_come_in_their_order_whatever_the_policy(look_ahead, margin, hook, drain, ultraserver):
    deadlines = Deadlines(END, timedelta(days=look_ahead), timedelta(minutes=margin), ultraserver)
    assert deadlines.opens_at <= deadlines.first_search < deadlines.end
    assert deadlines.decide_by <= deadlines.order_by < deadlines.pay_by < deadlines.end
    drained = deadlines.drain_at(timedelta(seconds=hook), timedelta(minutes=drain))
    assert drained + max(timedelta(seconds=hook), timedelta(minutes=drain)) < deadlines.terminates_at


def test_the_legal_lengths_are_the_38_that_ec2_documents():
    assert len(LEGAL_DAYS) == 38
    assert [extension_hours(days) for days in (1, 14, 21, 182)] == [24, 336, 504, 4368]


@pytest.mark.parametrize(
    ("days", "remedy"), [(15, "use 14 or 21"), (0, "use 1"), (183, "use 182"), (181, "use 175 or 182")]
)
def test_case_b11_an_illegal_length_names_field_rule_and_remedy(days, remedy):
    with pytest.raises(IllegalDurationError, match=rf"extend_by_days is {days}; EC2 sells 1 to 14 days.*{remedy}"):
        extension_hours(days)


@pytest.mark.parametrize("text", ["511", "283", "10283.50", "0", "498.123456"])
def test_a_fee_is_read_exactly(text):
    assert str(parse_usd(text)) == text


@pytest.mark.parametrize("text", ["", "1,000", "-5", "1e3", "NaN", " 5", "5 ", "5.", "٣", None, 5, 5.0, True, "5\n"])
def test_an_unreadable_fee_is_no_fee(text):
    with pytest.raises(UnreadableFeeError, match="is not an amount in USD"):
        parse_usd(text)


def test_money_is_written_for_people():
    assert format_usd(parse_usd("10283.5")) == "10,283.50 USD"


@given(st.datetimes(datetime(2000, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC)))  # noqa: DTZ001 - bounds are naive
def test_instants_survive_writing_and_reading_to_the_second(instant):
    assert parse_instant(format_instant(instant)) == instant.replace(microsecond=0)


def test_an_instant_without_a_zone_is_refused():
    with pytest.raises(ValueError, match="no time zone"):
        parse_instant("2026-05-04T11:30:00")


def test_case_b25_names_are_of_the_block_and_its_end_and_hold_what_step_functions_takes():
    assert extension_name("cr-0a1", END) == "cr-0a1-20260504T1130Z"
    assert extension_name("cr-0a1", END + timedelta(days=1)) == "cr-0a1-20260505T1130Z"
    odd = extension_name("arn:aws:ec2:us-east-1:111122223333:capacity-reservation/cr-0123456789abcdef0", END)
    assert ":" not in odd
    assert "/" not in odd
    assert len(odd) <= 80
    assert stamp(END) == "20260504T1130Z"
    assert ledger_id("cr-0a1", END) == "cr-0a1#2026-05-04T11:30:00Z"
