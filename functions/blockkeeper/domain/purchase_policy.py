"""Whether one extension may be bought now: every rule in one place, checked by the buyer against the stored record and approval.

The buyer does not trust what the workflow hands it: it reads record and approval again (design rules 2, 6 and 7).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from blockkeeper.domain.approval import BY_POLICY
from blockkeeper.domain.deadlines import EARLIEST_EXTENSION, Deadlines
from blockkeeper.domain.environment import Environment
from blockkeeper.domain.instants import format_instant, parse_instant
from blockkeeper.domain.money import UnreadableFeeError, format_usd, parse_usd
from blockkeeper.domain.offering import Offering
from blockkeeper.domain.outcome import Outcome


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why nothing may be bought now, in words, and the outcome of that; too late is no rule's no, and plan B may follow it."""

    reason: str
    outcome: Outcome = Outcome.NOT_ALLOWED


def missing_policy(environment: Environment) -> str | None:
    """What the record lacks before anything may be bought for it, with the remedy; None when it is complete."""
    if environment.max_upfront_fee is None:
        return "max_upfront_fee is not set; nothing is bought without a ceiling (set it, in USD, such as '12000')"
    if environment.require_approval and not environment.approvers:
        return "approvers is empty and require_approval is true; nobody could say yes (name at least one approver)"
    return None


def bought_in_a_row(environment: Environment) -> str | None:
    """What a look-ahead beyond the extension leads to, with the remedy; None when it is none, or `extend_until` bounds it.

    An end that has moved by less than the look-ahead is within it again, so it is due at once.
    """
    ahead, days = environment.extension_lookahead_days, environment.extend_by_days
    if ahead <= days or environment.extend_until is not None:
        return None
    most = -(-min(ahead, EARLIEST_EXTENSION.days) // days)
    return (
        f"extension_lookahead_days is {ahead} and extend_by_days {days}; an end that has just moved is due again at once, so up to"
        f" {most} extensions are bought in a row (use a look-ahead of {days} days at most, or set extend_until)"
    )


def refusal(
    environment: Environment,
    approval: Mapping[str, Any] | None,
    offering: Offering,
    *,
    reservation_id: str,
    deadlines: Deadlines,
    ledger_id: str,
    now: datetime,
    live: bool = True,
) -> Refusal | None:
    """Why the offering must not be bought now; None when it may.

    Args:
        approval: the stored approval (``status, reservation_id, current_end, new_end, ceiling, used_for, dry_run``), or None.
        ledger_id: the purchase that the approval would be used for.
        live: whether money would move.
    """
    lacking = missing_policy(environment)
    if lacking or environment.max_upfront_fee is None:
        return Refusal(str(lacking))
    if environment.capacity_block_id != reservation_id:
        return Refusal(f"the record is for {environment.capacity_block_id}, not {reservation_id}")
    if now >= deadlines.decide_by:
        text = f"too late: the last moment to decide was {format_instant(deadlines.decide_by)}"
        return Refusal(text, Outcome.TOO_LATE)
    if now < deadlines.opens_at:
        return Refusal(f"too early: EC2 extends a block from {format_instant(deadlines.opens_at)}")
    if offering.hours not in {24 * days for days in (environment.extend_by_days, *environment.fallback_days)}:
        text = f"the record no longer asks for {offering.hours} hours; the next search asks for what it wants now"
        return Refusal(text)
    if offering.fee > environment.max_upfront_fee:
        text = f"{format_usd(offering.fee)} is above max_upfront_fee {format_usd(environment.max_upfront_fee)}"
        return Refusal(text)
    if too_long := past_extend_until(environment, offering):
        return Refusal(too_long)
    if not environment.require_approval:
        return None
    no = used_up(approval, ledger_id, live=live)
    no = no or approval_refusal(approval, offering, reservation_id, deadlines.end) or too_few(approval, environment)
    return None if no is None else Refusal(no)


def used_up(approval: Mapping[str, Any] | None, ledger_id: str, *, live: bool) -> str | None:
    """Why a stored approval, whatever it is about, moves no money for this purchase; None when it may."""
    if approval is not None and approval.get("used_for") not in (None, ledger_id):
        return "the approval was used for another purchase"
    if live and approval is not None and approval.get("dry_run") is True:
        return "the question was asked while PurchaseMode was dry-run, so its yes moves no money; start it by hand to ask again"
    return None


def too_few(approval: Mapping[str, Any] | None, environment: Environment) -> str | None:
    """Why an APPROVED approval does not count by the record as it is now: `quorum` may have been raised since it was asked.

    What the policy decided itself when nobody answered in time counts as it is.
    """
    given = approval or {}
    yes = max(1, list((given.get("votes") or {}).values()).count("approve"))
    if yes >= environment.quorum or given.get("decided_by") == BY_POLICY:
        return None
    return f"quorum is {environment.quorum} now, and {yes} said yes when it was less; start it by hand to ask again"


def approvers_of(approval: Mapping[str, Any] | None) -> tuple[str, ...]:
    """Who said yes to a stored approval, for the ledger; whoever decided it when it has no votes, as after a time-out."""
    votes = dict((approval or {}).get("votes") or {})
    decided_by = (approval or {}).get("decided_by")
    # Votes are kept by voice, in lower case and without the name that an API caller stated; the decider is known by name.
    named: dict[str, str] = {} if decided_by is None else {_voice(str(decided_by)): str(decided_by)}
    said_yes = tuple(sorted(named.get(voter, str(voter)) for voter, vote in votes.items() if vote == "approve"))
    return said_yes or tuple(named.values())


def _voice(who: str) -> str:
    return "api:" if who.startswith("api:") else who.lower()


def none_fits(environment: Environment, end: datetime) -> bool:
    """Whether even the shortest extension that the record asks for would end past `extend_until`."""
    shortest = timedelta(days=min((environment.extend_by_days, *environment.fallback_days)))
    return environment.extend_until is not None and end + shortest > environment.extend_until


def past_extend_until(environment: Environment, offering: Offering) -> str | None:
    """Why the offering ends later than the policy lets the block run; None when it does not."""
    if environment.extend_until is None or offering.new_end <= environment.extend_until:
        return None
    return f"the new end {format_instant(offering.new_end)} is past extend_until {format_instant(environment.extend_until)}"


def approval_refusal(
    approval: Mapping[str, Any] | None, offering: Offering, reservation_id: str, end: datetime
) -> str | None:
    """Why a stored approval does not cover the extension: a yes is bound to block, end, new end and ceiling (case B16)."""
    if approval is None:
        return "there is no approval, and the policy asks for one"
    # Only the decision record's own word counts; "true", 1 or a truthy text do not (case B16).
    if approval.get("status") != "APPROVED":
        return f"the approval is {approval.get('status')}, not APPROVED"
    if approval.get("what", "extension") != "extension":
        return "the approval is for a new block, not for an extension; ask again"
    try:
        bound = (approval["reservation_id"], parse_instant(approval["current_end"]), parse_instant(approval["new_end"]))
        ceiling = parse_usd(approval["ceiling"])
    except (KeyError, ValueError, UnreadableFeeError) as error:
        return f"the approval cannot be read: {error}"
    if bound != (reservation_id, end, offering.new_end):
        return "the approval is for another block, end or new end; ask again"
    if offering.fee > ceiling:
        return f"{format_usd(offering.fee)} is more than the approved {format_usd(ceiling)}; ask again"
    return None
