"""Looks at the stack as a person could: executions, mails, records, EC2 and Auto Scaling; and says what is new."""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from local.demo.fleet import Case
from local.stack import Stack

_LINK = re.compile(r"http://127\.0\.0\.1:\d+/\S+/decide/\S+")


@dataclass(frozen=True)
class News:
    """Something new about a block; `kind` chooses its colour."""

    at: datetime
    pk: str
    kind: str
    text: str


@dataclass
class Run:
    """What is known of a workflow's execution; `execution` is its name, None before it has started."""

    execution: str | None = None
    status: str | None = None
    last_state: str | None = None
    read_events: int = 0

    @property
    def closed(self) -> bool:
        """Whether it has ended."""
        return self.status not in (None, "RUNNING")


@dataclass(frozen=True)
class NewBlock:
    """A block that EC2 has sold in another's place, as EC2 shows it."""

    reservation_id: str
    availability_zone: str
    start: datetime
    end: datetime
    state: str


@dataclass
class Seen:
    """What is known of a block so far."""

    start: datetime | None = None
    first_end: datetime | None = None
    end: datetime | None = None
    state: str | None = None
    status: str | None = None
    error: str | None = None
    extension: Run = field(default_factory=Run)
    plan_b: Run = field(default_factory=Run)
    new_blocks: list[NewBlock] = field(default_factory=list)
    new_fee: Decimal | None = None  # as it was offered: EC2 does not show what it took for a block
    link: str | None = None
    approver: str | None = None
    orders: list[tuple[Decimal, str]] = field(default_factory=list)
    actions: list[tuple[datetime, str, str]] = field(default_factory=list)


