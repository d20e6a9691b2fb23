"""A question to people, whether one extension or one new block may be bought, and what their votes make of it.

A yes is bound to what is bought, block, current end, new start and end, and ceiling (design rule 2); whoever is asked is fixed when
the question is asked.
Everything that decides stands here, and the adapter writes its result on a condition, so the first writer wins.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Any

from blockkeeper.domain.accelerators import accelerators
from blockkeeper.domain.instants import format_instant, parse_instant
from blockkeeper.domain.money import format_usd, parse_usd
from blockkeeper.domain.slack_person import SLACK_CALLER, is_listed

# The API key is one credential, whatever name its holder states: it has one voice.
API_CALLER = "api:"
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
        decide_by: an answer at this moment is too late.
        approvers: who may answer, as the record named them when the question was asked.
        quorum: how many of them must say yes; one no ends it.
        votes: what each voter said, by voter: an address in lower case, `slack:<team>:<user>` in lower case, or `api:` for the API
            key's holder.
        decided_by: an address, `slack:<team>:<user>`, or `api:<name>`.
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
    def missing_votes(self) -> int:
        """How many more must say yes."""
        return max(0, self.quorum - sum(vote is Decision.APPROVE for vote in self.votes.values()))

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
                return f"Your yes is counted; {request.missing_votes} more of the approvers must say yes."
            case Answer.ALREADY_DECIDED:
                return f"{decision_line(request)} Your answer changed nothing."
            case Answer.SUPERSEDED:
                return "The question is no longer open; nothing was bought through it, and your answer changed nothing."
            case Answer.EXPIRED:
                return f"Too late: answers counted until {moment(request.decide_by)}. The request has expired, nothing was bought."
            case _:
                return "You are not one of the approvers of this request; nothing was changed."


def open_request(facts: Mapping[str, Any], approvers: Sequence[str], quorum: int, now: datetime) -> ApprovalRequest:
    """The question that the input of approve-purchase asks.

    Args:
        facts: as in ``schemas/approve-purchase.schema.json``.
        approvers: e-mail addresses and Slack user ids of the record.
        quorum: how many of them must say yes.
        now: when it is asked.

    Raises:
        NobodyToAskError: there is no approver, or fewer than the quorum needs.
        TooLateToAskError: less than a second is left.
        KeyError, ValueError: the facts are not as the schema says.
    """
    environment, decide_by = facts["environment"], parse_instant(facts["decide_by"])
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
    return request_from({**facts, "approvers": list(approvers), "quorum": quorum, "opened_at": format_instant(now)})


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
        past_fee_per_instance_hour=None
        if item.get("past_fee_per_instance_hour") is None
        else parse_usd(item["past_fee_per_instance_hour"]),
        requested_by=item.get("requested_by"),
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
    voter = voter_of(request, who)
    if voter is None:
        return Answer.NOT_AN_APPROVER
    if request.status in (ApprovalStatus.APPROVED, ApprovalStatus.REJECTED):
        return Answer.ALREADY_DECIDED
    if request.status is ApprovalStatus.SUPERSEDED:
        return Answer.SUPERSEDED
    if request.standing(now) is ApprovalStatus.EXPIRED:
        return Answer.EXPIRED
    voted = replace(request, votes={**request.votes, voter: decision})
    if decision is Decision.APPROVE and voted.missing_votes:
        return voted
    status = ApprovalStatus.APPROVED if decision is Decision.APPROVE else ApprovalStatus.REJECTED
    return replace(voted, status=status, decided_by=who, decided_at=now, reason=reason)


def voter_of(request: ApprovalRequest, who: str) -> str | None:
    """Whose voice `who` has; None when nobody's. Addresses are compared whole, without regard to case (case B21)."""
    if who.startswith(API_CALLER):
        return API_CALLER
    if who.startswith(SLACK_CALLER):
        return who.lower() if is_listed(who, request.approvers, request.slack_team) else None
    return who.lower() if who.lower() in {approver.lower() for approver in request.approvers} else None


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
    """What a person should know before an answer, as (label, value) in reading order; page and mail show the same."""
    count = "" if request.instance_count is None else f"{request.instance_count} × "  # noqa: RUF001 - a multiplication sign is meant
    chips = accelerators(request.instance_type, request.instance_count)
    rate = fee_per_instance_hour(request)
    instances = ("Instances", f"{count}{request.instance_type}" + (f" ({chips})" if chips else ""))
    shown: list[tuple[str, str | None]] = [("Environment", request.environment)]
    if request.what is What.BLOCK:
        shown += [
            ("New Capacity Block", f"in {request.availability_zone or request.region}, account {request.account}"),
            instances,
            ("Starts", None if request.new_start is None else moment(request.new_start)),
            ("Ends", f"{moment(request.new_end)} ({length(request.duration_hours)})"),
            ("In place of", f"{request.reservation_id}, which ends on {moment(request.current_end)}"),
        ]
    else:
        shown += [
            ("Capacity Block", f"{request.reservation_id} in {request.region}, account {request.account}"),
            instances,
            ("Extend from", moment(request.current_end)),
            ("Extend until", f"{moment(request.new_end)} ({length(request.duration_hours)} more)"),
        ]
    shown += [
        ("Upfront fee, in all", format_usd(request.upfront_fee)),
        ("Fee per instance hour", None if rate is None else format_usd(rate)),
        (
            "Approvals needed",
            None if request.quorum == 1 else f"{request.quorum} of {len(request.approvers)} approvers",
        ),
    ]
    if request.status is ApprovalStatus.OPEN:
        shown += [
            ("Answer before", moment(request.decide_by)),
            ("Without an answer", "nothing is bought, and the block ends as planned"),
        ]
    return [(label, value) for label, value in shown if value is not None]


def question_line(request: ApprovalRequest) -> str:
    """What is asked, in a sentence or two."""
    if request.what is What.BLOCK:
        start = "now" if request.new_start is None else moment(request.new_start)
        return (
            f"The Capacity Block of {request.environment} ends on {moment(request.current_end)}, and EC2 offers no extension that "
            f"fits. May Blockkeeper buy a new Capacity Block from {start} until {moment(request.new_end)} in zone "
            f"{request.availability_zone or request.region}?"
        )
    return (
        f"The Capacity Block of {request.environment} ends on {moment(request.current_end)}. May Blockkeeper extend it?"
    )


def decision_line(request: ApprovalRequest) -> str:
    """Who decided and when, as in `Approved by maria@example.com on Mon 4 May 2026, 08:10 UTC.`."""
    when = "" if request.decided_at is None else f" on {moment(request.decided_at)}"
    return f"{request.status.value.capitalize()} by {request.decided_by or 'nobody'}{when}."


def moment(instant: datetime) -> str:
    """A moment for people: `Mon 4 May 2026, 11:30 UTC`."""
    return f"{instant:%a} {instant.day} {instant:%b %Y, %H:%M} UTC"


def length(hours: int) -> str:
    """A length for people: `7 days`."""
    days, rest = divmod(hours, 24)
    if rest:
        return f"{hours} hours"
    return "1 day" if days == 1 else f"{days} days"


def _instant(text: str | None) -> datetime | None:
    return None if text is None else parse_instant(text)
