"""`blockkeeper resolve`: a person's word about an order whose outcome is not known."""

import csv
from io import StringIO

import pytest

from blockkeeper.aws import ledger, table

from .conftest import BLOCK
from .test_history import order

KEY = f"{BLOCK}#2026-05-04T11:30:00Z"
BLOCK_KEY = f"{KEY}#block"
SAID = ("--reason", "AWS Support, case 123", "--yes")


@pytest.fixture
def unknown(cli):
    """An order that was sent a day ago, and reserved its fee."""

    def write(key=KEY, **fields):
        cli.block()
        cli.purchase(**{"state": "UNKNOWN", "sent_at": "2026-05-02T12:00:00Z"} | fields)
        if key != KEY:
            table.write(table.put_request("purchase", key, table.get_item("purchase", KEY)))
        table.write(table.put_request("unresolved", BLOCK, {"ledger_id": key}))
        table.write(table.put_request("budget", "2026-05", {"reserved": 3_986_690_000}))
        return cli

    return write


def test_without_a_word_it_only_shows_what_ec2_says(unknown):
    cli = unknown()
    ran = cli("resolve", BLOCK)
    assert ran.code == 0
    for words in (KEY, "3,986.69 USD", "active, ending at 2026-05-04T11:30:00Z", "no extension from the end"):
        assert words in ran.err
    assert "EC2 does not tell" in ran.out
    assert cli("resolve", KEY, "--json").json["ec2_tells"] is None
    assert ledger.unresolved(BLOCK) == KEY


def test_not_bought_gives_the_money_back_and_keeps_who_said_it(unknown):
    cli = unknown()
    cli.enrol()
    ran = cli("resolve", "team-vision", "--not-bought", *SAID)
    assert ran.code == 0, ran.err
    assert "3,986.69 USD is back in the budget" in ran.out
    assert (ledger.unresolved(BLOCK), ledger.reserved("2026-05")) == (None, 0)
    (row,) = cli("history", "--json").json
    assert row["ledger"] == "REFUSED"
    assert row["resolved"].startswith("not bought, said arn:aws:")
    assert row["resolved"].endswith("AWS Support, case 123")
    assert cli("resolve", BLOCK).code == 1


def test_bought_needs_ec2_to_show_it(unknown):
    cli = unknown()
    ran = cli("resolve", BLOCK, "--bought", *SAID)
    assert ran.code == 1
    assert "EC2 shows no such order" in ran.err
    assert ledger.unresolved(BLOCK) == KEY


def test_not_bought_is_refused_when_ec2_shows_the_order_and_bought_is_taken(unknown):
    cli = unknown(offering_id="cbe-none")
    offering = order(cli)
    cli.purchase(state="UNKNOWN", sent_at="2026-05-03T12:00:00Z", offering_id=offering)
    assert "resolve it with --bought" in cli("resolve", BLOCK).out
    ran = cli("resolve", BLOCK, "--not-bought", *SAID)
    assert (ran.code, "payment-pending; say --bought" in ran.err) == (1, True)
    assert cli("resolve", BLOCK, "--bought", *SAID).code == 0
    assert table.get_item("purchase", KEY)["state"] == "BOUGHT"
    assert (ledger.unresolved(BLOCK), str(ledger.reserved("2026-05"))) == (None, "3986.69")


def test_while_the_workflow_still_looks_nobody_says_not_bought(unknown):
    cli = unknown(sent_at="2026-05-03T11:00:00Z")
    ran = cli("resolve", BLOCK, "--not-bought", *SAID)
    assert (ran.code, "say it after 2026-05-03T12:10:00Z" in ran.err) == (1, True)


def test_a_block_that_ec2_has_forgotten_is_left_to_the_person(unknown):
    key = "cr-0f0#2026-05-04T11:30:00Z"
    cli = unknown()
    cli.purchase(reservation_id="cr-0f0", state="UNKNOWN", sent_at="2026-05-02T12:00:00Z")
    table.write(table.put_request("unresolved", "cr-0f0", {"ledger_id": key}))
    ran = cli("resolve", "cr-0f0", "--bought", *SAID)
    assert ran.code == 0, ran.err
    assert "no more" in ran.err


@pytest.mark.parametrize("tagged", [True, False])
def test_a_new_block_is_recognised_by_its_tag(unknown, tagged):
    cli = unknown(BLOCK_KEY)
    cli.block("cr-0new", tags={"blockkeeper:purchase": BLOCK_KEY} if tagged else {})
    right, wrong = ("--bought", "--not-bought") if tagged else ("--not-bought", "--bought")
    assert cli("resolve", BLOCK, wrong, *SAID).code == 1
    ran = cli("resolve", BLOCK, right, *SAID)
    assert (ran.code, "`blockkeeper replace team-vision`" in ran.out, "blockkeeper extend" in ran.out) == (
        0,
        True,
        False,
    )
    assert ledger.unresolved(BLOCK) is None


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--bought", "--not-bought", *SAID), "exclude each other"),
        (("--bought", "--yes"), "--reason is missing"),
        (("--not-bought", "--reason", "sure"), "--yes"),
    ],
)
def test_wrong_usage_writes_nothing(unknown, words, said):
    cli = unknown()
    before = cli.everything()
    ran = cli("resolve", BLOCK, *words)
    assert (ran.code, said in ran.err) == (2, True)
    assert cli.everything() == before


def test_a_settled_order_is_not_resolved(cli):
    cli.block()
    cli.purchase()
    ran = cli("resolve", KEY, "--not-bought", *SAID)
    assert (ran.code, "is BOUGHT, so there is nothing to resolve" in ran.err) == (1, True)
    assert cli("resolve", "cr-0ff#2026-05-04T11:30:00Z").code == 1


def test_the_csv_has_everything_and_no_formula(cli):
    cli.block()
    cli.purchase(
        environment="=HYPERLINK(1)",
        approved_by=["ann@example.com", "bob@example.com"],
        reason="@sum",
        ec2_status="payment-succeeded",
        ec2_fee="3986.69",
        ec2_currency="USD",
        resolutions=[{"claim": "bought", "who": "arn:x", "at": "2026-05-03T11:30:00Z", "reason": "seen"}],
    )
    (row,) = csv.DictReader(StringIO(cli("history", "--csv").out))
    assert row["environment"] == "'=HYPERLINK(1)"
    assert row["reason"] == "'@sum"
    assert (row["approved_by"], row["paid_fee"], row["currency"]) == (
        "ann@example.com, bob@example.com",
        "3986.69",
        "USD",
    )
    assert row["resolved"] == "bought, said arn:x at 2026-05-03T11:30:00Z: seen"
    assert (row["current_end"], row["new_end"], row["duration_hours"]) == (
        "2026-05-04T11:30:00Z",
        "2026-05-05T11:30:00Z",
        "24",
    )