class Watch:
    """`look` reads everything once and answers what is new; `seen` is the sum of it."""

    def __init__(self, stack: Stack, cases: list[Case]) -> None:
        self._stack = stack
        self._cases = {case.pk: case for case in cases}
        self._by_reservation = {case.reservation_id: case.pk for case in cases}
        self._by_group = {case.group: case.pk for case in cases if case.group}
        self._regions = sorted({case.region for case in cases})
        self._states = stack.aws.client("stepfunctions")
        self._ec2 = {region: stack.aws.client("ec2", region) for region in self._regions}
        self._scaling = {region: stack.aws.client("autoscaling", region) for region in self._regions}
        self._mails = 0
        self.seen = {case.pk: Seen() for case in cases}

    def now(self) -> datetime:
        """The market's time."""
        return instant(self._stack.aws.control("GET", "clock")["now"])

    def look(self) -> list[News]:
        """Read everything; what is new, in the order of the story."""
        return [
            *self._executions(),
            *self._new_mails(),
            *self._orders(),
            *self._ends(),
            *self._records(),
            *self._actions(),
        ]

    # -- the workflows ----------------------------------------------------------------------------------------------------

    def _executions(self) -> Iterator[News]:
        runs = {
            ("extend-block", "ExtendBlockArn"): {pk: seen.extension for pk, seen in self.seen.items()},
            ("replace-block", "ReplaceBlockArn"): {pk: seen.plan_b for pk, seen in self.seen.items()},
        }
        for (workflow, output), of in runs.items():
            pages = self._states.get_paginator("list_executions").paginate(stateMachineArn=self._stack.outputs[output])
            for execution in (each for page in pages for each in page["executions"]):
                pk = next((pk for cr, pk in self._by_reservation.items() if execution["name"].startswith(cr)), None)
                if pk is None or of[pk].closed:
                    continue
                yield from self._history(pk, of[pk], execution["executionArn"])
                of[pk].execution, of[pk].status = execution["name"], execution["status"]
                if of[pk].closed:
                    yield News(self.now(), pk, "end", f"{workflow} ends: {of[pk].last_state}")

    def _history(self, pk: str, run: Run, arn: str) -> Iterator[News]:
        pages = self._states.get_paginator("get_execution_history").paginate(executionArn=arn)
        events = [event for page in pages for event in page["events"]]
        for event in events[run.read_events :]:
            entered, exited = event.get("stateEnteredEventDetails"), event.get("stateExitedEventDetails")
            if entered:
                run.last_state = entered["name"]
            if exited and exited["name"] in _TOLD and (text := _told(exited)):
                yield News(event["timestamp"].astimezone(UTC), pk, "step", text)
            if exited and exited["name"] == "Look for a block":
                self.seen[pk].new_fee = _offered_fee(exited) or self.seen[pk].new_fee
        run.read_events = len(events)

    # -- people -----------------------------------------------------------------------------------------------------------

    def _new_mails(self) -> Iterator[News]:
        mails = self._stack.mails()
        for mail in mails[self._mails :]:
            link = _LINK.search(mail["BodyText"])
            text = f"mail to {', '.join(mail['To'])}: {mail['Subject']}"
            pk = self._asked(link[0]) if link else self._named(mail["Subject"])
            if link and pk:
                self.seen[pk].link, self.seen[pk].approver = link[0], mail["To"][0]
            yield News(self.now(), pk or "", "mail", text)
        self._mails = len(mails)

    def _asked(self, link: str) -> str | None:
        return next((pk for cr, pk in self._by_reservation.items() if f"/decide/{cr}-" in link), None)

    def _named(self, subject: str) -> str | None:
        return next((pk for pk in self._cases if pk in subject), None)

    # -- EC2 and Auto Scaling ---------------------------------------------------------------------------------------------

    def _orders(self) -> Iterator[News]:
        for region, ec2 in self._ec2.items():
            pages = ec2.get_paginator("describe_capacity_block_extension_history").paginate()
            found: dict[str, list[tuple[Decimal, str]]] = {}
            for each in (entry for page in pages for entry in page["CapacityBlockExtensions"]):
                order = (Decimal(each["UpfrontFee"]), each["CapacityBlockExtensionStatus"])
                if pk := self._by_reservation.get(each["CapacityReservationId"]):
                    found.setdefault(pk, []).append(order)
            for pk, orders in found.items():
                for fee, status in orders[len(self.seen[pk].orders) :] or (
                    orders[-1:] if orders != self.seen[pk].orders else []
                ):
                    yield News(self.now(), pk, "buy", f"EC2 in {region}: extension for {fee:,} USD is {status}")
                self.seen[pk].orders = orders

    def _ends(self) -> Iterator[News]:
        for ec2 in self._ec2.values():
            pages = ec2.get_paginator("describe_capacity_reservations").paginate()
            for entry in (each for page in pages for each in page["CapacityReservations"]):
                pk = self._by_reservation.get(entry["CapacityReservationId"])
                if pk is None:
                    yield from self._new_block(entry)
                    continue
                seen, end = self.seen[pk], entry.get("EndDate")
                seen.state, seen.start = entry["State"], entry.get("StartDate")
                if seen.first_end is None:
                    seen.first_end = seen.end = end
                elif end != seen.end:
                    yield News(self.now(), pk, "moved", f"EC2 moved the end: {short(seen.end)} -> {short(end)}")
                    seen.end = end

    def _new_block(self, entry: dict[str, Any]) -> Iterator[News]:
        tags = {tag["Key"]: tag["Value"] for tag in entry.get("Tags", [])}
        pk = self._by_reservation.get(tags.get("blockkeeper:purchase", "").partition("#")[0])
        if pk is None:
            return
        fields = ("CapacityReservationId", "AvailabilityZone", "StartDate", "EndDate", "State")
        new, known = NewBlock(*(entry[field] for field in fields)), self.seen[pk].new_blocks
        before = next((each for each in known if each.reservation_id == new.reservation_id), None)
        if new != before:
            text = f"new block {new.reservation_id} in {new.availability_zone} is {new.state}"
            yield News(self.now(), pk, "buy", f"{text}: {short(new.start)} to {short(new.end)}")
        self.seen[pk].new_blocks = [*(each for each in known if each != before), new]

    def _actions(self) -> Iterator[News]:
        for scaling in self._scaling.values():
            pages = scaling.get_paginator("describe_scheduled_actions").paginate()
            found: dict[str, list[tuple[datetime, str, str]]] = {}
            for each in (action for page in pages for action in page["ScheduledUpdateGroupActions"]):
                pk = self._by_group.get(each["AutoScalingGroupName"])
                if pk is not None:
                    sizes = "/".join(str(each.get(name, "-")) for name in ("MinSize", "MaxSize", "DesiredCapacity"))
                    found.setdefault(pk, []).append(
                        (each["StartTime"].astimezone(UTC), sizes, each["ScheduledActionName"])
                    )
            for pk, actions in found.items():
                if sorted(actions) != self.seen[pk].actions:
                    self.seen[pk].actions = sorted(actions)
                    yield News(self.now(), pk, "scale", f"group {self._cases[pk].group}: {told_actions(self.seen[pk])}")

    def instances(self) -> dict[str, int]:
        """How many instances each group has in service, by block."""
        found = {}
        for scaling in self._scaling.values():
            pages = scaling.get_paginator("describe_auto_scaling_groups").paginate()
            for group in (each for page in pages for each in page["AutoScalingGroups"]):
                pk = self._by_group.get(group["AutoScalingGroupName"])
                if pk is not None:
                    states = [instance["LifecycleState"] for instance in group["Instances"]]
                    found[pk] = states.count("InService")
        return found

    # -- records ----------------------------------------------------------------------------------------------------------

    def _records(self) -> Iterator[News]:
        for record in self._stack.api("GET", "/").body:
            seen = self.seen.get(record["PK"])
            if seen is None:
                continue
            status, error = record.get("status"), record.get("error")
            if (status, error) != (seen.status, seen.error) and seen.status is not None:
                yield News(self.now(), record["PK"], "status", f"{status}{f': {error}' if error else ''}")
            seen.status, seen.error = status, error


