"""What started detect-expiry: EC2's events in every spelling seen, a purchase logged by CloudTrail, a schedule, a person.

AWS's documents print the key as `detail_type` and two names for each event; real EventBridge events have the key `detail-type`
(EC2 User Guide, "Monitor Capacity Blocks using EventBridge"; case B01).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

DELIVERED = frozenset({"Capacity Block Delivered", "Capacity Block Reservation Delivered"})
EXPIRATION_WARNING = frozenset({"Capacity Block Expiration Warning", "Capacity Block Reservation Expiration Warning"})
# Ten minutes before EC2 terminates an instance of a block; one event for each.
INTERRUPTION_WARNING = "EC2 Capacity Reservation Instance Interruption Warning"
PURCHASE = "AWS API Call via CloudTrail"
SCHEDULED = "Scheduled Event"


@dataclass(frozen=True, slots=True)
class Trigger:
    """`name` is ``delivered``, ``warning``, ``interruption``, ``purchase``, ``schedule`` or ``unknown``; `kind` its own word.

    `account` and `region` are where it happened, None where all targets are to be looked at: a schedule's event names the
    stack's own, which say nothing of blocks.
    """

    name: str
    kind: str
    account: str | None
    region: str | None


def read_trigger(event: Any) -> Trigger:
    """Tell what started a run. Nothing else of the event is used: EC2's own state decides what is due.

    Whatever is no event at all is of an unknown kind, too: a sweep is never wrong, and the alarm says that something odd came.
    """
    if not isinstance(event, Mapping):
        return Trigger("unknown", type(event).__name__, None, None)
    kind = event.get("detail-type") or event.get("detail_type") or ""
    if kind in DELIVERED:
        name = "delivered"
    elif kind in EXPIRATION_WARNING:
        name = "warning"
    elif kind == INTERRUPTION_WARNING:
        name = "interruption"
    elif kind == PURCHASE:
        name = "purchase"
    else:
        return Trigger("schedule" if not kind or kind == SCHEDULED else "unknown", str(kind), None, None)
    return Trigger(name, str(kind), event.get("account"), event.get("region"))
