"""The ledger of purchases: what may be done next about the one extension of a block and an end.

The purchase call has no idempotency token, so each order is written down before it is sent, and an order whose outcome is not
known is looked up, never sent again (docs/adr/001-buying-once.md).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from enum import StrEnum

from blockkeeper.domain.extension import FAILED, LAST_WORDS, SUCCEEDED, Extension, extension_from
from blockkeeper.domain.instants import format_instant
from blockkeeper.domain.reservation import Reservation


class PurchaseState(StrEnum):
    """State of a ledger entry."""

    INTENT = "INTENT"
    SENT = "SENT"
    BOUGHT = "BOUGHT"
    REFUSED = "REFUSED"
    UNKNOWN = "UNKNOWN"


# What people read of another order beside which nothing is bought.
IN_THE_WAY = (
    "stands in the way: it was bought for the same end, or its outcome is not known; nothing more is bought beside it"
)
SENT_STATES = frozenset({PurchaseState.SENT, PurchaseState.BOUGHT, PurchaseState.UNKNOWN})


@dataclass(frozen=True, slots=True)
class Purchase:
    """A ledger entry: one order, written before it is sent.

    `payment` is EC2's last word on its payment, and None while there is none; `sent_at` is None before it is sent. `intended_at`
    and `offering_id` tell one attempt from another that took its place after a refusal.
    """

    state: PurchaseState
    offering_id: str
    fee: Decimal
    new_end: datetime
    payment: str | None = None
    sent_at: datetime | None = None
    intended_at: datetime | None = None


# No Lambda function runs for longer (AWS Lambda, "Lambda quotas"): whoever wrote an entry so long ago is gone, and no call of
# theirs is on its way any more.
LIVES = timedelta(minutes=15)
# By then the workflow has looked six times what became of its order, and looks no more; see extend-block's "Wait before reading
# again". What a person says counts from then on: an order that is still looked for could be sent anew by the one who looks.
LOOKED_FOR = timedelta(minutes=70)


class Claim(StrEnum):
    """What a person says became of an order."""

    BOUGHT = "bought"
    NOT_BOUGHT = "not bought"


class Step(StrEnum):
    """What may be done next."""

    ORDER = "order"
    ADOPT = "adopt"
    SUPERSEDED = "superseded"
    UNKNOWN = "unknown"
    PAYMENT_FAILED = "payment_failed"


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """The next step, the extension it is about, and the reason in words."""

    step: Step
    reason: str
    extension: Extension | None = None


def reconcile(
    purchase: Purchase | None, extensions: Iterable[Extension], reservation: Reservation, end: datetime
) -> Reconciliation:
    """Compare the ledger with EC2 before anything is ordered; EC2 is the truth.

    Args:
        purchase: our entry for this block and `end`, if any.
        extensions: the block's history, read just now.
        reservation: the block, read just now.
        end: the end that the extension starts from.
    """
    sent = purchase if purchase is not None and purchase.state in SENT_STATES else None
    found = extension_from(extensions, end)
    found_ours = found is not None and sent is not None and _is_ours(found, sent)
    moved = reservation.end != end
    if found is not None and found.status != FAILED:
        if found_ours:
            return Reconciliation(Step.ADOPT, f"EC2 shows our order as {found.status}", found)
        return Reconciliation(
            Step.SUPERSEDED, f"somebody else ordered an extension; EC2 shows it as {found.status}", found
        )
    if moved:
        # EC2 need not show the history at the same moment as the end; our own order explains the move.
        if sent is not None and reservation.end == sent.new_end:
            return Reconciliation(Step.ADOPT, f"EC2 moved the end to {format_instant(reservation.end)}")
        return Reconciliation(Step.SUPERSEDED, f"the block now ends at {format_instant(reservation.end)}")
    if found_ours:
        return Reconciliation(Step.PAYMENT_FAILED, "EC2 could not take the payment for our order", found)
    if sent is not None and sent.state is PurchaseState.BOUGHT:
        return Reconciliation(Step.ADOPT, "EC2 took our order; its history does not show it yet")
    if sent is not None:
        return Reconciliation(Step.UNKNOWN, "the order was sent and EC2 shows neither an extension nor a refusal")
    return Reconciliation(Step.ORDER, "nothing was ordered for this end")


@dataclass(frozen=True, slots=True)
class Settlement:
    """What became of an order: the state that its entry is to have, the reason, and EC2's last word on its payment, if any."""

    state: PurchaseState
    reason: str
    payment: Extension | None = None


