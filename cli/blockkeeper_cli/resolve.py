"""`blockkeeper resolve`: a person says what became of an order whose outcome is not known, and EC2 may not speak against it.

It writes to the stack's table with the caller's own AWS identity, which the ledger keeps beside the reason: the REST API's key is
shared, and would not say who it was.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from blockkeeper.domain.instants import format_instant
from blockkeeper.domain.ledger import Claim, PurchaseState, Settlement, contradiction, settlement
from blockkeeper.domain.money import format_usd
from blockkeeper.domain.names import end_of
from blockkeeper_cli import clock, options, output
from blockkeeper_cli.connection import Connection
from blockkeeper_cli.errors import NO_BLOCK, CommandError, UsageError, error_code
from blockkeeper_cli.records import wanted_record

if TYPE_CHECKING:
    from collections.abc import Iterable

    from blockkeeper.domain.extension import Extension
    from blockkeeper.domain.ledger import Purchase
    from blockkeeper.domain.reservation import Reservation

_PURCHASE_TAG = "blockkeeper:purchase"


@dataclass(frozen=True, slots=True)
class Seen:
    """What EC2 shows of an order: in words, and what follows from it. `knows` is False when EC2 has forgotten the block."""

    lines: tuple[str, ...]
    evidence: Settlement | None
    knows: bool


def resolve(
    target: Annotated[
        str,
        typer.Argument(
            metavar="PK|RESERVATION_ID|LEDGER_ID", help="The record, the block (cr-...), or the order itself."
        ),
    ],
    *,
    bought: Annotated[bool, typer.Option("--bought", help="It was bought.")] = False,
    not_bought: Annotated[
        bool, typer.Option("--not-bought", help="It was not: the budget gets its money back.")
    ] = False,
    reason: Annotated[str | None, typer.Option("--reason", help="How you know; kept in the ledger.")] = None,
    yes: options.Yes = False,
    json_: options.Json = False,
    stack: options.Stack = options.DEFAULT_STACK,
    region: options.Region = None,
    profile: options.Profile = None,
) -> None:
    """Settle an order whose outcome is not known; without --bought or --not-bought only show what EC2 says."""
    if bought and not_bought:
        raise UsageError("--bought and --not-bought exclude each other; choose one")
    if (bought or not_bought) and not (reason or "").strip():
        raise UsageError("--reason is missing; say how you know, such as 'AWS Support, case 123'")
    connection = Connection(stack, region, profile)
    connection.output("TableName")
    from blockkeeper.aws import ledger

    key = _order(connection, target)
    purchase = ledger.read(key)
    entry = next((item for item in ledger.purchases(key.partition("#")[0]) if item["id"] == key), None)
    if purchase is None or entry is None:
        raise CommandError(f"there is no order {key}; `blockkeeper history` lists those that are")
    seen = _look(key, purchase, entry)
    if not json_:
        _show(key, purchase, seen)
    claim = Claim.BOUGHT if bought else Claim.NOT_BOUGHT if not_bought else None
    if claim is not None:
        no = contradiction(claim, purchase, seen.evidence, ec2_knows=seen.knows, now=clock.now())
        if no:
            raise CommandError(f"{key} is not resolved as {claim}: {no}")
        output.confirm(f"Resolve {key} as {claim}?", yes)
        who = connection.identity["Arn"]
        ledger.resolve(key, purchase, claim, who=who, reason=str(reason).strip(), now=clock.now())
    _end(key, claim, purchase, entry, seen, json_=json_)


def _order(connection: Connection, target: str) -> str:
    """Ledger id of the order that is meant.

    Raises:
        CommandError: no order of that block is unresolved.
    """
    from blockkeeper.aws import ledger

    if "#" in target:
        return target
    block = target if target.startswith("cr-") else wanted_record(connection.api, target)["capacity_block_id"]
    key = ledger.unresolved(block)
    if key is None:
        raise CommandError(
            f"no order for {block} is under way or unknown; `blockkeeper history {block}` shows them all"
        )
    return key


def _look(key: str, purchase: Purchase, entry: dict[str, Any]) -> Seen:
    from botocore.exceptions import ClientError

    from blockkeeper.aws import ec2

    block, end = entry["reservation_id"], end_of(key)
    place = (entry["region"], entry["account"])
    if end is None:
        tagged = [item["CapacityReservationId"] for item in ec2.describe_entries(*place) if _is_tagged(item, key)]
        text = f"EC2 shows {', '.join(tagged) or 'no block'} with the tag {_PURCHASE_TAG}={key}"
        return Seen((text,), Settlement(PurchaseState.BOUGHT, text) if tagged else None, knows=True)
    try:
        reservation, history = ec2.read_block(block, *place), ec2.extension_history(block, *place)
    except (ClientError, ec2.BlockNotFoundError) as error:
        if isinstance(error, ClientError) and error_code(error) not in NO_BLOCK:
            raise
        return Seen((f"EC2 shows {block} no more",), None, knows=False)
    lines = _words(reservation, [extension for extension in history if extension.starts == end])
    return Seen(lines, settlement(purchase, history, reservation, end, clock.now()), knows=True)


def _is_tagged(item: dict[str, Any], key: str) -> bool:
    return any(tag.get("Key") == _PURCHASE_TAG and tag.get("Value") == key for tag in item.get("Tags") or [])


def _words(reservation: Reservation, extensions: Iterable[Extension]) -> tuple[str, ...]:
    shown = [
        f"EC2 shows extension {each.offering_id} to {format_instant(each.ends)} as {each.status}" for each in extensions
    ]
    return (
        f"EC2 shows the block as {reservation.state}, ending at {format_instant(reservation.end)}",
        *(shown or ["EC2 shows no extension from the end that the order is about"]),
    )


def _show(key: str, purchase: Purchase, seen: Seen) -> None:
    sent = "never" if purchase.sent_at is None else format_instant(purchase.sent_at)
    output.note(f"Order {key}: {purchase.state}, sent {sent}")
    output.note(
        f"  offering {purchase.offering_id}, {format_usd(purchase.fee)}, new end {format_instant(purchase.new_end)}"
    )
    for line in seen.lines:
        output.note(f"  {line}")


def _end(key: str, claim: Claim | None, purchase: Purchase, entry: dict[str, Any], seen: Seen, *, json_: bool) -> None:
    if json_:
        facts = {
            "ledger_id": key,
            "state": purchase.state,
            "sent_at": None if purchase.sent_at is None else format_instant(purchase.sent_at),
            "ec2": list(seen.lines),
            "ec2_tells": None if seen.evidence is None else seen.evidence.state,
            "resolved": None if claim is None else claim.value,
        }
        output.show_json(facts)
        return
    name = entry.get("environment") or entry["reservation_id"]
    again = f"`blockkeeper {'extend' if end_of(key) else 'replace'} {name}`"
    if claim is Claim.BOUGHT:
        output.say(f"{key} is BOUGHT; {again} follows its payment and moves the groups")
    elif claim is Claim.NOT_BOUGHT:
        output.say(f"{key} is REFUSED, and {format_usd(purchase.fee)} is back in the budget; {again} tries again")
    elif purchase.state not in {PurchaseState.SENT, PurchaseState.UNKNOWN}:
        output.say(f"{key} is {purchase.state}: there is nothing to resolve")
    elif seen.evidence is not None:
        word = "--bought" if seen.evidence.state is PurchaseState.BOUGHT else "--not-bought"
        output.say(f"EC2 tells: {seen.evidence.reason}; resolve it with {word}")
    else:
        output.say("EC2 does not tell; if you know, resolve it with --bought or --not-bought, and --reason")
