"""`blockkeeper offers --new`: what new blocks EC2 sells now in place of an enrolled one. It reads only."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from blockkeeper.domain.approval import length
from blockkeeper.domain.instants import format_instant
from blockkeeper.domain.money import format_usd
from blockkeeper.domain.new_block import NewBlock, choose_block, readable_blocks
from blockkeeper.domain.rate import OFFERINGS_AND_PURCHASES as BUCKET
from blockkeeper.domain.replacement import search_until, wanted_block
from blockkeeper_cli import block, clock, output
from blockkeeper_cli.errors import CommandError

if TYPE_CHECKING:
    from blockkeeper.domain.environment import Environment
    from blockkeeper.domain.new_block import Wanted
    from blockkeeper_cli.connection import Connection


@dataclass(frozen=True, slots=True)
class _Found:
    """One length: what is offered, which of it would be bought, or why nothing."""

    wanted: Wanted
    blocks: tuple[NewBlock, ...]
    best: NewBlock | None
    reason: str

    def objection(self, offered: NewBlock) -> str | None:
        """What the policy says against a block."""
        if misfit := self.wanted.misfit(offered):
            return misfit
        if offered.fee > self.wanted.ceiling:
            return f"above replace.max_upfront_fee {format_usd(self.wanted.ceiling)}"
        return None


def new_blocks(connection: Connection, environment: Environment, *, json_: bool) -> None:
    """Show what replace-block would find now, and which of it it would ask for or buy.

    Raises:
        CommandError: no new block can be bought for the record.
    """
    from blockkeeper import settings
    from blockkeeper.aws.ec2 import block_offerings

    reservation, account = block.read_enrolled(connection, environment)
    margin, now = settings.payment_margin(), clock.now()
    found: list[_Found] = []
    for i, hours in enumerate((environment.wanted_hours, *environment.fallback_hours)):
        wanted = wanted_block(environment, reservation, hours, end=reservation.end, payment_margin=margin, now=now)
        if isinstance(wanted, str):
            raise CommandError(f"no new block is bought for {environment.pk}: {wanted}")
        if i >= BUCKET.size:
            time.sleep(BUCKET.interval.total_seconds())
        entries = block_offerings(wanted, reservation.region, account)
        choice = choose_block(entries, wanted)
        blocks = sorted(readable_blocks(entries, wanted)[0], key=wanted.rank)
        found.append(_Found(wanted, tuple(blocks), choice.block if choice.found == "offered" else None, choice.reason))
    until = search_until(environment, reservation.end, margin)
    if json_:
        output.show_json(
            {
                "environment": environment.pk,
                "reservation_id": reservation.reservation_id,
                "region": reservation.region,
                "instance_type": reservation.instance_type,
                "instance_count": found[0].wanted.instance_count,
                "current_end": format_instant(reservation.end),
                "search_until": None if until is None else format_instant(until),
                "offerings": [_as_json(each, offered) for each in found for offered in each.blocks],
                "not_offered": [
                    {"hours": each.wanted.hours, "reason": each.reason} for each in found if each.best is None
                ],
            }
        )
        return
    ends, latest = output.moment(reservation.end), output.moment(found[0].wanted.latest_start)
    output.show(
        f"{reservation.reservation_id}: {block.size(reservation)}, {reservation.region}, ends {ends} UTC.",
        f"A new block may start until {latest} UTC; it is searched for until {output.moment(until)} UTC.",
    )
    _print(found)


def _print(found: list[_Found]) -> None:
    shown = output.table("Zone", "From, to (UTC)", "Hours", "Fee", "", right=("Hours", "Fee"), whole=("Fee",))
    shown.show_lines = True
    chosen = next((each.best for each in found if each.best), None)
    for each in found:
        for offered in each.blocks:
            word = "this one" if offered == chosen else each.objection(offered) or ""
            times = f"{output.moment(offered.start)}\n{output.moment(offered.end)}"
            shown.add_row(offered.zone, times, str(offered.hours), format_usd(offered.fee), word)
    if any(each.blocks for each in found):
        output.show(shown)
    for each in found:
        if each.best is None:
            output.show(f"{length(each.wanted.hours)}: {each.reason}")


def _as_json(found: _Found, offered: NewBlock) -> dict[str, Any]:
    return {
        "offering_id": offered.offering_id,
        "asked_hours": found.wanted.hours,
        "availability_zone": offered.zone,
        "new_start": format_instant(offered.start),
        "new_end": format_instant(offered.end),
        "duration_hours": offered.hours,
        "upfront_fee": str(offered.fee),
        "objection": found.objection(offered),
        "best": offered == found.best,
    }
