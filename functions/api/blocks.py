"""`GET /blocks`: where every enrolled block stands, and what happens next."""

from datetime import datetime, timedelta
from typing import Any

from api.http import Answer, Request
from api.paging import asked_limit, asked_start, page
from blockkeeper import settings
from blockkeeper.aws.environments import list_environments
from blockkeeper.domain.deadlines import Deadlines
from blockkeeper.domain.environment import Environment, parse_environment
from blockkeeper.domain.instants import format_instant
from blockkeeper.domain.next_step import longest_drain, next_step
from blockkeeper.domain.reservation import ULTRASERVER_PREFIXES


def list_blocks(request: Request) -> Answer:
    """All blocks as a plain array, in order of PK."""
    limit = asked_limit(request)
    records = list_environments(asked_start(request), None if limit is None else limit + 1)
    shown, headers = page(request, records, "PK")
    margin, targets = settings.payment_margin(), settings.own_targets()
    return Answer(200, [_block(record, margin, targets, request.now) for record in shown], headers)


def _block(record: dict[str, Any], margin: timedelta, targets: list[tuple[str, str]], now: datetime) -> dict[str, Any]:
    row = {name: record.get(name) for name in ("PK", "name", "capacity_block_id", "region", "instance_type")}
    row |= {name: record.get(name) for name in ("instance_count", "state", "status", "error", "end_time")}
    try:
        environment = parse_environment(record, settings.approver_emails())
    except (KeyError, ValueError, TypeError, AttributeError):
        # Somebody wrote to the table by other ways; the other blocks are shown all the same (design rule 4).
        unread = {"minutes_left": None, "deadlines": None}
        again = "write it again, with `blockkeeper enrol FILE --update` or PUT"
        return row | unread | {"next_step": f"the record cannot be read, so nothing is done for it; {again}"}
    deadlines = _deadlines(environment, margin)
    return row | {
        "minutes_left": deadlines and max(0, int((deadlines.end - now).total_seconds() // 60)),
        "deadlines": deadlines and _moments(environment, deadlines),
        "next_step": next_step(environment, deadlines, now, targets),
    }


def _deadlines(environment: Environment, margin: timedelta) -> Deadlines | None:
    if environment.end_time is None:
        return None
    return Deadlines(
        end=environment.end_time,
        look_ahead=timedelta(days=environment.extension_lookahead_days),
        payment_margin=margin,
        ultraserver=environment.instance_type.startswith(ULTRASERVER_PREFIXES),
    )


def _moments(environment: Environment, deadlines: Deadlines) -> dict[str, str]:
    """Each deadline; `drain_at` is the latest one, which a group's lifecycle hook can only make earlier."""
    moments = {
        "first_search": deadlines.first_search,
        "decide_by": deadlines.decide_by,
        "order_by": deadlines.order_by,
        "pay_by": deadlines.pay_by,
        "drain_at": deadlines.drain_at(drain=longest_drain(environment)),
        "terminates_at": deadlines.terminates_at,
    }
    return {name: format_instant(moment) for name, moment in moments.items()}
