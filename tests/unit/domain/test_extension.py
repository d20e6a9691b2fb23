"""What EC2's history says of a block's past."""

from datetime import timedelta
from decimal import Decimal

import pytest

from blockkeeper.domain.extension import parse_extensions, past_fee_per_instance_hour

from .builders import END, extension

DAY = timedelta(days=1)
PAID = {
    "CapacityBlockExtensionStatus": "payment-succeeded",
    "InstanceCount": 4,
    "CapacityBlockExtensionDurationHours": 24,
    "UpfrontFee": "3986.69",
    "CurrencyCode": "USD",
}


def past(*entries):
    return past_fee_per_instance_hour(parse_extensions([extension(**entry) for entry in entries], "cr-0a1"))


def test_the_latest_paid_extension_counts_in_usd_per_instance_and_hour():
    earlier = PAID | {"CapacityBlockExtensionStartDate": END - DAY, "UpfrontFee": "96"}
    unpaid = PAID | {"CapacityBlockExtensionStartDate": END + DAY, "CapacityBlockExtensionStatus": "payment-pending"}
    assert past(PAID, earlier, unpaid) == Decimal("41.5280")
    assert str(past(PAID | {"UpfrontFee": "960000"})) == "10000.0000"


@pytest.mark.parametrize(
    "entries",
    [
        [],
        [PAID | {"CapacityBlockExtensionStatus": "payment-failed"}],
        [PAID | {"UpfrontFee": "1,000"}],
        [PAID | {"CurrencyCode": "CNY"}],
        [PAID | {"InstanceCount": 0}],
        [PAID | {"CapacityBlockExtensionDurationHours": None}],
    ],
)
def test_what_was_not_paid_or_cannot_be_read_is_no_past_price(entries):
    assert past(*entries) is None
