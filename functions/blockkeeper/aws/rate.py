"""EC2's rate for searches and purchases, shared by all executions through the table; nobody waits here, the workflow does."""

import math
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from blockkeeper.aws import table
from blockkeeper.domain.rate import OFFERINGS_AND_PURCHASES, Bucket

KIND = "rate"
# Whoever must wait has its turn written down; so far ahead and no farther, since a workflow that ends leaves its turn unused.
LONGEST_TURN = timedelta(minutes=10)
_TRIES = 10


@dataclass(frozen=True, slots=True)
class Turn:
    """When a call may be made: at once with 0 `seconds`, else after so many, and then only if the turn is one's `own`.

    The queue may be longer than anybody stands in; whoever came too late for a turn of its own asks for one after the wait.
    """

    seconds: int
    own: bool


def take_turn(
    operation: str, region: str, account: str, now: datetime, bucket: Bucket = OFFERINGS_AND_PURCHASES
) -> Turn:
    """Take a turn for one call, or a wait of `LONGEST_TURN` without one.

    Args:
        operation: EC2's name of the call, such as ``DescribeCapacityBlockExtensionOfferings``.
        now: aware UTC.

    Raises:
        ConditionFailedError: others changed the bucket at each try; try again.
    """
    item_id = f"{account}#{region}#{operation}"
    for left in reversed(range(_TRIES)):
        was = (table.get_item(KIND, item_id) or {}).get("full_at_ms")
        full_at, wait = bucket.take(None if was is None else datetime.fromtimestamp(was / 1000, UTC), now)
        if wait >= LONGEST_TURN:
            return Turn(int(LONGEST_TURN.total_seconds()), own=False)
        try:
            table.write(
                table.update_request(
                    KIND,
                    item_id,
                    set_={"full_at_ms": math.ceil(full_at.timestamp() * 1000)},
                    condition="attribute_not_exists(#full_at_ms)" if was is None else "#full_at_ms = :was",
                    values=None if was is None else {":was": was},
                )
            )
        except table.ConditionFailedError:
            if not left:
                raise
        else:
            return Turn(math.ceil(wait.total_seconds()), own=True)
    raise AssertionError


def note_throttle(operation: str, region: str, account: str, now: datetime) -> None:
    """EC2 throttled a call, so its bucket is empty whoever emptied it: everybody's next turn is later."""
    bucket = OFFERINGS_AND_PURCHASES
    empty = math.ceil((now + bucket.size * bucket.interval).timestamp() * 1000)
    with suppress(table.ConditionFailedError):  # somebody has an even later turn
        table.write(
            table.update_request(
                KIND,
                f"{account}#{region}#{operation}",
                set_={"full_at_ms": empty},
                condition="attribute_not_exists(#full_at_ms) OR #full_at_ms < :empty",
                values={":empty": empty},
            )
        )
