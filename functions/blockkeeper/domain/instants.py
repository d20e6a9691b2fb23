"""Instants: aware UTC datetimes, written ``2026-05-04T11:30:00Z``."""

from datetime import UTC, datetime
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError


def parse_instant(text: str) -> datetime:
    """Read an ISO 8601 instant with an offset; fractions of a second are dropped.

    Raises:
        ValueError: no such instant, or one without an offset (its meaning would depend on the reader's clock).
    """
    instant = datetime.fromisoformat(text)
    if instant.tzinfo is None:
        raise ValueError(f"{text!r} has no time zone; write it in UTC, such as 2026-05-04T11:30:00Z")
    return instant.astimezone(UTC).replace(microsecond=0)


def format_instant(instant: datetime) -> str:
    """Write an aware instant in UTC to the second: ``2026-05-04T11:30:00Z``."""
    if instant.tzinfo is None:
        raise ValueError(f"{instant!r} has no time zone; pass an aware UTC datetime")
    return instant.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def stamp(instant: datetime) -> str:
    """Write an instant for use in names, which must not hold colons: ``20260504T1130Z``."""
    return instant.astimezone(UTC).strftime("%Y%m%dT%H%MZ")


def is_time_zone(name: str) -> bool:
    """Whether IANA's data has a zone of this name."""
    return name == "UTC" or _zone(name) is not None


def moment(instant: datetime, time_zone: str = "UTC") -> str:
    """A moment for people: ``Mon 4 May 2026, 11:30 UTC``, in another zone with its time behind it: ``(13:30 Europe/Berlin)``.

    A zone that is not known is left out: UTC is always right.
    """
    text = f"{instant.astimezone(UTC):%a} {instant.astimezone(UTC).day} {instant.astimezone(UTC):%b %Y, %H:%M} UTC"
    zone = None if time_zone == "UTC" else _zone(time_zone)
    if zone is None:
        return text
    there = instant.astimezone(zone)
    day = "" if there.date() == instant.astimezone(UTC).date() else f"{there:%a} {there.day} {there:%b}, "
    return f"{text} ({day}{there:%H:%M} {time_zone})"


@lru_cache(maxsize=64)
def _zone(name: str) -> ZoneInfo | None:
    try:
        return ZoneInfo(name)
    # A name that is a path, a folder or too long for one.
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None
