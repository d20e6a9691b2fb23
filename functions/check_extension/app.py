"""check-extension: has the ordered extension been paid, and has EC2 moved the end?"""

from typing import Any

from blockkeeper.aws import ec2, ledger
from blockkeeper.domain.deadlines import Deadlines
from blockkeeper.domain.extension import extension_from, progress
from blockkeeper.domain.instants import format_instant, parse_instant
from blockkeeper.domain.ledger import settlement
from blockkeeper.domain.names import ledger_id
from blockkeeper.telemetry import handler


@handler
def lambda_handler(event: dict[str, Any], _context: Any) -> dict[str, Any]:
    """Answer ``{stage, reason, end}``; `stage` is a value of `Stage`, `end` is EC2's EndDate.

    Args:
        event: ``{"block": <input of extend-block>, "now": ISO}``.
    """
    block, now = event["block"], parse_instant(event["now"])
    place = (block["region"], block["account"])
    end = parse_instant(block["end_date"])
    key = ledger_id(block["reservation_id"], end)
    reservation = ec2.read_block(block["reservation_id"], *place)
    order = ledger.read(key)
    extensions = ec2.extension_history(block["reservation_id"], *place)
    extension = extension_from(extensions, end, order.offering_id if order else None)
    if order is not None and (seen := settlement(order, extensions, reservation, end, now)):
        ledger.settle(key, order, seen, now)
    come = progress(extension, reservation, end, Deadlines(end).pay_by, now)
    return {"stage": come.stage, "reason": come.reason, "end": format_instant(reservation.end)}
