"""buy-block: the only function that may purchase a new block. Reconcile, check every rule again, write down, send once."""

from datetime import datetime
from functools import partial
from typing import Any

from blockkeeper import settings
from blockkeeper.aws import ledger, rate, table
from blockkeeper.aws.block_order import BlockOrder, read_block_order
from blockkeeper.aws.environments import load_environment
from blockkeeper.aws.order import order_once
from blockkeeper.aws.purchase import purchase_block
from blockkeeper.domain.instants import parse_instant
from blockkeeper.domain.ledger import IN_THE_WAY, Step
from blockkeeper.domain.money import parse_usd
from blockkeeper.domain.new_block import NewBlock, block_settlement
from blockkeeper.domain.outcome import Outcome
from blockkeeper.domain.purchase_policy import approvers_of
from blockkeeper.domain.replacement import block_refusal
from blockkeeper.domain.reservation import PURCHASE_TAG, Reservation
from blockkeeper.telemetry import handler

OPERATION = "PurchaseCapacityBlock"
_WAIT = "wait"


@handler
def lambda_handler(event: dict[str, Any], _context: Any) -> dict[str, Any]:
    """Answer ``{result, reason}``. Safe to run again at any time: an order that was sent is looked up, never sent again.

    `result` is ``purchased``, ``dry_run``, ``refused``, ``not_allowed``, ``too_late``, ``over_budget``, ``superseded``,
    ``unknown``, ``payment_failed``, or ``wait``: run again after `wait_seconds` with the `own_turn` that is answered.

    Args:
        event: ``{"block": <input of replace-block>, "offering": {offering_id, availability_zone, new_start, new_end,
            upfront_fee, ...} | None, "approval_id": str | None, "own_turn": bool, "now": ISO}``. The offering is None when only a
            sent order is to be looked up.
    """
    block, now = event["block"], parse_instant(event["now"])
    place = (block["region"], block["account"])
    end = parse_instant(block["end_date"])
    order = read_block_order(block["reservation_id"], end, *place)
    if order.purchase is not None and (seen := block_settlement(order.purchase, order.bought)):
        ledger.settle(order.key, order.purchase, seen, now)
    if order.found.step is Step.UNKNOWN:
        ledger.mark_unknown(order.key, now, order.found.reason)
    if order.found.step is Step.ADOPT:
        return _answer(Outcome.PURCHASED, order.found.reason)
    if order.found.step is not Step.ORDER:
        return _answer(Outcome(order.found.step), order.found.reason)
    if order.old is None or order.old.platform is None:
        return _answer(Outcome.NOT_ALLOWED, f"EC2 does not show {block['reservation_id']} and its InstancePlatform")
    if order.old.end != end:
        return _answer(Outcome.SUPERSEDED, "the end of the old block has moved")
    if other := ledger.in_the_way(order.key):
        return _answer(Outcome.NOT_ALLOWED, f"the order {other} {IN_THE_WAY}")
    return _order(event, order, order.old, end, now)


def _order(event: dict[str, Any], order: BlockOrder, old: Reservation, end: datetime, now: datetime) -> dict[str, Any]:
    block = event["block"]
    environment = load_environment(block["environment"])
    if environment is None or event["offering"] is None:
        return _answer(Outcome.NOT_ALLOWED, "there is no record or no offering to buy for")
    new = _new_block(event["offering"])
    approval_id = event["approval_id"] if environment.require_approval else None
    approval = table.get_item(ledger.APPROVAL, approval_id) if approval_id else None
    no = block_refusal(
        environment,
        approval,
        new,
        old,
        end=end,
        payment_margin=settings.payment_margin(),
        ledger_id=order.key,
        now=now,
        live=settings.live(),
    )
    if no:
        return _answer(no.outcome, no.reason)
    turn = None if event["own_turn"] else rate.take_turn(OPERATION, block["region"], block["account"], now)
    if turn is not None and turn.seconds:
        text = "others buy too, and EC2 allows a purchase every 7 seconds"
        return {**_answer(_WAIT, text), "wait_seconds": turn.seconds, "own_turn": turn.own}
    intent = ledger.Intent(
        environment=block["environment"],
        reservation_id=block["reservation_id"],
        account=block["account"],
        region=block["region"],
        end=end,
        offering=new.offering,
        approval_id=approval_id,
        team=environment.team,
        approved_by=approvers_of(approval),
        new_start=new.start,
        availability_zone=new.zone,
    )
    tags = {PURCHASE_TAG: order.key}
    call = partial(purchase_block, new.offering_id, str(old.platform), tags, block["region"], block["account"])
    return _answer(*order_once(order.key, intent, order.purchase, call, now))


def _new_block(facts: dict[str, Any]) -> NewBlock:
    return NewBlock(
        offering_id=facts["offering_id"],
        zone=facts["availability_zone"],
        start=parse_instant(facts["new_start"]),
        end=parse_instant(facts["new_end"]),
        fee=parse_usd(facts["upfront_fee"]),
    )


def _answer(result: str, reason: str) -> dict[str, Any]:
    return {"result": result, "reason": reason}
