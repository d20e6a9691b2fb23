"""decide-approval: the page behind an approver's link. GET and HEAD show, only POST decides (case B07).

Without its parameters a link shows only whether the request is open: that is the one in notices, which carries no power to decide.
"""

from datetime import UTC, datetime
from functools import partial
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from blockkeeper import settings
from blockkeeper.aws.approvals import TooManyAnswersError, decide, load_request
from blockkeeper.aws.decision_links import UnusableKeyError, check_link
from blockkeeper.domain.approval import ApprovalStatus
from blockkeeper.domain.approval_page import HEADERS, amount_fits, plain_page, request_page, standing_page
from blockkeeper.domain.signed_link import AlteredLinkError, IncompleteLinkError, approver_id, is_approval_id
from blockkeeper.telemetry import handler, log
from decide_approval.form import FormError, read_form

UNCHANGED = "Nothing was decided or changed."


@handler
def lambda_handler(event: dict[str, Any], _context: Any) -> dict[str, Any]:
    """Answer an HTML page to an event of API Gateway's REST API (`/decide/{id}`; GET, HEAD or POST)."""
    try:
        status, page = _page(event)
    except IncompleteLinkError as error:
        status, page = 400, plain_page("This link is not complete", [_sentence(error), UNCHANGED])
    except AlteredLinkError as error:
        status, page = 403, plain_page("This link is not right", [_sentence(error), UNCHANGED])
    except FormError as error:
        status, page = (
            error.status,
            plain_page("This answer cannot be read", [*map(_sentence, error.problems), UNCHANGED]),
        )
    except (ClientError, BotoCoreError, UnusableKeyError, TooManyAnswersError) as error:
        log.error("the page could not be shown", extra={"error": type(error).__name__})
        words = "Blockkeeper cannot tell just now how this request stands. Open the link again in a minute: it shows what counts."
        status, page = 503, plain_page("Please try again", [words])
    return {"statusCode": status, "headers": HEADERS, "body": "" if event["httpMethod"] == "HEAD" else page}


def _page(event: dict[str, Any]) -> tuple[int, str]:
    approval_id, parameters = event["pathParameters"]["id"], event.get("queryStringParameters") or {}
    now = datetime.fromtimestamp(event["requestContext"]["requestTimeEpoch"] // 1000, UTC)
    if not parameters and event["httpMethod"] != "POST" and is_approval_id(approval_id):
        request = load_request(approval_id)
        return (200, standing_page(request, now)) if request else (404, _no_such_request())
    link = check_link(approval_id, parameters)
    request = load_request(approval_id)
    named = (*request.approvers, *request.rules.escalate_to) if request else ()
    approver = next((name for name in named if approver_id(name) == link.approver), None)
    if request is None or approver is None:
        return 404, _no_such_request()
    shown = partial(request_page, approver=approver, now=now, dry_run=not settings.live())
    if event["httpMethod"] != "POST":
        return 200, shown(request)
    form = read_form(event)
    if (
        form.amount is not None
        and not amount_fits(request, form.amount)
        and request.standing(now) is ApprovalStatus.OPEN
    ):
        # A robot that loads the page, runs its buttons and sends its form has read the fee, but typed nothing (case B07).
        log.info("an answer without the fee typed in did not count", extra={"approval_id": approval_id})
        return 400, shown(request, refused=form.amount, reason=form.reason)
    decided = decide(approval_id, form.decision, approver, form.reason, now)
    return 200, shown(decided.request or request, notice=decided.message)


def _no_such_request() -> str:
    return plain_page("There is no such request", ["It may have been removed with the block's record.", UNCHANGED])


def _sentence(what: object) -> str:
    text = str(what)
    return f"{text[0].upper()}{text[1:]}."
