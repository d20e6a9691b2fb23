"""Scheduled actions: what Auto Scaling accepts, what it refuses, and their run when due.

Source: EC2 Auto Scaling User Guide "Scheduled scaling", and the API reference of the five operations.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from local.market.caller import Caller
from local.market.errors import MarketError, validation_error
from local.market.groups import Group
from local.market.listing import scaling_page

if TYPE_CHECKING:
    from local.market.market import Market

ACTIONS_PER_GROUP = 125
_BATCH_AT_MOST = 50
_NAME_AT_MOST = 255
_CRON_YEARS = 5
_CRON_FIELDS = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))


@dataclass(eq=False)
class ScheduledAction:
    """A scheduled action; `starts` is its next run."""

    name: str
    starts: datetime
    minimum: int | None
    maximum: int | None
    desired: int | None
    ends: datetime | None = None
    recurrence: str | None = None
    time_zone: str | None = None


class Schedules:
    """The scheduled actions of all groups."""

    def __init__(self, market: "Market") -> None:
        self._market = market
        self.lateness = timedelta(0)
        """How late an action runs; Auto Scaling may take up to two minutes."""

    def operations(self) -> dict[str, Any]:
        return {
            "PutScheduledUpdateGroupAction": self._put_one,
            "BatchPutScheduledUpdateGroupAction": self._put_batch,
            "DeleteScheduledAction": self._delete_one,
            "BatchDeleteScheduledAction": self._delete_batch,
            "DescribeScheduledActions": self._describe,
        }

    # -- calls

    def _put_one(self, params: dict[str, Any], caller: Caller) -> dict[str, Any]:
        self.put(self._group(params, caller), params)
        return {}

    def _put_batch(self, params: dict[str, Any], caller: Caller) -> dict[str, Any]:
        group = self._group(params, caller)
        requests = params.get("ScheduledUpdateGroupActions", [])
        _check_batch(len(requests))
        failed = []
        for request in requests:
            try:
                self.put(group, request)
            except MarketError as refusal:
                failed.append(_failed(request.get("ScheduledActionName", ""), refusal))
        return {"FailedScheduledUpdateGroupActions": failed}

    def _delete_one(self, params: dict[str, Any], caller: Caller) -> dict[str, Any]:
        self._delete(self._group(params, caller), params["ScheduledActionName"])
        return {}

    def _delete_batch(self, params: dict[str, Any], caller: Caller) -> dict[str, Any]:
        group = self._group(params, caller)
        names = params.get("ScheduledActionNames", [])
        _check_batch(len(names))
        failed = []
        for name in names:
            try:
                self._delete(group, name)
            except MarketError as refusal:
                failed.append(_failed(name, refusal))
        return {"FailedScheduledActions": failed}

    def _describe(self, params: dict[str, Any], caller: Caller) -> dict[str, Any]:
        names = params.get("ScheduledActionNames")
        _check_batch(len(names or ()))
        found = [
            (group, action)
            for group in self._market.groups.of(caller.account, caller.region)
            if group.name == params.get("AutoScalingGroupName", group.name)
            for action in group.schedule.values()
            if (not names or action.name in names)
            and ("StartTime" not in params or action.starts >= params["StartTime"])
            and ("EndTime" not in params or action.starts <= params["EndTime"])
        ]
        found.sort(key=lambda pair: (pair[1].starts, pair[0].name, pair[1].name))
        page, token = scaling_page(found, params)
        answer: dict[str, Any] = {"ScheduledUpdateGroupActions": [_as_action(group, action) for group, action in page]}
        return answer if token is None else {**answer, "NextToken": token}

    def _group(self, params: dict[str, Any], caller: Caller) -> Group:
        name = params.get("AutoScalingGroupName", "")
        group = self._market.groups.get(caller.account, caller.region, name)
        if group is None:
            raise validation_error(f"AutoScalingGroup name not found - no such group: {name}")
        return group

    # -- rules

    def put(self, group: Group, request: dict[str, Any]) -> None:
        """Add or overwrite an action.

        Raises:
            MarketError: ValidationError, AlreadyExists for a start time in use (AWS documents the rule, not the code), or
                LimitExceeded.
        """
        action = self._checked(request)
        others = [each for each in group.schedule.values() if each.name != action.name]
        if any(each.starts == action.starts for each in others):
            raise MarketError(
                "AlreadyExists", f"Scheduled action with start time {action.starts:%Y-%m-%dT%H:%M:%SZ} already exists"
            )
        if len(others) >= ACTIONS_PER_GROUP:
            raise MarketError(
                "LimitExceeded", f"You already have {ACTIONS_PER_GROUP} scheduled actions in group {group.name}"
            )
        group.schedule[action.name] = action
        self._plan(group, action)

    def _checked(self, request: dict[str, Any]) -> ScheduledAction:
        name = request.get("ScheduledActionName", "")
        if not 1 <= len(name) <= _NAME_AT_MOST:
            raise validation_error("ScheduledActionName must have from 1 to 255 characters")
        minimum, maximum, desired = (_size(request, key) for key in ("MinSize", "MaxSize", "DesiredCapacity"))
        _check_sizes(minimum, maximum, desired)
        starts = _starts(request, self._market.now)
        ends = request.get("EndTime")
        if ends is not None and ends <= starts:
            raise validation_error("Given end time is before the start time")
        if starts <= self._market.now:
            raise validation_error("Given start time is in the past")
        return ScheduledAction(
            name, starts, minimum, maximum, desired, ends, request.get("Recurrence"), request.get("TimeZone")
        )

    @staticmethod
    def _delete(group: Group, name: str) -> None:
        if group.schedule.pop(name, None) is None:
            raise validation_error(f"Scheduled action name not found: {name}")

    # -- runs

    def _plan(self, group: Group, action: ScheduledAction) -> None:
        starts = action.starts
        self._market.agenda.plan(starts + self.lateness, lambda: self._run(group, action, starts))

    def _run(self, group: Group, action: ScheduledAction, starts: datetime) -> None:
        if group.deleted or group.schedule.get(action.name) is not action or action.starts != starts:
            return
        if "ScheduledActions" not in group.suspended:
            self._apply(group, action)
        following = next_run(action.recurrence, starts, action.time_zone) if action.recurrence else None
        if following is None or (action.ends is not None and following > action.ends):
            del group.schedule[action.name]
            return
        action.starts = following
        self._plan(group, action)

    def _apply(self, group: Group, action: ScheduledAction) -> None:
        minimum = group.minimum if action.minimum is None else action.minimum
        maximum = group.maximum if action.maximum is None else action.maximum
        desired = action.desired if action.desired is not None else max(minimum, min(maximum, group.desired))
        cause = f"a scheduled action update of AutoScalingGroup constraints to min: {minimum}, max: {maximum}, desired: {desired}"
        if not minimum <= desired <= maximum:
            message = (
                f"Desired capacity:{desired} must be between the specified min size:{minimum} and max size:{maximum}"
            )
            self._market.groups.record(
                group, f"Scheduled action {action.name} failed", cause, status="Failed", message=message
            )
            return
        self._market.groups.resize(group, minimum, maximum, desired, cause)


def _starts(request: dict[str, Any], now: datetime) -> datetime:
    starts, older = request.get("StartTime"), request.get("Time")
    if starts is not None and older is not None and starts != older:
        raise validation_error("StartTime and Time must be the same when both are given")
    starts = starts or older
    recurrence = request.get("Recurrence")
    if recurrence is None:
        if starts is None:
            raise validation_error("A StartTime or a Recurrence is required")
        return _utc(starts)
    following = next_run(recurrence, now if starts is None else starts - timedelta(minutes=1), request.get("TimeZone"))
    if following is None:
        raise validation_error(f"Recurrence '{recurrence}' never runs")
    return following


def _utc(at: datetime) -> datetime:
    return at.astimezone(UTC)


def _size(request: dict[str, Any], key: str) -> int | None:
    value = request.get(key)
    if value is None or value == -1:  # -1 is the API's own "unchanged"
        return None
    if value < 0:
        raise validation_error(f"{key} must be 0 or more")
    return int(value)


def _check_sizes(minimum: int | None, maximum: int | None, desired: int | None) -> None:
    if minimum is None and maximum is None and desired is None:
        raise validation_error("At least one of MinSize, MaxSize and DesiredCapacity must be specified")
    if minimum is not None and maximum is not None and minimum > maximum:
        raise validation_error(f"Max bound, {maximum}, must be greater than or equal to min bound, {minimum}")
    low, high = minimum or 0, desired if maximum is None else maximum
    if desired is not None and high is not None and not low <= desired <= high:
        raise validation_error(
            f"Desired capacity:{desired} must be between the specified min size:{low} and max size:{high}"
        )


def _check_batch(count: int) -> None:
    if count > _BATCH_AT_MOST:
        raise validation_error(f"{count} scheduled actions in one call; at most {_BATCH_AT_MOST} are allowed")


def _failed(name: str, refusal: MarketError) -> dict[str, str]:
    return {"ScheduledActionName": name, "ErrorCode": refusal.code, "ErrorMessage": refusal.message}


def _as_action(group: Group, action: ScheduledAction) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "AutoScalingGroupName": group.name,
        "ScheduledActionName": action.name,
        "ScheduledActionARN": group.arn.replace(":autoScalingGroup:", ":scheduledUpdateGroupAction:")
        + f":scheduledActionName/{action.name}",
        "StartTime": action.starts,
        "Time": action.starts,
    }
    optional = {
        "MinSize": action.minimum,
        "MaxSize": action.maximum,
        "DesiredCapacity": action.desired,
        "EndTime": action.ends,
        "Recurrence": action.recurrence,
        "TimeZone": action.time_zone,
    }
    return shown | {key: value for key, value in optional.items() if value is not None}


def next_run(recurrence: str, after: datetime, time_zone: str | None) -> datetime | None:
    """The first moment after `after` at which a five-field cron expression runs; None when it never does within five years."""
    fields = recurrence.split()
    if len(fields) != len(_CRON_FIELDS):
        raise validation_error(f"Recurrence '{recurrence}' is not a cron expression of five fields")
    try:
        zone = ZoneInfo(time_zone or "UTC")
        minutes, hours, days, months, weekdays = (
            _cron_values(text, low, high) for text, (low, high) in zip(fields, _CRON_FIELDS, strict=True)
        )
    except (ValueError, ZoneInfoNotFoundError) as error:
        raise validation_error(
            f"Recurrence '{recurrence}' or its time zone '{time_zone}' is not valid: {error}"
        ) from error
    weekdays = {day % 7 for day in weekdays}
    local_after = after.astimezone(zone)
    day = local_after.date()
    for _ in range(366 * _CRON_YEARS):
        if day.month in months and _day_matches(day.day, day.isoweekday() % 7, days, weekdays, fields):
            for hour in sorted(hours):
                for minute in sorted(minutes):
                    at = datetime(day.year, day.month, day.day, hour, minute, tzinfo=zone).astimezone(UTC)
                    if at > after:
                        return at
        day += timedelta(days=1)
    return None


def _day_matches(day: int, weekday: int, days: set[int], weekdays: set[int], fields: list[str]) -> bool:
    if fields[2] != "*" and fields[4] != "*":  # cron's rule: two restricted day fields are alternatives
        return day in days or weekday in weekdays
    return day in days and weekday in weekdays


def _cron_values(text: str, low: int, high: int) -> set[int]:
    values: set[int] = set()
    for part in text.split(","):
        span, _, step = part.partition("/")
        first, _, last = span.partition("-")
        start = low if span == "*" else int(first)
        stop = high if span == "*" or (step and not last) else int(last or first)
        if not low <= start <= stop <= high:
            raise ValueError(f"{part} is not within {low}-{high}")
        values.update(range(start, stop + 1, int(step or 1)))
    return values
