"""Fleets: blocks, offerings and groups written as JSON, with times relative to now.

A moment is ISO 8601 in UTC (`2026-05-04T11:30:00Z`), or relative to the market's time when the fleet is loaded: `now+30h`,
`now-2d`, `now+45m`; `now+30h@11:30` is the first 11:30 UTC at or after that.
"""

import json
import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jsonschema import Draft202012Validator

from local.market.blocks import LIFECYCLE, Block, Offering, Payment
from local.market.compute_environments import ComputeEnvironment
from local.market.groups import TERMINATING, Group, Hook
from local.market.offerings import Supply
from local.market.templates import Subnet, Template, capacity_block_data, template_id

if TYPE_CHECKING:
    from local.market.market import Market

SCHEMA = Path(__file__).parents[2] / "schemas" / "fleet.schema.json"

_RELATIVE = re.compile(r"now(?:([+-])(\d+)([mhd]))?(?:@(\d\d):(\d\d))?")
_UNITS = {"m": "minutes", "h": "hours", "d": "days"}


def load_fleet(market: "Market", fleet: dict[str, Any]) -> None:
    """Check a fleet against its schema and add it to the market.

    Raises:
        ValueError: with the place in the fleet and what is wrong there.
    """
    for error in sorted(_validator().iter_errors(fleet), key=lambda e: list(map(str, e.absolute_path))):
        place = "/".join(map(str, error.absolute_path)) or "the fleet"
        raise ValueError(f"{place}: {error.message} (see schemas/fleet.schema.json)")
    for entry in fleet.get("blocks", []):
        market.blocks.add(_block(market, entry))
    for entry in fleet.get("offerings", []):
        market.offerings.supply.append(_supply(market, entry))
    for entry in fleet.get("subnets", []):
        market.templates.subnets.append(_subnet(market, entry))
    for entry in fleet.get("groups", []):
        market.templates.add(_template(market, entry))
        market.groups.add(_group(market, entry))
    for entry in fleet.get("node_groups", []):
        sizes = (entry["min"], entry["max"], entry["desired"])
        beneath = _beneath(market, entry, f"eks-{entry['name']}")
        market.node_groups.add(entry["cluster"], entry["name"], beneath, sizes)
    for entry in fleet.get("compute_environments", []):
        market.compute_environments.add(_compute_environment(market, entry))
    market.environments.extend(fleet.get("environments", []))


@cache
def _validator() -> Draft202012Validator:
    return Draft202012Validator(json.loads(SCHEMA.read_text(encoding="utf-8")))


def moment(text: str, now: datetime) -> datetime:
    """Read a moment of a fleet.

    Raises:
        ValueError: neither ISO 8601 in UTC nor relative to now.
    """
    relative = _RELATIVE.fullmatch(text)
    if relative is None:
        at = datetime.fromisoformat(text)
        if at.tzinfo is None:
            raise ValueError(f"{text} has no time zone; write it in UTC, as 2026-05-04T11:30:00Z")
        return at.astimezone(UTC)
    sign, amount, unit, hour, minute = relative.groups()
    at = now
    if amount is not None:
        by = timedelta(**{_UNITS[unit]: int(amount)})
        at = now + by if sign == "+" else now - by
    if hour is not None:
        clock_time = at.replace(hour=int(hour), minute=int(minute), second=0, microsecond=0)
        return clock_time if clock_time >= at else clock_time + timedelta(days=1)
    return at.replace(microsecond=0)


def _block(market: "Market", entry: dict[str, Any]) -> Block:
    now = market.now
    start = moment(entry["start"], now)
    end = moment(entry["end"], now) if entry.get("end") is not None else None
    owner = entry.get("owner_id", market.account_id)
    foreign = {market.account_id} if owner != market.account_id else set()
    offering = entry.get("offering", {})
    fee = offering.get("fee")
    return Block(
        reservation_id=entry["reservation_id"],
        region=entry["region"],
        owner_id=owner,
        instance_type=entry["instance_type"],
        instance_count=entry["instance_count"],
        availability_zone=entry["availability_zone"],
        availability_zone_id=entry.get("availability_zone_id", ""),
        start=start,
        end=end,
        created=min(start, now) - timedelta(days=1),
        state=entry.get("state") or _state(start, end, now),
        reservation_type=entry.get("reservation_type", "capacity-block"),
        platform=entry.get("platform", "Linux/UNIX"),
        tags=dict(entry.get("tags", {})),
        ultraserver=entry.get("ultraserver"),
        hourly_rate=_decimal(entry.get("hourly_rate")),
        offering=Offering(
            offering.get("available", True),
            _decimal(fee),
            frozenset(offering["hours"]) if "hours" in offering else None,
        ),
        payment=Payment(**entry.get("payment", {})),
        delivered_after=timedelta(minutes=entry.get("delivered_after_minutes", 0)),
        shared_with=frozenset(entry.get("shared_with", foreign)),
    )


