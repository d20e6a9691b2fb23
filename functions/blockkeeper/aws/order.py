"""One order, from the intent to its outcome: written down, sent once, written down again (docs/adr/001-buying-once.md)."""

from datetime import datetime
from typing import Protocol

from blockkeeper import settings
from blockkeeper.aws import ledger
from blockkeeper.aws.purchase import Answer, Order
from blockkeeper.domain.ledger import Purchase
from blockkeeper.domain.outcome import Outcome


class Call(Protocol):
    """A purchase call with everything but the word whether money may move."""

    def __call__(self, *, live: bool) -> Order:
        """Make the call, once."""


def order_once(
    key: str, intent: ledger.Intent, before: Purchase | None, call: Call, now: datetime
) -> tuple[Outcome, str]:
    """INTENT -> SENT -> one call -> BOUGHT, REFUSED or UNKNOWN, and the outcome with its reason; in dry-run only the call's DryRun.

    Args:
        key: the ledger entry's id.
        before: the entry as it was read.
        call: one of `purchase_extension` and `purchase_block`, with its arguments.
    """
    if not settings.live():
        order = call(live=False)
        return (Outcome.DRY_RUN if order.answer is Answer.DRY_RUN else Outcome.REFUSED), order.reason
    try:
        intended = ledger.intend(key, intent, before, settings.limits(), now)
    except ledger.OverBudgetError as error:
        return Outcome.OVER_BUDGET, str(error)
    except ledger.ApprovalUsedError as error:
        return Outcome.NOT_ALLOWED, str(error)
    except ledger.TakenElsewhereError as error:
        return Outcome.UNKNOWN, str(error)
    try:
        sent = ledger.mark_sent(key, intended, now)
    except ledger.TakenElsewhereError as error:
        return Outcome.UNKNOWN, str(error)
    except ledger.UnresolvedError as error:
        ledger.release(key, intended, f"not sent: {error}", now)
        return Outcome.NOT_ALLOWED, f"another order for this block came first: {error}"
    order = call(live=True)
    if order.answer is Answer.REFUSED:
        ledger.release(key, sent, order.reason, now)
        return Outcome.REFUSED, order.reason
    if order.answer is Answer.TAKEN:
        ledger.mark_bought(key, sent.offering_id, now, order.reason)
        return Outcome.PURCHASED, order.reason
    ledger.mark_unknown(key, now, order.reason)
    return Outcome.UNKNOWN, order.reason
