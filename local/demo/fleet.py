"""The demo's fleet: blocks, groups and records from events/fleet.json, and what must become of each block."""

import json
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

FLEET = Path(__file__).resolve().parents[2] / "events" / "fleet.json"


@dataclass(frozen=True)
class Expected:
    """What must have become of a block; see `expected` in schemas/fleet.schema.json."""

    status: str
    ends_in: str | None
    days: int
    fee: Decimal | None
    answer: str | None
    new_block: "NewBlock | None" = None


@dataclass(frozen=True)
class NewBlock:
    """What plan B must buy in a block's place; `hours` is its real length, rounded down, `fee` in USD."""

    availability_zone: str
    hours: int
    fee: Decimal


@dataclass(frozen=True)
class Case:
    """One enrolled block. `record` is its environment record, `longest_hook` of its group is in seconds."""

    pk: str
    reservation_id: str
    region: str
    count: int
    instances: str
    about: str
    expected: Expected
    record: dict[str, Any]
    group: str | None
    longest_hook: int


def read() -> tuple[dict[str, Any], list[Case]]:
    """The fleet as the market takes it, and its cases in order."""
    fleet: dict[str, Any] = json.loads(FLEET.read_text("utf-8"))
    records = {record["capacity_block_id"]: record for record in fleet["environments"]}
    groups = {group.get("reservation_id"): group for group in fleet["groups"]}
    return fleet, [
        _case(block, records[block["reservation_id"]], groups.get(block["reservation_id"], {}))
        for block in fleet["blocks"]
    ]


def _new_block(expected: dict[str, Any] | None) -> NewBlock | None:
    return None if expected is None else NewBlock(**expected | {"fee": Decimal(expected["fee"])})


def _case(block: dict[str, Any], record: dict[str, Any], group: dict[str, Any]) -> Case:
    expected = block["expected"]
    return Case(
        pk=record["PK"],
        reservation_id=block["reservation_id"],
        region=block["region"],
        count=block["instance_count"],
        instances=f"{block['instance_count']} x {block['instance_type']}",
        about=block["about"],
        expected=Expected(
            status=expected["status"],
            ends_in=expected["ends_in"],
            days=expected["days"],
            fee=None if expected["fee"] is None else Decimal(expected["fee"]),
            answer=expected.get("answer"),
            new_block=_new_block(expected.get("new_block")),
        ),
        record=record,
        group=group.get("name"),
        longest_hook=max((hook["heartbeat_seconds"] for hook in group.get("lifecycle_hooks", [])), default=0),
    )
