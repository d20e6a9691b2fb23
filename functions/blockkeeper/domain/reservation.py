"""A Capacity Reservation as EC2 describes it, reduced to what decisions need."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

CAPACITY_BLOCK = "capacity-block"
# Before a block starts EC2 reports its counts as 0; the size stands in this tag (EC2 User Guide, "View Capacity Blocks").
SIZE_TAG = "aws:ec2capacityreservation:incrementalRequestedQuantity"
ENVIRONMENT_TAG = "blockkeeper:environment"
# On a block that we bought: the ledger entry of its order, so that a lost answer does not lose the block.
PURCHASE_TAG = "blockkeeper:purchase"
# Tags by which Karpenter's users let it find what is theirs, such as karpenter.sh/discovery.
KARPENTER_TAGS = ("karpenter.sh/", "karpenter.k8s.aws/")
# DescribeCapacityReservations does not say "UltraServer"; these types are sold in no other way ("How Capacity Blocks
# work").
ULTRASERVER_PREFIXES = ("u-", "p6e-gb", "trn2u.")

EXTENDABLE_STATES = frozenset({"active", "scheduled"})
ENDED_STATES = frozenset({"expired", "cancelled", "failed", "payment-failed"})
WAITING_STATES = frozenset({"payment-pending", "pending", "assessing", "delayed"})


class UnreadableReservationError(ValueError):
    """An entry of DescribeCapacityReservations that lacks what a Capacity Block must have."""


@dataclass(frozen=True, slots=True)
class Reservation:
    """One Capacity Block's reservation.

    Attributes:
        instance_count: instances bought; None when EC2 shows neither a count nor the size tag.
        purchase: value of the tag that our own purchase of the block set.
        karpenter: a tag says that Karpenter launches into it; then it needs no scaling.
        state: EC2's own word; unknown words are kept, never guessed (the enumeration is open).
        start, end: aware UTC.
        platform: InstancePlatform, such as `Linux/UNIX`; an AMI that launches into the block has the same.
    """

    reservation_id: str
    owner_id: str
    region: str
    instance_type: str
    availability_zone: str | None
    availability_zone_id: str | None
    instance_count: int | None
    state: str
    start: datetime | None
    end: datetime
    ultraserver: bool
    environment: str | None
    platform: str | None = None
    purchase: str | None = None
    karpenter: bool = False

    @property
    def extendable(self) -> bool:
        """EC2 extends only blocks that are active or scheduled ("Extend Capacity Blocks")."""
        return self.state in EXTENDABLE_STATES

    @property
    def ended(self) -> bool:
        """Nothing more can happen to the block."""
        return self.state in ENDED_STATES

    @property
    def late_drain(self) -> str | None:
        """What is wrong when Karpenter looks after an UltraServer block; its nodes follow every other block by themselves.

        Karpenter drains 40 minutes before any block's end (its expiration controller), and EC2 terminates UltraServers 60 minutes
        before it ("How Capacity Blocks work").
        """
        if not (self.karpenter and self.ultraserver):
            return None
        return (
            f"{self.reservation_id} is tagged for Karpenter, which drains 40 minutes before the end; EC2 terminates UltraServers 60"
            " minutes before it (drain the nodes yourself before that)"
        )

    @property
    def known_state(self) -> bool:
        """Whether the state is one whose meaning is documented for Capacity Blocks."""
        return self.state in EXTENDABLE_STATES | ENDED_STATES | WAITING_STATES


def is_capacity_block(entry: Mapping[str, Any]) -> bool:
    """Whether an entry says of itself that it is a Capacity Block; side fields such as EndDate are no evidence (case B14)."""
    return entry.get("ReservationType") == CAPACITY_BLOCK


def parse_reservation(entry: Mapping[str, Any], region: str) -> Reservation:
    """Read one Capacity Block of DescribeCapacityReservations.

    Raises:
        UnreadableReservationError: a required field is missing; the message names it. The caller counts it and goes on.
    """
    tags = {tag["Key"]: tag.get("Value", "") for tag in entry.get("Tags") or [] if "Key" in tag}
    reservation_id = entry.get("CapacityReservationId")
    for field in ("CapacityReservationId", "OwnerId", "InstanceType", "State", "EndDate"):
        if not entry.get(field):
            raise UnreadableReservationError(f"reservation {reservation_id or '(no id)'} has no {field}")
    count = entry.get("TotalInstanceCount") or None
    if count is None and tags.get(SIZE_TAG, "").isdecimal():
        count = int(tags[SIZE_TAG]) or None
    return Reservation(
        reservation_id=str(reservation_id),
        owner_id=entry["OwnerId"],
        region=region,
        instance_type=entry["InstanceType"],
        availability_zone=entry.get("AvailabilityZone"),
        availability_zone_id=entry.get("AvailabilityZoneId"),
        instance_count=count,
        state=entry["State"],
        start=_utc(entry.get("StartDate")),
        end=entry["EndDate"].astimezone(UTC),
        ultraserver=entry["InstanceType"].startswith(ULTRASERVER_PREFIXES),
        environment=tags.get(ENVIRONMENT_TAG) or None,
        karpenter=any(key.startswith(KARPENTER_TAGS) for key in tags),
        platform=entry.get("InstancePlatform"),
        purchase=tags.get(PURCHASE_TAG) or None,
    )


def _utc(instant: datetime | None) -> datetime | None:
    return None if instant is None else instant.astimezone(UTC)
