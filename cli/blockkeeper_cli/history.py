"""`blockkeeper history`: what we ordered, from the ledger, beside what EC2 says was ordered."""

from __future__ import annotations

import csv
import sys
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Annotated, Any

import typer

from blockkeeper.domain.extension import SUCCEEDED
from blockkeeper.domain.instants import format_instant
from blockkeeper.domain.money import CURRENCY, UnreadableFeeError, format_usd, parse_usd
from blockkeeper.domain.names import end_of
from blockkeeper_cli import options, output
from blockkeeper_cli.connection import Connection
from blockkeeper_cli.errors import NO_BLOCK, CommandError, UsageError, error_code
from blockkeeper_cli.records import find_record

if TYPE_CHECKING:
    from blockkeeper.domain.extension import Extension
    from blockkeeper_cli.rest import Record


@dataclass(frozen=True, slots=True)
class Row:
    """One order. `ledger` is None when somebody else ordered it, `ec2` when EC2 does not show it and never said a last word.

    `upfront_fee` is what was offered and approved, `paid_fee` what EC2 itself says it charged, both with `currency`; `what` is
    ``extension`` or ``block``. `resolved` holds each word of a person about an unknown outcome: claim, who, when, reason.
    A block is in place of `reservation_id` and has a `new_start` and an `availability_zone`.
    """

    reservation_id: str
    environment: str | None
    region: str
    current_end: str
    new_end: str
    upfront_fee: str | None
    ledger: str | None
    ec2: str | None
    offering_id: str
    approval_id: str | None = None
    team: str | None = None
    updated_at: str | None = None
    reason: str | None = None
    what: str = "extension"
    account: str | None = None
    duration_hours: int | None = None
    paid_fee: str | None = None
    currency: str | None = None
    approved_by: str | None = None
    intended_at: str | None = None
    sent_at: str | None = None
    bought_at: str | None = None
    resolved: str | None = None
    new_start: str | None = None
    availability_zone: str | None = None


def history(
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="[PK|RESERVATION_ID]", help="One record or block (cr-...), with EC2's own history beside."
        ),
    ] = None,
    *,
    csv_: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
    json_: options.Json = False,
    stack: options.Stack = options.DEFAULT_STACK,
    region: options.Region = None,
    profile: options.Profile = None,
) -> None:
    """Show what was ordered: by us, and for one record or block by anybody."""
    if csv_ and json_:
        raise UsageError("--csv and --json exclude each other; choose one")
    connection = Connection(stack, region, profile)
    connection.output("TableName")
    from blockkeeper.aws import ledger

    reservation_id, record = target, None
    if target is None or target.startswith("cr-"):
        entries = list(ledger.purchases(target))
    else:
        record = find_record(connection.api, target)
        reservation_id = None if record is None else str(record["capacity_block_id"])
        entries = [each for each in ledger.purchases() if _concerns(each, target, reservation_id)]
        if record is None and not entries:
            raise CommandError(f"{target} is not enrolled, and nothing was ordered for it")
    extensions, place = (
        _from_ec2(connection, reservation_id, entries, record) if reservation_id else ((), connection.region)
    )
    rows = _rows(entries, extensions, reservation_id, place)
    if json_:
        output.show_json([asdict(row) for row in rows])
    elif csv_:
        _write_csv(rows)
    elif rows:
        _print(rows)
    else:
        output.say("nothing was ordered yet")


def _concerns(entry: dict[str, Any], pk: str, reservation_id: str | None) -> bool:
    """Whether an order is for the record, which may have turned to another block since, or for its block."""
    return entry.get("environment") == pk or entry["reservation_id"] == reservation_id


def _from_ec2(
    connection: Connection, reservation_id: str, entries: list[dict[str, Any]], record: Record | None
) -> tuple[tuple[Extension, ...], str]:
    """EC2's history of the block, and the Region it is in: the record's, the ledger's, else that of the command."""
    from botocore.exceptions import ClientError

    from blockkeeper.aws.ec2 import extension_history

    last: dict[str, Any] = next((each for each in reversed(entries) if each["reservation_id"] == reservation_id), {})
    known = record or {}
    region = str(known.get("region") or last.get("region") or connection.region)
    account = str(known.get("owner_id") or last.get("account") or connection.account)
    try:
        return extension_history(reservation_id, region, account), region
    except ClientError as error:
        # EC2 forgets a block some time after its end; the ledger does not.
        if error_code(error) not in NO_BLOCK or not entries:
            raise
    output.note(f"note: EC2 shows {reservation_id} no more, so only the ledger is listed")
    return (), region