def _state(start: datetime, end: datetime | None, now: datetime) -> str:
    if start > now:
        return LIFECYCLE[1]
    return LIFECYCLE[2] if end is None or end > now else LIFECYCLE[3]


def _supply(market: "Market", entry: dict[str, Any]) -> Supply:
    return Supply(
        region=entry["region"],
        availability_zone=entry["availability_zone"],
        instance_type=entry["instance_type"],
        instances=entry["instance_count"],
        start=moment(entry["start"], market.now),
        end=moment(entry["end"], market.now),
        hourly_rate=Decimal(entry["hourly_rate"]),
        fee=_decimal(entry.get("fee")),
        ultraserver=entry.get("ultraserver"),
    )


def _group(market: "Market", entry: dict[str, Any]) -> Group:
    tags = [
        {
            "ResourceId": entry["name"],
            "ResourceType": "auto-scaling-group",
            "Key": k,
            "Value": v,
            "PropagateAtLaunch": True,
        }
        for k, v in entry.get("tags", {}).items()
    ]
    hooks = {
        hook["name"]: Hook(hook["name"], TERMINATING, timedelta(seconds=hook["heartbeat_seconds"]))
        for hook in entry.get("lifecycle_hooks", [])
    }
    return Group(
        name=entry["name"],
        account=entry.get("owner_id", market.account_id),
        region=entry["region"],
        minimum=entry["min"],
        maximum=entry["max"],
        desired=entry["desired"],
        zones=[entry["availability_zone"]],
        created=market.now,
        tags=tags,
        hooks=hooks,
        suspended=dict.fromkeys(entry.get("suspended_processes", []), "User suspended"),
        protects_new=entry.get("protects_new_instances", False),
        settings=_settings(entry) | ({"WarmPoolConfiguration": {"MinSize": 0}} if entry.get("warm_pool") else {}),
    )


def _beneath(market: "Market", entry: dict[str, Any], name: str) -> Group:
    """The Auto Scaling group that another service makes for a group of its own."""
    named: dict[str, Any] = {
        key: entry[key]
        for key in ("owner_id", "region", "availability_zone", "reservation_id", "subnets")
        if key in entry
    }
    built = {"name": name, "min": 0, "max": 0, "desired": 0, **named}
    market.templates.add(_template(market, built))
    return _group(market, built)


def _compute_environment(market: "Market", entry: dict[str, Any]) -> ComputeEnvironment:
    return ComputeEnvironment(
        entry["name"],
        entry["instance_type"],
        _beneath(market, entry, f"{entry['name']}-asg"),
        entry["min_vcpus"],
        entry["max_vcpus"],
        entry.get("asked_vcpus", 0),
    )


def _template(market: "Market", entry: dict[str, Any]) -> Template:
    """The group's own launch template, named as the group."""
    reservation_id = entry.get("reservation_id")
    block = market.blocks.get(reservation_id or "", entry["region"])
    data = capacity_block_data(block.instance_type if block else "m7i.large", reservation_id)
    account = entry.get("owner_id", market.account_id)
    return Template(template_id(entry["name"]), entry["name"], account, entry["region"], market.now, [data])


def _subnet(market: "Market", entry: dict[str, Any]) -> Subnet:
    return Subnet(
        subnet_id=entry["subnet_id"],
        vpc_id=entry["vpc_id"],
        account=entry.get("owner_id", market.account_id),
        region=entry["region"],
        availability_zone=entry["availability_zone"],
        tags=dict(entry.get("tags", {})),
    )


def _settings(entry: dict[str, Any]) -> dict[str, Any]:
    template = {
        "LaunchTemplateId": template_id(entry["name"]),
        "LaunchTemplateName": entry["name"],
        "Version": "1",
    }
    subnets = {"VPCZoneIdentifier": ",".join(entry["subnets"])} if entry.get("subnets") else {}
    return {"LaunchTemplate": template, **subnets}


def _decimal(text: str | None) -> Decimal | None:
    return None if text is None else Decimal(text)
