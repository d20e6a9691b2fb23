"""A question to people, whether one extension or one new block may be bought, and what their votes make of it.

A yes is bound to what is bought, block, current end, new start and end, and ceiling (design rule 2); whoever is asked is fixed when
the question is asked.
Everything that decides stands here, and the adapter writes its result on a condition, so the first writer wins.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from decimal import ROUND_HALF_EVEN, Decimal
from enum import StrEnum
from typing import Any

from blockkeeper.domain.accelerators import accelerators, accelerators_each
from blockkeeper.domain.deadlines import POLICY_LEAD
from blockkeeper.domain.environment import DEFAULT_REMINDER_HOURS, UTC_ZONE, Environment, OnTimeout
from blockkeeper.domain.instants import format_instant, moment, parse_instant
from blockkeeper.domain.money import format_usd, parse_usd
from blockkeeper.domain.slack_person import SLACK_CALLER, is_listed

# The API key is one credential, whatever name its holder states: it has one voice.
API_CALLER = "api:"
# Who answers with the API key and does not say who they are.
UNNAMED_CALLER = "api:api-key"
# Who has decided when nobody answered and the record says on_timeout: approve.
BY_POLICY = "policy:on_timeout"
# Step Functions takes whole seconds above 0 as TimeoutSeconds.
SHORTEST_WAIT = timedelta(seconds=1)


class NobodyToAskError(Exception):
    """No approver could give this approval, so nobody is asked and nothing is bought (design rule 6)."""


class TooLateToAskError(Exception):
    """The last moment for an answer has come (case B04)."""


class What(StrEnum):
    """What is bought: an extension of the block, or a new block in place of it."""

    EXTENSION = "extension"
    BLOCK = "block"


class Decision(StrEnum):
    """What a person answers."""

    APPROVE = "approve"
    REJECT = "reject"


class ApprovalStatus(StrEnum):
    """Where a request stands; all but OPEN are final."""

    OPEN = "OPEN"
    APPROVED = "APPROVED"
    REJECTED = "REJECTED"
    EXPIRED = "EXPIRED"
    SUPERSEDED = "SUPERSEDED"


class Delivery(StrEnum):
    """What became of a decision on its way to the workflow that waits for it; no value means that it is still to be sent."""

    DELIVERED = "delivered"
    NOBODY_WAITS = "nobody waits"


class Answer(StrEnum):
    """What became of a vote: RECORDED ends the request, COUNTED waits for more votes, all others changed nothing."""

    RECORDED = "recorded"
    COUNTED = "counted"
    NOT_AN_APPROVER = "not_an_approver"
    ALREADY_DECIDED = "already_decided"
    EXPIRED = "expired"
    SUPERSEDED = "superseded"
    NO_SUCH_REQUEST = "no_such_request"
    FOUR_EYES = "four_eyes"
    NOT_NAMED = "not_named"


@dataclass(frozen=True, slots=True)
class Rules:
    """What the record says about asking and answering, beside approvers and quorum. See `Environment` for the fields."""

    four_eyes: bool = True
    enrolled_by: str | None = None
    reminder_hours: tuple[int, ...] = DEFAULT_REMINDER_HOURS
    escalate_to: tuple[str, ...] = ()
    escalate_hours: int | None = None
    on_timeout: OnTimeout = OnTimeout.REJECT
    time_zone: str = UTC_ZONE

    @classmethod
    def of(cls, environment: Environment) -> "Rules":
        """Those of a record."""
        return cls(**{name: getattr(environment, name) for name in cls.__dataclass_fields__})


@dataclass(frozen=True, slots=True)
class ApprovalRequest:
    """One question, with all that is shown to people. Times are aware UTC, money is Decimal USD, a missing value is None.

    Task token and links are no part of it, so that no log or answer made from it can hold them (case B41).

    Attributes:
        instance_count: instances of the block; None while EC2 does not show them.
        upfront_fee: what EC2 asks for the whole extension.
        ceiling: the most that a yes allows.
        what: for a new block `reservation_id` and `current_end` are the old one's, and all that is offered is the new one's.
        new_start: when the new block starts; None for an extension.
        availability_zone: the new block's; None for an extension.
        past_fee_per_instance_hour: what the latest paid extension cost, USD; None when there was none.
        requested_by: who started this by hand; None when nobody did.
        rules: as the record had them when the question was asked.
        budget_left: what the month's budget had left then, USD, before this purchase; None when it was not read.
        team_budget_left: the same of the team's own budget; None when it has none.
        decide_by: an answer at this moment is too late.
        approvers: who may answer, as the record named them when the question was asked.
        quorum: how many of them must say yes; one no ends it.
        votes: what each voter said, by voter: an address in lower case, `slack:<team>:<user>` in lower case, or `api:` for the API
            key's holder.
        decided_by: an address, `slack:<team>:<user>`, `api:<name>`, or `policy:on_timeout`.
        reason: what the decider gave as reason, or why the request was closed.
        slack_team: the workspace that was asked in Slack, whose people an approver without a workspace means; None when none was.
    """

    approval_id: str
    environment: str
    reservation_id: str
    account: str
    region: str
    current_end: datetime
    new_end: datetime
    duration_hours: int
    instance_type: str
    instance_count: int | None
    offering_id: str
    upfront_fee: Decimal
    ceiling: Decimal
    decide_by: datetime
    approvers: tuple[str, ...]
    quorum: int
    opened_at: datetime
    what: What = What.EXTENSION
    new_start: datetime | None = None
    availability_zone: str | None = None
    past_fee_per_instance_hour: Decimal | None = None
    requested_by: str | None = None
    rules: Rules = Rules()
    budget_left: Decimal | None = None
    team_budget_left: Decimal | None = None
    status: ApprovalStatus = ApprovalStatus.OPEN
    votes: Mapping[str, Decision] = field(default_factory=dict)
    decided_by: str | None = None
    decided_at: datetime | None = None
    reason: str | None = None
    delivery: Delivery | None = None
    slack_team: str | None = None

    @property
    def binds(self) -> tuple[What, str, datetime, datetime | None, datetime, Decimal]:
        """What a yes is bound to."""
        return (self.what, self.reservation_id, self.current_end, self.new_start, self.new_end, self.ceiling)

    @property
    def interested(self) -> frozenset[str]:
        """Who cannot approve alone, in lower case: whoever enrolled the block or asked for this purchase (case B21)."""
        known = (self.rules.enrolled_by, self.requested_by)
        return frozenset(who.lower() for who in known if who) if self.rules.four_eyes else frozenset()

    def is_interested(self, who: str) -> bool:
        """Whether `who`, an address or `slack:<team>:<user>`, is one of `interested`."""
        if who.startswith(SLACK_CALLER):
            return is_listed(who, self.interested, self.slack_team)
        return who.lower() in self.interested

    @property
    def missing_votes(self) -> int:
        """How many more must say yes; with four eyes at least one of them has neither enrolled nor asked."""
        yes = [voter for voter, vote in self.votes.items() if vote is Decision.APPROVE]
        return max(self.quorum - len(yes), 0 if any(not self.is_interested(voter) for voter in yes) else 1)

    @property
    def escalates_at(self) -> datetime | None:
        """From when the second list is asked and may answer, at once when that moment has passed; None when there is none."""
        if not self.rules.escalate_to or self.rules.escalate_hours is None:
            return None
        return max(self.decide_by - timedelta(hours=self.rules.escalate_hours), self.opened_at)

    @property
    def reminders(self) -> tuple[datetime, ...]:
        """When those who have not answered are reminded, in order: only marks that lay ahead when it was asked (case B12)."""
        marks = (self.decide_by - timedelta(hours=hours) for hours in self.rules.reminder_hours)
        return tuple(sorted(mark for mark in marks if mark > self.opened_at))

    def wait_until(self, now: datetime) -> datetime:
        """The next moment at which somebody is told something, at the latest `decide_by`."""
        marks = (*self.reminders, self.escalates_at, self.decide_by)
        return min((mark for mark in marks if mark is not None and mark > now), default=self.decide_by)

    def asked(self, now: datetime) -> tuple[str, ...]:
        """Who may answer at this moment: the approvers, and after the escalation the second list too."""
        escalated = self.escalates_at is not None and now >= self.escalates_at
        return (*self.approvers, *self.rules.escalate_to) if escalated else self.approvers

    def told_last(self, now: datetime) -> datetime:
        """Whoever has heard of it since this moment needs to hear no more: the last reminder's, or that of the question."""
        return max((mark for mark in self.reminders if mark <= now), default=self.opened_at)

    def last_mark(self, now: datetime) -> datetime:
        """When people were last due to be told something new: the question, the escalation, or a reminder."""
        escalated = self.escalates_at
        return max(self.told_last(now), escalated if escalated is not None and escalated <= now else self.opened_at)

    def standing(self, now: datetime) -> ApprovalStatus:
        """Status as people should see it: an open request whose time is over is expired, even if nobody has closed it yet."""
        late = self.status is ApprovalStatus.OPEN and now >= self.decide_by
        return ApprovalStatus.EXPIRED if late else self.status


