"""The page behind an approver's link: plain HTML without script or outside parts, for phones, keyboards and screen readers.

Only a deliberate POST of its form decides; whatever merely loads the page changes nothing (case B07).
"""

import re
from base64 import b64encode
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from hashlib import sha256
from html import escape

from blockkeeper.domain.approval import (
    ApprovalRequest,
    ApprovalStatus,
    Decision,
    Delivery,
    What,
    decision_line,
    facts,
    local,
    question_line,
    yes_refused,
)
from blockkeeper.domain.approval_mail import DRY_RUN
from blockkeeper.domain.money import format_usd

LONGEST_REASON = 500

STYLE = """
:root{color-scheme:light dark;--ink:#1a1d21;--soft:#5a6270;--paper:#fff;--back:#f2f4f7;--line:#d9dee5;
--yes:#0b6b3a;--no:#a4161a;--note:#eaf1fb}
@media (prefers-color-scheme:dark){:root{--ink:#e8eaee;--soft:#a7afbc;--paper:#1c2026;--back:#12151a;--line:#363d48;
--yes:#11814a;--no:#ff9c9c;--note:#1d2c42}}
*{box-sizing:border-box}
body{margin:0;background:var(--back);color:var(--ink);font:1rem/1.5 system-ui,-apple-system,"Segoe UI",sans-serif}
main{max-width:36rem;margin:0 auto;padding:1.5rem 1rem 3rem}
.card{background:var(--paper);border:1px solid var(--line);border-radius:.75rem;padding:1.5rem}
.brand{color:var(--soft);font-size:.875rem;margin:0 0 .75rem}
h1{font-size:1.5rem;line-height:1.25;margin:0 0 .75rem}
p{margin:0 0 1rem}
dl{margin:0 0 1rem;border-top:1px solid var(--line)}
dl div{display:flex;flex-wrap:wrap;gap:0 1rem;padding:.5rem 0;border-bottom:1px solid var(--line)}
dt{flex:0 0 max(8.5rem,32%);color:var(--soft)}
dd{flex:1 1 9rem;margin:0;overflow-wrap:anywhere}
dd.fee{font-weight:700}
.note{background:var(--note);border-radius:.5rem;padding:.75rem 1rem}
h2{font-size:1.125rem;margin:1.5rem 0 .5rem}
label{display:block;margin:.75rem 0 .25rem}
input,textarea{width:100%;padding:.5rem .75rem;font:inherit;color:inherit;background:transparent;border:1px solid var(--soft);
border-radius:.5rem}
input{min-height:3rem}
textarea{min-height:5rem}
[aria-invalid]{border:2px solid var(--no)}
.error{color:var(--no);font-weight:600;margin:0 0 .25rem}
.hint{color:var(--soft);font-size:.875rem;margin:.25rem 0 0}
.answers{display:flex;flex-wrap:wrap;gap:.75rem;margin-top:1rem}
button{flex:1 1 12rem;min-height:3rem;padding:.5rem 1rem;font:inherit;font-weight:600;border-radius:.5rem;cursor:pointer}
.yes{background:var(--yes);color:#fff;border:2px solid var(--yes)}
.no{background:transparent;color:var(--no);border:2px solid var(--no)}
:focus-visible{outline:3px solid #3f86dd;outline-offset:2px}
.soft{color:var(--soft);font-size:.875rem;margin:1rem 0 0}
"""
HEADERS = {
    "Content-Type": "text/html; charset=utf-8",
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Robots-Tag": "noindex",
    "Content-Security-Policy": (
        f"default-src 'none'; style-src 'sha256-{b64encode(sha256(STYLE.encode()).digest()).decode()}'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
}
_TITLES = {
    ApprovalStatus.OPEN: "Extend this Capacity Block?",
    ApprovalStatus.APPROVED: "Approved",
    ApprovalStatus.REJECTED: "Rejected",
    ApprovalStatus.EXPIRED: "Expired: nothing was bought",
    ApprovalStatus.SUPERSEDED: "No longer needed",
}
_NEW_BLOCK = "Buy a new Capacity Block?"


def amount_fits(request: ApprovalRequest, typed: str) -> bool:
    """Whether somebody has typed the fee: in whole dollars or with its cents, however grouped and marked."""
    digits = re.sub(r"\D", "", typed)
    fee = request.upfront_fee
    return digits in (str(int(fee)), f"{fee:.2f}".replace(".", ""))


def request_page(
    request: ApprovalRequest,
    approver: str,
    now: datetime,
    *,
    dry_run: bool,
    notice: str | None = None,
    refused: str | None = None,
    reason: str | None = None,
) -> str:
    """The request as it stands, with a form while it is open.

    Args:
        approver: whose link it is.
        dry_run: whether PurchaseMode is not `live`.
        notice: what the reader's answer has just done; None when nothing was answered.
        refused: what the reader typed instead of the fee; None when nothing was wrong.
        reason: what the reader typed as reason then, so that it is not lost.
    """
    standing = request.standing(now)
    # Closed for every reader, whether or not the workflow has closed it already.
    request = replace(request, status=standing)
    parts = [_paragraph(notice, "note", 'role="status"')] if notice else []
    parts += [_paragraph(text) for text in _story(request, dry_run=dry_run)]
    parts.append(_facts(request))
    if standing is ApprovalStatus.OPEN:
        parts += [
            _form(request, approver, dry_run=dry_run, refused=refused, reason=reason),
            _paragraph(f"You answer as {approver}. Opening this page decides nothing.", "soft"),
        ]
    title = (
        "Nothing was answered yet"
        if refused is not None
        else _NEW_BLOCK
        if standing is ApprovalStatus.OPEN and request.what is What.BLOCK
        else _TITLES[standing]
    )
    return _page(title, parts)


def standing_page(request: ApprovalRequest, now: datetime) -> str:
    """For whoever has only the request's address: whether it is open, and where it is answered. No facts, names or money."""
    standing = request.standing(now)
    if standing is ApprovalStatus.OPEN:
        told = [
            f"This request is open until {local(request, request.decide_by)}.",
            "It cannot be answered here. Approvers answer through the link in their own mail, or in Slack.",
            "If you came here from your mail, the link was cut off: copy all of it.",
        ]
        return _page("Waiting for an answer", [_paragraph(text) for text in told])
    when = "" if request.decided_at is None else f" It ended on {local(request, request.decided_at)}."
    return _page(_TITLES[standing], [_paragraph(f"This request is closed.{when}")])


def plain_page(title: str, paragraphs: Iterable[str]) -> str:
    """A page that only says something, such as that a link is wrong."""
    return _page(title, [_paragraph(text) for text in paragraphs])


def _story(request: ApprovalRequest, *, dry_run: bool) -> Iterable[str]:
    """What happened and what happens next."""
    until = f"The block ends on {local(request, request.current_end)}; its groups drain before that."
    match request.status:
        case ApprovalStatus.OPEN:
            yield question_line(request)
            if request.votes:
                yield f"{len(request.votes)} of {len(request.approvers)} said yes so far; {request.missing_votes} more must."
        case ApprovalStatus.APPROVED:
            yield decision_line(request)
            if request.delivery is Delivery.NOBODY_WAITS:
                yield "The workflow that asked no longer waits for it. Look at the state of the block before you rely on it."
            else:
                done = "the new block is paid" if request.what is What.BLOCK else "EC2 has moved the end"
                yield (
                    "Blockkeeper looks the offer up again and buys it if it is still the same and costs at most "
                    f"{format_usd(request.ceiling)}. You get a mail when {done}, or if it could not be bought."
                )
        case ApprovalStatus.REJECTED:
            yield decision_line(request)
            yield f"Nothing is bought. {until}"
        case ApprovalStatus.EXPIRED:
            yield f"Nobody answered in time. {until}"
        case ApprovalStatus.SUPERSEDED:
            why = (request.reason or "the question no longer applies").rstrip(".")
            yield f"{why[:1].upper()}{why[1:]}. Nothing was bought through this request."
    if request.decided_by and request.reason:
        yield f"Reason: {request.reason}"
    if dry_run and request.status in (ApprovalStatus.OPEN, ApprovalStatus.APPROVED):
        yield DRY_RUN


def _facts(request: ApprovalRequest) -> str:
    fee = format_usd(request.upfront_fee)
    rows = (
        f"<div><dt>{escape(label)}</dt><dd{' class=fee' if value == fee else ''}>{escape(value)}</dd></div>"
        for label, value in facts(request)
    )
    return f"<dl>{''.join(rows)}</dl>"


def _form(request: ApprovalRequest, approver: str, *, dry_run: bool, refused: str | None, reason: str | None) -> str:
    # The first button is what Enter in a field would press; it is none, so that only a pressed button answers. No action: the form
    # posts to the link itself.
    words = "Approve (dry run)" if dry_run else f"Approve and pay {format_usd(request.upfront_fee)}"
    yes = f"<button class=yes name=decision value=approve>{escape(words)}</button>"
    why_not = ""
    if request.votes.get(approver.lower()) is Decision.APPROVE:
        yes, why_not = "", _paragraph("You have said yes already.")
    elif yes_refused(request, approver):
        words = (
            "You enrolled this block or asked for this purchase, so somebody else must approve it. You can reject it."
        )
        yes, why_not = "", _paragraph(words)
    wrong = (
        ""
        if refused is None
        else _paragraph(f"{refused or 'Nothing'} is not the fee.", "error", 'id="wrong" role="alert"')
    )
    invalid = "" if refused is None else ' aria-invalid="true" autofocus'
    return (
        f"<form method=post><h2>Your answer</h2>{why_not}<button disabled hidden></button>"
        f"<label for=amount>Type the upfront fee, in whole dollars</label>{wrong}"
        f'<input id=amount name=amount inputmode=numeric autocomplete=off maxlength=40 required aria-describedby="hint'
        f'{"" if refused is None else " wrong"}"{invalid}>'
        "<p id=hint class=hint>Such as 123 for 123.45 USD: so a mail scanner that opens this page cannot answer it.</p>"
        f"<label for=reason>Reason (may be left empty)</label>"
        f"<textarea id=reason name=reason maxlength={LONGEST_REASON}>{escape(reason or '')}</textarea>"
        f"<div class=answers>{yes}<button class=no name=decision value=reject>Reject, let it end</button></div></form>"
    )


def _paragraph(text: str, kind: str = "", more: str = "") -> str:
    attributes = (f' class="{kind}"' if kind else "") + (f" {more}" if more else "")
    return f"<p{attributes}>{escape(text)}</p>"


def _page(title: str, parts: Iterable[str]) -> str:
    body = "\n".join(parts)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)} · Blockkeeper</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n"
        f'<p class="brand">Blockkeeper</p>\n<div class="card">\n<h1>{escape(title)}</h1>\n{body}\n</div>\n</main>\n'
        "</body>\n</html>\n"
    )
