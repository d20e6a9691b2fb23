"""The one place where the command reads the clock; AWS's signatures have it within minutes of AWS's own."""

from datetime import UTC, datetime


def now() -> datetime:
    """This moment, aware UTC."""
    return datetime.now(UTC)