@dataclass(frozen=True, slots=True)
class Decided:
    """What became of one vote, and the request as it is after it; None when there is no such request."""

    answer: Answer
    request: ApprovalRequest | None

    @property
    def message(self) -> str:
        """The truth in a sentence or two, for the person who has answered."""
        request = self.request
        if request is None:
            return "There is no such request; nothing was changed."
        match self.answer:
            case Answer.RECORDED if request.delivery is Delivery.NOBODY_WAITS:
                return (
                    "Your answer is recorded, but the workflow that asked no longer waits for it. "
                    "Look at the state of the block before you rely on it."
                )
            case Answer.RECORDED if request.delivery is None:
                return "Your answer is recorded. The workflow could not be reached just now; it is told again within minutes."
            case Answer.RECORDED:
                return "Your answer is recorded."
            case Answer.COUNTED:
                others = (
                    ""
                    if len(request.votes) < request.quorum
                    else ", one who has neither enrolled the block nor asked for this"
                )
                return f"Your yes is counted; {request.missing_votes} more of the approvers must say yes{others}."
            case Answer.ALREADY_DECIDED:
                return f"{decision_line(request)} Your answer changed nothing."
            case Answer.EXPIRED:
                until = local(request, request.decide_by)
                return f"Too late: answers counted until {until}. The request has expired, nothing was bought."
            case _:
                return _REFUSALS[self.answer]


