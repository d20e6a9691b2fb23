"""Times in AWS's answers are read fast, and as botocore would read them."""

from datetime import UTC, datetime
from typing import Any

import pytest
from botocore.awsrequest import AWSResponse
from botocore.compat import HTTPHeaders
from botocore.utils import parse_timestamp

from blockkeeper.aws.clients import client, read_timestamp


@pytest.mark.parametrize(
    "value",
    [
        "2026-05-04T11:30:00.000Z",
        "2026-05-04T11:30:00Z",
        "2026-05-04T13:30:00+02:00",
        "Mon, 04 May 2026 11:30:00 GMT",
        1777894200,
        1777894200.0,
        "1777894200",
    ],
)
def test_reads_what_botocore_reads(value):
    assert read_timestamp(value) == parse_timestamp(value) == datetime(2026, 5, 4, 11, 30, tzinfo=UTC)
    assert read_timestamp(value).utcoffset() is not None


def test_a_time_without_zone_is_botocores_word():
    assert read_timestamp("2026-05-04T11:30:00") == parse_timestamp("2026-05-04T11:30:00")


def test_clients_read_times_so(monkeypatch):
    for name, value in {"ACCOUNT_ID": "111122223333", "AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s"}.items():
        monkeypatch.setenv(name, value)
    made = client.__wrapped__("ec2", "eu-west-1")
    made.meta.events.register_first("before-send.ec2", _answer)
    (entry,) = made.describe_capacity_reservations()["CapacityReservations"]
    assert entry["EndDate"] == datetime(2026, 5, 4, 11, 30, tzinfo=UTC)
    assert entry["EndDate"].tzinfo is UTC  # botocore's own reader has a zone of dateutil


def _answer(request: Any, **_: Any) -> AWSResponse:
    body = (
        b"<DescribeCapacityReservationsResponse><capacityReservationSet><item>"
        b"<endDate>2026-05-04T11:30:00.000Z</endDate>"
        b"</item></capacityReservationSet></DescribeCapacityReservationsResponse>"
    )
    answer = AWSResponse(request.url, 200, HTTPHeaders(), None)
    answer._content = body
    return answer
