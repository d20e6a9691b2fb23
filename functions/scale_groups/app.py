"""scale-groups: make the groups of one block match its calendar, and say what changed."""

from datetime import datetime, timedelta
from typing import Any

from blockkeeper.aws import bus
from blockkeeper.aws.environments import load_environment, set_groups
from blockkeeper.aws.group_errors import GroupBusyError
from blockkeeper.aws.leftovers import delete_leftover, load_leftover
from blockkeeper.aws.table import ConditionFailedError
from blockkeeper.domain.calendar import fingerprint, overbooked
from blockkeeper.domain.environment import Environment, Kind
from blockkeeper.domain.instants import format_instant, parse_instant
from blockkeeper.domain.reservation import Reservation
from blockkeeper.settings import own_targets
from blockkeeper.telemetry import count, handler, log
from scale_groups.arrange import Arranged, Enrolled, Services, again, arrange_all, elsewhere, next_check

# After so long a leftover that is nowhere to be found is forgotten: an account that is not swept any more cannot disarm it.
LEFTOVER_KEPT = timedelta(days=2)


@handler
def lambda_handler(event: dict[str, Any], _context: Any) -> dict[str, Any]:
    """Answer ``{"environment", "reservation_id", "changes": [text], "groups": [{group, arranged, actions, ...}], "again"?}``.

    Args:
        event: input of the workflow scale-groups (``schemas/scale-groups.schema.json``) with `now`. With `until` the answer says
            in ``again`` (``{"at": ISO, "input": event without now}``) when the next look is due, if that is before `until`.

    Raises:
        ClientError, UnreadableReservationError, GroupRefusedError: EC2, the table or a service could not be read; nothing was
            written, and what is armed stays armed.
        GroupBusyError: a service asks for patience. What could be written is; a second run writes the rest.
    """
    now, region, account = parse_instant(event["now"]), event["region"], event["account"]
    environment = load_environment(event["environment"])
    left = load_leftover(region, event["reservation_id"], event["environment"])
    enrolled = Enrolled(region, account, now)
    reservation = None if environment is None else enrolled.block(environment)
    named = (left or {}).get("groups") or ()
    results = arrange_all(environment, event["reservation_id"], named, enrolled, Services(region, account))
    theirs: set[str] = set()
    if environment is not None:
        beside = [other for other, place in own_targets() if place == region and other != account]
        theirs = elsewhere(environment, [result.group for result in results if result.absent], region, beside)
        results = [result for result in results if not (result.absent and result.group in theirs)]
    changes = [change for result in results for change in result.changes]
    if changes:
        end = None if reservation is None else format_instant(reservation.end)
        facts = {name: event[name] for name in ("environment", "reservation_id", "account", "region", "now")}
        bus.publish("Groups Scaled", {**facts, "end_date": end, "changes": changes})
    if busy := [problem for result in results if result.busy for problem in result.problems]:
        raise GroupBusyError("; ".join(busy))
    if environment is not None and (results or not theirs):
        _record(environment, reservation, results, whole=not theirs)
    if left is not None:
        _forget(left, results, account, now)
    count("GroupsNotArranged", sum(not (result.arranged or result.pending) for result in results))
    count("InstancesLeftAtEnd", sum(result.instances_left for result in results))
    count("InstancesMissing", sum(result.missing for result in results))
    count("BoundariesMissed", sum(result.missed for result in results))
    answer = {
        "environment": event["environment"],
        "reservation_id": event["reservation_id"],
        "changes": changes,
        "groups": [result.as_json() for result in results],
    }
    look = again(results, event, parse_instant(event["until"])) if "until" in event else None
    return answer if look is None else {**answer, "again": look}


def _record(environment: Environment, reservation: Reservation | None, results: list[Arranged], *, whole: bool) -> None:
    """Note on the record what stands and what a person must mend.

    Args:
        whole: these are all groups of the record; others are arranged where they are.
    """
    problems = [problem for result in results for problem in result.problems]
    armed = None
    followed = {group.label for group in environment.groups if group.kind is Kind.AUTO_SCALING_GROUP}
    if reservation is not None:
        problems += [text] if (text := overbooked(environment, reservation)) else []
        if whole and all(result.arranged for result in results):
            armed = fingerprint(environment, reservation)
    if armed is None:
        followed |= set(environment.groups_followed)
    try:
        set_groups(
            environment, armed, next_check(results), "; ".join(problems) or None, followed=tuple(sorted(followed))
        )
    except ConditionFailedError:
        # Somebody wrote meanwhile, perhaps another policy: the next sweep compares again.
        log.info("the record was written meanwhile; left to the next sweep", extra={"environment": environment.pk})


def _forget(left: dict[str, Any], results: list[Arranged], account: str, now: datetime) -> None:
    """Forget a leftover that is disarmed. A shared block's groups may be in an account that is not the owner's."""
    found = any(result.changes for result in results)
    ours = left.get("owner_id") in (None, account)
    old = now >= parse_instant(left["since"]) + LEFTOVER_KEPT
    if all(result.arranged for result in results) and (found or ours or old):
        delete_leftover(left["region"], left["reservation_id"], left["environment"])
