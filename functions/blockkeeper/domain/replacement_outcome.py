"""What can become of a replacement: for each outcome the event that tells people."""

from enum import StrEnum

OFFERED, PURCHASED = "Replacement Offered", "Replacement Purchased"
CONFIRMED, FAILED = "Replacement Confirmed", "Replacement Failed"


class ReplacementOutcome(StrEnum):
    """Steps and ends of replace-block, as its states name them; words that extend-block has too mean the same."""

    OFFERED = "offered"
    PURCHASED = "purchased"
    CONFIRMED = "confirmed"
    REPLACED = "replaced"
    DRY_RUN = "dry_run"
    NO_OFFERING = "no_offering"
    TOO_DEAR = "too_dear"
    UNREADABLE = "unreadable_offering"
    REJECTED = "rejected"
    APPROVAL_EXPIRED = "expired"
    SUPERSEDED = "superseded"
    TOO_LATE = "too_late"
    NOT_EXTENDABLE = "not_extendable"
    NOT_ALLOWED = "not_allowed"
    OVER_BUDGET = "over_budget"
    REFUSED = "refused"
    NO_QUOTA = "no_quota"
    PAYMENT_FAILED = "payment_failed"
    UNKNOWN = "unknown"
    FAILED = "failed"
    NOT_ENROLLED = "not_enrolled"
    NOT_POINTED = "groups_not_pointed"


_EVENTS = {
    ReplacementOutcome.OFFERED: OFFERED,
    ReplacementOutcome.DRY_RUN: OFFERED,
    ReplacementOutcome.PURCHASED: PURCHASED,
    ReplacementOutcome.CONFIRMED: CONFIRMED,
    ReplacementOutcome.REPLACED: CONFIRMED,
}


def detail_type_of(outcome: ReplacementOutcome) -> str | None:
    """The event that an outcome publishes; None when the end has moved: whatever moved it tells of that."""
    return None if outcome is ReplacementOutcome.SUPERSEDED else _EVENTS.get(outcome, FAILED)
