"""load-block: read record, block, history and ledger, and decide the next move of extend-block."""

from typing import Any

from blockkeeper import settings
from blockkeeper.aws import ec2, ledger
from blockkeeper.aws.environments import load_environment
from blockkeeper.domain.deadlines import deadlines_of
from blockkeeper.domain.extension import past_fee_per_instance_hour
from blockkeeper.domain.instants import format_instant, parse_instant
from blockkeeper.domain.ledger import reconcile
from blockkeeper.domain.names import extension_name, ledger_id
from blockkeeper.domain.next_move import Move, next_move, pause
from blockkeeper.domain.outcome import Outcome
from blockkeeper.telemetry import handler
from blockkeeper.workflow_input import refuse_malformed


@handler
def lambda_handler(event: dict[str, Any], _context: Any) -> dict[str, Any]:
    """Answer ``{move, reason, outcome, wait_seconds, ...}`` with the few facts that later states need.

    Args:
        event: ``{"block": <input of extend-block>, "turn": <searches so far>, "now": ISO}``.

    Raises:
        InputRefusedError: the workflow's input is not as schemas/extend-block.schema.json says.
        BlockNotFoundError, UnreadableReservationError, ClientError: EC2 could not be read; that is never "nothing there".
    """
    block, now = event["block"], parse_instant(event["now"])
    if event["turn"] == 0:
        refuse_malformed(block)
    place = (block["region"], block["account"])
    end = parse_instant(block["end_date"])
    environment = load_environment(block["environment"])
    if environment is None:
        gone = f"{block['environment']} is not enrolled any more"
        return {
            "move": Move.STOP,
            "outcome": Outcome.NOT_EXTENDABLE,
            "reason": gone,
            "wait_seconds": 0,
            "current_end": None,
        }
    reservation = ec2.read_block(block["reservation_id"], *place)
    extensions = ec2.extension_history(block["reservation_id"], *place)
    key = ledger_id(block["reservation_id"], end)
    purchase = ledger.read(key)
    reconciliation = reconcile(purchase, extensions, reservation, end)
    deadlines = deadlines_of(environment, reservation, settings.payment_margin(), end)
    move = next_move(
        environment,
        reservation,
        reconciliation,
        deadlines,
        account=block["account"],
        now=now,
        in_the_way=ledger.in_the_way(key),
    )
    past_fee = past_fee_per_instance_hour(extensions)
    return {
        "move": move.move,
        "reason": move.reason,
        "outcome": move.outcome,
        "wait_seconds": int(pause(event["turn"], deadlines.decide_by, now).total_seconds()),
        "require_approval": environment.require_approval,
        "name": extension_name(block["reservation_id"], end),
        "instance_type": reservation.instance_type,
        "instance_count": reservation.instance_count,
        "past_fee_per_instance_hour": None if past_fee is None else str(past_fee),
        "decide_by": format_instant(deadlines.decide_by),
        "current_end": format_instant(reservation.end),
    }