_REFUSALS = {
    Answer.SUPERSEDED: "The question is no longer open; nothing was bought through it, and your answer changed nothing.",
    Answer.NOT_AN_APPROVER: "You are not one of the approvers of this request; nothing was changed.",
    Answer.FOUR_EYES: (
        "You enrolled this block or asked for this purchase, so your yes alone is not enough; another approver must say yes. "
        "Nothing was changed."
    ),
    Answer.NOT_NAMED: (
        "With four_eyes a yes through the API says whose it is: state `approver`, somebody else than who enrolled the block or "
        "asked for this purchase. Nothing was changed."
    ),
}


def open_request(
    facts: Mapping[str, Any], approvers: Sequence[str], quorum: int, now: datetime, rules: Rules | None = None
) -> ApprovalRequest:
    """The question that the input of approve-purchase asks.

    Args:
        facts: as in ``schemas/approve-purchase.schema.json``.
        approvers: e-mail addresses and Slack user ids of the record.
        quorum: how many of them must say yes.
        now: when it is asked.
        rules: the record's; None is the default of each.

    Raises:
        NobodyToAskError: there is no approver, or fewer than the quorum needs.
        TooLateToAskError: less than a second is left.
        KeyError, ValueError: the facts are not as the schema says.
    """
    rules = rules or Rules()
    environment, decide_by = facts["environment"], parse_instant(facts["decide_by"])
    if rules.on_timeout is OnTimeout.APPROVE:
        # What the policy then decides must still be bought in time.
        decide_by -= POLICY_LEAD
    if not approvers:
        raise NobodyToAskError(
            f"{environment}: approvers is empty; an extension needs somebody to say yes (name at least one approver)"
        )
    if not 1 <= quorum <= len(approvers):
        raise NobodyToAskError(
            f"{environment}: quorum is {quorum}; it is 1 to {len(approvers)}, the number of approvers (name more of them)"
        )
    if decide_by - now < SHORTEST_WAIT:
        raise TooLateToAskError(
            f"{environment}: answers counted until {format_instant(decide_by)}; nothing was asked or bought"
        )
    asked = {"approvers": list(approvers), "quorum": quorum, "opened_at": format_instant(now)}
    request = request_from({**facts, **asked, "decide_by": format_instant(decide_by), **_rules_item(rules)})
    others = {approver.lower() for approver in (*approvers, *rules.escalate_to)} - request.interested
    if not others:
        raise NobodyToAskError(
            f"{environment}: approvers names only who enrolled the block or asked for this purchase; with four_eyes somebody else "
            "must say yes (name another approver, or set four_eyes to false)"
        )
    return request


