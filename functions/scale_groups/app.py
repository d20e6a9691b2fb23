"""scale-groups: make the groups of one block match its calendar, and say what changed."""

from typing import Any

from blockkeeper.aws import bus
from blockkeeper.aws.auto_scaling import AutoScaling, AutoScalingBusyError
from blockkeeper.aws.environments import load_environment, set_groups
from blockkeeper.aws.table import ConditionFailedError
from blockkeeper.domain.calendar import fingerprint, overbooked
from blockkeeper.domain.environment import Environment
from blockkeeper.domain.instants import format_instant, parse_instant
from blockkeeper.domain.reservation import Reservation
from blockkeeper.telemetry import count, handler, log
from scale_groups.arrange import Arranged, Enrolled, arrange_all, next_check


@handler
def lambda_handler(event: dict[str, Any], _context: Any) -> dict[str, Any]:
    """Answer ``{"environment", "reservation_id", "changes": [text], "groups": [{group, arranged, actions, ...}]}``.

    Args:
        event: input of the workflow scale-groups (``schemas/scale-groups.schema.json``) with `now`.

    Raises:
        ClientError, UnreadableReservationError, AutoScalingRefusedError: EC2, the table or Auto Scaling could not be read; nothing
            was written, and what is armed stays armed.
        AutoScalingBusyError: Auto Scaling asks for patience. What could be written is; a second run writes the rest.
    """
    now, region, account = parse_instant(event["now"]), event["region"], event["account"]
    environment = load_environment(event["environment"])
    enrolled = Enrolled(region, account, now)
    reservation = None if environment is None else enrolled.block(environment)
    results = arrange_all(environment, event["reservation_id"], enrolled, AutoScaling(region, account), now)
    changes = [change for result in results for change in result.changes]
    if changes:
        end = None if reservation is None else format_instant(reservation.end)
        facts = {name: event[name] for name in ("environment", "reservation_id", "account", "region", "now")}
        bus.publish("Groups Scaled", {**facts, "end_date": end, "changes": changes})
    if busy := [problem for result in results if result.busy for problem in result.problems]:
        raise AutoScalingBusyError("; ".join(busy))
    if environment is not None:
        _record(environment, reservation, results)
    count("GroupsNotArranged", sum(not result.arranged for result in results))
    count("InstancesLeftAtEnd", sum(result.instances_left for result in results))
    return {
        "environment": event["environment"],
        "reservation_id": event["reservation_id"],
        "changes": changes,
        "groups": [result.as_json() for result in results],
    }


def _record(environment: Environment, reservation: Reservation | None, results: list[Arranged]) -> None:
    """Note on the record what stands and what a person must mend."""
    problems = [problem for result in results for problem in result.problems]
    armed = None
    if reservation is not None:
        problems += [text] if (text := overbooked(environment, reservation)) else []
        if all(result.arranged for result in results):
            armed = fingerprint(environment, reservation)
    try:
        set_groups(environment, armed, next_check(results), "; ".join(problems) or None)
    except ConditionFailedError:
        # Somebody wrote meanwhile, perhaps another policy: the next sweep compares again.
        log.info("the record was written meanwhile; left to the next sweep", extra={"environment": environment.pk})
