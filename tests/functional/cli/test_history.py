"""`blockkeeper history`: the ledger and EC2's own word."""

import csv
from datetime import timedelta
from io import StringIO

from .conftest import BLOCK, END

BUY = "PurchaseCapacityBlockExtension"


def order(cli):
    """An extension of one day, ordered at EC2; its offering's id."""
    (offering,) = cli("offers", BLOCK, "--json", "--days", "1").json["offerings"]
    wanted = {"CapacityReservationId": BLOCK, "CapacityBlockExtensionOfferingId": offering["offering_id"]}
    cli.market.call("ec2", BUY, wanted, "us-east-1")
    return offering["offering_id"]


def test_our_order_and_ec2s_word_stand_in_one_row(cli):
    cli.block()
    cli.purchase(offering_id=order(cli), approval_id="ap-1")
    (row,) = cli("history", BLOCK, "--json").json
    assert (row["ledger"], row["ec2"], row["upfront_fee"]) == ("BOUGHT", "payment-pending", "3986.69")
    assert (row["environment"], row["approval_id"]) == ("team-vision", "ap-1")
    cli.market.clock.advance(timedelta(hours=1))
    out = cli("history", BLOCK).out
    assert max(map(len, out.splitlines())) <= 80
    for words in ("payment", "succeeded", "3,986.69 USD", "2026-05-04 11:30", "2026-05-05 11:30"):
        assert words in out


def test_a_record_stands_for_its_block_and_for_what_was_ordered_for_it_before(cli):
    cli.enrol()
    cli.purchase(offering_id=order(cli))
    cli.purchase(reservation_id="cr-0000000000000beef", current_end="2026-04-27T11:30:00Z")
    cli.purchase(reservation_id="cr-00000000000000bad", environment="another")
    rows = cli("history", "team-vision", "--json").json
    assert [(row["reservation_id"], row["ec2"]) for row in rows] == [
        ("cr-0000000000000beef", None),
        (BLOCK, "payment-pending"),
    ]
    assert cli("remove", "team-vision", "--yes").code == 0
    assert len(cli("history", "team-vision", "--json").json) == 2
    ran = cli("history", "nobody")
    assert (ran.code, "nobody is not enrolled, and nothing was ordered for it" in ran.err) == (1, True)


def test_what_somebody_else_ordered_is_shown_as_not_ours_b20(cli):
    cli.block()
    order(cli)
    (row,) = cli("history", BLOCK, "--json").json
    assert (row["ledger"], row["ec2"], row["environment"]) == (None, "payment-pending", None)
    assert "not ours" in cli("history", BLOCK).out


def test_an_order_that_ec2_does_not_show_stays_visible_b17(cli):
    cli.block()
    cli.purchase(state="UNKNOWN", offering_id="cbe-lost")
    (row,) = cli("history", BLOCK, "--json").json
    assert (row["ledger"], row["ec2"]) == ("UNKNOWN", None)


def test_without_a_block_all_of_the_ledger_is_shown_and_ec2_is_not_asked(cli):
    cli.purchase()
    cli.purchase(reservation_id="cr-0000000000000beef", environment="team-speech", state="REFUSED")
    ran = cli("history", "--json")
    assert [row["environment"] for row in ran.json] == ["team-speech", "team-vision"]
    assert not cli.market.calls


def test_csv_has_a_header_and_a_line_for_each(cli):
    cli.purchase(reason='said "no", twice')
    (row,) = csv.DictReader(StringIO(cli("history", "--csv").out))
    assert (row["reservation_id"], row["upfront_fee"], row["reason"]) == (BLOCK, "3986.69", 'said "no", twice')
    assert row["approval_id"] == ""


def test_csv_and_json_exclude_each_other(cli):
    assert cli("history", "--csv", "--json").code == 2


def test_a_block_that_ec2_has_forgotten_keeps_its_ledger(cli):
    cli.purchase()
    ran = cli("history", BLOCK, "--json")
    assert (ran.code, [row["ec2"] for row in ran.json]) == (0, [None])
    assert "shows" in ran.err


def test_a_block_that_nobody_knows_is_an_error(cli):
    ran = cli("history", BLOCK)
    assert ran.code == 1
    assert BLOCK in ran.err


def test_a_history_that_could_not_be_read_is_no_empty_one_b18(cli):
    cli.block()
    cli.purchase(current_end="2026-04-27T11:30:00Z", new_end=f"{END:%Y-%m-%dT%H:%M:%SZ}")
    cli.market.faults.add(kind="denied", operation="DescribeCapacityBlockExtensionHistory")
    ran = cli("history", BLOCK)
    assert (ran.code, ran.out) == (1, "")
    assert "ec2:DescribeCapacityBlockExtensionHistory" in ran.err


def test_an_empty_ledger_says_so(cli):
    assert cli("history").out == "nothing was ordered yet\n"
    assert cli("history", "--json").json == []


def test_a_new_block_in_place_of_an_old_one_is_shown_with_its_own_times(cli):
    cli.purchase(new_start="2026-05-04T13:00:00Z", availability_zone="us-east-1b", new_end="2026-05-06T11:30:00Z")
    (row,) = cli("history", "--json").json
    assert (row["what"], row["new_start"], row["availability_zone"]) == ("block", "2026-05-04T13:00:00Z", "us-east-1b")
    out = cli("history").out
    for words in ("new block in us-east-1b", "2026-05-04 13:00", "2026-05-06 11:30"):
        assert words in out
