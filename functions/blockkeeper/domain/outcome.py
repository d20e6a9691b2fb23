"""What can become of an extension: for each outcome the record's status and the event that tells people."""

from dataclasses import dataclass
from enum import StrEnum

from blockkeeper.domain.environment import Status


class Outcome(StrEnum):
    """Steps and ends of extend-block, as its states name them."""

    OFFERED = "offered"
    PURCHASED = "purchased"
    END_NOT_MOVED = "end_not_moved"
    CONFIRMED = "confirmed"
    DRY_RUN = "dry_run"
    NO_OFFERING = "no_offering"
    TOO_DEAR = "too_dear"
    UNREADABLE = "unreadable_offering"
    NO_QUOTA = "no_quota"
    REJECTED = "rejected"
    APPROVAL_EXPIRED = "expired"
    SUPERSEDED = "superseded"
    TOO_LATE = "too_late"
    NOT_EXTENDABLE = "not_extendable"
    NOT_ALLOWED = "not_allowed"
    OVER_BUDGET = "over_budget"
    REFUSED = "refused"
    PAYMENT_FAILED = "payment_failed"
    UNKNOWN = "unknown"
    FAILED = "failed"


# Ends that leave an order behind which EC2 may carry out yet: it does not tell, or takes the payment later than it says.
LEFT_BEHIND = frozenset({Outcome.UNKNOWN, Outcome.PAYMENT_FAILED})


@dataclass(frozen=True, slots=True)
class Consequence:
    """What an outcome does to the record and the bus; `error` says whether the record shows the reason as an error."""

    status: Status
    detail_type: str
    error: bool


CONSEQUENCES: dict[Outcome, Consequence] = {
    Outcome.OFFERED: Consequence(Status.EXTENSION_APPROVAL_REQUIRED, "Extension Offered", error=False),
    Outcome.PURCHASED: Consequence(Status.EXTENSION_PAYMENT_PENDING, "Extension Purchased", error=False),
    # The payment's last moment is over: people should know that the groups drain at the old end, for now.
    Outcome.END_NOT_MOVED: Consequence(Status.EXTENSION_PAYMENT_PENDING, "Block Expiring", error=True),
    Outcome.CONFIRMED: Consequence(Status.EXTENDED, "Extension Confirmed", error=False),
    # Nothing was bought and nothing is wrong: the block goes on towards its end.
    Outcome.DRY_RUN: Consequence(Status.ACTIVE, "Extension Offered", error=False),
    Outcome.NO_OFFERING: Consequence(Status.EXTENSION_UNAVAILABLE, "Extension Failed", error=True),
    Outcome.TOO_DEAR: Consequence(Status.EXTENSION_UNAVAILABLE, "Extension Failed", error=True),
    Outcome.UNREADABLE: Consequence(Status.EXTENSION_UNAVAILABLE, "Extension Failed", error=True),
    Outcome.NO_QUOTA: Consequence(Status.ERROR, "Extension Failed", error=True),
    Outcome.REJECTED: Consequence(Status.EXTENSION_REJECTED, "Extension Failed", error=True),
    Outcome.APPROVAL_EXPIRED: Consequence(Status.EXTENSION_REJECTED, "Extension Failed", error=True),
    # The end has moved, only not through us.
    Outcome.SUPERSEDED: Consequence(Status.NO_ACTION_REQUIRED, "Extension Confirmed", error=False),
    Outcome.TOO_LATE: Consequence(Status.EXPIRING, "Block Expiring", error=True),
    Outcome.NOT_EXTENDABLE: Consequence(Status.ERROR, "Extension Failed", error=True),
    Outcome.NOT_ALLOWED: Consequence(Status.ERROR, "Extension Failed", error=True),
    Outcome.OVER_BUDGET: Consequence(Status.ERROR, "Extension Failed", error=True),
    Outcome.REFUSED: Consequence(Status.ERROR, "Extension Failed", error=True),
    Outcome.PAYMENT_FAILED: Consequence(Status.ERROR, "Extension Failed", error=True),
    Outcome.UNKNOWN: Consequence(Status.ERROR, "Extension Failed", error=True),
    Outcome.FAILED: Consequence(Status.ERROR, "Extension Failed", error=True),
}
