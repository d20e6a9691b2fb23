"""`blockkeeper offers`: what extensions EC2 sells for a block now. It reads EC2 only, and needs no stack."""

from __future__ import annotations

import time
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any

import typer

from blockkeeper.domain.approval import length
from blockkeeper.domain.deadlines import DEFAULT_PAYMENT_MARGIN, Deadlines, deadlines_of
from blockkeeper.domain.durations import IllegalDurationError, extension_hours
from blockkeeper.domain.instants import format_instant
from blockkeeper.domain.money import format_usd
from blockkeeper.domain.offering import Choice, Found, Offering, choose_offering
from blockkeeper.domain.purchase_policy import past_extend_until
from blockkeeper_cli import block, clock, options, output
from blockkeeper_cli.connection import Connection, StackNotFoundError
from blockkeeper_cli.errors import CommandError, UsageError, explain
from blockkeeper_cli.new_blocks import new_blocks
from blockkeeper_cli.records import find_record, wanted_record

if TYPE_CHECKING:
    from blockkeeper.domain.environment import Environment
    from blockkeeper.domain.reservation import Reservation

USUAL_DAYS = (1, 7, 14)
# EC2's token bucket for this call, per account and Region (EC2 Developer Guide, "Request throttling").
BURST, REFILL_PER_SECOND = 10, 0.15
NO_CEILING = Decimal("Infinity")


@dataclass(frozen=True, slots=True)
class _Row:
    """One length: its cheapest offering, or why there is none; `objection` is what the record's policy says against buying it."""

    days: int
    offering: Offering | None
    reason: str
    objection: str | None = None


def offers(
    target: Annotated[
        str, typer.Argument(metavar="RESERVATION_ID|PK", help="The block's id (cr-...), or its record's name.")
    ],
    *,
    days: Annotated[
        list[int] | None,
        typer.Option("--days", help="Length in days; repeat it for more. Else the record's length, or 1, 7 and 14."),
    ] = None,
    new: Annotated[
        bool, typer.Option("--new", help="Show new blocks instead, in place of an enrolled one with `replace`.")
    ] = False,
    json_: options.Json = False,
    stack: options.Stack = options.DEFAULT_STACK,
    region: options.Region = None,
    profile: options.Profile = None,
) -> None:
    """Show the extensions that EC2 sells for a block now, cheapest first. Buys nothing."""
    hours = {wanted: _hours(wanted) for wanted in days or ()}
    if new and days:
        raise UsageError("--new and --days exclude each other; new blocks have the lengths of the record")
    connection = Connection(stack, region, profile)
    environment = _environment(connection, target)
    if new:
        if environment is None:
            raise CommandError(f"{target} is not enrolled; what a new block must be like is said by its record")
        new_blocks(connection, environment, json_=json_)
        return
    hours = hours or {
        day: extension_hours(day) for day in ((environment.extend_by_days,) if environment else USUAL_DAYS)
    }
    reservation, account = _read(connection, environment, target)
    deadlines = _deadlines(environment, reservation)
    now = clock.now()
    opened = deadlines.opens_at <= now < deadlines.order_by
    rows = _search(reservation, account, environment, hours) if opened and reservation.extendable else []
    if json_:
        output.show_json(_as_json(reservation, environment, deadlines, opened, rows))
    else:
        _print(reservation, environment, deadlines, rows)
    if not reservation.extendable:
        raise CommandError(f"EC2 shows the block as {reservation.state}; only active and scheduled blocks are extended")
    if not opened:
        when = "opens at" if now < deadlines.opens_at else "closed at"
        edge = deadlines.opens_at if now < deadlines.opens_at else deadlines.order_by
        raise CommandError(
            f"EC2 sells no extension of {reservation.reservation_id} now: the window {when} {format_instant(edge)}"
        )


def _hours(days: int) -> int:
    try:
        return extension_hours(days, "--days")
    except IllegalDurationError as error:
        raise UsageError(str(error)) from error


def _environment(connection: Connection, target: str) -> Environment | None:
    """The record; for a block's id alone it may be missing, or unreadable to the caller, who is told so."""
    if not target.startswith("cr-"):
        return block.environment_of(connection, wanted_record(connection.api, target))
    try:
        record = find_record(connection.api, target)
        return None if record is None else block.environment_of(connection, record)
    except StackNotFoundError:
        return None
    except Exception as error:
        known = explain(error)
        if known is None:
            raise
        output.note(f"note: whether the block is enrolled could not be read: {known}")
        return None


def _read(connection: Connection, environment: Environment | None, target: str) -> tuple[Reservation, str]:
    from blockkeeper.aws.ec2 import read_block

    if environment is not None:
        return block.read_enrolled(connection, environment)
    return read_block(target, connection.region, connection.account), connection.account


