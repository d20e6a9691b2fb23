"""Who calls, and where."""

from typing import NamedTuple


class Caller(NamedTuple):
    """The account whose credentials sign a call, and the Region it goes to."""

    account: str
    region: str
