"""Lengths in which EC2 sells extensions: whole days from 1 to 14, then whole weeks up to 26.

Source: EC2 User Guide, "Extend Capacity Blocks": 38 legal values, in hours 24 x {1..14} and 168 x {3..26}.
"""

LEGAL_DAYS: tuple[int, ...] = (*range(1, 15), *range(21, 183, 7))


class IllegalDurationError(ValueError):
    """A length that EC2 does not sell."""


def extension_hours(days: int, field: str = "extend_by_days") -> int:
    """Hours of an extension by `days` whole days.

    Raises:
        IllegalDurationError: EC2 sells no extension of that length; the message names `field` and the nearest legal lengths.
    """
    if days in LEGAL_DAYS:
        return days * 24
    shorter = max((d for d in LEGAL_DAYS if d < days), default=None)
    longer = min((d for d in LEGAL_DAYS if d > days), default=None)
    remedy = " or ".join(str(d) for d in (shorter, longer) if d is not None)
    raise IllegalDurationError(f"{field} is {days}; EC2 sells 1 to 14 days, then whole weeks up to 26 (use {remedy})")
