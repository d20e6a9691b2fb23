"""What can go wrong, once or for as long as it lasts. Which calls and states there are shows as a course is told."""

from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import NamedTuple

from local.engine.call_faults import Site
from local.engine.errors import ApiError
from local.engine.world import ACCOUNT

# (kind, lasting). What is left out is the same thing for who meets it: for a read an error after its effect is one before, and
# 500 and throttling are both repeated by the SDK until the call fails; a crash before a read is a Lambda timeout without the wait.
READ = (("denied", True), ("timeout_after", False))
WRITTEN = (("denied", True), ("throttled", False), ("timeout_after", False), ("crash_after", False))
# What the functions do that buy is looked at most closely.
READ_BY_A_BUYER = (*READ, ("lambda_timeout", False))
WRITTEN_BY_A_BUYER = (
    *WRITTEN,
    *((kind, False) for kind in ("error_before", "error_after", "crash_before", "lambda_timeout", "overtaken")),
    ("timeout_after", True),
)
# A call in a course that takes another way through the buyer: another step of the ledger.
STEPS = (("crash_after", False),)
# Functions that nothing which buys waits for. They may make nothing worse.
ELSEWHERE_READ = (("denied", True),)
ELSEWHERE_WRITTEN = (*ELSEWHERE_READ, ("crash_after", False))
_READS = ("Get", "Query", "Describe", "List")
BUYING = ("ExtendBlock", "ReplaceBlock")
BUYERS = ("BuyExtension", "BuyBlock")
WORKFLOW = (
    *BUYERS, "LoadBlock", "SearchOfferings", "RecordExtension", "CheckExtension",
    "SearchBlocks", "RecordReplacement", "CheckBlock", "EnrolBlock", "PointGroups",
    "AskApprovers", "DecideApproval", "CloseApproval",
)  # fmt: skip
# How Step Functions names that it could not have a function run, or a nested workflow started (its guide, "Handling errors").
_NOT_INVOKED = {
    "lambda": {
        "throttled": ("before", "Lambda.TooManyRequestsException"),
        "denied": ("before", "Lambda.AWSLambdaException"),
        "answer_lost": ("after", "Lambda.SdkClientException"),
    },
    "states": {
        "throttled": ("before", "StepFunctions.SfnException"),
        "denied": ("before", "StepFunctions.AccessDeniedException"),
        "answer_lost": ("after", "StepFunctions.SdkClientException"),
    },
}


class Task(NamedTuple):
    """A task of a workflow: a place in the story, as a `Site` is."""

    machine: str
    state: str
    service: str
    """What it calls: lambda, or states for a nested workflow."""


START = "start"
"""The place before everything."""


@dataclass(frozen=True)
class CallTrouble:
    """An AWS call fails; see `local/engine/call_faults.py`."""

    place: Site
    kind: str
    lasting: bool

    def __str__(self):
        return f"{self.place}-{self.kind}-{'lasting' if self.lasting else 'once'}"

    def strike(self, telling, _):
        """Let it go wrong, now that the story is there; answers a function that says whether it has."""
        # What took effect unheard meets itself when the SDK asks again; the rest has to outlast the SDK to be seen at all.
        once = "attempt" if self.kind.endswith("_after") and not _reads(self.place) else "call"
        fault = telling.world.call_faults.plan(self.kind, self.place, "lasting" if self.lasting else once)
        return lambda: fault.strikes > 0


@dataclass(frozen=True)
class StateTrouble:
    """Step Functions cannot make a task's call, or does not hear its answer."""

    place: Task
    kind: str
    lasting: bool

    def __str__(self):
        state = self.place.state.replace(" ", "_")
        return f"{state}.{self.place.service}-{self.kind}-{'lasting' if self.lasting else 'once'}"

    def strike(self, telling, _):
        when, error = _NOT_INVOKED[self.place.service][self.kind]
        engine = telling.world.engine
        engine.crash(self.place.state, when=when, error=error, times=None if self.lasting else 1)
        crash = engine._crashes[-1]
        return lambda: crash.seen > 0


@dataclass(frozen=True)
class Moment:
    """Something happens just as a workflow that buys makes a call."""

    place: Task
    kind: str
    lasting: bool = False

    def __str__(self):
        return f"{self.place.state.replace(' ', '_')}-{self.kind}"

    def strike(self, telling, call):
        MOMENTS[self.kind](telling, call)
        return lambda: True


@dataclass(frozen=True)
class Skew:
    """Step Functions' and API Gateway's clocks are off from EC2's, all the time."""

    minutes: int
    place: str = START
    kind: str = "skew"
    lasting: bool = False

    def __str__(self):
        return f"clock{self.minutes:+d}min"

    def strike(self, telling, _):
        telling.world.engine.skew = timedelta(minutes=self.minutes)
        return lambda: True


def _start_again(telling, call):
    _start(telling, call, call.execution.name)


def _start_under_another_name(telling, call):
    _start(telling, call, f"{call.execution.name}-by-hand")


def _start(telling, call, name):
    with suppress(ApiError):
        telling.world.engine.start_execution(call.execution.machine.key, call.execution.input_text, name)


