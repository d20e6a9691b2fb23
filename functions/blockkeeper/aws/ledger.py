"""The ledger of purchases in DynamoDB, with the month's budget beside it, each change conditional on the state before it."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

from blockkeeper.aws import table
from blockkeeper.domain.instants import format_instant, parse_instant
from blockkeeper.domain.ledger import Purchase, PurchaseState
from blockkeeper.domain.money import format_usd, parse_usd
from blockkeeper.domain.offering import Offering

KIND, BUDGET, APPROVAL = "purchase", "budget", "approval"


class OverBudgetError(Exception):
    """The month's limit does not allow the fee; nothing was reserved."""


class ApprovalUsedError(Exception):
    """The approval is not APPROVED any more, or was used for another purchase."""


class TakenElsewhereError(Exception):
    """Another run moved the ledger entry first; read it again, order nothing."""


@dataclass(frozen=True, slots=True)
class Intent:
    """What is to be ordered, with everything that history will show."""

    environment: str
    reservation_id: str
    account: str
    region: str
    end: datetime
    offering: Offering
    approval_id: str | None
    team: str | None


def read(ledger_id: str) -> Purchase | None:
    """The entry, read strongly; None when nothing was ever intended for this block and end."""
    item = table.get_item(KIND, ledger_id)
    if item is None:
        return None
    return Purchase(
        PurchaseState(item["state"]),
        item["offering_id"],
        parse_usd(item["upfront_fee"]),
        parse_instant(item["new_end"]),
    )


def purchases(reservation_id: str | None = None) -> Iterator[dict[str, Any]]:
    """Every entry, or those of one block, in order of block and end."""
    return table.query_kind(KIND, f"{reservation_id}#" if reservation_id else "")


def reserved(now: datetime) -> Decimal:
    """What the calendar month of `now` (UTC) has reserved of its limit, USD, over all environments."""
    item = table.get_item(BUDGET, f"{now:%Y-%m}") or {}
    return Decimal(item.get("reserved", 0)) / 1_000_000


def intend(ledger_id: str, intent: Intent, before: Purchase | None, monthly_limit: Decimal, now: datetime) -> None:
    """Write INTENT, reserve the fee in the month's budget and bind the approval: all of it, or none.

    Args:
        before: the entry as it was read: None, REFUSED (its budget was released), or an INTENT that a crash left behind.
        monthly_limit: USD per calendar month (UTC), over all environments.

    Raises:
        OverBudgetError, ApprovalUsedError, TakenElsewhereError: nothing was written.
    """
    offering = intent.offering
    if before is not None and before.state is PurchaseState.INTENT:
        release(ledger_id, PurchaseState.INTENT, "an earlier run stopped before it sent the order", now)
    room = monthly_limit - offering.fee
    over = OverBudgetError(
        f"{format_usd(offering.fee)} does not fit into MonthlyLimit {format_usd(monthly_limit)} "
        f"beside what {now:%Y-%m} has reserved; raise MonthlyLimit, or wait for the next month"
    )
    if room < 0:
        raise over
    requests = [
        table.put_request(
            KIND,
            ledger_id,
            {
                "state": PurchaseState.INTENT,
                "environment": intent.environment,
                "reservation_id": intent.reservation_id,
                "account": intent.account,
                "region": intent.region,
                "current_end": format_instant(intent.end),
                "new_end": format_instant(offering.new_end),
                "duration_hours": offering.hours,
                "offering_id": offering.offering_id,
                "upfront_fee": str(offering.fee),
                "approval_id": intent.approval_id,
                "team": intent.team,
                "budget_month": f"{now:%Y-%m}",
                "intended_at": format_instant(now),
            },
            "attribute_not_exists(kind) OR #state = :refused",
            {":refused": PurchaseState.REFUSED},
        ),
        table.update_request(
            BUDGET,
            f"{now:%Y-%m}",
            add={"reserved": _micro(offering.fee)},
            condition="attribute_not_exists(#reserved) OR #reserved <= :room",
            values={":room": _micro(room)},
        ),
    ]
    if intent.approval_id is not None:
        requests.append(
            table.update_request(
                APPROVAL,
                intent.approval_id,
                set_={"used_for": ledger_id},
                condition="#status = :approved AND (attribute_not_exists(#used_for) OR #used_for = :ledger)",
                values={":approved": "APPROVED", ":ledger": ledger_id},
            )
        )
    try:
        table.transact(requests)
    except table.ConditionFailedError as error:
        first = error.args[0]
        if first == 0:
            raise TakenElsewhereError(f"{ledger_id} was intended by another run") from error
        raise (over if first == 1 else ApprovalUsedError(f"{intent.approval_id} is not an unused approval")) from error


