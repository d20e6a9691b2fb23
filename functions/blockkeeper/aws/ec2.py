"""Reads of EC2: reservations, extensions, what is on offer. A read that fails raises; it is never "nothing there"."""

from typing import Any

from blockkeeper.aws.clients import client
from blockkeeper.domain.extension import Extension, parse_extensions
from blockkeeper.domain.new_block import Wanted
from blockkeeper.domain.reservation import Reservation, is_capacity_block, parse_reservation

PAGE_SIZE = 1000


class BlockNotFoundError(Exception):
    """EC2 shows no Capacity Block of that id to this account in this Region."""


def describe_entries(region: str, account: str) -> list[dict[str, Any]]:
    """Every Capacity Reservation that the account sees in the Region, all pages or an error (DescribeCapacityReservations)."""
    paginator = client("ec2", region, account).get_paginator("describe_capacity_reservations")
    pages = paginator.paginate(PaginationConfig={"PageSize": PAGE_SIZE})
    return [entry for page in pages for entry in page["CapacityReservations"]]


def read_block(reservation_id: str, region: str, account: str) -> Reservation:
    """One Capacity Block.

    Raises:
        BlockNotFoundError: there is none of that id, or it is another kind of reservation.
        UnreadableReservationError: EC2's entry lacks a field that a block must have.
    """
    answer = client("ec2", region, account).describe_capacity_reservations(CapacityReservationIds=[reservation_id])
    for entry in answer["CapacityReservations"]:
        if entry.get("CapacityReservationId") == reservation_id and is_capacity_block(entry):
            return parse_reservation(entry, region)
    raise BlockNotFoundError(f"{reservation_id} is no Capacity Block that account {account} sees in {region}")


def extension_offerings(reservation_id: str, hours: int, region: str, account: str) -> list[dict[str, Any]]:
    """Offerings to extend a block by `hours`, every page (DescribeCapacityBlockExtensionOfferings: one length a call)."""
    paginator = client("ec2", region, account).get_paginator("describe_capacity_block_extension_offerings")
    pages = paginator.paginate(
        CapacityReservationId=reservation_id,
        CapacityBlockExtensionDurationHours=hours,
        PaginationConfig={"PageSize": PAGE_SIZE},
    )
    return [entry for page in pages for entry in page["CapacityBlockExtensionOfferings"]]


def extension_history(reservation_id: str, region: str, account: str) -> tuple[Extension, ...]:
    """Extensions ordered for a block, by anybody, every page (DescribeCapacityBlockExtensionHistory)."""
    paginator = client("ec2", region, account).get_paginator("describe_capacity_block_extension_history")
    pages = paginator.paginate(CapacityReservationIds=[reservation_id], PaginationConfig={"PageSize": PAGE_SIZE})
    return parse_extensions((entry for page in pages for entry in page["CapacityBlockExtensions"]), reservation_id)


def vcpus(instance_type: str, region: str, account: str) -> int:
    """Count the vCPUs of one instance of a type (DescribeInstanceTypes)."""
    answer = client("ec2", region, account).describe_instance_types(InstanceTypes=[instance_type])
    count: int = answer["InstanceTypes"][0]["VCpuInfo"]["DefaultVCpus"]
    return count


def block_offerings(wanted: Wanted, region: str, account: str) -> list[dict[str, Any]]:
    """Offerings of new blocks, every page (DescribeCapacityBlockOfferings: one length a call).

    Zones that the account has not opted into are left out.
    """
    paginator = client("ec2", region, account).get_paginator("describe_capacity_block_offerings")
    pages = paginator.paginate(
        InstanceType=wanted.instance_type,
        InstanceCount=wanted.instance_count,
        CapacityDurationHours=wanted.hours,
        StartDateRange=wanted.search_from,
        PaginationConfig={"PageSize": PAGE_SIZE},
    )
    return [entry for page in pages for entry in page["CapacityBlockOfferings"]]
