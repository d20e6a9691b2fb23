"""Names of executions and ledger entries: made of reservation and end date, so that one thing is done once.

Step Functions takes 1 to 80 characters and keeps a closed execution's name in use for 90 days (StartExecution); a new end date
gives a new name (case B25).
"""

import re
from datetime import datetime

from blockkeeper.domain.instants import format_instant, parse_instant, stamp

_UNSAFE = re.compile(r"[^A-Za-z0-9_-]")
_BLOCK = "#block"


def extension_name(reservation_id: str, end: datetime) -> str:
    """Name of the one execution of extend-block for a block and an end: ``cr-0a1-20260504T1130Z``."""
    return _UNSAFE.sub("-", f"{reservation_id}-{stamp(end)}")[:80]


def scaling_name(reservation_id: str, account: str, end: datetime, now: datetime) -> str:
    """Name of an execution of scale-groups: it may run again at another minute, since it changes nothing twice.

    A shared block has groups in several accounts, each with its own execution.
    """
    return _UNSAFE.sub("-", f"{reservation_id}-{stamp(end)}-{account}-at-{stamp(now)}")[:80]


def leftover_name(reservation_id: str, account: str, now: datetime) -> str:
    """Name of an execution of scale-groups that disarms what a record left for a block."""
    return _UNSAFE.sub("-", f"{reservation_id}-left-{account}-at-{stamp(now)}")[:80]


def replacement_name(reservation_id: str, end: datetime) -> str:
    """Name of the one execution of replace-block for a block and an end: ``cr-0a1-20260504T1130Z-replace``."""
    return f"{extension_name(reservation_id, end)[:72]}-replace"


def found_replacement_name(reservation_id: str, end: datetime) -> str:
    """Name of the execution that goes on with a new block which EC2 showed late: ``cr-0a1-20260504T1130Z-replace-found``."""
    return f"{extension_name(reservation_id, end)[:66]}-replace-found"


def ledger_id(reservation_id: str, end: datetime) -> str:
    """Key of the one purchase for a block and an end: ``cr-0a1#2026-05-04T11:30:00Z``."""
    return f"{reservation_id}#{format_instant(end)}"


def reservation_of(ledger_id: str) -> str:
    """The block that a purchase is for: every ledger id begins with it."""
    return ledger_id.partition("#")[0]


def end_of(ledger_id: str) -> datetime | None:
    """The end that an order for an extension starts from; None for an order of another kind, whose id has a word behind it."""
    parts = ledger_id.split("#")
    return parse_instant(parts[1]) if len(parts) == 2 else None  # noqa: PLR2004 - reservation and end


def block_ledger_id(reservation_id: str, end: datetime) -> str:
    """Key of the one purchase of a new block in place of a block at its end: ``cr-0a1#2026-05-04T11:30:00Z#block``."""
    return f"{ledger_id(reservation_id, end)}{_BLOCK}"


def replaced_end(reservation_id: str, ledger_id: str) -> datetime | None:
    """The end at which a new block takes a block's place, from the order's ledger id; None if that is about anything else."""
    start = f"{reservation_id}#"
    if not (ledger_id.startswith(start) and ledger_id.endswith(_BLOCK)):
        return None
    try:
        return parse_instant(ledger_id.removeprefix(start).removesuffix(_BLOCK))
    except ValueError:
        return None


def other_ledger_id(ledger_id: str) -> str:
    """The entry for the same block and end in the other way: of an extension that of a new block, and the reverse."""
    return ledger_id.removesuffix(_BLOCK) if ledger_id.endswith(_BLOCK) else f"{ledger_id}{_BLOCK}"