def asks_the_same(request: ApprovalRequest, facts: Mapping[str, Any]) -> bool:
    """Whether the input of approve-purchase asks what this request asks: only then may its answer pass to it (case B16)."""
    return request_from({**request_item(request), "what": None, "new_start": None, **facts}).binds == request.binds


def request_from(item: Mapping[str, Any]) -> ApprovalRequest:
    """Read a stored request (`request_item` writes it); what else the item holds is left out.

    Raises:
        KeyError, ValueError: a field is missing or cannot be read.
    """
    return ApprovalRequest(
        approval_id=item["approval_id"],
        environment=item["environment"],
        reservation_id=item["reservation_id"],
        account=item["account"],
        region=item["region"],
        current_end=parse_instant(item["current_end"]),
        new_end=parse_instant(item["new_end"]),
        duration_hours=int(item["duration_hours"]),
        instance_type=item["instance_type"],
        instance_count=None if item.get("instance_count") is None else int(item["instance_count"]),
        offering_id=item["offering_id"],
        upfront_fee=parse_usd(item["upfront_fee"]),
        ceiling=parse_usd(item["ceiling"]),
        decide_by=parse_instant(item["decide_by"]),
        approvers=tuple(item["approvers"]),
        quorum=int(item["quorum"]),
        opened_at=parse_instant(item["opened_at"]),
        what=What(item.get("what") or What.EXTENSION),
        new_start=_instant(item.get("new_start")),
        availability_zone=item.get("availability_zone"),
        past_fee_per_instance_hour=_amount(item.get("past_fee_per_instance_hour")),
        requested_by=item.get("requested_by"),
        rules=Rules(
            four_eyes=item.get("four_eyes") is not False,
            enrolled_by=item.get("enrolled_by"),
            reminder_hours=tuple(int(hours) for hours in item.get("reminder_hours") or ()),
            escalate_to=tuple(item.get("escalate_to") or ()),
            escalate_hours=None if item.get("escalate_hours") is None else int(item["escalate_hours"]),
            on_timeout=OnTimeout(item.get("on_timeout") or OnTimeout.REJECT),
            time_zone=item.get("time_zone") or UTC_ZONE,
        ),
        budget_left=_amount(item.get("budget_left")),
        team_budget_left=_amount(item.get("team_budget_left")),
        status=ApprovalStatus(item.get("status", ApprovalStatus.OPEN)),
        votes={voter: Decision(vote) for voter, vote in (item.get("votes") or {}).items()},
        decided_by=item.get("decided_by"),
        decided_at=_instant(item.get("decided_at")),
        reason=item.get("reason"),
        delivery=None if item.get("delivery") is None else Delivery(item["delivery"]),
        slack_team=item.get("slack_team"),
    )


