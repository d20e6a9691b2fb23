"""search-blocks: what replace-block does next, and which new block it would buy: read record, EC2 and ledger, then search."""

from datetime import datetime
from hashlib import sha256
from typing import Any

from blockkeeper import settings
from blockkeeper.aws import ec2, ledger, table
from blockkeeper.aws.block_order import BlockOrder, read_block_order
from blockkeeper.aws.environments import load_environment
from blockkeeper.aws.search_turns import Answer, search_in_turn
from blockkeeper.domain.deadlines import decide_block_by
from blockkeeper.domain.environment import Environment
from blockkeeper.domain.instants import format_instant, parse_instant
from blockkeeper.domain.names import replacement_name
from blockkeeper.domain.new_block import NewBlock, choose_block
from blockkeeper.domain.next_move import Move, NextMove, pause
from blockkeeper.domain.offering import Found
from blockkeeper.domain.outcome import Outcome
from blockkeeper.domain.replacement import block_approval_refusal, replacement_move, resumed, search_until, wanted_block
from blockkeeper.domain.reservation import Reservation
from blockkeeper.telemetry import handler
from blockkeeper.workflow_input import refuse_malformed

OPERATION = "DescribeCapacityBlockOfferings"
_ASK = "ask"
_DECIDED = (Found.OFFERED, _ASK)


@handler
def lambda_handler(event: dict[str, Any], _context: Any) -> Answer:
    """Answer ``{found, reason, outcome, offering, wait_seconds, ...}`` with the few facts that later states need.

    `found` is ``offered`` (may be bought now), ``ask`` (people must say yes first), ``resume`` (an order was sent: look at it),
    ``wait`` (look again after `wait_seconds`, with `search`), ``stop`` (with `outcome`), or why there is nothing: a value of
    `Found`, ``failed`` or ``not_allowed``.

    Args:
        event: ``{"block": <input of replace-block>, "approval_id": str | None, "search": <from the look before>,
            "turn": <looks so far>, "now": ISO}``. With an approval the block must be the one that was approved, or the same one
            cheaper; anything else is asked again (case B11).

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
        return _stop(Outcome.NOT_EXTENDABLE, f"{block['environment']} is not enrolled any more")
    order = read_block_order(block["reservation_id"], end, *place)
    move = _move(environment, order, block, end, now)
    if move.move is Move.STOP:
        return _stop(str(move.outcome), move.reason)
    until = search_until(environment, end, settings.payment_margin()) or end
    facts = {
        "wait_seconds": int(pause(event["turn"], until, now).total_seconds()),
        "search_until": format_instant(until),
        "name": replacement_name(block["reservation_id"], end),
        "instance_type": environment.instance_type if order.old is None else order.old.instance_type,
        "instance_count": (order.old and order.old.instance_count) or environment.instance_count,
    }
    if move.move is not Move.SEARCH or order.old is None:
        return {"found": move.move, "reason": move.reason, "outcome": None, "offering": None, "search": None} | facts
    approval = table.get_item(ledger.APPROVAL, event["approval_id"]) if event.get("approval_id") else None
    found = _search(environment, order.old, block, approval, state=event["search"], end=end, now=now)
    return facts | {"outcome": None, "search": None} | found


def _move(environment: Environment, order: BlockOrder, block: dict[str, Any], end: datetime, now: datetime) -> NextMove:
    if order.old is None:
        if move := resumed(order.found):
            return move
        raise ec2.BlockNotFoundError(f"EC2 does not show {block['reservation_id']} to account {block['account']}")
    return replacement_move(
        environment,
        order.old,
        order.found,
        end=end,
        account=block["account"],
        payment_margin=settings.payment_margin(),
        now=now,
        in_the_way=ledger.in_the_way(order.key),
    )


def _search(
    environment: Environment,
    old: Reservation,
    block: dict[str, Any],
    approval: dict[str, Any] | None,
    *,
    state: Answer | None,
    end: datetime,
    now: datetime,
) -> Answer:
    """The wanted length first, shorter ones only when it is not to be had; what was approved before all others."""
    margin = settings.payment_margin()

    def no_yes(candidate: NewBlock) -> str | None:
        return block_approval_refusal(approval, candidate, old.reservation_id, end)

    def search(hours: int) -> Answer:
        wanted = wanted_block(environment, old, hours, end=end, payment_margin=margin, now=now)
        if isinstance(wanted, str):
            return _answer(Outcome.NOT_ALLOWED, wanted)
        entries = ec2.block_offerings(wanted, block["region"], block["account"])
        choice = choose_block(entries, wanted, lambda candidate: no_yes(candidate) is None)
        if choice.found is not Found.OFFERED or choice.block is None:
            return _answer(choice.found, choice.reason, choice.block)
        ask = no_yes(choice.block) if environment.require_approval else None
        return _answer(_ASK if ask else choice.found, ask or choice.reason, choice.block)

    lengths = [environment.wanted_hours, *environment.fallback_hours]
    if approval is not None:
        lengths.sort(key=lambda hours: abs(hours - int(approval["duration_hours"])))
    return search_in_turn(
        OPERATION,
        (block["region"], block["account"]),
        environment.instance_type,
        lengths,
        search,
        decided=_DECIDED,
        state=state,
        now=now,
    )


def _stop(outcome: str, reason: str) -> Answer:
    return {
        "found": Move.STOP,
        "reason": reason,
        "outcome": outcome,
        "offering": None,
        "search": None,
        "wait_seconds": 0,
    }


def _answer(found: str, reason: str, block: NewBlock | None = None) -> Answer:
    facts = None
    if block is not None:
        facts = {
            "offering_id": block.offering_id,
            "availability_zone": block.zone,
            "duration_hours": block.hours,
            "new_start": format_instant(block.start),
            "new_end": format_instant(block.end),
            "upfront_fee": str(block.fee),
            "decide_by": format_instant(decide_block_by(block.start, settings.payment_margin())),
            # Another block or fee is another question, and an answer counts for the question that was asked (case B16).
            "question": sha256(f"{block.zone} {block.start} {block.end} {block.fee}".encode()).hexdigest()[:8],
        }
    return {"found": found, "reason": reason, "offering": facts}