def _rows(
    entries: list[dict[str, Any]], extensions: tuple[Extension, ...], reservation_id: str | None, region: str
) -> list[Row]:
    """Ours and EC2's by end and offering; an extension that is in both is one row."""
    theirs = {(format_instant(extension.starts), extension.offering_id): extension for extension in extensions}
    rows = []
    for entry in entries:
        found = theirs.pop((entry["current_end"], entry["offering_id"]), None)
        rows.append(
            Row(
                reservation_id=entry["reservation_id"],
                environment=entry.get("environment"),
                region=entry["region"],
                current_end=entry["current_end"],
                new_end=entry["new_end"],
                upfront_fee=entry["upfront_fee"],
                ledger=entry["state"],
                ec2=entry.get("ec2_status") if found is None else found.status,
                offering_id=entry["offering_id"],
                approval_id=entry.get("approval_id"),
                team=entry.get("team"),
                updated_at=entry.get("updated_at"),
                reason=entry.get("reason"),
                what="extension" if end_of(entry["id"]) else "block",
                account=entry.get("account"),
                duration_hours=entry.get("duration_hours"),
                paid_fee=entry.get("ec2_fee") if found is None else _charged(found),
                currency=entry.get("ec2_currency", CURRENCY),
                approved_by=", ".join(entry.get("approved_by", [])) or None,
                intended_at=entry.get("intended_at"),
                sent_at=entry.get("sent_at"),
                bought_at=entry.get("bought_at"),
                resolved="; ".join(
                    f"{word['claim']}, said {word['who']} at {word['at']}: {word['reason']}"
                    for word in entry.get("resolutions", [])
                )
                or None,
                new_start=entry.get("new_start"),
                availability_zone=entry.get("availability_zone"),
            )
        )
    rows += [
        Row(
            reservation_id=str(reservation_id),
            environment=None,
            region=region,
            current_end=format_instant(extension.starts),
            new_end=format_instant(extension.ends),
            upfront_fee=None if extension.fee is None else str(extension.fee),
            ledger=None,
            ec2=extension.status,
            offering_id=extension.offering_id,
            duration_hours=extension.hours,
            paid_fee=_charged(extension),
            currency=extension.currency,
        )
        for extension in theirs.values()
    ]
    return sorted(rows, key=lambda row: (row.current_end, row.reservation_id, row.offering_id))


def _charged(extension: Extension) -> str | None:
    """What EC2 took for it; None while it is not paid, and when the fee cannot be read."""
    return str(extension.fee) if extension.status == SUCCEEDED and extension.fee is not None else None


def _write_csv(rows: list[Row]) -> None:
    writer = csv.DictWriter(sys.stdout, [field.name for field in fields(Row)], lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _harmless(value) for name, value in asdict(row).items()} for row in rows)


def _harmless(value: Any) -> Any:
    """Text that a spreadsheet would take for a formula gets an apostrophe: people and other systems wrote names and reasons."""
    return f"'{value}" if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r", "\n")) else value


def _print(rows: list[Row]) -> None:
    shown = output.table(
        "Block", "From, to (UTC)", "Fee", "Ledger", "EC2", right=("Fee",), whole=("From, to (UTC)", "Fee")
    )
    shown.show_lines = len(rows) > 1
    for row in rows:
        name = row.reservation_id if row.environment is None else f"{row.environment}\n{row.reservation_id}"
        if row.new_start is not None:
            name += f"\nnew block in {row.availability_zone}"
        ends = f"{output.moment(row.new_start or row.current_end)}\n{output.moment(row.new_end)}"
        ours = row.ledger or "not ours"
        by = f"\nby {row.approved_by}" if row.approved_by else ""
        paid = "" if row.paid_fee in (None, row.upfront_fee) else f"\npaid {_fee(row.paid_fee)}"
        shown.add_row(name, ends, f"{_fee(row.upfront_fee)}{paid}", f"{ours}{by}", _words(row.ec2))
    output.show(shown)


def _fee(text: str | None) -> str:
    try:
        return format_usd(parse_usd(text))
    except UnreadableFeeError:
        return text or "-"


def _words(ec2: str | None) -> str:
    """EC2's `payment-succeeded` as words, which a narrow column can break."""
    return "-" if ec2 is None else ec2.replace("-", " ")
