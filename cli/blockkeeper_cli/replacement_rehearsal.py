"""`blockkeeper replace --dry-run`: the decisions of replace-block up to EC2's DryRun. Spends and writes nothing."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from blockkeeper.domain.approval import length
from blockkeeper.domain.deadlines import deadlines_of
from blockkeeper.domain.instants import format_instant
from blockkeeper.domain.money import format_usd
from blockkeeper.domain.names import block_ledger_id
from blockkeeper.domain.new_block import NewBlock, choose_block
from blockkeeper.domain.next_move import Move
from blockkeeper.domain.offering import Found
from blockkeeper.domain.replacement import block_refusal, latest_start, replacement_move, search_until, wanted_block
from blockkeeper_cli.rehearsal import Step, Verdict, asked, described, dry_run, fits_budget, then

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from blockkeeper.domain.environment import Environment
    from blockkeeper.domain.reservation import Reservation


def rehearse(environment: Environment, reservation: Reservation, account: str, now: datetime) -> Iterator[Step]:
    """The steps of replace-block for the block's present end; after one that waits or stops none follows.

    Args:
        account: the account in which the block is read and the order would be placed.
    """
    yield Step("record", Verdict.OK, _policy(environment))
    yield described(reservation)
    yield Step("deadlines", Verdict.OK, _deadlines(environment, reservation, now))
    move = look(environment, reservation, account, now)
    yield move
    if move.verdict is not Verdict.OK:
        return
    found, new = _offering(environment, reservation, account, now)
    yield found
    if new is None:
        return
    for step in (_allowed(environment, new, reservation, now), fits_budget(environment, new.fee, now)):
        yield step
        if step.verdict is not Verdict.OK:
            return
    yield _ask_ec2(reservation, new, account)
    what = f"the block in {new.zone} from {format_instant(new.start)} to {format_instant(new.end)} for {format_usd(new.fee)}"
    yield then(environment, "replace-block", what)


def look(environment: Environment, reservation: Reservation, account: str, now: datetime) -> Step:
    """What replace-block would do first, from the record, EC2 and the ledger: search, wait, go on with an order, or end at once."""
    from blockkeeper import settings
    from blockkeeper.aws import ledger
    from blockkeeper.aws.block_order import read_block_order

    order = read_block_order(reservation.reservation_id, reservation.end, reservation.region, account)
    move = replacement_move(
        environment,
        reservation,
        order.found,
        end=reservation.end,
        account=account,
        payment_margin=settings.payment_margin(),
        now=now,
        in_the_way=ledger.in_the_way(order.key),
    )
    if move.move is Move.STOP:
        return Step("ledger", Verdict.STOP, move.reason)
    if move.move is Move.RESUME:
        return Step("ledger", Verdict.WAIT, f"{move.reason}; nothing more is ordered, and what is left to do is done")
    if move.move is Move.WAIT:
        return Step("ledger", Verdict.WAIT, f"{move.reason}; nothing is ordered while that is so")
    return Step("ledger", Verdict.OK, order.found.reason)


def _policy(environment: Environment) -> str:
    replace_policy = environment.replace
    if replace_policy is None:
        return f"{environment.pk}: no new block, since its record has no replace"
    zones = ", ".join(replace_policy.availability_zones) or "any zone"
    return (
        f"{environment.pk}: a new block of {length(environment.wanted_hours)} in {zones}, "
        f"at most {format_usd(replace_policy.max_upfront_fee)}, {asked(environment)}"
    )


def _deadlines(environment: Environment, reservation: Reservation, now: datetime) -> str:
    from blockkeeper import settings

    margin = settings.payment_margin()
    deadlines = deadlines_of(environment, reservation, margin)
    extension = "an extension may be decided on until" if now < deadlines.decide_by else "too late to extend since"
    words = f"{extension} {format_instant(deadlines.decide_by)}"
    latest, until = latest_start(environment, reservation.end), search_until(environment, reservation.end, margin)
    if latest is not None and until is not None:
        words += f"; a new block starts until {format_instant(latest)} and is searched until {format_instant(until)}"
    return f"{words}; its groups go over to it from {format_instant(deadlines.handover_at)}"


def _offering(
    environment: Environment, reservation: Reservation, account: str, now: datetime
) -> tuple[Step, NewBlock | None]:
    from blockkeeper import settings
    from blockkeeper.aws.ec2 import block_offerings

    misses = []
    for hours in (environment.wanted_hours, *environment.fallback_hours):
        wanted = wanted_block(
            environment, reservation, hours, end=reservation.end, payment_margin=settings.payment_margin(), now=now
        )
        if isinstance(wanted, str):
            return Step("offering", Verdict.STOP, wanted), None
        choice = choose_block(block_offerings(wanted, reservation.region, account), wanted)
        if choice.found is Found.OFFERED and choice.block is not None:
            return Step("offering", Verdict.OK, f"{choice.block.offering_id}: {choice.reason}"), choice.block
        misses.append(choice.reason)
    return Step("offering", Verdict.STOP, "; ".join(misses)), None


def _allowed(environment: Environment, new: NewBlock, reservation: Reservation, now: datetime) -> Step:
    """Every rule of the buyer but the approval, which nobody has given yet."""
    from blockkeeper import settings

    no = block_refusal(
        replace(environment, require_approval=False),
        None,
        new,
        reservation,
        end=reservation.end,
        payment_margin=settings.payment_margin(),
        ledger_id=block_ledger_id(reservation.reservation_id, reservation.end),
        now=now,
        live=True,
    )
    return (
        Step("policy", Verdict.STOP, no.reason) if no else Step("policy", Verdict.OK, "the record's policy allows it")
    )


def _ask_ec2(reservation: Reservation, new: NewBlock, account: str) -> Step:
    from blockkeeper.aws.clients import client

    purchase = client("ec2", reservation.region, account).purchase_capacity_block
    return dry_run(
        partial(purchase, CapacityBlockOfferingId=new.offering_id, InstancePlatform=str(reservation.platform))
    )
