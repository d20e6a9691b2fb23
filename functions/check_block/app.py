"""check-block: has the new block been paid?"""

from typing import Any

from blockkeeper.aws import ec2, ledger
from blockkeeper.domain.deadlines import pay_block_by
from blockkeeper.domain.instants import format_instant, parse_instant
from blockkeeper.domain.names import block_ledger_id
from blockkeeper.domain.new_block import block_progress, block_settlement, bought_block
from blockkeeper.telemetry import handler


@handler
def lambda_handler(event: dict[str, Any], _context: Any) -> dict[str, Any]:
    """Answer ``{stage, reason, reservation}``; `stage` is a value of `BlockStage`, `reservation` what EC2 shows once it is paid.

    Args:
        event: ``{"block": <input of replace-block>, "now": ISO}``.

    Raises:
        LookupError: no order is written down for this block and end.
    """
    block, now = event["block"], parse_instant(event["now"])
    key = block_ledger_id(block["reservation_id"], parse_instant(block["end_date"]))
    entries = ec2.describe_entries(block["region"], block["account"])
    bought = bought_block(entries, key, block["region"])
    start, ordered_at = ledger.new_block_times(key)
    order = ledger.read(key)
    stage, reason = block_progress(bought, pay_block_by(start, ordered_at), now)
    if order is not None and (seen := block_settlement(order, bought)):
        ledger.settle(key, order, seen, now)
    return {
        "stage": stage,
        "reason": reason,
        "reservation": None
        if bought is None
        else {
            "reservation_id": bought.reservation_id,
            "availability_zone": bought.availability_zone,
            "start": format_instant(bought.start or start),
            "end": format_instant(bought.end),
        },
    }
