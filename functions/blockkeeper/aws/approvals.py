"""Approval requests in the table (kind `approval`), and the answers to the workflows that wait for them.

The end of a request is written first, by one conditional write: the first writer wins. Then the workflow is told, and `Approval
Decided` is published. In between anything may stop, so a marker (kind `undelivered`) is put down before and taken away after both,
and the sweep does what is left of one that still has it. Each is noted once it is done: a crash between doing and noting does it
twice, so that none is lost; whoever listens tells an end by `approval_id` and `decision`, of which there is one.
Task tokens are in the table only; no function here answers or logs one (case B41).
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from blockkeeper.aws import bus
from blockkeeper.aws.clients import client
from blockkeeper.aws.table import (
    ConditionFailedError,
    delete_request,
    get_item,
    put_request,
    query_kind,
    update_request,
    write,
)
from blockkeeper.domain.approval import (
    Answer,
    ApprovalRequest,
    ApprovalStatus,
    Decided,
    Decision,
    Delivery,
    channel,
    closed,
    outcome,
    request_from,
    request_item,
    timed_out,
    vote,
)
from blockkeeper.domain.instants import format_instant, parse_instant
from blockkeeper.domain.signed_link import voice
from blockkeeper.telemetry import count, log

KIND, UNDELIVERED = "approval", "undelivered"
# Longer than any function that decides may run, so that the sweep does not tell at the same time as one that is still at it.
DELIVERY_GRACE = timedelta(minutes=2)
_ATTEMPTS = 5
_NOBODY_WAITS = frozenset({"TaskTimedOut", "TaskDoesNotExist", "InvalidToken"})


class DifferentRequestError(Exception):
    """The approval id is taken by a question about another end, new end or ceiling; a yes must not pass from one to the other."""


class TooManyAnswersError(Exception):
    """So many people answered at the same moment that this answer could not be written; nothing of it was recorded."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A stored request, and whom it was already sent to.

    Attributes:
        told: who has got a mail, and when the last one.
        announced: when `Approval Requested` was last published; None when it was not.
    """

    request: ApprovalRequest
    told: Mapping[str, datetime]
    announced: datetime | None


def load_request(approval_id: str) -> ApprovalRequest | None:
    """One request, read strongly; None when there is none."""
    item = get_item(KIND, approval_id)
    return None if item is None else _request(approval_id, item)


def list_requests(
    reservation_id: str | None = None, *, after: str | None = None, limit: int | None = None
) -> Iterator[ApprovalRequest]:
    """All requests, open and past, or those of one block, in order of their ids, read page by page.

    Args:
        after: start behind this approval id.
        limit: at most so many.
    """
    prefix = f"{reservation_id}-" if reservation_id else ""
    for item in query_kind(KIND, prefix, after=after, limit=limit):
        yield _request(item["id"], item)


def open_or_join(request: ApprovalRequest, task_token: str, *, dry_run: bool) -> Asked:
    """Store a new request; one that is there already gets only the new task token, and keeps approvers, votes and links.

    A request that has ended answers the workflow at once.

    Args:
        dry_run: people are told that no money moves; a yes to that never buys, even if PurchaseMode is `live` by then.

    Raises:
        DifferentRequestError: the id stands for another question.
        ClientError: the workflow could not be answered; asking again is safe.
    """
    key = request.approval_id
    attributes = {name: value for name, value in request_item(request).items() if name != "approval_id"}
    attributes["dry_run"] = dry_run
    try:
        write(
            put_request(KIND, key, {**attributes, "task_token": task_token, "version": 1}, "attribute_not_exists(id)")
        )
    except ConditionFailedError:
        log.info("the request exists already", extra={"approval_id": key})
    else:
        return Asked(request, {}, announced=None)
    item = get_item(KIND, key) or {}
    if _request(key, item).binds != request.binds:
        raise DifferentRequestError(f"{key} was asked about another block, end, new end or fee; ask under a new id")
    try:
        still_open, values = "#status = :open", {":open": ApprovalStatus.OPEN.value}
        item = write(update_request(KIND, key, set_={"task_token": task_token}, condition=still_open, values=values))
    except ConditionFailedError:
        item = get_item(KIND, key) or item
    stored = _request(key, item)
    if stored.status is not ApprovalStatus.OPEN:
        stored = _settle(stored, _tell(stored, task_token))
        _clear_if_published(stored, item)
    told = {who: parse_instant(at) for who, at in (item.get("told_at") or {}).items()}
    announced = item.get("announced_at")
    return Asked(stored, told, announced=None if announced is None else parse_instant(announced))


def mark_told(approval_id: str, told: Mapping[str, datetime]) -> None:
    """Remember who has got a mail and when, so that asking again mails nobody twice (case B12)."""
    write(update_request(KIND, approval_id, set_={"told_at": {who: format_instant(at) for who, at in told.items()}}))


def was_told(approval_id: str) -> bool:
    """Whether anybody has heard of the request, by mail or in Slack."""
    return bool((get_item(KIND, approval_id) or {}).get("told_at"))


def mark_announced(approval_id: str, now: datetime) -> None:
    """Remember that `Approval Requested` was published."""
    write(update_request(KIND, approval_id, set_={"announced_at": format_instant(now)}))


def decide(approval_id: str, decision: Decision, who: str, reason: str | None, now: datetime) -> Decided:
    """Record one vote and, if it decides, tell the workflow. The one way for every door: page, API and CLI.

    Args:
        who: an approver as the record names them, proven by a signed link; or `api:<name>` behind the API key.
        reason: for the record; None when none was given.
        now: when the answer came.

    Raises:
        TooManyAnswersError, ClientError: nothing was recorded, or it is not known; asking for the request shows it.
    """
    for _ in range(_ATTEMPTS):
        item = get_item(KIND, approval_id)
        if item is None:
            return Decided(Answer.NO_SUCH_REQUEST, None)
        before = _request(approval_id, item)
        after = vote(before, who, decision, reason, now)
        if isinstance(after, Answer):
            _audit("an answer did not count", before, who, said=decision.value, why=after.value)
            return Decided(after, before)
        final = after.status is not ApprovalStatus.OPEN
        token = _write(after, item["version"], now, to_deliver=final)
        if token is None:
            continue
        _audit("approval ended" if final else "an answer was counted", after, who, said=decision.value)
        if not final:
            _publish("Approval Voted", after, {"missing_votes": after.missing_votes}, now)
            return Decided(Answer.COUNTED, after)
        return Decided(Answer.RECORDED, _finish(after, token))
    raise TooManyAnswersError(f"{approval_id} is being answered by others; open it again to see what they said")


def expire(approval_id: str, now: datetime, *, may_buy: bool) -> ApprovalRequest | None:
    """Close a request whose workflow has stopped waiting, and answer it as it is then: a decision made meanwhile counts.

    None when it was never asked.

    Args:
        may_buy: see `timed_out`.
    """
    request, token = _close(approval_id, lambda before: timed_out(before, may_buy=may_buy, now=now), now)
    if request is None:
        return None
    # Whoever calls is the workflow, so it has its answer now, whatever happened to the task token.
    request = _settle(request, Delivery.DELIVERED)
    if token is not None:
        return _finish(request, token)
    _clear_if_published(request, get_item(KIND, approval_id) or {})
    return request


def supersede(approval_id: str, reason: str, now: datetime) -> ApprovalRequest | None:
    """Close a request that has become pointless, such as when somebody extended by hand, and tell the workflow."""
    request, token = _close(approval_id, lambda before: closed(before, ApprovalStatus.SUPERSEDED, reason, now), now)
    return request if request is None or token is None else _finish(request, token)


def supersede_open_requests(reservation_id: str, end: str, now: datetime) -> None:
    """Close every open request of a block whose end has moved: the question is about an end that is no more (case B20).

    Args:
        end: EC2's EndDate now, ISO 8601; a request about this end stays open, and so does one about a later end, since EC2 moves
            an end only later: whoever read an earlier one has read too early.
    """
    for item in query_kind(KIND, f"{reservation_id}-"):
        if item.get("status") == ApprovalStatus.OPEN and parse_instant(item["current_end"]) < parse_instant(end):
            supersede(item["id"], f"the block's end was moved to {end} by somebody else", now)


def redeliver_decisions(now: datetime) -> int:
    """Do what is left of decisions that were cut short: tell the workflow, publish the event. One read when there is none.

    Args:
        now: markers younger than `DELIVERY_GRACE` are left to whoever put them down.

    Returns:
        How many workflows were told.
    """
    told = 0
    for marker in list(query_kind(UNDELIVERED)):
        try:
            if now - parse_instant(marker["since"]) >= DELIVERY_GRACE:
                told += _redeliver(marker["id"])
        except Exception as error:  # noqa: BLE001 - the sweep and the others go on; this one has still its marker
            log.error(
                "a decision stays undelivered", extra={"approval_id": marker["id"], "error": type(error).__name__}
            )
            count("DecisionNotDelivered")
    return told


def _redeliver(approval_id: str) -> bool:
    item = get_item(KIND, approval_id)
    request = None if item is None else _request(approval_id, item)
    if item is None or request is None or request.status is ApprovalStatus.OPEN:
        # Put down for a decision that another answer forestalled.
        write(delete_request(UNDELIVERED, approval_id))
        return False
    before = request.delivery
    after = _finish(request, item["task_token"], published="published_at" in item)
    return before is None and after.delivery is Delivery.DELIVERED


def _close(
    approval_id: str, end: Callable[[ApprovalRequest], ApprovalRequest], now: datetime
) -> tuple[ApprovalRequest | None, str | None]:
    """The request after closing it, and its task token if this call has closed it."""
    for _ in range(_ATTEMPTS):
        item = get_item(KIND, approval_id)
        if item is None:
            return None, None
        before = _request(approval_id, item)
        after = end(before)
        if after == before:
            return before, None
        token = _write(after, item["version"], now, to_deliver=True)
        if token is not None:
            _audit("approval ended", after, after.decided_by or "nobody")
            return after, token
    raise TooManyAnswersError(f"{approval_id} is being answered just now; close it again")


def _write(request: ApprovalRequest, version: int, now: datetime, *, to_deliver: bool) -> str | None:
    """Write the request's new state if it is still open at `version`; answers its task token, None when somebody was faster."""
    if to_deliver:
        write(put_request(UNDELIVERED, request.approval_id, {"since": format_instant(now)}))
    item = request_item(request)
    try:
        written = write(
            update_request(
                KIND,
                request.approval_id,
                set_={name: item[name] for name in ("status", "votes", "decided_by", "decided_at", "reason")},
                add={"version": 1},
                condition="#version = :version AND #status = :open",
                values={":version": version, ":open": ApprovalStatus.OPEN.value},
            )
        )
    except ConditionFailedError:
        return None
    # The token of this very write: a wait that was re-entered before it has put its own there.
    return str(written["task_token"])


