"""Money: Decimal US dollars, from EC2's own string, never from a float.

EC2 answers ``UpfrontFee`` as a string and ``CurrencyCode`` beside it (DescribeCapacityBlockExtensionOfferings).
"""

import re
from decimal import Decimal

CURRENCY = "USD"
_AMOUNT = re.compile(r"[0-9]{1,12}(\.[0-9]{1,6})?")


class UnreadableFeeError(ValueError):
    """A fee that cannot be read exactly: nothing may be bought on it (design rule 6)."""


def parse_usd(text: object) -> Decimal:
    """Read an amount such as ``"10283.50"`` or ``"511"``, in US dollars.

    Raises:
        UnreadableFeeError: not a string of digits with an optional fraction: no sign, exponent, comma or blank is accepted,
            because a misread fee spends money.
    """
    if not isinstance(text, str) or not _AMOUNT.fullmatch(text):
        raise UnreadableFeeError(f"{text!r} is not an amount in USD; expected digits such as '10283.50'")
    return Decimal(text)


def format_usd(amount: Decimal) -> str:
    """Write an amount for people: ``10,283.50 USD``."""
    return f"{amount:,.2f} {CURRENCY}"
