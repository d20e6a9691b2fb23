"""A block as its record and EC2 show it, read with the caller's credentials."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blockkeeper.domain.environment import Environment, parse_environment
from blockkeeper_cli.errors import CommandError

if TYPE_CHECKING:
    from blockkeeper.domain.reservation import Reservation
    from blockkeeper_cli.connection import Connection
    from blockkeeper_cli.rest import Record

Target = "Name of the environment record, or the block's id (cr-...)."


def environment_of(connection: Connection, record: Record) -> Environment:
    """The record with its type, and the stack's parameters where ``blockkeeper.settings`` reads them.

    Raises:
        CommandError: somebody wrote to the table by other ways.
    """
    from blockkeeper import settings

    connection.output("TableName")
    try:
        return parse_environment(record, settings.approver_emails())
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise CommandError(
            f"record {record.get('PK')} cannot be read: {error}; put it right with `blockkeeper enrol --update`"
        ) from error


def read_enrolled(connection: Connection, environment: Environment) -> tuple[Reservation, str]:
    """The record's block from EC2, and the account to act in: the caller's own, or the owner's through the stack's member role."""
    from botocore.exceptions import ClientError

    from blockkeeper.aws.ec2 import BlockNotFoundError, read_block

    own, owner = connection.account, environment.owner_id
    try:
        return read_block(environment.capacity_block_id, environment.region, own), own
    except (BlockNotFoundError, ClientError):
        if owner is None or owner == own:
            raise
    return read_block(environment.capacity_block_id, environment.region, owner), owner


def size(reservation: Reservation) -> str:
    """`4 x p5.48xlarge`."""
    count = "?" if reservation.instance_count is None else str(reservation.instance_count)
    return f"{count} x {reservation.instance_type}"