def _finish(request: ApprovalRequest, token: str, *, published: bool = False) -> ApprovalRequest:
    """Tell the workflow and publish the end. What fails in passing keeps the marker, and the sweep does it again."""
    request = request if request.delivery is not None else _deliver(request, token)
    if (published or _announce(request)) and request.delivery is not None:
        _clear_marker(request)
    return request


def _clear_if_published(request: ApprovalRequest, item: Mapping[str, Any]) -> None:
    """The workflow has its answer: nothing is left to do, unless the event is; then whoever decided is at it, or the sweep."""
    if "published_at" in item:
        _clear_marker(request)


def _clear_marker(request: ApprovalRequest) -> None:
    try:
        write(delete_request(UNDELIVERED, request.approval_id))
    except (ClientError, BotoCoreError) as error:
        # The sweep finds that nothing is left to do.
        log.warning("a marker stays", extra={"approval_id": request.approval_id, "error": type(error).__name__})


def _deliver(request: ApprovalRequest, token: str) -> ApprovalRequest:
    delivery = None
    try:
        delivery = _tell(request, token)
        return _settle(request, delivery)
    except (ClientError, BotoCoreError) as error:
        log.error(
            "a decision is not delivered yet", extra={"approval_id": request.approval_id, "error": type(error).__name__}
        )
        count("DecisionNotDelivered")
        return replace(request, delivery=delivery)


