"""What a service without scheduled actions shows of a group: the common form of EKS's node groups and Batch's environments."""

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from blockkeeper.domain.calendar import GroupFacts, Sizes
from blockkeeper.domain.environment import Group


@dataclass(frozen=True, slots=True)
class Look:
    """A group as its service shows it.

    Attributes:
        changing: what the service is doing to it just now, in words; until that is over it takes no other change.
        scale_down_at: when a scale-in that the service itself has armed is to run.
    """

    facts: GroupFacts
    changing: str | None = None
    scale_down_at: datetime | None = None


class Service(Protocol):
    """A service whose groups are looked at. Every call raises GroupBusyError or GroupRefusedError."""

    def look(self, group: Group) -> Look:
        """The group as it is now."""

    def set_sizes(self, group: Group, sizes: Sizes) -> None:
        """Let it have these sizes.

        Raises:
            GroupChangingError: it is being changed by somebody else.
        """
