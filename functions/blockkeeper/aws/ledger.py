"""The ledger of purchases in DynamoDB, with the month's budgets beside it, each change conditional on the state before it.

An order that is under way, or whose outcome is not known, is written down for its block too (kind `unresolved`): while it stands
nothing else can be ordered for that block, at whatever end. It is taken with SENT and given back with BOUGHT and REFUSED, in one
transaction each. What was bought last stays beside it: EC2 may show an extension or a new block late, and for one end only one of
the two is bought.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from typing import Any

from blockkeeper import settings
from blockkeeper.aws import table
from blockkeeper.domain.budget import BudgetLeft, Limits, budgets
from blockkeeper.domain.extension import FAILED, Extension
from blockkeeper.domain.instants import format_instant, parse_instant
from blockkeeper.domain.ledger import LOOKED_FOR, Claim, Purchase, PurchaseState, Settlement
from blockkeeper.domain.money import parse_usd
from blockkeeper.domain.names import other_ledger_id, reservation_of
from blockkeeper.domain.offering import Offering

KIND, BUDGET, APPROVAL, UNRESOLVED = "purchase", "budget", "approval", "unresolved"


# Attributes that a new attempt begins without.
_OF_AN_ATTEMPT = ("approval_id", "approved_by", "team", "reason", "updated_at", "sent_at")
# Attributes by which one attempt is told from another, with its fee and where that was reserved.
_TELLS_ATTEMPTS = frozenset({"offering_id", "intended_at", "upfront_fee", "budgets"})
_OURS_OR_FREE = "attribute_not_exists(#ledger_id) OR #ledger_id = :ledger"


class OverBudgetError(Exception):
    """A limit of the month does not allow the fee; nothing was reserved."""


class ApprovalUsedError(Exception):
    """The approval is not APPROVED any more, or was used for another purchase."""


class TakenElsewhereError(Exception):
    """Another run moved the ledger entry first; read it again, order nothing."""


class UnresolvedError(Exception):
    """Another order for the same block stands in the way (see `in_the_way`); nothing more is ordered beside it."""


@dataclass(frozen=True, slots=True)
class Intent:
    """What is to be ordered, with everything that history will show.

    Attributes:
        reservation_id, end: the block that is extended, or in whose place a new one is bought, and its end.
        new_start: when the new block starts; None for an extension, which starts at `end`.
        availability_zone: the new block's zone; None for an extension.
    """

    environment: str
    reservation_id: str
    account: str
    region: str
    end: datetime
    offering: Offering
    approval_id: str | None
    team: str | None
    approved_by: tuple[str, ...] = ()
    new_start: datetime | None = None
    availability_zone: str | None = None


def read(ledger_id: str) -> Purchase | None:
    """The entry, read strongly; None when nothing was ever intended for this block and end."""
    item = table.get_item(KIND, ledger_id)
    return None if item is None else purchase_of(item)


def purchase_of(item: table.Item) -> Purchase:
    """An entry as the domain knows it.

    Raises:
        KeyError, ValueError, UnreadableFeeError: somebody wrote it by hand, and something is missing or cannot be read.
    """
    return Purchase(
        PurchaseState(item["state"]),
        item["offering_id"],
        parse_usd(item["upfront_fee"]),
        parse_instant(item["new_end"]),
        payment=item.get("ec2_status"),
        sent_at=None if item.get("sent_at") is None else parse_instant(item["sent_at"]),
        intended_at=None if item.get("intended_at") is None else parse_instant(item["intended_at"]),
    )


def new_block_times(ledger_id: str) -> tuple[datetime, datetime]:
    """When the new block that an entry is about starts, and when its order was sent.

    Raises:
        LookupError: there is no such entry, or it was not sent, or it is about an extension.
    """
    item = table.get_item(KIND, ledger_id)
    if item is None or not {"new_start", "sent_at"} <= item.keys():
        raise LookupError(f"{ledger_id} is no order of a new block that was sent")
    return parse_instant(item["new_start"]), parse_instant(item["sent_at"])


def purchases(reservation_id: str | None = None) -> Iterator[dict[str, Any]]:
    """Every entry, or those of one block, in order of block and end."""
    return table.query_kind(KIND, f"{reservation_id}#" if reservation_id else "")


def unsettled(account: str, region: str, sent_before: datetime) -> Iterator[dict[str, Any]]:
    """Entries of an account and Region that lack the last word: under way, UNKNOWN, or bought and not yet paid.

    Args:
        sent_before: orders sent later are left out; their own run looks itself, and EC2 allows only so many reads.
    """
    return table.query_kind(
        KIND,
        where="#account = :account AND #region = :region AND (#state IN (:intent, :sent, :unknown) OR "
        "(#state = :bought AND attribute_not_exists(#ec2_status))) AND "
        "(attribute_not_exists(#sent_at) OR #sent_at <= :sent_before)",
        values={
            ":sent_before": format_instant(sent_before),
            ":account": account,
            ":region": region,
            ":intent": PurchaseState.INTENT,
            ":sent": PurchaseState.SENT,
            ":unknown": PurchaseState.UNKNOWN,
            ":bought": PurchaseState.BOUGHT,
        },
    )


def unresolved(reservation_id: str) -> str | None:
    """Ledger id of the order for this block that is under way or UNKNOWN; None when there is none. Read strongly.

    It blocks every other purchase for the block. Reading it only saves work: `mark_sent` holds it against races.
    """
    found = (table.get_item(UNRESOLVED, reservation_id) or {}).get("ledger_id")
    return None if found is None else str(found)


def in_the_way(ledger_id: str) -> str | None:
    """Ledger id of the order beside which this one must not be sent; None when there is none. Read strongly.

    It is one for the same block that is under way or UNKNOWN, or what was bought for the same end in the other way: an extension,
    or a new block. Reading it only saves work: `mark_sent` holds it against races.
    """
    item = table.get_item(UNRESOLVED, reservation_of(ledger_id)) or {}
    if item.get("ledger_id") not in (None, ledger_id):
        return str(item["ledger_id"])
    other = other_ledger_id(ledger_id)
    return other if item.get("bought") == other else None


def budget_left(team: str | None, now: datetime) -> BudgetLeft:
    """What the calendar month of `now` (UTC) still has for a purchase of `team`, by the stack's present limits."""
    left: list[Decimal | None] = [None, None]
    for position, budget in enumerate(budgets(settings.limits(), team, now)):
        if budget.limit is not None:
            left[position] = max(budget.limit - reserved(budget.item_id), Decimal(0))
    return BudgetLeft(left[0] or Decimal(0), left[1])


