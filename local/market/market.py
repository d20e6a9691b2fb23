"""The market's door: one `call` for every operation, one `tick` for everything that time brings."""

import threading
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from local.clock import MarketClock
from local.market import events
from local.market.agenda import Agenda
from local.market.blocks import Blocks
from local.market.caller import Caller
from local.market.catalogue import Catalogue
from local.market.compute_environments import ComputeEnvironments
from local.market.errors import LostAnswerError, MarketError
from local.market.extensions import Extensions
from local.market.faults import Fault, Faults
from local.market.fleet import load_fleet
from local.market.groups import Groups
from local.market.instances import Instances
from local.market.node_groups import NodeGroups
from local.market.offerings import Offerings
from local.market.scaling_api import ScalingApi
from local.market.schedules import Schedules
from local.market.templates import Templates
from local.market.throttle import Throttle

Operation = Callable[[dict[str, Any], Caller], dict[str, Any]]

_CALLS_KEPT = 20_000
_EVENTS_KEPT = 20_000


@dataclass
class Call:
    """A call that the market received; `error` is the code of its refusal, `LostAnswer` when it took effect unheard."""

    at: datetime
    service: str
    operation: str
    account: str
    region: str
    params: dict[str, Any]
    error: str | None = None


class Market:
    """EC2's Capacity Blocks and the Auto Scaling groups that live on them, for any number of accounts and Regions.

    Thread-safe. `account_id` is the account of callers that name none. Every call first lets everything happen that is due by the
    clock, each event at its own time; `tick` does only that.
    """

    def __init__(self, clock: MarketClock, account_id: str = "111122223333") -> None:
        self.clock = clock
        self.account_id = account_id
        self.cloudtrail_delay = timedelta(minutes=2)
        self.older_event_names = False
        self.agenda = Agenda()
        self.faults = Faults()
        self.throttle = Throttle()
        self.calls: deque[Call] = deque(maxlen=_CALLS_KEPT)
        self.call_counts: Counter[str] = Counter()
        self.events: deque[dict[str, Any]] = deque(maxlen=_EVENTS_KEPT)
        self.environments: list[dict[str, Any]] = []
        self.blocks = Blocks(self)
        self.extensions = Extensions(self)
        self.offerings = Offerings(self)
        self.instances = Instances(self)
        self.groups = Groups(self)
        self.schedules = Schedules(self)
        self.templates = Templates(self)
        self.catalogue = Catalogue()
        self.node_groups = NodeGroups(self)
        self.compute_environments = ComputeEnvironments(self)
        self._scaling_api = ScalingApi(self)
        self._operations: dict[tuple[str, str], Operation] = {
            **{("ec2", name): op for part in self._ec2_parts() for name, op in part.operations().items()},
            **{("autoscaling", name): op for name, op in self._scaling_api.operations().items()},
            **{("autoscaling", name): op for name, op in self.schedules.operations().items()},
            **{("eks", name): op for name, op in self.node_groups.operations().items()},
            **{("batch", name): op for name, op in self.compute_environments.operations().items()},
        }
        self._lock = threading.RLock()
        self._at: datetime | None = None
        self._numbers = 0
        self._listeners: list[Callable[[dict[str, Any]], None]] = []
        self._undelivered: deque[dict[str, Any]] = deque()

    def _ec2_parts(self) -> tuple[Blocks, Extensions, Offerings, Instances, Templates, Catalogue]:
        return self.blocks, self.extensions, self.offerings, self.instances, self.templates, self.catalogue

    # -- what callers use

    def operations(self) -> frozenset[tuple[str, str]]:
        """The (service, operation) pairs that `call` answers."""
        return frozenset(self._operations)

    def answers(self, service: str, params: dict[str, Any], region: str, account: str) -> bool:
        """Whether a call of a known operation is the market's to answer: EKS and Batch have other things than those on blocks."""
        if service == "eks":
            return self.node_groups.knows(params, Caller(account, region))
        return service != "batch" or self.compute_environments.knows(params, Caller(account, region))

    def call(
        self,
        service: str,
        operation: str,
        params: dict[str, Any],
        region: str,
        account: str | None = None,
    ) -> dict[str, Any]:
        """Answer one API call with botocore-shaped params and answers; times are aware datetimes.

        Raises:
            MarketError: AWS's refusal, with code, message and HTTP status.
            LostAnswerError: the call took effect, and a planned fault lost its answer.
        """
        caller = Caller(account or self.account_id, region)
        try:
            with self._lock:
                self._let_happen()
                record = Call(self.now, service, operation, caller.account, region, params)
                self.calls.append(record)
                self.call_counts[operation] += 1
                try:
                    return self._answer(service, operation, params, caller)
                except MarketError as refusal:
                    record.error = refusal.code
                    raise
                except LostAnswerError:
                    record.error = "LostAnswer"
                    raise
        finally:
            self._deliver()

    def tick(self) -> None:
        """Let everything happen that is due by the clock, in the order of its times."""
        with self._lock:
            self._let_happen()
        self._deliver()

    def next_due(self) -> datetime | None:
        """The moment of the next thing to happen; a runner steps the clock from one to the next."""
        with self._lock:
            return self.agenda.next_at()

    def on_event(self, listener: Callable[[dict[str, Any]], None]) -> None:
        """Give `listener` each EventBridge event, whole, after the market has let go of its lock."""
        self._listeners.append(listener)

    def load_fleet(self, fleet: dict[str, Any]) -> None:
        """Add the blocks, offerings and groups of a fleet (`schemas/fleet.schema.json`).

        Raises:
            ValueError: the fleet does not follow its schema; the message names the place.
        """
        with self._lock:
            self._let_happen()
            load_fleet(self, fleet)
        self._deliver()

    # -- what the parts use

    @property
    def now(self) -> datetime:
        """The time of what is happening: the event's own within a tick, else the clock's."""
        return self._at if self._at is not None else self.clock.now()

    def number(self) -> int:
        """A number never given before."""
        self._numbers += 1
        return self._numbers

    def identifier(self, prefix: str) -> str:
        """A new id, as EC2 forms it: `i-00000000000000001`."""
        return f"{prefix}-{self.number():017x}"

    def strikes(self, kind: str, operation: str, caller: Caller, *reservation_ids: str) -> Fault | None:
        """The planned fault that strikes here."""
        return self.faults.take(kind, operation, caller.account, caller.region, list(reservation_ids))  # type: ignore[arg-type]

    def emit(self, source: str, detail_type: str, to: Caller, resources: list[str], detail: dict[str, Any]) -> None:
        """Announce something on the account's default bus."""
        reservation_id = str(detail.get("capacity-reservation-id", ""))
        if self.strikes("drop_event", detail_type, to, reservation_id):
            return
        if self.older_event_names:
            detail_type = events.OLDER_SPELLING.get(detail_type, detail_type)
        event = events.envelope(
            self.number(),
            source=source,
            detail_type=detail_type,
            account=to.account,
            region=to.region,
            at=self.now,
            resources=resources,
            detail=detail,
        )
        copies = 2 if self.strikes("duplicate_event", detail_type, to, reservation_id) else 1
        for _ in range(copies):
            self.events.append(event)
            self._undelivered.append(event)

    # -- within

    def _let_happen(self) -> None:
        until = self.clock.now()
        while (due := self.agenda.pop_until(until)) is not None:
            self._at, happens = due
            try:
                happens()
            finally:
                self._at = None

    def _deliver(self) -> None:
        while True:
            with self._lock:
                if not self._undelivered:
                    return
                event = self._undelivered.popleft()
            for listener in self._listeners:
                listener(event)

    def _answer(self, service: str, operation: str, params: dict[str, Any], caller: Caller) -> dict[str, Any]:
        perform = self._operations.get((service, operation))
        if perform is None:
            raise MarketError("InvalidAction", f"The action {operation} is not valid for this web service.")
        named = _reservations_in(params)
        self._strike_before(service, operation, caller, named)
        if service == "ec2":
            self.throttle.take(caller.account, caller.region, operation, self.now)
        try:
            answer = perform(params, caller)
        except MarketError as refusal:
            self._record_purchase(service, operation, params, caller, refusal)
            raise
        self._record_purchase(service, operation, params, caller, answer)
        if self.strikes("error_after", operation, caller, *named):
            raise MarketError("InternalError", "An internal error has occurred", 500)
        if self.strikes("timeout_after", operation, caller, *named):
            raise LostAnswerError(operation, hangs=True)
        if self.strikes("lost_answer", operation, caller, *named):
            raise LostAnswerError(operation, hangs=False)
        return answer

    def _strike_before(self, service: str, operation: str, caller: Caller, named: list[str]) -> None:
        if self.strikes("denied", operation, caller, *named):
            code = "UnauthorizedOperation" if service == "ec2" else "AccessDenied"
            raise MarketError(code, "You are not authorized to perform this operation.", 403)
        if self.strikes("throttle", operation, caller, *named):
            if service == "ec2":
                raise MarketError("RequestLimitExceeded", "Request limit exceeded.", 503)
            raise MarketError("Throttling", "Rate exceeded", 400)
        if self.strikes("describe_limit", operation, caller, *named):
            raise MarketError("CapacityBlockDescribeLimitExceeded", "You have exceeded the limit for this account.")
        if self.strikes("error_before", operation, caller, *named):
            raise MarketError("InternalError", "An internal error has occurred", 500)

    def _record_purchase(
        self,
        service: str,
        operation: str,
        params: dict[str, Any],
        caller: Caller,
        outcome: dict[str, Any] | MarketError,
    ) -> None:
        if service != "ec2" or not operation.startswith("Purchase"):
            return
        detail = events.api_call_detail(
            service=service,
            operation=operation,
            account=caller.account,
            region=caller.region,
            at=self.now,
            params=params,
            outcome=outcome,
        )
        self.agenda.plan(
            self.now + self.cloudtrail_delay,
            lambda: self.emit("aws.ec2", events.API_CALL, caller, [], detail),
        )


def _reservations_in(params: dict[str, Any]) -> list[str]:
    one = params.get("CapacityReservationId")
    return ([one] if one else []) + list(params.get("CapacityReservationIds", []))
