"""Faults on demand: what a test or a demo lets go wrong, how often and where."""

from dataclasses import asdict, dataclass
from decimal import Decimal
from typing import Any, Literal, get_args

Kind = Literal[
    "throttle",
    "describe_limit",
    "denied",
    "error_before",
    "error_after",
    "timeout_after",
    "lost_answer",
    "payment_failure",
    "price_change",
    "empty_offerings",
    "other_durations",
    "duplicate_event",
    "drop_event",
]


@dataclass
class Fault:
    """One thing that goes wrong.

    `operation`, `region`, `account` and `reservation_id` narrow where (None: everywhere; event faults compare `operation` with the
    event's detail-type); `times` is how often it still happens (None: until removed).
    `price_change` takes `percent` (`"10"` is a tenth dearer) or `value` (the new fee in USD); `other_durations` takes `hours`, by
    which the offered length differs from the one asked for.
    """

    kind: Kind
    operation: str | None = None
    times: int | None = 1
    region: str | None = None
    account: str | None = None
    reservation_id: str | None = None
    percent: Decimal | None = None
    value: Decimal | None = None
    hours: int = 17

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            raise ValueError(f"kind is {self.kind!r}; a fault is one of {', '.join(get_args(Kind))}")
        if self.percent is not None:
            self.percent = Decimal(str(self.percent))
        if self.value is not None:
            self.value = Decimal(str(self.value))
        if self.kind == "price_change" and (self.percent is None) == (self.value is None):
            raise ValueError("a price_change needs one of percent and value")


class Faults:
    """The faults that wait for their call."""

    def __init__(self) -> None:
        self._waiting: list[Fault] = []

    def add(self, *, kind: Kind, **where: Any) -> Fault:
        """Plan a fault; see `Fault` for the fields."""
        fault = Fault(kind=kind, **where)
        self._waiting.append(fault)
        return fault

    def clear(self) -> None:
        """Forget all planned faults."""
        self._waiting.clear()

    def waiting(self) -> list[dict[str, Any]]:
        """What is still planned."""
        return [asdict(fault) for fault in self._waiting]

    def take(self, kind: Kind, operation: str, account: str, region: str, reservation_ids: list[str]) -> Fault | None:
        """The fault of this kind that strikes here, used up by one."""
        for fault in self._waiting:
            if (
                fault.kind == kind
                and fault.operation in (None, operation)
                and fault.region in (None, region)
                and fault.account in (None, account)
                and (fault.reservation_id is None or fault.reservation_id in reservation_ids)
            ):
                if fault.times is not None:
                    fault.times -= 1
                    if fault.times <= 0:
                        self._waiting.remove(fault)
                return fault
        return None
