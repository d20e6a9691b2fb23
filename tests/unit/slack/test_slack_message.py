"""What Slack shows: within its limits, escaped, and the same as page and mail say."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from html import unescape
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blockkeeper.domain.approval import (
    Answer,
    ApprovalStatus,
    Decided,
    Decision,
    Delivery,
    facts,
    open_request,
    vote,
)
from blockkeeper.domain.slack_message import (
    LONGEST_TEXT,
    escaped,
    notice,
    private_answer,
    question,
    reject_form,
    reminder,
    said_in_form,
)
from blockkeeper.domain.slack_notice import notice_key, notice_of, outcome_line
from blockkeeper.domain.slack_person import is_listed, mention, slack_caller
from local.slack.limits import LONGEST_MESSAGE, block_problems, view_problems
from local.slack.workspace import _words

EVENTS = Path(__file__).parents[3] / "events"
ASKED = json.loads((EVENTS / "approve-purchase.json").read_text("utf-8"))
BLOCK = json.loads((EVENTS / "approve-purchase.block.json").read_text("utf-8"))
NOW = datetime(2026, 5, 4, 6, 0, tzinfo=UTC)
PEOPLE = ["T012AB3CD:U024BE7LH", "W0GRID001", "maria@example.com"]
REQUEST = replace(open_request(ASKED, PEOPLE, 1, NOW), slack_team="T012AB3CD")
DETAIL = {
    "environment": "team-vision",
    "reservation_id": "cr-0a1",
    "account": "111122223333",
    "region": "us-east-1",
    "end_date": "2026-05-04T11:30:00Z",
    "reason": "why",
    "offering": {"upfront_fee": "7973.38", "new_end": "2026-05-05T11:30:00Z"},
}


def words(message):
    return "\n".join(_words(list(message.blocks)))


def buttons(message):
    return [each for block in message.blocks if block["type"] == "actions" for each in block["elements"]]


def decided(status, **more):
    return replace(REQUEST, status=status, decided_by="slack:T012AB3CD:U024BE7LH", decided_at=NOW, **more)


EVERY_STATE = [
    REQUEST,
    replace(REQUEST, quorum=2, votes={"maria@example.com": Decision.APPROVE}),
    decided(ApprovalStatus.APPROVED, delivery=Delivery.DELIVERED),
    decided(ApprovalStatus.APPROVED, delivery=Delivery.NOBODY_WAITS),
    decided(ApprovalStatus.REJECTED, reason="no *more* <!channel> & so on"),
    replace(REQUEST, status=ApprovalStatus.EXPIRED, decided_at=NOW, reason="nobody answered"),
    replace(REQUEST, status=ApprovalStatus.SUPERSEDED, decided_at=NOW, reason="somebody extended by hand"),
    replace(open_request(BLOCK, PEOPLE, 1, NOW), slack_team="T012AB3CD"),
]


@pytest.mark.parametrize("request_", EVERY_STATE, ids=lambda each: f"{each.what}-{each.status}-{each.delivery}")
@pytest.mark.parametrize("dry_run", [True, False])
def test_slack_takes_every_state_and_only_an_open_one_has_buttons(request_, dry_run):
    message = question(request_, NOW, dry_run=dry_run)
    assert block_problems(list(message.blocks)) == []
    assert bool(buttons(message)) is (request_.status is ApprovalStatus.OPEN)
    shown = words(message)
    for label, value in facts(request_):
        assert escaped(label, 500) in shown
        assert escaped(value, 1000) in shown
    assert ("dry-run" in shown) is (dry_run and request_.status in (ApprovalStatus.OPEN, ApprovalStatus.APPROVED))
    assert "slack:" not in shown, "people are shown by a mention"


def test_buttons_carry_the_id_and_nothing_else():
    approve, reject = buttons(question(REQUEST, NOW, dry_run=False))
    assert approve["value"] == reject["value"] == REQUEST.approval_id
    assert approve["text"]["text"].endswith("USD")
    assert "cannot be cancelled" in approve["confirm"]["text"]["text"]
    (dry, _) = buttons(question(REQUEST, NOW, dry_run=True))
    assert "no money moves" in dry["confirm"]["text"]["text"]
    assert reject_form(REQUEST)["private_metadata"] == REQUEST.approval_id
    assert view_problems(reject_form(REQUEST)) == []
    assert view_problems(said_in_form("late")) == []


@given(st.text(max_size=3000), st.text(alphabet="&<>😀*_~`@#!|\u202e\u0000\n", max_size=2000))
def test_whatever_people_write_slack_takes_it_and_nobody_is_mentioned(reason, nasty):
    longest = ["maria+" + "<" * 200 + "@example.com", *(f"T012AB3CD:U{number:020d}" for number in range(19))]
    for text in (reason, nasty):
        request = replace(
            REQUEST,
            approvers=tuple(longest),
            status=ApprovalStatus.REJECTED,
            decided_by="api:" + text,
            decided_at=NOW,
            reason=text,
        )
        message = question(request, NOW, dry_run=True, outcome=text)
        assert block_problems(list(message.blocks)) == []
        assert len(json.dumps(message.blocks, ensure_ascii=False)) <= LONGEST_MESSAGE
        shown = words(message) + message.text
        assert "<!" not in shown
        assert "<@" not in shown
        assert "<#" not in shown
        superseded = replace(request, status=ApprovalStatus.SUPERSEDED, decided_by=None)
        assert block_problems(list(question(superseded, NOW, dry_run=False).blocks)) == []
        told = notice("title " + text, text or "x", [("Reason", text or "x")], [text or "x"])
        assert block_problems([block for block in told.blocks if "\x00" not in str(block)]) == []


@given(st.text(max_size=400), st.integers(1, 300))
def test_text_is_escaped_and_cut_between_characters(text, longest):
    shown = escaped(text, longest)
    assert len(shown.encode("utf-16-le", "surrogatepass")) // 2 <= longest
    assert "<" not in shown
    assert ">" not in shown
    for part in shown.split("&")[1:]:
        assert part.startswith(("amp;", "lt;", "gt;"))
    assert not any("\x00" <= character < "\n" or character in "\x7f\u202e\u2066" for character in shown)
    if not shown.endswith("…"):
        assert len(unescape(shown)) == len(text) or "&" in text


def test_what_is_cut_says_so():
    assert escaped("a" * 10, 10) == "a" * 10
    assert escaped("a" * 11, 10) == "a" * 9 + "…"
    assert escaped("&" * 3, 11) == "&amp;&amp;…"
    assert escaped("😀" * 3, 5) == "😀😀…"
    assert len(question(REQUEST, NOW, dry_run=False).text) <= LONGEST_TEXT


@pytest.mark.parametrize(
    ("person", "shown"),
    [
        ("U024BE7LH", "<@U024BE7LH>"),
        ("T012AB3CD:W024BE7LH", "<@W024BE7LH>"),
        ("slack:T012AB3CD:U024BE7LH", "<@U024BE7LH>"),
        ("maria@example.com", None),
        ("api:U024BE7LH", None),
        ("api:slack:T012AB3CD:U024BE7LH", None),
        ("U024BE7LH> <!channel", None),
        ("slack:T012AB3CD:U024BE7LH\n", None),
        ("u024be7lh", None),
    ],
)
def test_only_people_of_slack_are_mentioned(person, shown):
    assert mention(person) == shown


TEAM, USER = "T012AB3CD", "U024BE7LH"


@pytest.mark.parametrize(
    ("who", "approvers", "home", "listed"),
    [
        ((TEAM, USER), [f"{TEAM}:{USER}"], TEAM, True),
        ((TEAM, USER), [f"{TEAM}:{USER}"], None, True),
        ((TEAM, USER), [USER], TEAM, True),
        ((TEAM, USER), [USER], None, False),
        ((TEAM, USER), [USER], "T0OTHER01", False),
        (("T0OTHER01", USER), [USER], TEAM, False),
        (("T0OTHER01", USER), [f"{TEAM}:{USER}"], TEAM, False),
        ((TEAM, "U0INTERN1"), [f"{TEAM}:{USER}", USER], TEAM, False),
        ((TEAM, USER), [], TEAM, False),
        (("", USER), [USER, f":{USER}"], "", False),
        ((TEAM, ""), ["", f"{TEAM}:"], TEAM, False),
        ((TEAM, USER), [f"{USER}@example.com", "maria@example.com"], TEAM, False),
    ],
)
def test_case_b21_who_is_an_approver(who, approvers, home, listed):
    assert is_listed(slack_caller(*who), approvers, home) is listed


def test_case_b21_a_vote_counts_for_one_person_and_is_recorded_with_the_workspace():
    after = vote(REQUEST, f"slack:{TEAM}:{USER}", Decision.APPROVE, None, NOW)
    assert (after.status, after.decided_by) == (ApprovalStatus.APPROVED, f"slack:{TEAM}:{USER}")
    assert list(after.votes) == [f"slack:{TEAM}:{USER}".lower()]
    assert vote(REQUEST, f"slack:T0OTHER01:{USER}", Decision.REJECT, None, NOW) is Answer.NOT_AN_APPROVER
    assert vote(REQUEST, USER, Decision.REJECT, None, NOW) is not Answer.RECORDED


def test_a_reminder_mentions_who_has_not_answered_and_nobody_once_it_is_over():
    half = replace(REQUEST, quorum=2, votes={"slack:t012ab3cd:u024be7lh": Decision.APPROVE})
    message = reminder(half, NOW)
    assert block_problems(list(message.blocks)) == []
    assert "<@W0GRID001>" in words(message)
    assert "U024BE7LH" not in words(message)
    assert "nothing is bought" in words(message)
    assert reminder(replace(REQUEST, approvers=("maria@example.com",)), NOW) is None
    assert reminder(REQUEST, REQUEST.decide_by) is None
    assert reminder(decided(ApprovalStatus.APPROVED), NOW) is None


def test_a_private_answer_names_the_decider():
    told = private_answer(Decided(Answer.ALREADY_DECIDED, decided(ApprovalStatus.APPROVED)))
    assert told == "*Approved* by <@U024BE7LH> on Mon 4 May 2026, 06:00 UTC. Your answer changed nothing."
    by_mail = replace(decided(ApprovalStatus.REJECTED), decided_by="a&b@example.com")
    assert private_answer(Decided(Answer.ALREADY_DECIDED, by_mail)).startswith("*Rejected* by a&amp;b@example.com on")


@pytest.mark.parametrize(
    "detail_type", ["Extension Purchased", "Extension Confirmed", "Extension Failed", "Block Expiring"]
)
def test_an_outcome_is_a_notice_that_slack_takes(detail_type):
    message = notice_of(detail_type, DETAIL | {"end": "2026-05-05T11:30:00Z", "outcome": "x"})
    assert block_problems(list(message.blocks)) == []
    assert not buttons(message)
    assert "team-vision" in message.text
    assert "cr-0a1 in us-east-1, account 111122223333" in words(message)


@pytest.mark.parametrize(
    ("label", "value"), [("Check", "x" * 90), ("<" * 40, "&" * 60), ("a", "b"), ("c", "😀" * 1500)]
)
def test_a_notice_of_many_rows_is_one_that_slack_takes_and_says_how_many_are_left_out(label, value):
    message = notice("Findings", "Many.", [(label, value)] * 400, ["The end."])
    assert block_problems(list(message.blocks)) == []
    assert len(json.dumps(message.blocks, ensure_ascii=False)) <= LONGEST_MESSAGE
    shown = sum(len(block.get("fields", [])) for block in message.blocks)
    assert shown > 0
    assert f"{400 - shown} more are not shown here." in words(message)
    assert "The end." in words(message)


def test_findings_are_a_notice_that_slack_takes_each_told_once():
    detail = json.loads((EVENTS / "blockkeeper-event.findings-changed.json").read_text("utf-8"))["detail"]
    message = notice_of("Findings Changed", detail | {"new": detail["new"] * 40, "mended": detail["new"]})
    assert block_problems(list(message.blocks)) == []
    for text in ("team-vision: 40 findings", "error: team-vision/train", "aws ec2 create-launch-template-version"):
        assert text in message.text + words(message)
    assert "mended: team-vision/train" in words(message)
    stack = {name: value for name, value in detail.items() if name not in {"environment", "reservation_id"}}
    days = [{"now": "2026-05-02T06:00:00Z"}, {"now": "2026-05-03T06:00:00Z"}]
    assert len({notice_key("Findings Changed", base | day) for base in (detail, stack) for day in days}) == 4


@pytest.mark.parametrize(
    "detail_type", ["Approval Requested", "Approval Decided", "Approval Voted", "Extension Offered", "Groups Scaled"]
)
def test_other_events_are_no_notice(detail_type):
    assert notice_of(detail_type, DETAIL) is None


def test_a_notice_is_one_per_block_end_and_outcome():
    keys = {
        notice_key(*each)
        for each in (
            ("Extension Failed", DETAIL | {"outcome": "refused"}),
            (
                "Extension Failed",
                DETAIL | {"outcome": "refused", "reason": "other words", "now": "2026-05-04T09:00:00Z"},
            ),
            ("Extension Failed", DETAIL | {"outcome": "over_budget"}),
            ("Extension Failed", DETAIL | {"outcome": "refused", "end_date": "2026-05-05T11:30:00Z"}),
            ("Block Expiring", DETAIL),
        )
    }
    assert len(keys) == 4


@pytest.mark.parametrize(
    ("detail_type", "more", "line"),
    [
        ("Extension Purchased", {}, "Ordered; the payment is pending."),
        (
            "Extension Confirmed",
            {"end": "2026-05-05T11:30:00Z"},
            "Done: the block now ends on Tue 5 May 2026, 11:30 UTC.",
        ),
        ("Extension Confirmed", {}, "Done."),
        ("Extension Failed", {"outcome": "payment_failed"}, "Not extended: why."),
        ("Extension Failed", {"outcome": "rejected"}, None),
        ("Extension Failed", {"outcome": "expired"}, None),
        ("Extension Offered", {"outcome": "dry_run"}, "Dry run: why."),
        ("Extension Offered", {"outcome": "offered"}, None),
        ("Approval Decided", {}, None),
    ],
)
def test_what_an_event_adds_to_the_message_that_asked(detail_type, more, line):
    assert outcome_line(detail_type, DETAIL | more) == line
