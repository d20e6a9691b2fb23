"""buy-extension: the only function that may purchase. Reconcile, check every rule again, write down, send once."""

from datetime import datetime
from functools import partial
from typing import Any

from blockkeeper import settings
from blockkeeper.aws import ec2, ledger, rate, table
from blockkeeper.aws.environments import load_environment
from blockkeeper.aws.order import order_once
from blockkeeper.aws.purchase import purchase_extension
from blockkeeper.domain.deadlines import deadlines_of
from blockkeeper.domain.extension import Extension
from blockkeeper.domain.instants import parse_instant
from blockkeeper.domain.ledger import IN_THE_WAY, Purchase, Step, reconcile, settlement
from blockkeeper.domain.money import parse_usd
from blockkeeper.domain.names import end_of, ledger_id
from blockkeeper.domain.offering import Offering
from blockkeeper.domain.outcome import Outcome
from blockkeeper.domain.purchase_policy import approvers_of, refusal
from blockkeeper.domain.reservation import Reservation
from blockkeeper.telemetry import handler

OPERATION = "PurchaseCapacityBlockExtension"
_SETTLED, _WAIT = "settled", "wait"


@handler
def lambda_handler(event: dict[str, Any], _context: Any) -> dict[str, Any]:
    """Answer ``{result, reason}``. Safe to run again at any time: an order that was sent is looked up, never sent again.

    `result` is ``purchased``, ``dry_run``, ``refused``, ``not_allowed``, ``too_late``, ``over_budget``, ``superseded``,
    ``unknown``, ``payment_failed``, ``settled``: what became of an earlier order for this block is known now, so look again, or
    ``wait``: run again after `wait_seconds` with the `own_turn` that is answered, since EC2 allows a purchase every seven seconds.

    Args:
        event: ``{"block": <input of extend-block>, "offering": {offering_id, duration_hours, new_end, upfront_fee} | None,
            "approval_id": str | None, "own_turn": bool, "now": ISO}``. The offering is None when only a sent order is to be looked
            up.
    """
    block, now = event["block"], parse_instant(event["now"])
    place = (block["region"], block["account"])
    end = parse_instant(block["end_date"])
    key = ledger_id(block["reservation_id"], end)
    purchase = ledger.read(key)
    reservation = ec2.read_block(block["reservation_id"], *place)
    history = ec2.extension_history(block["reservation_id"], *place)
    if other := ledger.in_the_way(key):
        # Nothing is ordered beside it (design rule 1).
        if _settle(other, ledger.read(other), history, reservation, now):
            return _answer(_SETTLED, f"what became of {other} is known now")
        return _answer(Outcome.NOT_ALLOWED, f"the order {other} {IN_THE_WAY}")
    found = reconcile(purchase, history, reservation, end)
    _settle(key, purchase, history, reservation, now)
    if found.step is Step.ADOPT:
        return _answer(Outcome.PURCHASED, found.reason)
    if found.step is Step.UNKNOWN:
        ledger.mark_unknown(key, now, found.reason)
    if found.step is not Step.ORDER:
        return _answer(Outcome(found.step), found.reason)
    return _order(event, reservation, purchase, end)


def _settle(
    key: str, purchase: Purchase | None, history: tuple[Extension, ...], reservation: Reservation, now: datetime
) -> bool:
    """Write down what became of an order for an extension, if EC2 shows it."""
    end = end_of(key)
    if purchase is None or end is None:
        return False
    if found := settlement(purchase, history, reservation, end, now):
        ledger.settle(key, purchase, found, now)
    return found is not None


def _order(event: dict[str, Any], reservation: Reservation, purchase: Purchase | None, end: datetime) -> dict[str, Any]:
    block, now = event["block"], parse_instant(event["now"])
    environment = load_environment(block["environment"])
    if environment is None or event["offering"] is None:
        return _answer(Outcome.NOT_ALLOWED, "there is no record or no offering to buy for")
    approval_id = event["approval_id"] if environment.require_approval else None
    approval = table.get_item(ledger.APPROVAL, approval_id) if approval_id else None
    intent = ledger.Intent(
        environment=block["environment"],
        reservation_id=block["reservation_id"],
        account=block["account"],
        region=block["region"],
        end=end,
        offering=_offering(event["offering"]),
        approval_id=approval_id,
        team=environment.team,
        approved_by=approvers_of(approval),
    )
    no = refusal(
        environment,
        approval,
        intent.offering,
        reservation_id=block["reservation_id"],
        deadlines=deadlines_of(environment, reservation, settings.payment_margin(), end),
        ledger_id=ledger_id(block["reservation_id"], end),
        now=now,
        live=settings.live(),
    )
    if no:
        return _answer(no.outcome, no.reason)
    turn = None if event["own_turn"] else rate.take_turn(OPERATION, block["region"], block["account"], now)
    if turn is not None and turn.seconds:
        text = "others buy too, and EC2 allows a purchase every 7 seconds"
        return {**_answer(_WAIT, text), "wait_seconds": turn.seconds, "own_turn": turn.own}
    key = ledger_id(intent.reservation_id, intent.end)
    order = partial(
        purchase_extension, intent.reservation_id, intent.offering.offering_id, intent.region, intent.account
    )
    return _answer(*order_once(key, intent, purchase, order, now))


def _offering(facts: dict[str, Any]) -> Offering:
    return Offering(
        facts["offering_id"],
        int(facts["duration_hours"]),
        parse_instant(facts["new_end"]),
        parse_usd(facts["upfront_fee"]),
    )


def _answer(result: str, reason: str) -> dict[str, Any]:
    return {"result": result, "reason": reason}
