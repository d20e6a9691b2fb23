"""AWS Batch compute environments on EC2: their maximum of vCPUs follows the block.

Batch chooses the desired vCPUs by itself between minimum and maximum, and takes no smaller one ("Error message when you update the
desiredvCpus setting"); so only minimum and maximum are set, which is a scaling update and replaces nothing ("Perform scaling
updates"). Source: AWS Batch User Guide and API reference.
"""

from typing import Any

from blockkeeper.aws.clients import client
from blockkeeper.aws.group_errors import GroupChangingError, GroupMissingError, GroupRefusedError, refusals
from blockkeeper.aws.look import Look
from blockkeeper.domain.calendar import GroupFacts, Sizes
from blockkeeper.domain.environment import Group, Kind

_CHANGING = frozenset({"CREATING", "UPDATING"})
_ON_EC2 = frozenset({"EC2", "SPOT"})


class ComputeEnvironments:
    """Compute environments of one account and Region. Every call raises GroupBusyError or GroupRefusedError."""

    def __init__(self, region: str, account: str) -> None:
        self._client = client("batch", region, account)

    def look(self, group: Group) -> Look:
        """The compute environment; its sizes, and what runs, are in vCPUs (DescribeComputeEnvironments)."""
        entry = self._read(group.label)
        status, resources = entry.get("status"), entry.get("computeResources") or {}
        if status not in {"VALID", *_CHANGING}:
            raise GroupRefusedError(
                f"Batch shows it as {status}: {entry.get('statusReason')} (mend it in the Batch console)"
            )
        if entry.get("type") != "MANAGED" or resources.get("type") not in _ON_EC2:
            raise GroupRefusedError(
                f"it is {entry.get('type')} on {resources.get('type')}; only managed compute environments on EC2 launch into blocks"
                " (correct batch_compute_environment)"
            )
        desired = resources.get("desiredvCpus") or 0
        return Look(
            facts=GroupFacts(
                name=group.label,
                sizes=Sizes(resources.get("minvCpus") or 0, resources["maxvCpus"], desired),
                instances=desired,
                kind=Kind.COMPUTE_ENVIRONMENT,
            ),
            changing=f"Batch shows it as {status}" if status in _CHANGING else None,
        )

    def set_sizes(self, group: Group, sizes: Sizes) -> None:
        """Set minimum and maximum of vCPUs (UpdateComputeEnvironment). What runs goes on.

        Raises:
            GroupChangingError: the compute environment is being changed.
        """
        try:
            with refusals():
                self._client.update_compute_environment(
                    computeEnvironment=group.label,
                    computeResources={"minvCpus": sizes.minimum, "maxvCpus": sizes.maximum},
                )
        except GroupRefusedError as error:
            # Batch has no code of its own for it: ClientException, "Cannot update, resource is being modified."
            if "being modified" in str(error):
                raise GroupChangingError(str(error)) from error
            raise

    def _read(self, name: str) -> dict[str, Any]:
        with refusals():
            found = self._client.describe_compute_environments(computeEnvironments=[name])["computeEnvironments"]
        if not found:
            raise GroupMissingError(
                "is no compute environment of this account and Region (correct batch_compute_environment)"
            )
        entry: dict[str, Any] = found[0]
        return entry
