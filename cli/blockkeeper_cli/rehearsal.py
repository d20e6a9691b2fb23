"""`blockkeeper extend --dry-run`: the workflow's own decisions up to EC2's DryRun. Spends and writes nothing.

The steps that `blockkeeper replace --dry-run` has as well are shared from here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Any

from blockkeeper.domain.approval import length
from blockkeeper.domain.budget import budgets
from blockkeeper.domain.deadlines import Deadlines, deadlines_of
from blockkeeper.domain.instants import format_instant
from blockkeeper.domain.ledger import reconcile
from blockkeeper.domain.money import format_usd
from blockkeeper.domain.names import ledger_id
from blockkeeper.domain.next_move import Move, next_move
from blockkeeper.domain.offering import Found, Offering, choose_offering, lengths
from blockkeeper.domain.purchase_policy import past_extend_until, refusal
from blockkeeper_cli import block
from blockkeeper_cli.errors import error_code, missing_action

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime
    from decimal import Decimal

    from blockkeeper.domain.environment import Environment
    from blockkeeper.domain.reservation import Reservation


class Verdict(StrEnum):
    """What a step says about going on: it goes on, nobody knows, the workflow would wait, or it would stop."""

    OK = "ok"
    UNKNOWN = "unknown"
    WAIT = "wait"
    STOP = "stop"


@dataclass(frozen=True, slots=True)
class Step:
    """One step and what it came to, in words."""

    name: str
    verdict: Verdict
    words: str


def rehearse(environment: Environment, reservation: Reservation, account: str, now: datetime) -> Iterator[Step]:
    """The steps of extend-block for the block's present end; after one that waits or stops none follows.

    Args:
        account: the account in which the block is read and the order would be placed.
    """
    from blockkeeper import settings

    deadlines = deadlines_of(environment, reservation, settings.payment_margin())
    yield Step("record", Verdict.OK, _policy(environment))
    yield described(reservation)
    yield Step("deadlines", Verdict.OK, _words(deadlines, now))
    move = look(environment, reservation, account, now)
    yield move
    if move.verdict is not Verdict.OK:
        return
    found, offering = _offering(environment, reservation, account)
    yield found
    if offering is None or found.verdict is not Verdict.OK:
        return
    for step in (_allowed(environment, offering, deadlines, now), fits_budget(environment, offering.fee, now)):
        yield step
        if step.verdict is not Verdict.OK:
            return
    yield _ask_ec2(reservation, offering, account)
    yield then(environment, "extend-block", f"{length(offering.hours)} for {format_usd(offering.fee)}")


def described(reservation: Reservation) -> Step:
    """The block, as EC2 shows it."""
    words = (
        f"{reservation.reservation_id}: {block.size(reservation)}, {reservation.region}, {reservation.state}, "
        f"owned by {reservation.owner_id}, ends {format_instant(reservation.end)}"
    )
    return Step("block", Verdict.OK, words)


def asked(environment: Environment) -> str:
    """Whose yes the policy wants."""
    if not environment.require_approval:
        return "nobody is asked"
    return f"approval by {environment.quorum} of {', '.join(environment.approvers) or 'nobody'}"


def _policy(environment: Environment) -> str:
    ceiling = (
        "no ceiling" if environment.max_upfront_fee is None else f"at most {format_usd(environment.max_upfront_fee)}"
    )
    until = "" if environment.extend_until is None else f", not past {format_instant(environment.extend_until)}"
    return f"{environment.pk}: extend by {length(environment.wanted_hours)}, {ceiling}{until}, {asked(environment)}"


def _words(deadlines: Deadlines, now: datetime) -> str:
    due = "due since" if now >= deadlines.first_search else "not due before"
    return (
        f"{due} {format_instant(deadlines.first_search)}; decide by {format_instant(deadlines.decide_by)}, "
        f"order by {format_instant(deadlines.order_by)}, paid by {format_instant(deadlines.pay_by)}"
    )


def look(environment: Environment, reservation: Reservation, account: str, now: datetime) -> Step:
    """What extend-block would do first, from the record, EC2 and the ledger: search, wait, look an order up, or end at once."""
    from blockkeeper import settings
    from blockkeeper.aws import ec2, ledger

    deadlines = deadlines_of(environment, reservation, settings.payment_margin())
    key = ledger_id(reservation.reservation_id, reservation.end)
    purchase = ledger.read(key)
    history = ec2.extension_history(reservation.reservation_id, reservation.region, account)
    reconciliation = reconcile(purchase, history, reservation, reservation.end)
    move = next_move(
        environment,
        reservation,
        reconciliation,
        deadlines,
        account=account,
        now=now,
        in_the_way=ledger.in_the_way(key),
    )
    if move.move is Move.SEARCH:
        return Step("ledger", Verdict.OK, reconciliation.reason)
    if move.move is Move.STOP:
        return Step("ledger", Verdict.STOP, move.reason)
    return Step("ledger", Verdict.WAIT, f"{move.reason}; nothing more is ordered")


def _offering(environment: Environment, reservation: Reservation, account: str) -> tuple[Step, Offering | None]:
    from blockkeeper.aws.ec2 import extension_offerings

    ceiling = environment.max_upfront_fee
    if ceiling is None:  # the move before has stopped for that already
        return Step("offering", Verdict.STOP, "max_upfront_fee is not set"), None
    found, misses = [], []
    for hours in lengths(environment):
        entries = extension_offerings(reservation.reservation_id, hours, reservation.region, account)
        choice = choose_offering(entries, hours=hours, current_end=reservation.end, ceiling=ceiling)
        if choice.offering is None or choice.found is not Found.OFFERED:
            misses.append(choice.reason)
            continue
        found.append((choice.offering, choice.reason))
        if past_extend_until(environment, choice.offering) is None:
            break
    if not found:
        return Step("offering", Verdict.STOP, "; ".join(misses)), None
    # The last one found is within extend_until, or the next step says that none is.
    offering, reason = found[-1]
    words = f"{offering.offering_id}: {reason}, new end {format_instant(offering.new_end)}"
    return Step("offering", Verdict.OK, words), offering


def _allowed(environment: Environment, offering: Offering, deadlines: Deadlines, now: datetime) -> Step:
    """Every rule of the buyer but the approval, which nobody has given yet."""
    no = refusal(
        replace(environment, require_approval=False),
        None,
        offering,
        reservation_id=environment.capacity_block_id,
        deadlines=deadlines,
        ledger_id=ledger_id(environment.capacity_block_id, deadlines.end),
        now=now,
    )
    return (
        Step("policy", Verdict.STOP, no.reason) if no else Step("policy", Verdict.OK, "the record's policy allows it")
    )


def fits_budget(environment: Environment, fee: Decimal, now: datetime) -> Step:
    """Whether what the month has left is enough for a fee."""
    from blockkeeper import settings
    from blockkeeper.aws import ledger

    words = []
    for budget in budgets(settings.limits(), environment.team, now):
        if budget.limit is None:
            continue
        reserved = ledger.reserved(budget.item_id)
        words.append(f"{format_usd(reserved)} of {budget.name} {format_usd(budget.limit)} is reserved in {now:%Y-%m}")
        if reserved + fee > budget.limit:
            return Step("budget", Verdict.STOP, f"{words[-1]}; {budget.refusal(fee)}")
    return Step("budget", Verdict.OK, "; ".join(words))


def _ask_ec2(reservation: Reservation, offering: Offering, account: str) -> Step:
    from blockkeeper.aws.clients import client

    purchase = client("ec2", reservation.region, account).purchase_capacity_block_extension
    return dry_run(
        partial(
            purchase,
            CapacityReservationId=reservation.reservation_id,
            CapacityBlockExtensionOfferingId=offering.offering_id,
        )
    )


def dry_run(order: Callable[..., Any]) -> Step:
    """What EC2 says to an order in a DryRun.

    Args:
        order: the purchase call, with everything but `DryRun`.
    """
    from botocore.exceptions import ClientError

    try:
        # The word True stands here and nowhere else: the command has no way to buy.
        order(DryRun=True)
    except ClientError as error:
        if error_code(error) == "DryRunOperation":
            return Step("dry run", Verdict.OK, "EC2 would take the order")
        if action := missing_action(error):
            words = f"EC2 does not say: your identity may not do {action}, and need not; the stack's buyer orders"
            return Step("dry run", Verdict.UNKNOWN, words)
        message = error.response.get("Error", {}).get("Message", "")
        return Step("dry run", Verdict.STOP, f"EC2 would refuse the order: {error_code(error)}: {message}")
    return Step("dry run", Verdict.STOP, "EC2 answered a dry run as if it were none; look at what it shows as bought")


def then(environment: Environment, workflow: str, what: str) -> Step:
    """What would come of it all: who is asked, and what is bought."""
    from blockkeeper import settings

    what = f"buy {what}"
    if environment.require_approval:
        what = f"ask {', '.join(environment.approvers)}, and with their yes {what}"
    only = "" if settings.live() else "; PurchaseMode is dry-run, so in place of buying it asks EC2's DryRun"
    return Step("then", Verdict.OK, f"{workflow} would {what}{only}")