def left_behind(purchase: Purchase, now: datetime) -> Settlement | None:
    """What becomes of an entry whose writer is gone, if EC2 tells nothing: what was not sent is REFUSED, what was sent UNKNOWN."""
    if not _nobody_calls(purchase, now):
        return None
    if purchase.state is PurchaseState.INTENT:
        return Settlement(PurchaseState.REFUSED, "the run that meant to send the order stopped before it did")
    if purchase.state is PurchaseState.SENT:
        return Settlement(PurchaseState.UNKNOWN, "the run that sent the order stopped before it wrote down an answer")
    return None


def settlement(
    purchase: Purchase, extensions: Iterable[Extension], reservation: Reservation, end: datetime, now: datetime
) -> Settlement | None:
    """What EC2 shows of an order that was sent and is not settled; None when it does not tell, or tells nothing new.

    REFUSED only when somebody else's extension from the same end is paid: a block takes one at a time (EC2 User Guide, "Extend
    Capacity Blocks"), so ours was not taken. While our call may still be on its way that proves nothing.
    """
    if purchase.state not in SENT_STATES or purchase.payment is not None:
        return None
    shown = tuple(extensions)
    ours = extension_from((each for each in shown if _is_ours(each, purchase)), end)
    payment = ours if ours is not None and ours.status in LAST_WORDS else None
    if purchase.state is PurchaseState.BOUGHT and payment is None:
        return None
    if ours is not None:
        # Even when its payment failed and somebody else's extension from the same end was taken after it.
        return Settlement(PurchaseState.BOUGHT, f"EC2 shows our order as {ours.status}", payment)
    found = reconcile(purchase, shown, reservation, end)
    if found.step is Step.ADOPT:
        # Only the end tells. Somebody else may have moved it since our call, and EC2's history be behind: that is waited for.
        tells = now >= end or not _nobody_calls(purchase, now)
        return Settlement(PurchaseState.BOUGHT, found.reason) if tells else None
    theirs = found.extension
    if theirs is not None and theirs.status == SUCCEEDED and _nobody_calls(purchase, now):
        text = "EC2 shows somebody else's extension from the same end as paid, so ours was not taken"
        return Settlement(PurchaseState.REFUSED, text)
    return None


def _is_ours(extension: Extension, sent: Purchase) -> bool:
    """Whether an extension can be what we ordered: somebody may buy the same offering later, when no call of ours can run."""
    if extension.offering_id != sent.offering_id:
        return False
    return extension.purchased is None or sent.sent_at is None or extension.purchased <= sent.sent_at + LIVES


def _nobody_calls(purchase: Purchase, now: datetime) -> bool:
    """Whether the entry's last writer cannot be running any more. An entry without a time was not written by any run."""
    written = purchase.sent_at or purchase.intended_at
    return written is None or written + LIVES <= now


def contradiction(
    claim: Claim, purchase: Purchase, evidence: Settlement | None, *, ec2_knows: bool, now: datetime
) -> str | None:
    """Why a person's word about an order must not be written down, with the remedy; None when EC2 does not speak against it.

    Args:
        evidence: what EC2 shows of the order, as `settlement` has it.
        ec2_knows: EC2 still shows the block; it forgets one some time after its end.
    """
    if purchase.state not in {PurchaseState.SENT, PurchaseState.UNKNOWN}:
        return f"the order is {purchase.state}, so there is nothing to resolve"
    if evidence is not None:
        shown = Claim.BOUGHT if evidence.state is PurchaseState.BOUGHT else Claim.NOT_BOUGHT
        return None if shown is claim else f"{evidence.reason}; say --{shown.replace(' ', '-')}"
    if claim is Claim.BOUGHT:
        text = "EC2 shows no such order; if it was bought EC2 will show it, so wait, or ask AWS Support why it does not"
        return text if ec2_knows else None
    if purchase.sent_at is not None and now < purchase.sent_at + LOOKED_FOR:
        at = format_instant(purchase.sent_at + LOOKED_FOR)
        return f"the workflow still looks what became of the order; say it after {at}"
    return None
