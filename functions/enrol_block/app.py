"""enrol-block: give the new block a record of its own, with the old one's policy."""

from typing import Any

from blockkeeper.aws.environments import create, load_record
from blockkeeper.aws.table import ConditionFailedError
from blockkeeper.domain.deadlines import Deadlines
from blockkeeper.domain.handover import NewHome, new_pks, new_record
from blockkeeper.domain.instants import format_instant, parse_instant
from blockkeeper.telemetry import handler


class PolicyGoneError(Exception):
    """The old record is not there any more, so nobody says what is to become of the new block."""


@handler
def lambda_handler(event: dict[str, Any], _context: Any) -> dict[str, Any]:
    """Answer ``{environment, handover_at}``: the new record's PK, and when the groups may be pointed at the new block.

    Args:
        event: ``{"block": <input of replace-block>, "reservation": {reservation_id, availability_zone, start, end}, "now": ISO}``.

    Raises:
        PolicyGoneError: somebody deleted the old record meanwhile.
    """
    block, reservation, now = event["block"], event["reservation"], parse_instant(event["now"])
    old = load_record(block["environment"])
    if old is None:
        raise PolicyGoneError(
            f"{block['environment']} is not enrolled any more; enrol {reservation['reservation_id']} by hand"
        )
    start = parse_instant(reservation["start"])
    home = NewHome(
        block["reservation_id"], reservation["reservation_id"], reservation["availability_zone"] or "its zone", start
    )
    deadlines = Deadlines(parse_instant(block["end_date"]))
    for pk in new_pks(block["environment"], start, home.reservation_id):
        record = new_record(
            old, pk, home, end=parse_instant(reservation["end"]), groups_from=deadlines.groups_from, now=now
        )
        try:
            create(record)
        except ConditionFailedError:
            # Ours from an earlier run, or somebody else's by that name.
            known = load_record(pk) or {}
            if known.get("capacity_block_id") != home.reservation_id:
                continue
        return {"environment": pk, "handover_at": format_instant(deadlines.handover_at)}
    raise PolicyGoneError(f"the names for the new record are taken; enrol {home.reservation_id} by hand")
