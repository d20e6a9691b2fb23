"""`blockkeeper doctor`: what a person reads, what a script sees, and that nothing is changed."""

from datetime import UTC, datetime

import pytest
from botocore.exceptions import ClientError

from blockkeeper.aws.findings import store
from blockkeeper.domain.doctor import Changes, Check, finding

NOW = datetime(2026, 5, 3, 12, 0, tzinfo=UTC)
GROUP = {
    "name": "train",
    "region": "us-east-1",
    "availability_zone": "us-east-1a",
    "reservation_id": "cr-0123456789abcdef0",
    "min": 0,
    "max": 4,
    "desired": 4,
}


@pytest.fixture
def sound(cli):
    cli.block()
    cli.market.load_fleet({"groups": [GROUP]})
    cli.enrol(groups=[{"auto_scaling_group": "train"}])
    return cli


def checks(cli, *words):
    return {(finding["subject"], finding["check"]) for finding in cli("doctor", *words, "--json").json}


def test_where_all_is_well_it_says_so_and_exits_0(sound):
    ran = sound("doctor")
    assert (ran.code, ran.out) == (0, "nothing to mend (1 enrolled, every check made)\n")
    assert sound("doctor", "--json").json == []


def test_each_finding_is_shown_with_its_reason_and_its_command_in_one_line(sound):
    sound.market.groups.get("123456789012", "us-east-1", "train").suspended["Launch"] = "by hand"
    ran = sound("doctor")
    assert ran.code == 1
    table, _, remedies = ran.out.partition("To mend:")
    assert max(map(len, table.splitlines())) <= 80
    for words in ("team-vision/train", "error", "suspended-processes", "suspended: Launch", "With these suspended"):
        assert words in table
    resume = "resume-processes --region us-east-1 --auto-scaling-group-name train --scaling-processes Launch"
    assert f"  1  `aws autoscaling {resume}`" in remedies.splitlines()


def test_one_record_is_looked_at_alone(sound):
    sound.enrol(unseen=True, PK="other", capacity_block_id="cr-0000000000000beef")
    assert checks(sound) == {("record:other", "block-missing")}
    assert sound("doctor", "team-vision").code == 0
    ran = sound("doctor", "other")
    assert ran.code == 1
    assert "cr-0000000000000beef is no Capacity Block" in " ".join(ran.out.split())


def test_a_name_that_is_not_enrolled_is_refused(sound):
    ran = sound("doctor", "nobody")
    assert (ran.code, ran.out) == (1, "")
    assert "nobody is not enrolled" in ran.err


def test_case_b18_what_may_not_be_read_is_said_and_exits_3(sound):
    sound.account.denied.add("GetServiceQuota")
    ran = sound("doctor", "--json")
    assert ran.code == 3
    (finding,) = ran.json
    assert (finding["check"], finding["severity"]) == ("could-not-read", "unknown")
    assert "GetServiceQuota is denied" in finding["problem"]
    sound.market.groups.get("123456789012", "us-east-1", "train").suspended["Launch"] = "by hand"
    assert sound("doctor").code == 1, "what is known to be wrong counts more"


def test_a_family_without_a_quota_code_is_a_note_and_no_fault(cli):
    cli.block(instance_type="p6-b200.48xlarge")
    cli.enrol(instance_type="p6-b200.48xlarge")
    ran = cli("doctor", "--json")
    assert ran.code == 0
    assert [(finding["check"], finding["severity"]) for finding in ran.json] == [("quota", "note")]
    out = cli("doctor").out.splitlines()
    assert out[0] == "nothing to mend (1 enrolled, every check made)"
    assert [line.partition(": the quota of family p6-b200 has no code")[0] for line in out[1:]] == [
        "note: 123456789012/us-east-1/p6-b200"
    ]


def test_nothing_is_changed_bought_or_stored(sound):
    before = sound.everything()
    sound.market.calls.clear()
    sound("doctor")
    assert sound.everything() == before
    assert all(call.operation.startswith("Describe") for call in sound.market.calls)


class TestAnotherAccount:
    """Its role lets only the stack's functions in; what the daily look found there is shown instead."""

    @pytest.fixture
    def deployed(self):
        return {"Targets": "123456789012:us-east-1,444455556666:us-east-1"}

    def test_is_not_read_by_a_person_and_what_was_found_there_stands(self, sound, monkeypatch):
        def refuse(account):
            if account == "444455556666":
                raise ClientError({"Error": {"Code": "AccessDenied", "Message": "no"}}, "AssumeRole")

        monkeypatch.setattr("blockkeeper.aws.doctor_reads.assume", refuse)
        assert checks(sound) == {("account:444455556666", "could-not-read")}
        assert sound("doctor").code == 3
        sound.enrol(
            unseen=True, PK="theirs", capacity_block_id="cr-0000000000000beef", groups=[{"auto_scaling_group": "far"}]
        )
        found = [
            finding(Check.WARM_POOL, "record:theirs/far", "it has a warm pool", "delete it"),
            finding(Check.QUORUM, "record:team-vision", "quorum is 9", "lower it"),
        ]
        store(Changes(new=found), NOW)
        assert checks(sound) == {
            ("account:444455556666", "could-not-read"),
            ("record:theirs", "could-not-read"),
            ("record:theirs/far", "warm-pool"),
        }
        assert checks(sound, "team-vision") == {("account:444455556666", "could-not-read")}
