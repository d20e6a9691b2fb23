"""Where the order of a new block stands by ledger and EC2: read alike by who searches one, buys it, or rehearses both."""

from dataclasses import dataclass
from datetime import datetime

from blockkeeper.aws import ec2, ledger
from blockkeeper.domain.ledger import Purchase
from blockkeeper.domain.names import block_ledger_id
from blockkeeper.domain.new_block import BlockReconciliation, bought_block, old_block, reconcile_block
from blockkeeper.domain.reservation import Reservation


@dataclass(frozen=True, slots=True)
class BlockOrder:
    """The one order of a new block for a block and its end.

    Attributes:
        key: its ledger id.
        old: the block that is to be replaced; None when EC2 does not show it, which is so some time after its end.
        purchase: its ledger entry, if there is one.
        bought: the block that it made, if EC2 shows it.
        found: what is to be done with it.
    """

    key: str
    old: Reservation | None
    purchase: Purchase | None
    bought: Reservation | None
    found: BlockReconciliation


def read_block_order(reservation_id: str, end: datetime, region: str, account: str) -> BlockOrder:
    """Read where it stands.

    Raises:
        ClientError, UnreadableReservationError: something could not be read; that is never "nothing ordered" (design rule 4).
    """
    key = block_ledger_id(reservation_id, end)
    purchase = ledger.read(key)
    entries = ec2.describe_entries(region, account)
    old, bought = old_block(entries, reservation_id, region), bought_block(entries, key, region)
    # EC2 tells no history of a block that it has forgotten; such a one is beyond extending.
    extensions = () if old is None else ec2.extension_history(reservation_id, region, account)
    return BlockOrder(key, old, purchase, bought, reconcile_block(purchase, bought, extensions, end))