def reserved(budget_id: str) -> Decimal:
    """What a budget has reserved, USD: ``2026-05`` over everything, ``2026-05#vision`` of one team."""
    item = table.get_item(BUDGET, budget_id) or {}
    return Decimal(item.get("reserved", 0)) / 1_000_000


def intend(ledger_id: str, intent: Intent, before: Purchase | None, limits: Limits, now: datetime) -> Purchase:
    """Write INTENT, reserve the fee in the month's budgets and bind the approval: all of it, or none. Answers the new entry.

    Args:
        before: the entry as it was read: None, REFUSED (its budget was released), or an INTENT that a crash left behind.
        limits: of the stack and its teams.

    Raises:
        OverBudgetError, ApprovalUsedError, TakenElsewhereError: nothing was written.
    """
    offering = intent.offering
    if before is not None and before.state is PurchaseState.INTENT:
        release(ledger_id, before, "an earlier run stopped before it sent the order", now)
    sums = budgets(limits, intent.team, now)
    for budget in sums:
        if budget.limit is not None and offering.fee > budget.limit:
            raise OverBudgetError(budget.refusal(offering.fee))
    requests = [
        # What people resolved of an earlier attempt stays in the entry.
        table.update_request(
            KIND,
            ledger_id,
            set_={
                **dict.fromkeys(_OF_AN_ATTEMPT),
                "state": PurchaseState.INTENT,
                "environment": intent.environment,
                "reservation_id": intent.reservation_id,
                "account": intent.account,
                "region": intent.region,
                "current_end": format_instant(intent.end),
                "new_start": None if intent.new_start is None else format_instant(intent.new_start),
                "availability_zone": intent.availability_zone,
                "new_end": format_instant(offering.new_end),
                "duration_hours": offering.hours,
                "offering_id": offering.offering_id,
                "upfront_fee": str(offering.fee),
                "approval_id": intent.approval_id,
                "approved_by": list(intent.approved_by) or None,
                "team": intent.team,
                "budgets": [budget.item_id for budget in sums],
                "intended_at": format_instant(now),
            },
            condition="attribute_not_exists(kind) OR #state = :refused",
            values={":refused": PurchaseState.REFUSED},
        ),
        *(
            table.update_request(
                BUDGET,
                budget.item_id,
                add={"reserved": _micro(offering.fee)},
                condition=None if budget.limit is None else "attribute_not_exists(#reserved) OR #reserved <= :room",
                values=None if budget.limit is None else {":room": _micro(budget.limit - offering.fee)},
            )
            for budget in sums
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
        if first <= len(sums):
            raise OverBudgetError(sums[first - 1].refusal(offering.fee)) from error
        raise ApprovalUsedError(f"{intent.approval_id} is not an unused approval") from error
    return Purchase(PurchaseState.INTENT, offering.offering_id, offering.fee, offering.new_end, intended_at=now)


def mark_sent(ledger_id: str, intended: Purchase, now: datetime) -> Purchase:
    """INTENT -> SENT, immediately before the call; whoever does not get past this must not call. Answers the entry as it is then.

    Args:
        intended: what is about to be ordered; another run may have put its own INTENT in the place of ours.

    Raises:
        TakenElsewhereError: the entry is not this INTENT any more.
        UnresolvedError: another order stands in the way; the entry is still INTENT.
    """
    sent = table.update_request(
        KIND,
        ledger_id,
        set_={"state": PurchaseState.SENT, "updated_at": format_instant(now), "sent_at": format_instant(now)},
        condition="#state = :intent AND #offering_id = :offering AND #intended_at = :intended_at",
        values={
            ":intent": PurchaseState.INTENT,
            ":offering": intended.offering_id,
            ":intended_at": format_instant(intended.intended_at or now),
        },
    )
    try:
        table.transact([sent, _hold(ledger_id)])
    except table.ConditionFailedError as error:
        if error.args[0] == 0:
            raise TakenElsewhereError(
                f"{ledger_id} is not the INTENT to order {intended.offering_id} any more"
            ) from error
        raise UnresolvedError(f"{in_the_way(ledger_id)} stands in the way") from error
    return replace(intended, state=PurchaseState.SENT, sent_at=now)


def settle(ledger_id: str, purchase: Purchase, found: Settlement, now: datetime) -> None:
    """Write down what became of an order.

    Args:
        purchase: the entry as it was read when that was found out.

    Raises:
        TakenElsewhereError: it has moved since, and nothing was written; whoever moved it knew more.
    """
    if found.state is PurchaseState.REFUSED:
        release(ledger_id, purchase, found.reason, now)
    elif found.state is PurchaseState.UNKNOWN:
        mark_unknown(ledger_id, now, found.reason)
    else:
        mark_bought(ledger_id, purchase.offering_id, now, found.reason)
        if found.payment is not None:
            record_payment(ledger_id, found.payment, now)


def mark_bought(ledger_id: str, offering_id: str, now: datetime, reason: str) -> None:
    """SENT or UNKNOWN -> BOUGHT; it may be BOUGHT already, and then nothing is written.

    Args:
        offering_id: what was bought; another attempt may have taken the place of the one that ordered it.
    """
    moved = _moved(
        ledger_id,
        (PurchaseState.SENT, PurchaseState.UNKNOWN),
        PurchaseState.BOUGHT,
        now,
        of={"offering_id": offering_id},
        reason=reason,
        bought_at=format_instant(now),
    )
    try:
        table.transact([moved, _give_back(ledger_id, bought=True)])
    except table.ConditionFailedError as error:
        item = table.get_item(KIND, ledger_id) or {}
        if (item.get("state"), item.get("offering_id")) != (PurchaseState.BOUGHT, offering_id):
            raise TakenElsewhereError(f"{ledger_id} is not the order of {offering_id} any more") from error


def mark_unknown(ledger_id: str, now: datetime, reason: str) -> None:
    """SENT -> UNKNOWN: never sent again; it may be UNKNOWN already."""
    was = (PurchaseState.SENT, PurchaseState.UNKNOWN)
    try:
        table.write(_moved(ledger_id, was, PurchaseState.UNKNOWN, now, reason=reason))
    except table.ConditionFailedError as error:
        raise TakenElsewhereError(f"{ledger_id} is neither SENT nor UNKNOWN any more") from error


def release(ledger_id: str, was: Purchase, reason: str, now: datetime) -> None:
    """INTENT, SENT or UNKNOWN -> REFUSED, and give the fee back to the budgets that had reserved it: all of it, or none.

    What is released as SENT may be UNKNOWN by now: another run has looked meanwhile, and whoever sent the order knows better.

    Args:
        was: the attempt that is released; another may have taken its place.
    """
    item = table.get_item(KIND, ledger_id)
    if item is None or not _is_attempt(item, was):
        raise TakenElsewhereError(f"{ledger_id} is not the order of {was.offering_id} any more")
    allowed = (was.state, PurchaseState.UNKNOWN) if was.state is PurchaseState.SENT else (was.state,)
    requests = [
        _moved(ledger_id, allowed, PurchaseState.REFUSED, now, of=item, reason=reason),
        *_spend(item, -parse_usd(item["upfront_fee"])),
    ]
    if was.state is not PurchaseState.INTENT:
        requests.append(_give_back(ledger_id))
    try:
        table.transact(requests)
    except table.ConditionFailedError as error:
        raise TakenElsewhereError(f"{ledger_id} is not {was.state} any more") from error


def record_payment(ledger_id: str, extension: Extension, now: datetime) -> None:
    """Write down EC2's last word on a payment, with its own fee, and let the budgets count what was paid: nothing, if that failed.

    After a payment that failed the other way, an extension or a new block for the same end, is free again. All of it is written at
    once, and once; a second time changes nothing.
    """
    item = table.get_item(KIND, ledger_id)
    if item is None:
        raise TakenElsewhereError(f"{ledger_id} is not there any more")
    reserved_fee = parse_usd(item["upfront_fee"])
    paid = Decimal(0) if extension.status == FAILED else extension.fee
    facts = {
        "ec2_status": extension.status,
        "ec2_fee": None if paid is None else str(paid),
        "ec2_currency": extension.currency,
        "ec2_purchased_at": None if extension.purchased is None else format_instant(extension.purchased),
        "updated_at": format_instant(now),
    }
    written = table.update_request(
        KIND,
        ledger_id,
        set_={name: value for name, value in facts.items() if value is not None},
        condition="#state = :bought AND attribute_not_exists(#ec2_status) AND #offering_id = :offering",
        values={":bought": PurchaseState.BOUGHT, ":offering": extension.offering_id},
    )
    block = reservation_of(ledger_id)
    requests = [written, *_spend(item, (reserved_fee if paid is None else paid) - reserved_fee)]
    if extension.status == FAILED and (table.get_item(UNRESOLVED, block) or {}).get("bought") == ledger_id:
        ours, values = "#bought = :ledger", {":ledger": ledger_id}
        requests.append(table.update_request(UNRESOLVED, block, remove=("bought",), condition=ours, values=values))
    with suppress(table.ConditionFailedError):
        table.transact(requests)


def resolve(ledger_id: str, purchase: Purchase, claim: Claim, *, who: str, reason: str, now: datetime) -> None:
    """A person's word: SENT or UNKNOWN -> BOUGHT, or REFUSED with the fee given back; either way the block is free again.

    Args:
        purchase: the order that the person was shown; another may have taken its place while they thought.

    Raises:
        TakenElsewhereError: the entry is neither SENT nor UNKNOWN any more, or is another order.
    """
    item = table.get_item(KIND, ledger_id)
    if item is None or not _is_attempt(item, purchase):
        raise TakenElsewhereError(f"{ledger_id} is not the order of {purchase.offering_id} any more")
    word = {"claim": claim.value, "who": who, "reason": reason, "at": format_instant(now)}
    bought = claim is Claim.BOUGHT
    moved = _moved(
        ledger_id,
        (PurchaseState.SENT, PurchaseState.UNKNOWN),
        PurchaseState.BOUGHT if bought else PurchaseState.REFUSED,
        now,
        of=item,
        reason=f"resolved as {claim.value} by {who}: {reason}",
        resolutions=[*item.get("resolutions", []), word],
        bought_at=format_instant(now) if bought else None,
    )
    back = [] if bought else _spend(item, -parse_usd(item["upfront_fee"]))
    try:
        table.transact([moved, *back, _give_back(ledger_id, bought=bought)])
    except table.ConditionFailedError as error:
        raise TakenElsewhereError(f"{ledger_id} is neither SENT nor UNKNOWN any more") from error


def count_unknown(now: datetime) -> int:
    """How many orders have no known outcome although their workflow no longer looks for it: a person must."""
    held = [item["ledger_id"] for item in table.query_kind(UNRESOLVED) if "ledger_id" in item]
    entries = [table.get_item(KIND, ledger_id) or {} for ledger_id in held]
    return sum(str(entry.get("sent_at", "")) <= format_instant(now - LOOKED_FOR) for entry in entries)


def _spend(item: table.Item, amount: Decimal) -> list[table.Item]:
    """Add to the budgets that an entry counts in; a negative amount gives back."""
    return [table.update_request(BUDGET, budget, add={"reserved": _micro(amount)}) for budget in item["budgets"]]


def _hold(ledger_id: str) -> table.Item:
    """Take the block for this order; only while no other stands in the way."""
    return table.update_request(
        UNRESOLVED,
        reservation_of(ledger_id),
        set_={"ledger_id": ledger_id},
        condition=f"({_OURS_OR_FREE}) AND (attribute_not_exists(#bought) OR #bought <> :other)",
        values={":ledger": ledger_id, ":other": other_ledger_id(ledger_id)},
    )


def _give_back(ledger_id: str, *, bought: bool = False) -> table.Item:
    """Let the block go, and keep in mind what was bought."""
    return table.update_request(
        UNRESOLVED,
        reservation_of(ledger_id),
        set_={"ledger_id": None, **({"bought": ledger_id} if bought else {})},
        condition=_OURS_OR_FREE,
        values={":ledger": ledger_id},
    )


def _moved(
    ledger_id: str,
    allowed: tuple[PurchaseState, ...],
    to: PurchaseState,
    now: datetime,
    *,
    of: table.Item | None = None,
    **more: Any,
) -> table.Item:
    """`of`: the entry as it was read, or the part of it that counts; another run may have put its own attempt in its place."""
    values: dict[str, Any] = {f":was{i}": state for i, state in enumerate(allowed)}
    condition = f"#state IN ({', '.join(values)})"
    for name in _TELLS_ATTEMPTS & (of or {}).keys():
        condition += f" AND #{name} = :of_{name}"
        values[f":of_{name}"] = (of or {})[name]
    return table.update_request(
        KIND,
        ledger_id,
        set_={"state": to, "updated_at": format_instant(now), **more},
        condition=condition,
        values=values,
    )


def _is_attempt(item: table.Item, purchase: Purchase) -> bool:
    intended_at = None if purchase.intended_at is None else format_instant(purchase.intended_at)
    return (item["offering_id"], item.get("intended_at")) == (purchase.offering_id, intended_at)


def _micro(amount: Decimal) -> int:
    """Millionths of a dollar: whole numbers that DynamoDB adds exactly."""
    return int(amount * 1_000_000)
