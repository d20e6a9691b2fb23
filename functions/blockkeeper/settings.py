"""What the template sets for every function, read from the environment and checked where it is used."""

import os
import re
from datetime import timedelta

from blockkeeper.domain.budget import Limits
from blockkeeper.domain.money import parse_usd


def payment_margin() -> timedelta:
    """How long before EC2's last order a decision must stand; `PAYMENT_MARGIN_MINUTES`."""
    return timedelta(minutes=int(os.environ["PAYMENT_MARGIN_MINUTES"]))


def sweep_period() -> timedelta:
    """Time between two sweeps, from the parameter `ScheduleExpression`; an hour when that is no plain rate."""
    match = re.fullmatch(r"rate\((\d+) (minute|hour|day)s?\)", os.environ.get("SCHEDULE_EXPRESSION", ""))
    return timedelta(hours=1) if match is None else int(match[1]) * timedelta(**{f"{match[2]}s": 1})


def live() -> bool:
    """Whether money may move: only the exact word `live` in `PURCHASE_MODE` says so (design rule 7)."""
    return os.environ.get("PURCHASE_MODE") == "live"


def limits() -> Limits:
    """Most that may be spent in a calendar month, USD: `MONTHLY_LIMIT`, of which missing means nothing, and `TEAM_LIMITS`.

    `TEAM_LIMITS` is the parameter `TeamLimits`: ``vision=50000,speech=20000``. Of a team that stands there twice the lower counts.

    Raises:
        ValueError: an entry that is not a team, an equals sign and an amount; a limit that cannot be read is not "no limit".
    """
    pairs = []
    for entry in filter(None, (part.strip() for part in os.environ.get("TEAM_LIMITS", "").split(","))):
        team, is_there, amount = entry.partition("=")
        if not (team and is_there):
            raise ValueError(f"TeamLimits has {entry!r}; write team=amount, such as vision=50000")
        pairs.append((team, parse_usd(amount)))
    # The highest first, so that the lowest is the one that stays.
    teams = dict(sorted(pairs, key=lambda pair: pair[1], reverse=True))
    return Limits(parse_usd(os.environ.get("MONTHLY_LIMIT") or "0"), teams)


def approver_emails() -> tuple[str, ...]:
    """Who is asked when a record names no approvers: the parameter `ApproverEmails`."""
    return tuple(entry.strip() for entry in os.environ.get("APPROVER_EMAILS", "").split(",") if entry.strip())


def own_targets() -> list[tuple[str, str]]:
    """As `targets`, for a function that has `TARGETS`."""
    return targets(os.environ["TARGETS"], os.environ["ACCOUNT_ID"], os.environ["AWS_REGION"])


def targets(text: str, own_account: str, own_region: str) -> list[tuple[str, str]]:
    """Accounts and Regions to sweep, from the parameter `Targets`: ``111122223333:us-east-1,111122223333:us-west-2``.

    Empty means the account and Region that the stack is in.

    Raises:
        ValueError: an entry that is not 12 digits, a colon and a Region.
    """
    entries = [entry.strip() for entry in text.split(",") if entry.strip()]
    found = [re.fullmatch(r"(\d{12}):([a-z]{2}(?:-[a-z0-9]+)+-\d+[a-z0-9-]*)", entry) for entry in entries]
    for entry, match in zip(entries, found, strict=True):
        if match is None:
            raise ValueError(f"Targets has {entry!r}; write account:region, such as 111122223333:us-east-1")
    return list(dict.fromkeys((m[1], m[2]) for m in found if m)) or [(own_account, own_region)]