def request_item(request: ApprovalRequest) -> dict[str, Any]:
    """The stored form: times and amounts as text. It is also what the API shows."""
    return {
        "approval_id": request.approval_id,
        "environment": request.environment,
        "reservation_id": request.reservation_id,
        "account": request.account,
        "region": request.region,
        "current_end": format_instant(request.current_end),
        "new_end": format_instant(request.new_end),
        "duration_hours": request.duration_hours,
        "instance_type": request.instance_type,
        "instance_count": request.instance_count,
        "offering_id": request.offering_id,
        "upfront_fee": str(request.upfront_fee),
        "ceiling": str(request.ceiling),
        "decide_by": format_instant(request.decide_by),
        "approvers": list(request.approvers),
        "quorum": request.quorum,
        "opened_at": format_instant(request.opened_at),
        "what": request.what.value,
        "new_start": None if request.new_start is None else format_instant(request.new_start),
        "availability_zone": request.availability_zone,
        "past_fee_per_instance_hour": None
        if request.past_fee_per_instance_hour is None
        else str(request.past_fee_per_instance_hour),
        "requested_by": request.requested_by,
        **_rules_item(request.rules),
        "budget_left": None if request.budget_left is None else str(request.budget_left),
        "team_budget_left": None if request.team_budget_left is None else str(request.team_budget_left),
        "status": request.status.value,
        "votes": {voter: vote.value for voter, vote in request.votes.items()},
        "decided_by": request.decided_by,
        "decided_at": None if request.decided_at is None else format_instant(request.decided_at),
        "reason": request.reason,
        "delivery": None if request.delivery is None else request.delivery.value,
        "slack_team": request.slack_team,
    }


def vote(
    request: ApprovalRequest, who: str, decision: Decision, reason: str | None, now: datetime
) -> ApprovalRequest | Answer:
    """The request after `who` has answered, or why the answer does not count.

    A yes that the quorum does not end yet leaves the request open; one no ends it. Saying the same twice counts once.

    Args:
        who: an address, `slack:<team>:<user>`, or `api:<name>` for a caller whom the API key has authorised already.
        reason: for the record; None when none was given.
        now: when the answer came.
    """
    voter = voter_of(request, who, now)
    if voter is None:
        return Answer.NOT_AN_APPROVER
    if request.status in (ApprovalStatus.APPROVED, ApprovalStatus.REJECTED):
        return Answer.ALREADY_DECIDED
    if request.status is ApprovalStatus.SUPERSEDED:
        return Answer.SUPERSEDED
    if request.standing(now) is ApprovalStatus.EXPIRED:
        return Answer.EXPIRED
    if decision is Decision.APPROVE and (refused := yes_refused(request, who)):
        return refused
    voted = replace(request, votes={**request.votes, voter: decision})
    if decision is Decision.APPROVE and voted.missing_votes:
        return voted
    status = ApprovalStatus.APPROVED if decision is Decision.APPROVE else ApprovalStatus.REJECTED
    return replace(voted, status=status, decided_by=who, decided_at=now, reason=reason)


def yes_refused(request: ApprovalRequest, who: str) -> Answer | None:
    """Why a yes does not count although its voice would. Beside the yes of another it does, so only a quorum of one refuses it.

    What the holder of the API key states is all that is known of who they are: an own yes is refused, and so is one without a name
    while somebody is to be excluded; see docs/adr/007-four-eyes.md.
    """
    if not request.interested:
        return None
    if who.startswith(API_CALLER):
        name = who.removeprefix(API_CALLER).lower()
        if who == UNNAMED_CALLER:
            return Answer.NOT_NAMED
        return Answer.FOUR_EYES if name in request.interested else None
    return Answer.FOUR_EYES if request.quorum == 1 and request.is_interested(who) else None


def voter_of(request: ApprovalRequest, who: str, now: datetime) -> str | None:
    """Whose voice `who` has at this moment; None when nobody's. Addresses are compared whole, without regard to case (case B21)."""
    if who.startswith(API_CALLER):
        return API_CALLER
    if who.startswith(SLACK_CALLER):
        return who.lower() if is_listed(who, request.asked(now), request.slack_team) else None
    return who.lower() if who.lower() in {approver.lower() for approver in request.asked(now)} else None


