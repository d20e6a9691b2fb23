"""Instants: aware UTC datetimes, written ``2026-05-04T11:30:00Z``."""

from datetime import UTC, datetime


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