def _stop_and_redrive(minutes):
    def stop(telling, call):
        telling.world.engine.stop(call.execution)
        telling.later(timedelta(minutes=minutes), lambda: telling.world.engine.redrive(call.execution))

    return stop


def _price(percent):
    def move(telling, _):
        for each in _sold(telling):
            each.hourly_rate *= 1 + Decimal(percent) / 100

    return move


def _bought_by_hand(telling, _):
    telling.buy_by_hand()


def _edited(price=1, **change):
    """Somebody edits the record (and EC2 asks another price)."""

    def edit(telling, _):
        for each in _sold(telling):
            each.hourly_rate *= Decimal(price)
        if "max_upfront_fee" in change and telling.course.replaced:
            telling.edit(replace=telling.course.record["replace"] | change)
        else:
            telling.edit(**change)

    return edit


def _sold(telling):
    """What EC2 asks a price for: extensions of the block, and new blocks."""
    return [telling.world.market.blocks.get("cr-0a1", "us-east-1"), *telling.world.market.offerings.supply]


def _gone(telling, _):
    if telling.course.replaced:
        (supply,) = telling.world.market.offerings.supply
        left, supply.instances = supply.instances, 0
        telling.later(timedelta(minutes=40), lambda: setattr(supply, "instances", left))
        return
    offering = telling.world.market.blocks.get("cr-0a1", "us-east-1").offering
    offering.available = False
    telling.later(timedelta(minutes=40), lambda: setattr(offering, "available", True))


def _offered_after_all(telling, _):
    """EC2 offers an extension again, and somebody starts extend-block by hand."""
    if telling.course.replaced:
        telling.world.market.blocks.get("cr-0a1", "us-east-1").offering.available = True
        given = {"environment": "train", "reservation_id": "cr-0a1", "account": ACCOUNT, "region": "us-east-1"}
        with suppress(ApiError):
            telling.world.start("ExtendBlock", given | {"end_date": "2026-05-04T11:30:00Z"}, "cr-0a1-late-by-hand")


MOMENTS = {
    "duplicate_start": _start_again,
    "started_by_hand": _start_under_another_name,
    "redriven_later": _stop_and_redrive(20),
    "redriven_at_once": _stop_and_redrive(0),
    "dearer": _price(10),
    "cheaper": _price(-10),
    "bought_by_hand": _bought_by_hand,
    "not_offered": _gone,
    "approval_wanted": _edited(require_approval=True),
    "ceiling_lowered": _edited(max_upfront_fee="100"),
    "longer_for_less": _edited(price="0.4", extend_by_days=2, extend_until="2026-05-06T13:00:00Z"),
    "extendable_after_all": _offered_after_all,
}
AGAIN = ("started_by_hand", "redriven_later", "bought_by_hand")
# What happens to offer and policy matters until the order is sent.
UNTIL_ORDERED = ("Search offerings", "Look for a block", "Ask for approval", "Look up the offer again", "Buy once")


def _moments(machine, state):
    if state not in UNTIL_ORDERED:
        return AGAIN
    only = {"ExtendBlock": "longer_for_less", "ReplaceBlock": "extendable_after_all"}
    return [kind for kind in MOMENTS if kind not in only.values() or kind == only[machine]]


class Matrix:
    """What is to go wrong at each place; told course by course, what is the same in an earlier course is left out."""

    def __init__(self):
        self._seen = set()

    def troubles(self, course, place):
        """What may go wrong now that a course has come to a place for the first time."""
        new = place not in self._seen
        self._seen.add(place)
        if place == START:
            return [
                Skew(minutes) for minutes in (-5, 5) if course.name in ("policy", "approved", "new", "new_approved")
            ]
        if isinstance(place, Task):
            return list(_of_task(place)) if new and not (place.machine not in BUYING and self._bought_in(place)) else []
        return [CallTrouble(place, kind, lasting) for kind, lasting in (_kinds(place) if new else _steps(place))]

    def _bought_in(self, task):
        return any(Task(machine, task.state, task.service) in self._seen for machine in BUYING)


def _of_task(task):
    if task.machine not in BUYING:
        yield StateTrouble(task, "denied", lasting=True)
        return
    yield from (StateTrouble(task, kind, lasting=kind == "denied") for kind in _NOT_INVOKED[task.service])
    yield from (Moment(task, kind) for kind in _moments(task.machine, task.state))


def _steps(site):
    """The same call, but another step of the ledger: the course has taken another way."""
    if site.caller not in BUYERS or not site.operation.startswith(("Transact", "Purchase")):
        return ()
    return (*STEPS, ("overtaken", False)) if site.operation.startswith("Purchase") else STEPS


def _kinds(site):
    if site.caller in BUYERS:
        # A read of the table after the first is like it.
        read = READ if site.operation == "GetItem" and site.nth > 1 else READ_BY_A_BUYER
        return read if _reads(site) else WRITTEN_BY_A_BUYER
    if site.caller in WORKFLOW:
        return READ if _reads(site) else WRITTEN
    return ELSEWHERE_READ if _reads(site) else ELSEWHERE_WRITTEN


def _reads(site):
    return site.operation.startswith(_READS)
