"""The numbers of EC2's rules. Sources: EC2 User Guide "Extend Capacity Blocks", "How Capacity Blocks work", "Capacity Blocks
pricing and billing", "Monitor Capacity Blocks"; EC2 Developer Guide "Request throttling"."""

from datetime import timedelta
from decimal import Decimal

LEGAL_HOURS = frozenset([24 * days for days in range(1, 15)] + [168 * weeks for weeks in range(3, 27)])
"""What EC2 sells, new or as an extension: whole days up to 14, then whole weeks up to 26 (38 lengths)."""

BLOCK_INSTANCE_COUNTS = frozenset([1, 2, 4, 8, 16, 32, 64])
BLOCK_PLATFORMS = frozenset(
    [
        "Linux/UNIX",
        "Red Hat Enterprise Linux",
        "RHEL with HA",
        "SUSE Linux",
        "Ubuntu Pro Linux",
    ]
)
BLOCK_OFFERINGS_PER_SEARCH = 6

EXTENSION_CLOSES = timedelta(minutes=60)  # before the end
EXTENSION_OPENS = timedelta(days=56)  # before the end
PAYMENT_TAKES_AT_MOST = timedelta(hours=12)
EXTENSION_PAYMENT_CLOSES = timedelta(minutes=35)  # before the end
BLOCK_PAYMENT_CLOSES = timedelta(minutes=5)  # before the start

EXPIRATION_WARNING = timedelta(minutes=40)  # before the end
TERMINATION = timedelta(minutes=30)  # before the end
ULTRASERVER_TERMINATION = timedelta(minutes=60)  # before the end
INTERRUPTION_WARNING = timedelta(minutes=10)  # before the termination

SLOT_SCRUB = timedelta(minutes=5)
"""A slot is free again "several minutes" after its instance ended."""

THROTTLED_SEARCHES_AND_PURCHASES = frozenset(
    [
        "DescribeCapacityBlockExtensionOfferings",
        "DescribeCapacityBlockOfferings",
        "PurchaseCapacityBlock",
        "PurchaseCapacityBlockExtension",
    ]
)


def bucket_of(operation: str) -> tuple[float, float]:
    """Size and refill per second of EC2's token bucket for one operation in one account and Region."""
    return (10, 0.15) if operation in THROTTLED_SEARCHES_AND_PURCHASES else (100, 20)


def fee_text(amount: Decimal) -> str:
    """A fee as EC2 writes it: `511`, `53.64`, `10283.50`."""
    cents = amount.quantize(Decimal("0.01"))
    return str(int(cents)) if cents == int(cents) else str(cents)
