"""What a record that is gone, or that has turned to another block, left armed: kind `leftover`, one item for each block and record.

It is written in the transaction that deletes or turns the record, and lives until scale-groups has disarmed the groups. So nothing
of ours stays armed on a group for a block that nobody follows any more, whatever crashes in between.
"""

from collections.abc import Mapping
from typing import Any

from blockkeeper.aws.table import delete_request, get_item, put_request, query_kind, write

KIND = "leftover"

Leftover = Mapping[str, Any]
"""``environment``, ``reservation_id``, ``region``, ``owner_id`` (if known), ``groups`` (Auto Scaling), ``since`` (ISO)."""


def put_leftover(leftover: Leftover) -> dict[str, Any]:
    """The write of a leftover, for `table.transact`."""
    return put_request(KIND, _id(leftover["region"], leftover["reservation_id"], leftover["environment"]), leftover)


def list_leftovers(region: str) -> list[dict[str, Any]]:
    """All leftovers of a Region, in order of block."""
    return list(query_kind(KIND, prefix=f"{region}#"))


def load_leftover(region: str, reservation_id: str, environment: str) -> dict[str, Any] | None:
    """One leftover, strongly consistent; None when there is none."""
    return get_item(KIND, _id(region, reservation_id, environment))


def delete_leftover(region: str, reservation_id: str, environment: str) -> None:
    """Forget a leftover that is disarmed."""
    write(delete_request(KIND, _id(region, reservation_id, environment)))


def _id(region: str, reservation_id: str, environment: str) -> str:
    return f"{region}#{reservation_id}#{environment}"
