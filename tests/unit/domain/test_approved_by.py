"""Who said yes to a purchase, as the ledger keeps it."""

import pytest

from blockkeeper.domain.purchase_policy import approvers_of


@pytest.mark.parametrize(
    ("votes", "decided_by", "expected"),
    [
        ({"api:": "approve"}, "api:maria@example.com", ("api:maria@example.com",)),
        (
            {"slack:t1:u1": "approve", "jo@example.com": "approve"},
            "slack:T1:U1",
            ("jo@example.com", "slack:T1:U1"),
        ),
        ({"jo@example.com": "reject", "ann@example.com": "approve"}, "jo@example.com", ("ann@example.com",)),
        ({}, "policy:on_timeout", ("policy:on_timeout",)),
        ({}, None, ()),
    ],
)
def test_the_ledger_knows_by_name_who_said_yes(votes, decided_by, expected):
    assert approvers_of({"votes": votes, "decided_by": decided_by}) == expected
