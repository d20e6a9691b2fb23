"""Who may answer, what an answer does, and when it is too late."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blockkeeper.domain.approval import (
    BY_POLICY,
    Answer,
    ApprovalStatus,
    Decided,
    Decision,
    Delivery,
    NobodyToAskError,
    Rules,
    TooLateToAskError,
    closed,
    decision_line,
    facts,
    fee_per_instance_hour,
    length,
    open_request,
    outcome,
    request_from,
    request_item,
    timed_out,
    vote,
)
from blockkeeper.domain.environment import OnTimeout
from blockkeeper.domain.instants import format_instant, is_time_zone, moment

FACTS = json.loads((Path(__file__).parents[3] / "events" / "approve-purchase.json").read_text())
ASKED = datetime(2026, 5, 4, 8, 0, tzinfo=UTC)
DECIDE_BY = datetime(2026, 5, 4, 8, 30, tzinfo=UTC)
MARIA, JO = "maria@example.com", "jo@example.com"


def asked(quorum=1, approvers=(MARIA, JO), **changes):
    return open_request(FACTS | changes, approvers, quorum, ASKED)


def test_one_yes_of_an_approver_decides():
    after = vote(asked(), MARIA, Decision.APPROVE, "needed", ASKED)
    assert (after.status, after.decided_by, after.decided_at, after.reason) == (
        ApprovalStatus.APPROVED,
        MARIA,
        ASKED,
        "needed",
    )
    assert outcome(after) == {
        "decision": "approved",
        "approval_id": "cr-0a1-20260504T1130Z-1",
        "decided_by": MARIA,
        "decided_at": "2026-05-04T08:00:00Z",
        "reason": "needed",
    }


def test_the_case_of_an_address_does_not_matter_but_all_of_it_does_case_b21():
    assert vote(asked(), "Maria@Example.COM", Decision.APPROVE, None, ASKED).status is ApprovalStatus.APPROVED
    for stranger in ("mallory@example.com", "maria@example.com.evil.example", "maria", "", "U999", "Maria Example"):
        assert vote(asked(), stranger, Decision.APPROVE, None, ASKED) is Answer.NOT_AN_APPROVER


def test_whoever_holds_the_api_key_may_answer():
    after = vote(asked(), "api:ops", Decision.REJECT, None, ASKED)
    assert (after.status, after.decided_by) == (ApprovalStatus.REJECTED, "api:ops")


def test_the_api_key_has_one_voice_whatever_name_it_gives():
    once = vote(asked(quorum=2), "api:ann", Decision.APPROVE, None, ASKED)
    assert vote(once, "api:bob", Decision.APPROVE, None, ASKED).status is ApprovalStatus.OPEN


def test_a_quorum_needs_different_people():
    once = vote(asked(quorum=2), MARIA, Decision.APPROVE, None, ASKED)
    assert (once.status, once.missing_votes, once.decided_by) == (ApprovalStatus.OPEN, 1, None)
    assert vote(once, MARIA.upper(), Decision.APPROVE, None, ASKED).status is ApprovalStatus.OPEN
    both = vote(once, JO, Decision.APPROVE, None, ASKED)
    assert (both.status, both.decided_by) == (ApprovalStatus.APPROVED, JO)


def test_one_no_ends_it_also_after_a_yes():
    once = vote(asked(quorum=2), MARIA, Decision.APPROVE, None, ASKED)
    assert vote(once, JO, Decision.REJECT, None, ASKED).status is ApprovalStatus.REJECTED
    assert vote(once, MARIA, Decision.REJECT, None, ASKED).status is ApprovalStatus.REJECTED


def test_an_answer_counts_until_the_deadline_and_not_at_it_case_b04():
    request = asked()
    assert (
        vote(request, MARIA, Decision.APPROVE, None, DECIDE_BY - timedelta(seconds=1)).status is ApprovalStatus.APPROVED
    )
    assert vote(request, MARIA, Decision.APPROVE, None, DECIDE_BY) is Answer.EXPIRED
    assert request.standing(DECIDE_BY) is ApprovalStatus.EXPIRED
    assert "nothing was bought" in Decided(Answer.EXPIRED, request).message


def test_whoever_comes_second_hears_who_was_first_case_b06():
    decided = vote(asked(), MARIA, Decision.APPROVE, None, ASKED)
    answer = vote(decided, JO, Decision.REJECT, None, ASKED)
    assert answer is Answer.ALREADY_DECIDED
    assert Decided(answer, decided).message == (
        "Approved by maria@example.com on Mon 4 May 2026, 08:00 UTC. Your answer changed nothing."
    )
    # Late on top of decided is still decided: "expired" would be a lie.
    assert vote(decided, JO, Decision.REJECT, None, DECIDE_BY) is Answer.ALREADY_DECIDED


@pytest.mark.parametrize(
    ("status", "answer"), [(ApprovalStatus.EXPIRED, Answer.EXPIRED), (ApprovalStatus.SUPERSEDED, Answer.SUPERSEDED)]
)
def test_a_closed_request_takes_no_answer(status, answer):
    shut = closed(asked(), status, "over", ASKED)
    assert vote(shut, MARIA, Decision.APPROVE, None, ASKED) is answer
    assert "nothing was bought" in Decided(answer, shut).message


def test_closing_does_not_undo_a_decision():
    decided = vote(asked(), MARIA, Decision.APPROVE, None, ASKED)
    assert closed(decided, ApprovalStatus.EXPIRED, "late", DECIDE_BY) == decided


@pytest.mark.parametrize(
    ("approvers", "quorum", "words"),
    [((), 1, "approvers is empty"), ((MARIA,), 2, "quorum is 2"), ((MARIA,), 0, "quorum is 0")],
)
def test_nobody_who_could_say_yes_is_an_error_case_b16(approvers, quorum, words):
    with pytest.raises(NobodyToAskError, match=words):
        asked(quorum, approvers)


@pytest.mark.parametrize("left", [timedelta(0), timedelta(milliseconds=900), timedelta(hours=-3)])
def test_without_a_whole_second_left_nobody_is_asked_case_b04(left):
    with pytest.raises(TooLateToAskError):
        open_request(FACTS, [MARIA], 1, DECIDE_BY - left)


def test_a_fee_that_cannot_be_read_is_not_shown_to_anybody():
    with pytest.raises(ValueError, match="not an amount"):
        asked(upfront_fee="7,973.38")


def test_the_facts_are_what_the_case_of_money_needs():
    assert facts(asked()) == [
        ("Environment", "team-vision"),
        ("Capacity Block", "cr-0a1 in us-east-1, account 111122223333"),
        ("Instances", "8 × p5.48xlarge (64 H100)"),  # noqa: RUF001
        ("Extend from", "Mon 4 May 2026, 11:30 UTC"),
        ("Extend until", "Tue 5 May 2026, 11:30 UTC: 1 day more"),
        ("Upfront fee, in all", "7,973.38 USD"),
        ("Fee per instance hour", "41.53 USD"),
        ("Fee per accelerator hour", "5.19 USD"),
        ("Why now", "EC2 sells extensions only until an hour before the end, and a payment can take hours"),
        ("Answer before", "Mon 4 May 2026, 08:30 UTC"),
        ("Without an answer", "nothing is bought, and the block ends as planned"),
    ]
    assert fee_per_instance_hour(asked()) == Decimal("7973.38") / 192


def test_what_is_not_known_is_left_out_and_never_zero():
    shown = dict(facts(asked(instance_count=None, instance_type="p9.metal")))
    assert shown["Instances"] == "p9.metal"
    assert "Fee per instance hour" not in shown
    assert dict(facts(asked(instance_type="p9.metal")))["Instances"] == "8 × p9.metal"  # noqa: RUF001


def test_a_quorum_and_a_closed_request_show_what_applies():
    assert dict(facts(asked(quorum=2)))["Approvals needed"] == "2 of 2 approvers"
    assert "Answer before" not in dict(facts(vote(asked(), MARIA, Decision.APPROVE, None, ASKED)))


@pytest.mark.parametrize(("hours", "words"), [(24, "1 day"), (168, "7 days"), (41, "41 hours")])
def test_lengths_read_well(hours, words):
    assert length(hours) == words


def test_the_person_is_told_the_truth_about_the_delivery():
    decided = vote(asked(), MARIA, Decision.APPROVE, None, ASKED)
    assert Decided(Answer.RECORDED, replace(decided, delivery=Delivery.DELIVERED)).message == "Your answer is recorded."
    assert "no longer waits" in Decided(Answer.RECORDED, replace(decided, delivery=Delivery.NOBODY_WAITS)).message
    assert "told again" in Decided(Answer.RECORDED, decided).message
    assert "no such request" in Decided(Answer.NO_SUCH_REQUEST, None).message
    assert "not one of the approvers" in Decided(Answer.NOT_AN_APPROVER, asked()).message
    half = vote(asked(quorum=2), MARIA, Decision.APPROVE, None, ASKED)
    assert "1 more" in Decided(Answer.COUNTED, half).message


@given(
    st.lists(
        st.tuples(
            st.sampled_from([MARIA, JO, "kim@example.com", "mallory@example.com", "api:a", "api:b"]),
            st.sampled_from(Decision),
            st.integers(-3600, 3600),
        ),
        max_size=12,
    ),
    st.integers(1, 3),
)
def test_whatever_happens_a_yes_needs_its_quorum_in_time_and_the_first_end_stays(answers, quorum):
    request = asked(quorum, (MARIA, JO, "kim@example.com"))
    end = None
    for who, decision, seconds in answers:
        now = DECIDE_BY + timedelta(seconds=seconds)
        after = vote(request, who, decision, None, now)
        if isinstance(after, Answer):
            continue
        assert end is None, "an ended request has changed"
        assert now < DECIDE_BY
        request = after
        if request.status is not ApprovalStatus.OPEN:
            end = request
    yes = {voter for voter, said in request.votes.items() if said is Decision.APPROVE}
    assert "mallory@example.com" not in request.votes
    if request.status is ApprovalStatus.APPROVED:
        assert len(yes) == quorum == len(request.votes)
    if Decision.REJECT in request.votes.values():
        assert request.status is ApprovalStatus.REJECTED


def test_a_stored_request_is_the_same_when_it_is_read():
    for request in (asked(), vote(asked(), MARIA, Decision.REJECT, "no", ASKED), asked(instance_count=None)):
        item = {name: value for name, value in request_item(request).items() if value is not None}
        assert request_from({**item, "task_token": "secret", "version": 3}) == request
        assert "secret" not in repr(request_from({**item, "task_token": "secret"}))


BLOCK = json.loads((Path(__file__).parents[3] / "events" / "approve-purchase.block.json").read_text())


@pytest.mark.parametrize(
    "change", [{"what": "extension"}, {"new_start": "2026-05-05T12:30:00Z"}, {"new_end": "2026-05-13T11:30:00Z"}]
)
def test_a_yes_to_a_new_block_is_bound_to_it_case_b16(change):
    asked_for = open_request(BLOCK, ["maria@example.com"], 1, ASKED)
    assert open_request(BLOCK, ["maria@example.com"], 1, ASKED).binds == asked_for.binds
    assert open_request(BLOCK | change, ["maria@example.com"], 1, ASKED).binds != asked_for.binds
    assert request_from(request_item(asked_for)) == asked_for


MARIA, JO, KIM, HEAD = "maria@example.com", "jo@example.com", "kim@example.com", "head@example.com"


def ruled(quorum=1, approvers=(MARIA, JO), now=ASKED, requested_by=None, decide_by="2026-05-06T08:30:00Z", **rules):
    given = FACTS | {"requested_by": requested_by, "decide_by": decide_by}
    return open_request(given, approvers, quorum, now, Rules(**rules))


def yes(request, *people, now=ASKED):
    for who in people:
        request = vote(request, who, Decision.APPROVE, None, now)
        if isinstance(request, Answer):
            return request
    return request.status


@pytest.mark.parametrize("who", [MARIA, "Maria@Example.com"])
@pytest.mark.parametrize("fields", [{"enrolled_by": MARIA}, {"requested_by": "MARIA@example.com"}])
def test_who_enrolled_or_asked_cannot_approve_alone_case_b21(who, fields):
    request = ruled(**fields)
    assert yes(request, who) is Answer.FOUR_EYES
    assert yes(request, JO) is ApprovalStatus.APPROVED
    assert vote(request, who, Decision.REJECT, None, ASKED).status is ApprovalStatus.REJECTED, (
        "a no is always theirs to give"
    )
    assert yes(ruled(four_eyes=False, **fields), who) is ApprovalStatus.APPROVED


def test_beside_another_their_yes_counts_case_b21():
    request = ruled(2, (MARIA, JO, KIM), enrolled_by=MARIA, requested_by=JO)
    assert yes(request, MARIA) is ApprovalStatus.OPEN
    assert yes(request, MARIA, KIM) is ApprovalStatus.APPROVED
    assert yes(request, MARIA, JO) is ApprovalStatus.OPEN, "both have a hand in it"
    assert yes(request, MARIA, JO, KIM) is ApprovalStatus.APPROVED


def test_the_api_key_says_for_whom_when_somebody_is_excluded_case_b21():
    request = ruled(enrolled_by=MARIA)
    assert yes(request, "api:api-key") is Answer.NOT_NAMED
    assert yes(request, "api:maria@example.com") is Answer.FOUR_EYES
    assert yes(request, "api:jo@example.com") is ApprovalStatus.APPROVED
    assert yes(ruled(), "api:api-key") is ApprovalStatus.APPROVED, (
        "AWS's sample states no enroller, and works as it did"
    )


def test_a_request_that_only_its_enroller_could_approve_is_not_asked_case_b21():
    with pytest.raises(NobodyToAskError, match="names only who enrolled"):
        ruled(approvers=(MARIA,), enrolled_by=MARIA)


def test_reminders_are_marks_that_lie_ahead_case_b12():
    request = ruled(reminder_hours=(24, 6, 2))
    assert [format_instant(mark) for mark in request.reminders] == [
        "2026-05-05T08:30:00Z",
        "2026-05-06T02:30:00Z",
        "2026-05-06T06:30:00Z",
    ]
    late = ruled(now=datetime(2026, 5, 6, 3, 0, tzinfo=UTC), reminder_hours=(24, 6, 2))
    assert [format_instant(mark) for mark in late.reminders] == ["2026-05-06T06:30:00Z"]
    assert late.told_last(late.opened_at) == late.opened_at


@given(
    st.lists(st.integers(1, 1344), max_size=6, unique=True),
    st.integers(1, 60 * 24 * 56),
    st.none() | st.integers(1, 1344),
)
def test_waiting_goes_from_mark_to_mark_and_ends_case_b04(hours, minutes_left, escalate):
    decide_by = ASKED + timedelta(minutes=minutes_left)
    request = ruled(
        decide_by=format_instant(decide_by),
        reminder_hours=tuple(hours),
        escalate_to=() if escalate is None else (HEAD,),
        escalate_hours=escalate,
    )
    now, waits = ASKED, []
    while request.standing(now) is ApprovalStatus.OPEN:
        now, before = request.wait_until(now), now
        assert before < now <= decide_by
        waits.append(now)
    assert waits[-1] == decide_by
    assert len(waits) <= len(hours) + 2
    assert set(request.reminders) <= set(waits)


def test_the_second_list_may_answer_once_it_is_asked():
    request = ruled(escalate_to=(HEAD,), escalate_hours=4)
    before, after = request.decide_by - timedelta(hours=4, seconds=1), request.decide_by - timedelta(hours=4)
    assert yes(request, HEAD, now=before) is Answer.NOT_AN_APPROVER
    assert yes(request, HEAD, now=after) is ApprovalStatus.APPROVED
    assert yes(request, MARIA, now=after) is ApprovalStatus.APPROVED
    assert ruled(escalate_to=(HEAD,), escalate_hours=500).asked(ASKED) == (MARIA, JO, HEAD)


def test_no_answer_is_a_no_unless_the_policy_says_otherwise_case_b16():
    request = ruled(on_timeout=OnTimeout.APPROVE)
    assert format_instant(request.decide_by) == "2026-05-06T08:15:00Z", "time to look again and to buy is left"
    bought = timed_out(request, may_buy=True, now=request.decide_by)
    assert (bought.status, bought.decided_by) == (ApprovalStatus.APPROVED, BY_POLICY)
    assert "policy, since nobody answered" in decision_line(bought)
    assert timed_out(request, may_buy=False, now=request.decide_by).status is ApprovalStatus.EXPIRED
    assert timed_out(ruled(), may_buy=True, now=request.decide_by).status is ApprovalStatus.EXPIRED
    assert timed_out(bought, may_buy=False, now=request.decide_by) is bought
    assert "policy approves it" in dict(facts(request))["Without an answer"]


def test_all_that_was_asked_is_kept():
    request = ruled(
        enrolled_by=MARIA,
        requested_by=JO,
        escalate_to=(HEAD,),
        escalate_hours=4,
        on_timeout=OnTimeout.APPROVE,
        time_zone="Europe/Berlin",
        reminder_hours=(3,),
    )
    request = replace(request, budget_left=Decimal(50000), team_budget_left=Decimal("100.50"))
    assert request_from(json.loads(json.dumps(request_item(request)))) == request


def test_people_see_their_own_zone_beside_utc():
    shown = dict(facts(ruled(time_zone="Europe/Berlin")))
    assert shown["Extend from"] == "Mon 4 May 2026, 11:30 UTC (13:30 Europe/Berlin)"
    assert moment(datetime(2026, 5, 4, 20, 0, tzinfo=UTC), "Asia/Tokyo") == (
        "Mon 4 May 2026, 20:00 UTC (Tue 5 May, 05:00 Asia/Tokyo)"
    )
    # Both sides of the change to winter time.
    assert moment(datetime(2026, 10, 25, 0, 30, tzinfo=UTC), "Europe/Berlin").endswith("(02:30 Europe/Berlin)")
    assert moment(datetime(2026, 10, 25, 1, 30, tzinfo=UTC), "Europe/Berlin").endswith("(02:30 Europe/Berlin)")
    assert moment(datetime(2026, 5, 4, 20, 0, tzinfo=UTC), "No/Where") == "Mon 4 May 2026, 20:00 UTC"


@pytest.mark.parametrize(
    "name", ["Mars/Olympus", "../etc/passwd", "/etc/passwd", "", "x" * 300, "Europe", "America/.."]
)
def test_a_zone_that_is_none_is_refused(name):
    assert not is_time_zone(name)


@pytest.mark.parametrize(
    ("before", "words"),
    [
        ("37.08", "12 % more (37.08 USD per instance hour)"),
        ("50", "17 % less (50.00 USD per instance hour)"),
        ("41.53", "the same (41.53 USD per instance hour)"),
        (None, None),
        ("0", None),
    ],
)
def test_the_fee_is_set_beside_what_was_paid_before(before, words):
    request = open_request(FACTS | {"past_fee_per_instance_hour": before}, [MARIA], 1, ASKED)
    assert dict(facts(request)).get("Beside the last extension") == words


def test_what_is_left_of_the_budget_is_said():
    request = replace(ruled(), budget_left=Decimal("42026.62"), team_budget_left=Decimal(8000))
    words = dict(facts(request))["Left of the budget"]
    assert words == "42,026.62 USD this month; of the team's own 8,000.00 USD"
    assert "cannot be bought" in dict(facts(replace(request, team_budget_left=Decimal(0))))["Left of the budget"]