def timed_out(request: ApprovalRequest, *, may_buy: bool, now: datetime) -> ApprovalRequest:
    """The request after its time is over: EXPIRED, or approved by policy.

    Args:
        may_buy: whether the record still says on_timeout: approve with a ceiling that allows this fee, and people were told.
    """
    if request.status is not ApprovalStatus.OPEN:
        return request
    if may_buy and request.rules.on_timeout is OnTimeout.APPROVE:
        reason = f"nobody answered before {format_instant(request.decide_by)}, and on_timeout is approve"
        return replace(request, status=ApprovalStatus.APPROVED, decided_by=BY_POLICY, decided_at=now, reason=reason)
    reason = f"nobody answered before {format_instant(request.decide_by)}; nothing was bought"
    return closed(request, ApprovalStatus.EXPIRED, reason, now)


def channel(who: str | None) -> str:
    """Which way an answer came, by who gave it: page, api, slack or policy; workflow, when it ended without one."""
    if who is None or who == "nobody":
        return "workflow"
    return who.partition(":")[0] if who.startswith((API_CALLER, SLACK_CALLER, "policy:")) else "page"


def closed(request: ApprovalRequest, status: ApprovalStatus, reason: str, now: datetime) -> ApprovalRequest:
    """The request after it has ended without a decision: EXPIRED or SUPERSEDED. One that has ended stays as it is."""
    if request.status is not ApprovalStatus.OPEN:
        return request
    return replace(request, status=status, decided_at=now, reason=reason)


def outcome(request: ApprovalRequest) -> dict[str, str | None]:
    """What approve-purchase answers: ``{decision, approval_id, decided_by, decided_at, reason}``, for a request that has ended."""
    return {
        "decision": request.status.value.lower(),
        "approval_id": request.approval_id,
        "decided_by": request.decided_by,
        "decided_at": None if request.decided_at is None else format_instant(request.decided_at),
        "reason": request.reason,
    }


def fee_per_instance_hour(request: ApprovalRequest) -> Decimal | None:
    """USD; None while the number of instances is not known."""
    return (
        None
        if request.instance_count is None
        else request.upfront_fee / (request.instance_count * request.duration_hours)
    )


def facts(request: ApprovalRequest) -> list[tuple[str, str]]:
    """What a person should know before an answer, as (label, value) in reading order; page, mail and Slack show the same."""
    count = "" if request.instance_count is None else f"{request.instance_count} × "  # noqa: RUF001 - a multiplication sign is meant
    chips = accelerators(request.instance_type, request.instance_count)
    instances = ("Instances", f"{count}{request.instance_type}" + (f" ({chips})" if chips else ""))
    shown: list[tuple[str, str | None]] = [("Environment", request.environment)]
    if request.what is What.BLOCK:
        shown += [
            ("New Capacity Block", f"in {request.availability_zone or request.region}, account {request.account}"),
            instances,
            ("Starts", None if request.new_start is None else local(request, request.new_start)),
            ("Ends", f"{local(request, request.new_end)}: {length(request.duration_hours)}"),
            ("In place of", f"{request.reservation_id}, which ends on {local(request, request.current_end)}"),
        ]
    else:
        shown += [
            ("Capacity Block", f"{request.reservation_id} in {request.region}, account {request.account}"),
            instances,
            ("Extend from", local(request, request.current_end)),
            ("Extend until", f"{local(request, request.new_end)}: {length(request.duration_hours)} more"),
        ]
    shown += [
        ("Upfront fee, in all", format_usd(request.upfront_fee)),
        *_rates(request),
        ("Left of the budget", _budget(request)),
        (
            "Approvals needed",
            None if request.quorum == 1 else f"{request.quorum} of {len(request.approvers)} approvers",
        ),
    ]
    if request.status is ApprovalStatus.OPEN:
        shown += [
            ("Why now", _why_now(request)),
            ("Answer before", local(request, request.decide_by)),
            ("Without an answer", without_answer(request)),
        ]
    return [(label, value) for label, value in shown if value is not None]


