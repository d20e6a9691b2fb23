"""`blockkeeper approve` and `reject` through the real API handler."""

import json

import pytest

from blockkeeper.aws import approvals, table

from .conftest import BLOCK, END

REQUEST = f"{BLOCK}-20260504T1130Z-1"


@pytest.fixture(autouse=True)
def told(monkeypatch):
    """The workflow that waits, in place of Step Functions, which moto cannot call back."""
    seen = []
    real = approvals.client

    class States:
        def send_task_success(self, **given):
            seen.append(json.loads(given["output"]))

    monkeypatch.setattr(
        approvals, "client", lambda service, *rest: States() if service == "stepfunctions" else real(service, *rest)
    )
    return seen


@pytest.mark.parametrize("target", ["team-vision", REQUEST])
def test_a_yes_shows_what_is_decided_and_says_who(cli, told, target):
    cli.request()
    ran = cli("approve", target, "--yes", "--json", "--reason", "three more days")
    assert ran.code == 0, ran.err
    assert ran.json["status"] == "APPROVED"
    # moto's caller is arn:aws:sts::123456789012:user/moto.
    assert ran.json["decided_by"] == "api:moto"
    assert ran.json["reason"] == "three more days"
    for words in ("3,986.69 USD", "Tue 5 May 2026, 11:30 UTC", "team-vision", "4 × p5.48xlarge"):  # noqa: RUF001
        assert words in ran.err
    assert "t0ken" not in ran.out + ran.err
    assert [answer["decision"] for answer in told] == ["approved"]


def test_a_no_is_recorded_for_whom_it_is_given(cli, told):
    cli.request()
    ran = cli("reject", "team-vision", "--yes", "--as", "maria@example.com")
    assert ran.code == 0
    assert "until Tue 5 May 2026, 11:30 UTC for 3,986.69 USD is rejected by maria@example.com" in ran.out
    assert "Next: nothing is bought" in ran.out
    item = table.get_item("approval", REQUEST)
    assert (item["status"], item["decided_by"]) == ("REJECTED", "api:maria@example.com")
    assert [answer["decision"] for answer in told] == ["rejected"]


def test_a_second_answer_changes_nothing_and_says_what_was_decided(cli, told):
    cli.request()
    assert cli("approve", "team-vision", "--yes", "--as", "maria@example.com").code == 0
    for target in ("team-vision", REQUEST):
        ran = cli("reject", target, "--yes")
        assert (ran.code, ran.out) == (1, "")
        assert "APPROVED by api:maria@example.com at 2026-05-03T12:00:00Z" in ran.err
    assert len(told) == 1


def test_somebody_who_is_faster_wins(cli, told):
    cli.request()
    cli.terminal()
    real = approvals.decide

    def second(approval_id, decision, who, reason, now):
        real(approval_id, approvals.Decision.REJECT, "maria@example.com", None, now)
        return real(approval_id, decision, who, reason, now)

    cli.monkeypatch.setattr(approvals, "decide", second)
    ran = cli("approve", "team-vision", given="y\n")
    assert ran.code == 1
    assert "Rejected by maria@example.com" in ran.err
    assert [answer["decision"] for answer in told] == ["rejected"]


def test_a_late_answer_is_refused_politely_b04(cli, told):
    cli.request()
    cli.market.clock.set(END)
    ran = cli("approve", "team-vision", "--yes")
    assert ran.code == 1
    assert "EXPIRED" in ran.err
    assert "nothing was changed" in ran.err
    assert told == []


def test_one_yes_of_two_is_counted(cli, told):
    cli.request(approvers=["maria@example.com", "ann@example.com"], quorum=2)
    ran = cli("approve", "team-vision", "--yes")
    assert ran.code == 0
    assert (
        "the extension of team-vision until Tue 5 May 2026, 11:30 UTC for 3,986.69 USD is not approved yet" in ran.out
    )
    assert "1 more of the approvers must say yes" in ran.out
    assert "by maria@example.com, ann@example.com, before Mon 4 May 2026, 08:30 UTC" in ran.out
    assert "nothing is bought, and the block ends as planned" in ran.out
    assert told == []


