"""Who has heard of what (kind `notice`), so that an event that comes twice is told once (case B12)."""

from blockkeeper.aws.table import get_item, update_request, write

KIND = "notice"


def heard(key: str) -> list[str]:
    """Who has been told, as `mark_heard` noted it."""
    return list((get_item(KIND, key) or {}).get("told") or ())


def mark_heard(key: str, told: list[str]) -> None:
    """Remember whom this was told. After a crash between telling and this, one person is told again: better than not at all."""
    write(update_request(KIND, key, set_={"told": told}))