def _tell(request: ApprovalRequest, token: str) -> Delivery:
    """SendTaskSuccess.

    Raises:
        ClientError, BotoCoreError: it is not known whether the workflow was told, or it was not; telling again is safe.
    """
    try:
        client("stepfunctions").send_task_success(taskToken=token, output=json.dumps(outcome(request)))
    except ClientError as error:
        code = error.response["Error"]["Code"]
        if code not in _NOBODY_WAITS:
            raise
        log.warning("no workflow waits for this decision", extra={"approval_id": request.approval_id, "error": code})
        return Delivery.NOBODY_WAITS
    return Delivery.DELIVERED


def _settle(request: ApprovalRequest, delivery: Delivery) -> ApprovalRequest:
    """Note what became of the decision. That it was delivered outweighs that once nobody waited."""
    condition = "attribute_exists(#status)" if delivery is Delivery.DELIVERED else "attribute_not_exists(#delivery)"
    try:
        write(update_request(KIND, request.approval_id, set_={"delivery": delivery.value}, condition=condition))
    except ConditionFailedError:
        return load_request(request.approval_id) or request
    return replace(request, delivery=delivery)


def _announce(request: ApprovalRequest) -> bool:
    """Publish `Approval Decided` and note it; answers whether both were done."""
    at = request.decided_at or request.opened_at
    if not _publish("Approval Decided", request, {**outcome(request), "via": channel(request.decided_by)}, at):
        return False
    try:
        write(update_request(KIND, request.approval_id, set_={"published_at": format_instant(at)}))
    except (ClientError, BotoCoreError) as error:
        log.warning(
            "it was not noted that Approval Decided was published",
            extra={"approval_id": request.approval_id, "error": type(error).__name__},
        )
        return False
    return True


