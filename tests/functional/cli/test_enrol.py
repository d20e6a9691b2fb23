"""`blockkeeper enrol` looks at the block before it enrols it, and says each fault on a line of its own."""

import json
import re
from datetime import timedelta
from pathlib import Path

import pytest
from botocore.exceptions import ClientError

from blockkeeper.aws import ec2
from blockkeeper_cli.rest import as_commands

from .conftest import ACCOUNT, BLOCK, END, RECORD

OTHER = "222233334444"


def enrol(cli, *words, **fields):
    return cli("enrol", "-", *words, given=json.dumps({**RECORD, **fields}))


def test_the_block_is_shown_as_ec2_shows_it(cli):
    cli.block()
    ran = enrol(cli)
    assert ran.code == 0
    assert f"{BLOCK}: 4 x p5.48xlarge in us-east-1a, active, ends 2026-05-04 11:30 UTC" in ran.err


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        (
            {"capacity_block_id": "cr-0000000000000dead"},
            "EC2 shows no Capacity Block cr-0000000000000dead in us-east-1",
        ),
        ({"region": "us-west-2"}, f"EC2 shows no Capacity Block {BLOCK} in us-west-2"),
        ({"instance_type": "p5e.48xlarge"}, f"instance_type is p5e.48xlarge; {BLOCK} is of p5.48xlarge"),
    ],
)
def test_what_is_not_the_block_that_is_meant_is_not_enrolled(cli, fields, words):
    cli.block()
    ran = enrol(cli, **fields)
    assert (ran.code, ran.out) == (1, "")
    assert words in ran.err
    assert "nothing was enrolled" in ran.err
    assert cli("status", "--json").json == []


def test_a_block_that_has_ended_is_not_enrolled(cli):
    cli.block()
    cli.market.clock.set(END + timedelta(minutes=1))
    ran = enrol(cli)
    assert ran.code == 1
    assert "ended at 2026-05-04 11:30 UTC (enrol another block)" in ran.err


def test_a_plain_reservation_is_no_capacity_block(cli):
    cli.block()
    real = cli.market.call

    def plain(service, operation, params, region, *rest):
        answer = real(service, operation, params, region, *rest)
        for entry in answer.get("CapacityReservations", []):
            entry["ReservationType"] = "default"
        return answer

    cli.monkeypatch.setattr(cli.market, "call", plain)
    ran = enrol(cli)
    assert ran.code == 1
    assert f"EC2 shows no Capacity Block {BLOCK}" in ran.err


def test_what_could_not_be_read_is_said_and_enrolled_all_the_same_b18(cli):
    cli.market.faults.add(kind="denied", operation="DescribeCapacityReservations")
    ran = enrol(cli)
    assert ran.code == 0
    assert f"account {ACCOUNT} does not show its blocks (ec2:DescribeCapacityReservations)" in ran.err


class TestAnotherAccount:
    @pytest.fixture
    def deployed(self):
        return {"Targets": f"{ACCOUNT}:us-east-1,{OTHER}:us-east-1"}

    def test_a_block_that_may_be_in_an_account_that_lets_no_person_in_is_no_missing_one(self, cli, monkeypatch):
        real = ec2.read_block

        def refuse(reservation_id, region, account):
            if account == OTHER:
                raise ClientError({"Error": {"Code": "AccessDenied", "Message": "no"}}, "AssumeRole")
            return real(reservation_id, region, account)

        monkeypatch.setattr(ec2, "read_block", refuse)
        ran = enrol(cli)
        assert ran.code == 0, ran.err
        assert f"account {OTHER} does not show its blocks" in ran.err


def test_a_change_that_keeps_the_block_does_not_look_again(cli):
    cli.block()
    assert enrol(cli).code == 0
    cli.market.clock.set(END + timedelta(minutes=1))
    assert enrol(cli, "--update", extend_by_days=7).code == 0
    ran = enrol(cli, "--update", capacity_block_id="cr-0000000000000dead")
    assert ran.code == 1
    assert "EC2 shows no Capacity Block" in ran.err


def test_a_look_ahead_longer_than_the_extension_is_warned_of(cli):
    cli.block()
    ran = enrol(cli, extend_by_days=7, extension_lookahead_days=56)
    assert "up to 8 extensions are bought in a row" in ran.out
    assert "look-ahead of 7 days at most, or set extend_until" in ran.out
    assert cli("show", RECORD["PK"], "--json").json["warnings"]
    for mended in ({"extension_lookahead_days": 7}, {"extend_until": "2026-06-01T00:00:00Z"}):
        ran = enrol(cli, "--update", extend_by_days=7, **{"extension_lookahead_days": 56, **mended})
        assert "warning" not in ran.out, mended


def test_each_fault_has_a_line_of_its_own(cli):
    ran = enrol(cli, capacity_block_id="cb-1", extend_by_days=15, quorum=0, nmae="x")
    first, *lines = ran.err.rstrip().splitlines()
    assert first == "error: 4 faults:"
    assert len(lines) == 4
    assert any(line.startswith("  extend_by_days is 15; EC2 sells") for line in lines)
    cli.block()
    one = enrol(cli, extend_by_days=15)
    assert "\nerror: extend_by_days is 15; EC2 sells" in one.err


def test_a_person_is_told_commands_where_a_program_is_told_paths(cli):
    cli.block()
    assert enrol(cli).code == 0
    assert "change it with `blockkeeper enrol FILE --update`, or choose" in enrol(cli).err
    assert "`blockkeeper status`" in cli("remove", "nobody", "--yes").err


def test_no_path_of_the_api_is_left_in_what_a_person_reads():
    sources = [*Path("functions/api").glob("*.py"), Path("functions/blockkeeper/schema_check.py")]
    texts = [
        re.sub(r"\{\{(\w+)\}\}", r"{\1}", text)
        for source in sources
        for line in source.read_text("utf-8").splitlines()
        if '"""' not in line
        for text in re.findall(r'"([^"]*)"', line)
        if re.search(r"\b(GET|PUT|POST|DELETE|PATCH) /", text)
    ]
    assert len(texts) >= 7
    for text in texts:
        assert not re.search(r"\b(GET|PUT|POST|DELETE|PATCH)\b", as_commands(text)), text


def test_a_name_that_no_approver_can_have_is_said_to_keep_nobody_from_approving_b21(cli):
    cli.block()
    assert "moto is neither, so four_eyes keeps nobody from approving" in enrol(cli).err
    for words, fields in ((("--as", "ann@example.com"), {}), (("--as", "U024BE7LH"), {}), ((), {"four_eyes": False})):
        assert "four_eyes" not in enrol(cli, "--update", *words, **fields).err, (words, fields)
    cli.set_status("team-vision", "ACTIVE", end_time="2026-05-04T11:30:00Z", state="active")
    assert enrol(cli, "--update", four_eyes=True).code == 0
    assert "moto is neither" in cli("extend", "team-vision", "--yes").err
    assert "moto" not in cli("extend", "team-vision", "--yes", "--as", "ann@example.com").err


def test_an_update_keeps_who_has_enrolled_and_names_who_updates_where_nobody_stands(cli):
    cli.block()
    assert enrol(cli, "--as", "ann@example.com").code == 0
    assert enrol(cli, "--update", "--json", extend_by_days=7).json["enrolled_by"] == "ann@example.com"
    assert enrol(cli, "--update", "--json", PK="new").json["enrolled_by"] == "moto", "a PUT may enrol, too"
