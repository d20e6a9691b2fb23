"""point-groups: let the groups of a replaced block launch into the new one, or say what a person must do."""

from typing import Any

from botocore.exceptions import ClientError

from blockkeeper.aws import ec2
from blockkeeper.aws.environments import load_environment
from blockkeeper.aws.group_errors import BUSY_CODES, GroupBusyError
from blockkeeper.aws.launch_templates import LaunchTemplates
from blockkeeper.domain.environment import Environment, Group
from blockkeeper.domain.handover import NewHome, NotClearError, changed_target, subnets_for, template_of
from blockkeeper.domain.instants import format_instant, parse_instant
from blockkeeper.telemetry import handler


@handler
def lambda_handler(event: dict[str, Any], _context: Any) -> dict[str, Any]:
    """Answer ``{pointed, problems}``, texts about each group; may be repeated, and changes nothing twice.

    Args:
        event: ``{"block": <input of replace-block>, "reservation": {reservation_id, availability_zone, start, end},
            "environment": PK of the new record, "now": ISO}``.

    Raises:
        GroupBusyError, ClientError: something asks for patience, or could not be read; the same may be tried again.
    """
    block, reservation = event["block"], event["reservation"]
    environment = load_environment(event["environment"])
    if environment is None:
        return {
            "pointed": [],
            "problems": [f"{event['environment']} is not enrolled any more; its groups stay as they are"],
        }
    home = NewHome(
        block["reservation_id"],
        reservation["reservation_id"],
        reservation["availability_zone"],
        parse_instant(reservation["start"]),
    )
    if moved := _extended_after_all(block):
        return {"pointed": [], "problems": [f"{moved}; {home.remedy}, when the groups are to leave the old block"]}
    templates = LaunchTemplates(block["region"], block["account"])
    pointed, problems, busy = [], [], None
    for group in environment.groups:
        try:
            pointed.append(f"{group.label}: {_point(group, environment, home, templates)}")
        except NotClearError as unclear:
            problems.append(f"{group.label}: {unclear}; {home.remedy}")
        except ClientError as error:
            code = error.response["Error"]["Code"]
            if code in BUSY_CODES:
                busy = error
            else:
                problems.append(f"{group.label}: AWS answered {code}; {home.remedy}")
    if busy is not None:
        raise GroupBusyError(str(busy)) from busy
    return {"pointed": pointed, "problems": problems}


def _extended_after_all(block: dict[str, Any]) -> str | None:
    """Whether the old block goes on: then its groups need what they have."""
    try:
        old = ec2.read_block(block["reservation_id"], block["region"], block["account"])
    except ec2.BlockNotFoundError:
        return None
    except ClientError as error:
        # EC2 forgets an expired block some time after its end.
        if error.response["Error"]["Code"].startswith("InvalidCapacityReservationId"):
            return None
        raise
    if old.end <= parse_instant(block["end_date"]):
        return None
    return f"the old block {old.reservation_id} was extended until {format_instant(old.end)} after all"


def _point(group: Group, environment: Environment, home: NewHome, templates: LaunchTemplates) -> str:
    if group.auto_scaling_group is None:
        raise NotClearError("only Auto Scaling groups are pointed at a new block by us")
    entry = templates.group(group.auto_scaling_group)
    if entry is None:
        raise NotClearError("there is no such Auto Scaling group in this account and Region")
    template_id, version = template_of(entry)
    data = templates.data(template_id, version)
    if data is None:
        raise NotClearError(f"its launch template {template_id} has no version {version}")
    change = changed_target(data, home)
    subnets = _subnets(entry, environment, home, templates)
    if change is not None:
        why = f"Blockkeeper: {home.reservation_id} in place of {home.old_id}"
        token = f"blockkeeper-{home.reservation_id}-{version}"
        version = templates.new_version(template_id, version, change, why, token)
    if change is not None or subnets != _ids(entry):
        templates.use(group.auto_scaling_group, template_id, version, subnets)
    return f"launch template {template_id} version {version}, subnets {', '.join(subnets) or 'as they were'}"


def _subnets(entry: dict[str, Any], environment: Environment, home: NewHome, templates: LaunchTemplates) -> list[str]:
    if not _ids(entry) and entry.get("AvailabilityZones") == [home.zone]:
        return []
    present = templates.subnets(_ids(entry))
    named = templates.subnets(environment.replace.subnets) if environment.replace else []
    vpcs = {subnet["VpcId"] for subnet in present}
    others = templates.subnets_in(vpcs, home.zone) if vpcs else []
    return subnets_for(present, named, others, home.zone)


def _ids(entry: dict[str, Any]) -> list[str]:
    return sorted(each.strip() for each in (entry.get("VPCZoneIdentifier") or "").split(",") if each.strip())