def _publish(detail_type: str, request: ApprovalRequest, more: Mapping[str, Any], now: datetime) -> bool:
    """Publish what was answered; it stands even if the bus is not to be reached. Answers whether it was."""
    try:
        bus.publish(detail_type, {**event_detail(request, now), **more})
    except (bus.EventNotTakenError, ClientError, BotoCoreError) as error:
        log.error(
            f"{detail_type} was not published",
            extra={"approval_id": request.approval_id, "error": type(error).__name__},
        )
        count("EventNotPublished")
        return False
    return True


def _audit(what: str, request: ApprovalRequest, who: str, **more: str) -> None:
    """One line for the record: who, what, when, which way. An address stands as the digest that links have too (case B41)."""
    ended = request.decided_at
    log.info(
        what,
        extra={
            "audit": True,
            "approval_id": request.approval_id,
            "environment": request.environment,
            "status": request.status.value,
            "who": voice(who),
            "via": channel(who),
            **({} if ended is None else {"decided_at": format_instant(ended)}),
            **more,
        },
    )


def event_detail(request: ApprovalRequest, now: datetime) -> dict[str, Any]:
    """What every event about a request says."""
    return {
        "environment": request.environment,
        "reservation_id": request.reservation_id,
        "account": request.account,
        "region": request.region,
        "end_date": format_instant(request.current_end),
        "new_end": format_instant(request.new_end),
        "upfront_fee": str(request.upfront_fee),
        "approval_id": request.approval_id,
        "now": format_instant(now),
    }


def _request(approval_id: str, item: Mapping[str, Any]) -> ApprovalRequest:
    return request_from({**item, "approval_id": approval_id})
