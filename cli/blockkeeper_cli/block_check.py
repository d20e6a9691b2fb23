"""Whether the block that a record is to be enrolled for is the one that is meant, by what EC2 shows the caller."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from blockkeeper_cli import block, clock, output
from blockkeeper_cli.errors import NO_BLOCK, CommandError, error_code, missing_action

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from blockkeeper.domain.reservation import Reservation
    from blockkeeper_cli.connection import Connection

_NAMES = ("capacity_block_id", "region", "instance_type")
_BLOCK_ID, _REGION = r"cr-[0-9a-z]+", r"[a-z]{2,4}(-[a-z]+)+-\d{1,2}"


def look(connection: Connection, body: Mapping[str, Any], stored: Mapping[str, Any]) -> str | None:
    """The block in a line, or why EC2 could not be asked; None when the record keeps the block that it has.

    What is malformed is left to the API, which says what is wrong with it.

    Args:
        body: the record, or the fields that change.
        stored: the record as it is; empty for a new one.

    Raises:
        CommandError: it does not exist, is no Capacity Block, is of another type, or has ended.
    """
    identifier, region, instance_type = wanted = [body.get(name, stored.get(name)) for name in _NAMES]
    kept = wanted == [stored.get(name) for name in _NAMES]
    if kept or not (_is(identifier, _BLOCK_ID) and _is(region, _REGION) and isinstance(instance_type, str)):
        return None
    found, unread = _find(connection, identifier, region)
    if found is None:
        if unread:
            return f"note: the block was not checked: {unread}"
        raise CommandError(
            f"EC2 shows no Capacity Block {identifier} in {region} (correct capacity_block_id or region);"
            " nothing was enrolled"
        )
    problem = next(_problems(found, instance_type), None)
    if problem:
        raise CommandError(f"{problem}; nothing was enrolled")
    return (
        f"{identifier}: {block.size(found)} in {found.availability_zone or region}, {found.state},"
        f" ends {output.moment(found.end)} UTC"
    )


def _is(value: Any, pattern: str) -> bool:
    return isinstance(value, str) and re.fullmatch(pattern, value) is not None


def _problems(found: Reservation, instance_type: str) -> Iterator[str]:
    if found.ended or found.end <= clock.now():
        yield (
            f"{found.reservation_id} is {found.state} and ended at {output.moment(found.end)} UTC (enrol another block)"
        )
    if found.instance_type != instance_type:
        yield (
            f"instance_type is {instance_type}; {found.reservation_id} is of {found.instance_type}"
            " (correct instance_type or capacity_block_id)"
        )


def _find(connection: Connection, identifier: str, region: str) -> tuple[Reservation | None, str | None]:
    """The block as one of the accounts shows it that have blocks there, or why one of them could not be asked."""
    from botocore.exceptions import BotoCoreError, ClientError

    from blockkeeper.aws.ec2 import BlockNotFoundError, read_block
    from blockkeeper.domain.reservation import UnreadableReservationError

    accounts, unread = [connection.account], None
    try:
        accounts += [account for account, place in connection.targets if place == region]
    except (ClientError, CommandError):
        unread = "the stack's Targets cannot be read, and it may be in another account"
    for account in dict.fromkeys(accounts):
        try:
            return read_block(identifier, region, account), None
        except BlockNotFoundError:
            continue
        except ClientError as error:
            if error_code(error) not in NO_BLOCK:
                unread = f"account {account} does not show its blocks ({missing_action(error) or error_code(error)})"
        except (BotoCoreError, UnreadableReservationError) as error:
            unread = f"EC2 of account {account} in {region} cannot be read ({type(error).__name__})"
    return None, unread