def _rates(request: ApprovalRequest) -> list[tuple[str, str | None]]:
    """The fee by the hour, and beside what was paid before."""
    rate = fee_per_instance_hour(request)
    if rate is None:
        return []
    each = accelerators_each(request.instance_type)
    return [
        ("Fee per instance hour", format_usd(rate)),
        ("Fee per accelerator hour", None if each is None else format_usd(rate / each)),
        ("Beside the last extension", compared(rate, request.past_fee_per_instance_hour)),
    ]


def compared(rate: Decimal, before: Decimal | None) -> str | None:
    """A fee per instance hour beside that of before, such as `12 % more (37.08 USD per instance hour)`; None without one."""
    if not before:
        return None
    percent = int(((rate - before) / before * 100).to_integral_value(ROUND_HALF_EVEN))
    words = "the same" if percent == 0 else f"{abs(percent)} % {'more' if percent > 0 else 'less'}"
    return f"{words} ({format_usd(before)} per instance hour)"


def _budget(request: ApprovalRequest) -> str | None:
    if request.budget_left is None:
        return None
    own = "" if request.team_budget_left is None else f"; of the team's own {format_usd(request.team_budget_left)}"
    lefts = (left for left in (request.budget_left, request.team_budget_left) if left is not None)
    short = "" if min(lefts) >= request.upfront_fee else ": too little, so it cannot be bought"
    return f"{format_usd(request.budget_left)} this month{own}{short}"


def _why_now(request: ApprovalRequest) -> str:
    if request.what is What.BLOCK:
        return "EC2 offers no extension that fits, and a new block can be gone at any time"
    return "EC2 sells extensions only until an hour before the end, and a payment can take hours"


def without_answer(request: ApprovalRequest) -> str:
    """What happens when nobody answers, for people."""
    if request.rules.on_timeout is OnTimeout.APPROVE:
        return f"the record's policy approves it (on_timeout), up to {format_usd(request.ceiling)}"
    return "nothing is bought, and the block ends as planned"


def question_line(request: ApprovalRequest) -> str:
    """What is asked, in a sentence or two."""
    if request.what is What.BLOCK:
        start = "now" if request.new_start is None else local(request, request.new_start)
        return (
            f"The Capacity Block of {request.environment} ends on {local(request, request.current_end)}, and EC2 offers no "
            f"extension that fits. May Blockkeeper buy a new Capacity Block from {start} until {local(request, request.new_end)} "
            f"in zone {request.availability_zone or request.region} for {format_usd(request.upfront_fee)}?"
        )
    return (
        f"The Capacity Block of {request.environment} ends on {local(request, request.current_end)}. May Blockkeeper extend it by "
        f"{length(request.duration_hours)} for {format_usd(request.upfront_fee)}?"
    )


def decision_line(request: ApprovalRequest, decider: str | None = None) -> str:
    """Who decided and when, as in `Approved by maria@example.com on Mon 4 May 2026, 08:10 UTC.`.

    Args:
        decider: how to name them; None is as they are recorded.
    """
    when = "" if request.decided_at is None else f" on {local(request, request.decided_at)}"
    who = request.decided_by or "nobody"
    if who == BY_POLICY:
        who = "policy, since nobody answered (on_timeout)"
    elif who.startswith(SLACK_CALLER):
        who = f"{who.rpartition(':')[2]} in Slack"
    return f"{request.status.value.capitalize()} by {decider or who}{when}."


def local(request: ApprovalRequest, instant: datetime) -> str:
    """A moment for the readers of a request: in UTC and in their zone."""
    return moment(instant, request.rules.time_zone)


def length(hours: int) -> str:
    """A length for people: `7 days`."""
    days, rest = divmod(hours, 24)
    if rest:
        return f"{hours} hours"
    return "1 day" if days == 1 else f"{days} days"


def _instant(text: str | None) -> datetime | None:
    return None if text is None else parse_instant(text)


def _amount(text: str | None) -> Decimal | None:
    return None if text is None else parse_usd(text)


def _rules_item(rules: Rules) -> dict[str, Any]:
    item = {name: getattr(rules, name) for name in Rules.__dataclass_fields__}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in item.items()}
