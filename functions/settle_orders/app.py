"""settle-orders: write down what became of each order of one account and Region, whoever died meanwhile. It orders nothing."""

from datetime import datetime
from typing import Any

from blockkeeper.aws import ec2, ledger
from blockkeeper.domain.instants import parse_instant
from blockkeeper.domain.ledger import LIVES, Purchase, PurchaseState, Settlement, left_behind, settlement
from blockkeeper.domain.names import end_of, reservation_of
from blockkeeper.domain.new_block import block_settlement, bought_block, old_block
from blockkeeper.telemetry import count, handler, log


@handler
def lambda_handler(event: dict[str, Any], _context: Any) -> dict[str, int]:
    """Answer ``{"settled", "unreadable"}``: how many orders were moved on, and how many could not be read.

    Safe beside a buyer, a workflow that looks itself and a person who resolves: each write is bound to the order as it was read.

    Args:
        event: ``{"account": 12 digits, "region": str, "now": ISO}``.

    Raises:
        ClientError: the table or EC2's reservations could not be read; nothing was written.
    """
    now = parse_instant(event["now"])
    open_orders = list(ledger.unsettled(event["account"], event["region"], now - LIVES))
    # What was not sent needs no look at EC2.
    ask = any(item["state"] != PurchaseState.INTENT for item in open_orders)
    entries = ec2.describe_entries(event["region"], event["account"]) if ask else []
    settled = unreadable = 0
    for item in open_orders:
        key = item["id"]
        try:
            purchase = ledger.purchase_of(item)
            found = _shown(key, purchase, entries, event, now) or left_behind(purchase, now)
            if found is not None:
                ledger.settle(key, purchase, found, now)
                settled += 1
                payment = found.payment and found.payment.status
                facts = {"environment": item.get("environment"), "order": key, "state": found.state, "payment": payment}
                log.info("order settled", extra=facts | {"reason": found.reason})
        except ledger.TakenElsewhereError as error:
            log.info("order left to whoever moved it meanwhile", extra={"order": key, "reason": str(error)})
        except Exception as error:  # noqa: BLE001 - one order that cannot be read never stops the others (design rule 4)
            unreadable += 1
            log.error("skipped what could not be read", extra={"what": f"order {key}: {type(error).__name__}: {error}"})
    count("Unreadable", unreadable)
    return {"settled": settled, "unreadable": unreadable}


def _shown(
    key: str, purchase: Purchase, entries: list[dict[str, Any]], place: dict[str, Any], now: datetime
) -> Settlement | None:
    """What EC2 shows of an order; None when it does not tell, or has forgotten the block that was to be extended."""
    if purchase.state is PurchaseState.INTENT:
        return None
    end, region = end_of(key), place["region"]
    if end is None:
        return block_settlement(purchase, bought_block(entries, key, region))
    block = old_block(entries, reservation_of(key), region)
    if block is None:
        return None
    history = ec2.extension_history(block.reservation_id, region, place["account"])
    return settlement(purchase, history, block, end, now)