def mark_sent(ledger_id: str, offering_id: str, now: datetime) -> None:
    """INTENT -> SENT, immediately before the call; whoever does not get past this must not call.

    Args:
        offering_id: what is about to be ordered; another run may have put its own INTENT in the place of ours.

    Raises:
        TakenElsewhereError: the entry is not INTENT any more, or is about another offering.
    """
    sent = table.update_request(
        KIND,
        ledger_id,
        set_={"state": PurchaseState.SENT, "updated_at": format_instant(now), "sent_at": format_instant(now)},
        condition="#state = :intent AND #offering_id = :offering",
        values={":intent": PurchaseState.INTENT, ":offering": offering_id},
    )
    try:
        table.write(sent)
    except table.ConditionFailedError as error:
        raise TakenElsewhereError(f"{ledger_id} is not the INTENT to order {offering_id} any more") from error


def mark_bought(ledger_id: str, now: datetime, reason: str) -> None:
    """SENT or UNKNOWN -> BOUGHT; it may be BOUGHT already."""
    _move(
        ledger_id,
        (PurchaseState.SENT, PurchaseState.UNKNOWN, PurchaseState.BOUGHT),
        PurchaseState.BOUGHT,
        now,
        reason=reason,
        bought_at=format_instant(now),
    )


def mark_unknown(ledger_id: str, now: datetime, reason: str) -> None:
    """SENT -> UNKNOWN: never sent again; it may be UNKNOWN already."""
    _move(ledger_id, (PurchaseState.SENT, PurchaseState.UNKNOWN), PurchaseState.UNKNOWN, now, reason=reason)


def release(ledger_id: str, was: PurchaseState, reason: str, now: datetime) -> None:
    """INTENT or SENT -> REFUSED, and give the fee back to the month that had reserved it: both, or neither."""
    item = table.get_item(KIND, ledger_id)
    if item is None:
        raise TakenElsewhereError(f"{ledger_id} is not there any more")
    try:
        table.transact(
            [
                _moved(ledger_id, (was,), PurchaseState.REFUSED, now, reason=reason),
                table.update_request(
                    BUDGET, item["budget_month"], add={"reserved": -_micro(parse_usd(item["upfront_fee"]))}
                ),
            ]
        )
    except table.ConditionFailedError as error:
        raise TakenElsewhereError(f"{ledger_id} is not {was} any more") from error


def _move(ledger_id: str, allowed: tuple[PurchaseState, ...], to: PurchaseState, now: datetime, **more: str) -> None:
    try:
        table.write(_moved(ledger_id, allowed, to, now, **more))
    except table.ConditionFailedError as error:
        raise TakenElsewhereError(f"{ledger_id} is none of {', '.join(allowed)} any more") from error


def _moved(
    ledger_id: str, allowed: tuple[PurchaseState, ...], to: PurchaseState, now: datetime, **more: str
) -> table.Item:
    values = {f":was{i}": state for i, state in enumerate(allowed)}
    return table.update_request(
        KIND,
        ledger_id,
        set_={"state": to, "updated_at": format_instant(now), **more},
        condition=f"#state IN ({', '.join(values)})",
        values=values,
    )


def _micro(amount: Decimal) -> int:
    """Millionths of a dollar: whole numbers that DynamoDB adds exactly."""
    return int(amount * 1_000_000)