def test_a_yes_says_what_is_approved_by_whom_and_what_comes_next(cli):
    cli.request()
    out = cli("approve", "team-vision", "--yes", "--as", "ann@example.com").out
    assert (
        "the extension of team-vision until Tue 5 May 2026, 11:30 UTC for 3,986.69 USD is approved by ann@example"
        in out
    )
    assert "Next: the workflow looks the offer up again and buys it" in out


def test_nothing_is_answered_without_a_yes(cli, told):
    cli.request()
    ran = cli("approve", "team-vision")
    assert ran.code == 2
    assert "--yes" in ran.err
    cli.terminal()
    ran = cli("approve", "team-vision", given="n\n")
    assert ran.code == 1
    assert "nothing was done" in ran.err
    assert table.get_item("approval", REQUEST)["status"] == "OPEN"
    assert told == []
    assert cli("approve", "team-vision", given="y\n").code == 0
    assert len(told) == 1


def test_of_several_open_requests_one_must_be_named(cli, told):
    cli.request()
    second = cli.request("cr-0000000000000beef-20260504T1130Z-1")
    ran = cli("approve", "team-vision", "--yes")
    assert ran.code == 1
    assert REQUEST in ran.err
    assert second in ran.err
    assert told == []
    assert cli("approve", second, "--yes").code == 0


def test_who_was_never_asked_is_not_answered(cli):
    ran = cli("approve", "team-vision", "--yes")
    assert ran.code == 1
    assert "team-vision has no request for approval" in ran.err


def test_a_request_that_cannot_be_read_is_not_answered(cli, told):
    cli.request(upfront_fee="free")
    ran = cli("approve", REQUEST, "--yes")
    assert ran.code == 1
    assert "not answered" in ran.err
    assert told == []


def test_a_reason_that_is_too_long_is_refused_with_the_rule(cli):
    cli.request()
    ran = cli("reject", "team-vision", "--yes", "--reason", "x" * 501)
    assert ran.code == 1
    assert "500 characters" in ran.err


def test_requests_are_listed_open_ones_first_and_past_ones_on_demand(cli):
    cli.request()
    shown = cli("approvals")
    assert (shown.code, REQUEST[:12] in shown.out.replace("\n", ""), "OPEN" in shown.out) == (0, True, True)
    assert "0 of 1 said yes" in " ".join(shown.out.split())
    assert [entry["approval_id"] for entry in cli("approvals", "team-vision", "--json").json] == [REQUEST]
    assert cli("approvals", "another", "--json").json == []
    cli("reject", "team-vision", "--yes", "--as", "maria@example.com", "--reason", "too dear")
    assert "waits for an answer" in cli("approvals").out
    past = " ".join(cli("approvals", "--all").out.split())
    assert "REJECTED" in past
    assert "too dear" in past
    assert "t0ken" not in past


@pytest.mark.parametrize(("words", "stated"), [((), "moto"), (("--as", "maria@example.com"), "maria@example.com")])
def test_enrolling_states_who_has_enrolled_case_b21(cli, words, stated):
    cli.block()
    record = {"PK": "train", "capacity_block_id": BLOCK, "region": "us-east-1", "instance_type": "p5.48xlarge"}
    ran = cli("enrol", "-", "--json", *words, given=json.dumps(record | {"extend_by_days": 1}))
    assert (ran.code, ran.json["enrolled_by"], ran.json["four_eyes"]) == (0, stated, True)
    named = cli(
        "enrol", "-", "--json", given=json.dumps(record | {"PK": "b", "extend_by_days": 1, "enrolled_by": "jo"})
    )
    assert named.json["enrolled_by"] == "jo"
