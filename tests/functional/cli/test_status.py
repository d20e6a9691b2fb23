"""`blockkeeper status`, and the records behind it."""

import json

from jsonschema import Draft202012Validator

from blockkeeper.schema_check import schema


def test_each_block_is_shown_with_end_time_left_status_and_next_step(cli):
    cli.enrol()
    cli.set_status(
        "team-vision", "EXTENSION_APPROVAL_REQUIRED", end_time="2026-05-04T11:30:00Z", state="active", instance_count=4
    )
    cli.enrol(PK="team-speech", capacity_block_id="cr-0000000000000beef")
    ran = cli("status")
    assert ran.code == 0
    assert max(map(len, ran.out.splitlines())) <= 80
    for words in (
        "team-vision",
        "2026-05-04 11:30",
        "23h 30m",
        "EXTENSION_APPROVAL_REQUIRED",
        "4 x p5.48xlarge",
        "team-speech",
    ):
        assert words in ran.out
    assert "an approver answers by" in ran.out


def test_json_is_what_the_api_answers(cli):
    cli.enrol()
    (block,) = cli("status", "--json").json
    Draft202012Validator(schema("block")).validate(block)
    assert block["PK"] == "team-vision"


def test_an_error_is_shown_as_it_is_written_brackets_and_all(cli):
    cli.enrol()
    cli.set_status("team-vision", "ERROR", "groups[0] is [bold]gone[/bold]")
    assert "groups[0] is [bold]gone[/bold]" in " ".join(cli("status").out.split())


def test_one_block_is_shown_with_all_its_deadlines(cli):
    cli.enrol()
    cli.set_status("team-vision", "NO_ACTION_REQUIRED", end_time="2026-05-04T11:30:00Z")
    cli.enrol(PK="other", capacity_block_id="cr-0000000000000beef")
    out = cli("status", "team-vision").out
    assert "other" not in out
    for moment in ("2026-05-04 08:30", "2026-05-04 10:30", "2026-05-04 10:55", "2026-05-04 11:00"):
        assert moment in out


def test_a_name_that_is_not_enrolled_is_refused(cli):
    ran = cli("status", "nobody")
    assert (ran.code, ran.out) == (1, "")
    assert "nobody is not enrolled" in ran.err


def test_an_empty_stack_says_what_to_do(cli):
    assert "blockkeeper enrol" in cli("status").out
    assert cli("status", "--json").json == []


def test_lists_are_read_page_by_page(cli, monkeypatch):
    monkeypatch.setattr("blockkeeper_cli.rest.PAGE_SIZE", 2)
    for i in range(5):
        cli.enrol(PK=f"team-{i}", capacity_block_id=f"cr-000000000000000{i}")
    assert [block["PK"] for block in cli("status", "--json").json] == [f"team-{i}" for i in range(5)]


def test_a_record_is_enrolled_changed_shown_and_forgotten(cli, tmp_path):
    assert cli.enrol()["status"] == "PENDING"
    file = tmp_path / "record.json"
    file.write_text(json.dumps({"PK": "team-vision", "extend_by_days": 7}), encoding="utf-8")
    assert cli("enrol", str(file), "--update").code == 0
    assert cli("show", "team-vision", "--json").json["extend_by_days"] == 7
    shown = cli("show", "team-vision").out
    assert "maria@example.com" in shown
    assert cli("remove", "team-vision", "--yes").code == 0
    assert cli("show", "team-vision").code == 1


def test_a_record_without_a_ceiling_is_enrolled_with_a_warning(cli):
    cli.block("cr-0a1")
    ran = cli("enrol", "-", given=json.dumps({
        "PK": "sample", "capacity_block_id": "cr-0a1", "region": "us-east-1", "instance_type": "p5.48xlarge", "extend_by_days": 1,
    }))  # fmt: skip
    assert ran.code == 0
    assert "max_upfront_fee is not set" in ran.out


def test_every_fault_of_a_record_is_named_in_a_line_of_its_own(cli):
    ran = cli("enrol", "-", given=json.dumps({
        "PK": "a", "capacity_block_id": "cb-1", "region": "us-east-1a", "instance_type": "p5.48xlarge", "extend_by_days": 15,
        "max_upfront_fee": 12, "quorum": 0, "team": 7,
    }))  # fmt: skip
    assert ran.code == 1
    assert len(ran.err.splitlines()) == 7
    for field in (
        "capacity_block_id",
        "region",
        "extend_by_days is 15",
        "use 14 or 21",
        "max_upfront_fee",
        "quorum",
        "team",
    ):
        assert field in ran.err
    assert cli.everything() == []


def test_a_file_that_is_no_record_is_wrong_usage(cli, tmp_path):
    assert cli("enrol", str(tmp_path / "none.json")).code == 2
    assert cli("enrol", "-", given="{").code == 2
    assert cli("enrol", "-", given="[]").code == 2
    assert cli("enrol", "-", "--update", given="{}").code == 2
    assert cli.requests == []


def test_a_word_of_the_api_is_no_name(cli):
    assert cli("show", "blocks").code == 2
    assert cli("show", "a/b").code == 2
    assert cli.requests == []


def test_nothing_is_forgotten_without_a_yes(cli):
    cli.enrol()
    assert cli("remove", "team-vision").code == 2
    cli.terminal()
    assert cli("remove", "team-vision", given="n\n").code == 1
    assert cli("show", "team-vision").code == 0
