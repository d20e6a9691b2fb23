from datetime import timedelta
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blockkeeper.domain.offering import Found, choose_offering

from .builders import END, offering

CEILING = Decimal(12000)


def choose(entries, ceiling=CEILING, hours=24):
    return choose_offering(entries, hours=hours, current_end=END, ceiling=ceiling)


def test_case_b11_the_first_offering_is_another_length_and_is_not_bought():
    other = offering(CapacityBlockExtensionOfferingId="cbe-2", CapacityBlockExtensionDurationHours=41, UpfrontFee="498")
    choice = choose([other, offering()])
    assert (choice.found, choice.offering.offering_id) == (Found.OFFERED, "cbe-1")


def test_case_b11_above_the_ceiling_is_never_bought():
    choice = choose([offering()], ceiling=Decimal(5000))
    assert choice.found is Found.TOO_DEAR
    assert "10,283.50 USD, above max_upfront_fee 5,000.00 USD" in choice.reason


def test_case_b11_an_empty_list_is_a_normal_answer():
    assert choose([]).found is Found.NO_OFFERING


def test_the_cheapest_is_chosen_as_a_number_not_as_text():
    dear = offering(CapacityBlockExtensionOfferingId="cbe-dear", UpfrontFee="9999")
    cheap = offering(CapacityBlockExtensionOfferingId="cbe-cheap", UpfrontFee="998.5")
    assert choose([dear, cheap]).offering.offering_id == "cbe-cheap"


@pytest.mark.parametrize(
    "fields",
    [
        {"UpfrontFee": "1,000"},
        {"UpfrontFee": None},
        {"CurrencyCode": "EUR"},
        {"CapacityBlockExtensionEndDate": END},
    ],
)
def test_an_offering_that_cannot_be_read_exactly_is_not_bought_and_said(fields):
    choice = choose([offering(**fields)])
    assert choice.found is Found.UNREADABLE
    assert choice.offering is None


def test_an_offering_for_another_end_is_none():
    later = END + timedelta(days=1)
    assert choose([offering(CapacityBlockExtensionStartDate=later)]).found is Found.NO_OFFERING


@given(st.lists(st.tuples(st.integers(1, 30_000), st.sampled_from([24, 41, 48])), max_size=8), st.integers(0, 30_000))
def test_what_is_chosen_is_always_of_the_length_within_the_ceiling_and_cheapest(offers, ceiling):
    entries = [
        offering(
            CapacityBlockExtensionOfferingId=f"cbe-{i}",
            CapacityBlockExtensionDurationHours=hours,
            CapacityBlockExtensionEndDate=END + timedelta(hours=hours),
            UpfrontFee=str(fee),
        )
        for i, (fee, hours) in enumerate(offers)
    ]
    choice = choose(entries, ceiling=Decimal(ceiling))
    fitting = [fee for fee, hours in offers if hours == 24]
    if choice.found is Found.OFFERED:
        assert choice.offering.hours == 24
        assert choice.offering.fee == min(fitting) <= ceiling
    else:
        assert not fitting or min(fitting) > ceiling
