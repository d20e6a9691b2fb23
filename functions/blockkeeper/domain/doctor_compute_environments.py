"""Checks of AWS Batch compute environments: what their instances launch by, and where.

Batch launches into a block by a launch template that names it, from a managed compute environment on EC2 in the block's zone. It
takes a template's `$Default` and `$Latest` as they are when the environment is made, so a version that floats changes nothing while
a block lasts. Source: AWS Batch User Guide, "Launch template support" and "Compute environments".
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from blockkeeper.domain.calendar import GroupBlock
from blockkeeper.domain.doctor import Check, Finding, finding
from blockkeeper.domain.doctor_groups import (
    GroupSetup,
    image_platform,
    launch_source,
    market_type,
    reservation_target,
    subnet_zone,
    update_command,
)
from blockkeeper.domain.quotas import family

ON_EC2 = ("MANAGED", "EC2")


@dataclass(frozen=True, slots=True)
class ComputeEnvironment:
    """A compute environment.

    Attributes:
        kind: `MANAGED` or `UNMANAGED`, and the type of its compute resources, such as `EC2`, `SPOT`, `FARGATE`.
        status, reason: Batch's word on its health: `VALID`, or `INVALID` and why.
        enabled: it takes jobs from queues.
        setup: launch template, instance types (or families) and subnets.
    """

    kind: tuple[str, str]
    status: str
    reason: str
    enabled: bool
    setup: GroupSetup


def look_at_compute_environment(
    environment: ComputeEnvironment, blocks: Sequence[GroupBlock], subject: str
) -> Iterator[Finding]:
    """All checks of one compute environment."""
    setup = environment.setup
    if environment.kind != ON_EC2:
        problem = f"it is {' on '.join(environment.kind)}; only managed compute environments on EC2 launch into a block"
        yield finding(
            Check.COMPUTE_ENVIRONMENT,
            subject,
            problem,
            "make one of type EC2, and name it in batch_compute_environment",
        )
        return
    if environment.status == "INVALID":
        remedy = f"mend what the reason says, then {update_command(setup)} --state ENABLED`"
        yield finding(Check.COMPUTE_ENVIRONMENT, subject, f"Batch shows it as INVALID: {environment.reason}", remedy)
    if not environment.enabled:
        yield finding(Check.COMPUTE_ENVIRONMENT, subject, "it is disabled", f"{update_command(setup)} --state ENABLED`")
    yield from launch_source(setup, subject)
    if setup.template is not None:
        yield from image_platform(setup.template, blocks, subject)
        yield from market_type(setup, setup.template, subject)
        yield from reservation_target(setup, setup.template, blocks, subject)
    yield from _types(setup, blocks, subject)
    yield from subnet_zone(setup, blocks, subject)


def compute_environment_missing(name: str, region: str, subject: str) -> Finding:
    """No account that sees the block has it."""
    remedy = (
        f"create it, or correct the record: `aws batch describe-compute-environments --region {region}` lists what is"
    )
    return finding(Check.GROUP_MISSING, subject, f"there is no compute environment {name} in {region}", remedy)


def _types(setup: GroupSetup, blocks: Sequence[GroupBlock], subject: str) -> Iterator[Finding]:
    """The block's own instance type, or its family, and nothing that Batch may choose in its place."""
    for reservation in (block.reservation for block in blocks):
        wanted = reservation.instance_type
        if set(setup.types) & {wanted, family(wanted)}:
            continue
        problem = f"it launches {', '.join(setup.types) or 'no type'}; {reservation.reservation_id} is of {wanted}"
        remedy = f"{update_command(setup)} --compute-resources instanceTypes={wanted}`"
        yield finding(Check.INSTANCE_TYPE, subject, problem, remedy)