def _deadlines(environment: Environment | None, reservation: Reservation) -> Deadlines:
    from blockkeeper import settings

    if environment is None:
        return Deadlines(reservation.end, payment_margin=DEFAULT_PAYMENT_MARGIN, ultraserver=reservation.ultraserver)
    return deadlines_of(environment, reservation, settings.payment_margin())


def _search(
    reservation: Reservation, account: str, environment: Environment | None, hours: dict[int, int]
) -> list[_Row]:
    """One call for each length, no faster than EC2 allows; cheapest first, lengths without an offering last."""
    from blockkeeper.aws.ec2 import extension_offerings

    ceiling = environment.max_upfront_fee if environment and environment.max_upfront_fee is not None else NO_CEILING
    rows = []
    for i, (days, wanted) in enumerate(sorted(hours.items())):
        if i == BURST:
            output.note(f"note: EC2 allows {BURST} searches at once; the other {len(hours) - BURST} take their time")
        if i >= BURST:
            time.sleep(1 / REFILL_PER_SECOND)
        entries = extension_offerings(reservation.reservation_id, wanted, reservation.region, account)
        choice = choose_offering(entries, hours=wanted, current_end=reservation.end, ceiling=ceiling)
        rows.append(_Row(days, choice.offering, choice.reason, _objection(environment, choice)))
    return sorted(rows, key=lambda row: (row.offering is None, row.offering.fee if row.offering else row.days))


def _objection(environment: Environment | None, choice: Choice) -> str | None:
    if choice.found is Found.TOO_DEAR:
        return choice.reason
    return past_extend_until(environment, choice.offering) if environment and choice.offering else None


def _hourly(offering: Offering, reservation: Reservation) -> Decimal | None:
    """Fee of one instance for one hour, USD; None while EC2 does not show how many instances there are."""
    if not reservation.instance_count:
        return None
    return (offering.fee / offering.hours / reservation.instance_count).quantize(Decimal("0.0001"))


def _as_json(
    reservation: Reservation, environment: Environment | None, deadlines: Deadlines, opened: bool, rows: list[_Row]
) -> dict[str, Any]:
    def offered(row: _Row, offering: Offering) -> dict[str, Any]:
        hourly = _hourly(offering, reservation)
        return {
            "days": row.days,
            "offering_id": offering.offering_id,
            "duration_hours": offering.hours,
            "upfront_fee": str(offering.fee),
            "fee_per_instance_hour": None if hourly is None else str(hourly),
            "new_end": format_instant(offering.new_end),
            "objection": row.objection,
        }

    return {
        "reservation_id": reservation.reservation_id,
        "environment": environment and environment.pk,
        "region": reservation.region,
        "instance_type": reservation.instance_type,
        "instance_count": reservation.instance_count,
        "state": reservation.state,
        "current_end": format_instant(reservation.end),
        "opens_at": format_instant(deadlines.opens_at),
        "decide_by": format_instant(deadlines.decide_by),
        "order_by": format_instant(deadlines.order_by),
        "open": opened,
        "offerings": [offered(row, row.offering) for row in rows if row.offering],
        "not_offered": [{"days": row.days, "reason": row.reason} for row in rows if row.offering is None],
    }


def _print(reservation: Reservation, environment: Environment | None, deadlines: Deadlines, rows: list[_Row]) -> None:
    enrolled = f"enrolled as {environment.pk}" if environment else "not enrolled"
    output.show(
        f"{reservation.reservation_id}: {block.size(reservation)}, {reservation.region}, {reservation.state}, {enrolled}",
        f"Ends {output.moment(reservation.end)} UTC. EC2 sells extensions from {output.moment(deadlines.opens_at)} until "
        f"{output.moment(deadlines.order_by)} UTC; decide by {output.moment(deadlines.decide_by)} UTC.",
    )
    offered = [(row, row.offering) for row in rows if row.offering]
    if offered:
        numbers = ("Days", "Fee", "Instance hour")
        found = output.table("Days", "Fee", "Instance hour", "New end (UTC)", "Offering", right=numbers, whole=("Fee",))
        for row, offering in offered:
            hourly = _hourly(offering, reservation)
            new_end = output.moment(offering.new_end)
            each = "-" if hourly is None else f"{hourly:.2f} USD"
            found.add_row(str(row.days), format_usd(offering.fee), each, new_end, offering.offering_id)
        output.show(found)
    for row in rows:
        if row.offering is None or row.objection:
            output.show(f"{length(row.days * 24)}: {row.objection or row.reason}")