def told_actions(seen: Seen) -> str:
    """Scheduled actions in words: when, and the sizes minimum/maximum/desired."""
    return ", ".join(f"{short(at)} -> {sizes}" for at, sizes, _ in seen.actions) or "no action"


def short(at: datetime | None) -> str:
    """A moment as the demo prints it; the year goes without saying."""
    return "-" if at is None else at.astimezone(UTC).strftime("%d %b %H:%M")


def instant(text: str) -> datetime:
    """ISO 8601 with an offset."""
    return datetime.fromisoformat(text).astimezone(UTC)


def _told(exited: dict[str, Any]) -> str | None:
    payload = json.loads(exited["output"])
    return _TOLD[exited["name"]](payload.get("Payload", payload) if isinstance(payload, dict) else {})


def _search(found: dict[str, Any]) -> str | None:
    offering = found.get("offering")
    if offering is None:
        return f"no extension: {found.get('reason') or found.get('found')}"
    days = offering["duration_hours"] // 24
    verdict = "" if found["found"] == "offered" else f" ({found['found']}: {found['reason']})"
    return f"EC2 offers {days} days for {Decimal(offering['upfront_fee']):,} USD{verdict}"


def _look(found: dict[str, Any]) -> str | None:
    new = found.get("offering")
    if new is None:
        return f"no new block: {found.get('reason') or found.get('found')}"
    times = f"{short(instant(new['new_start']))} to {short(instant(new['new_end']))}"
    return f"EC2 sells a block in {new['availability_zone']}, {times}, for {Decimal(new['upfront_fee']):,} USD"


def _offered_fee(exited: dict[str, Any]) -> Decimal | None:
    offering = json.loads(exited["output"]).get("Payload", {}).get("offering")
    return Decimal(offering["upfront_fee"]) if offering else None


# What the states of extend-block and replace-block have to tell when they end.
_TOLD: dict[str, Callable[[dict[str, Any]], str | None]] = {
    "Search offerings": _search,
    "Look up the offer again": lambda found: f"looked up again before buying: {found.get('found')}",
    "Look for a block": _look,
    "Enrol the block": lambda enrolled: f"enrolled as {enrolled.get('environment')}, with the old block's policy",
    "Point the groups": lambda done: "; ".join([*done.get("problems", []), *done.get("pointed", [])]) or None,
    "Buy once": lambda bought: (
        f"buyer: {bought.get('result')}{f' ({reason})' if (reason := bought.get('reason')) else ''}"
    ),
}
