"""What Blockkeeper says in Slack, as Block Kit: a question with its buttons, how it stands, and what became of a block.

Limits: docs.slack.dev, "Block Kit" (blocks, block elements, composition objects) and "Modal views"; slack_sdk.models holds the
same. Slack refuses what is longer (`invalid_blocks`), so all that is not ours is cut. Text is escaped as in "Formatting message
text": only `&`, `<` and `>` mean something to Slack, and so nobody's name or reason can mention a channel.
"""

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from blockkeeper.domain.approval import (
    Answer,
    ApprovalRequest,
    ApprovalStatus,
    Decided,
    Delivery,
    What,
    decision_line,
    facts,
    local,
    question_line,
    without_answer,
)
from blockkeeper.domain.approval_mail import DRY_RUN
from blockkeeper.domain.money import format_usd
from blockkeeper.domain.slack_person import SLACK_CALLER, mention

Block = dict[str, Any]

LONGEST_HEADER = 150
LONGEST_SECTION = 3000
LONGEST_FIELD = 2000
MOST_FIELDS = 10
LONGEST_CONFIRM = 300
LONGEST_REASON = 500
LONGEST_LINE = 800
# chat.postMessage advises 4,000 characters at most for `text`; it is what notifications and screen readers say.
LONGEST_TEXT = 1000
# All blocks together: Slack refuses from some 13,000 characters of JSON on (msg_blocks_too_long; local/slack/limits.py).
LONGEST_ROWS = 11_000
APPROVE, REJECT = "approve", "reject"
REASON = "reason"
_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
_TITLES = {
    ApprovalStatus.APPROVED: "Approved",
    ApprovalStatus.REJECTED: "Rejected",
    ApprovalStatus.EXPIRED: "Expired, nothing was bought",
    ApprovalStatus.SUPERSEDED: "No longer needed",
}


@dataclass(frozen=True, slots=True)
class SlackMessage:
    """What chat.postMessage and chat.update take: blocks, and the same in one text for notifications."""

    text: str
    blocks: tuple[Block, ...]


def question(request: ApprovalRequest, now: datetime, *, dry_run: bool, outcome: str | None = None) -> SlackMessage:
    """The request as it stands: with buttons while it is open and somebody in Slack may answer.

    Args:
        now: tells whether a second list of approvers is asked by then.
        dry_run: whether a yes moves no money.
        outcome: what became of it after the decision, in a sentence; None while nothing is known.
    """
    is_open = request.status is ApprovalStatus.OPEN
    asked = [found for approver in request.asked(now) if (found := mention(approver))]
    bought = "New block for" if request.what is What.BLOCK else "Extend"
    title = f"{bought} {request.environment} for {format_usd(request.upfront_fee)}?"
    if not is_open:
        title = f"{_TITLES[request.status]}: {title.rstrip('?')}"
    story = [escaped(line, LONGEST_LINE) for line in _story(request, outcome)]
    if request.decided_by:
        story.insert(0, _decision(request))
    if is_open and asked:
        story.insert(0, " ".join(asked))
    notes = [DRY_RUN] if dry_run and request.status in (ApprovalStatus.OPEN, ApprovalStatus.APPROVED) else []
    if is_open and not asked:
        notes.append("The approvers of this block are asked by mail.")
    blocks = [_header(title), _section("\n".join(story))]
    if request.decided_by and request.reason:
        blocks.append(_section(escaped(f"Reason: {request.reason}", LONGEST_SECTION)))
    blocks += _fields(facts(request))
    blocks += [_context(note) for note in notes]
    if is_open and asked:
        blocks.append(_buttons(request, dry_run=dry_run))
    return SlackMessage(
        escaped(" ".join([title, question_line(request)] if is_open else [title]), LONGEST_TEXT), tuple(blocks)
    )


def reminder(request: ApprovalRequest, now: datetime) -> SlackMessage | None:
    """A word to those in Slack who have not answered yet; None when it is over, or nobody of them is left."""
    answered = {voter.rpartition(":")[2] for voter in request.votes if voter.startswith(SLACK_CALLER)}
    left = [approver for approver in request.asked(now) if approver.rpartition(":")[2].lower() not in answered]
    mentioned = " ".join(found for approver in left if (found := mention(approver)))
    if not mentioned or request.standing(now) is not ApprovalStatus.OPEN:
        return None
    title = f"{request.environment}: {format_usd(request.upfront_fee)} wait for an answer"
    until = f"Answers count until {local(request, request.decide_by)}; without one {without_answer(request)}."
    words = f"{mentioned}\n{escaped(until, LONGEST_LINE)} The buttons are on the question above."
    return SlackMessage(escaped(title, LONGEST_TEXT), (_header(title), _section(words)))


def notice(title: str, opening: str, rows: Sequence[tuple[str, str]], closing: Iterable[str] = ()) -> SlackMessage:
    """What became of a block, without buttons.

    Args:
        title: a line.
        opening: what it is about, in a sentence or two.
        rows: (label, value) in reading order.
        closing: paragraphs below it.
    """
    kept, size = list[tuple[str, str]](), 0
    for label, value in rows:
        size += len(json.dumps(_field(label, value), ensure_ascii=False))
        if size > LONGEST_ROWS:
            break
        kept.append((label, value))
    if len(kept) < len(rows):
        closing = [f"{len(rows) - len(kept)} more are not shown here.", *closing]
    blocks = [_header(title), _section(escaped(opening, LONGEST_SECTION)), *_fields(kept), *map(_context, closing)]
    return SlackMessage(escaped(title, LONGEST_TEXT), tuple(blocks))


def reject_form(request: ApprovalRequest) -> Block:
    """The modal that asks for a reason before a no; only its button rejects. It carries the request's id and nothing else."""
    asked = f"Reject {request.environment}: {format_usd(request.upfront_fee)}, until {local(request, request.new_end)}?"
    field = {
        "type": "plain_text_input",
        "action_id": REASON,
        "multiline": True,
        "max_length": LONGEST_REASON,
        "focus_on_load": True,
    }
    return {
        "type": "modal",
        "callback_id": REJECT,
        "private_metadata": request.approval_id,
        "title": _plain("Reject this purchase?"),
        "submit": _plain("Reject"),
        "close": _plain("Back"),
        "blocks": [
            _section(
                escaped(f"{asked} Nothing is bought then, and one no ends the question for everybody.", LONGEST_SECTION)
            ),
            {
                "type": "input",
                "block_id": REASON,
                "optional": True,
                "label": _plain("Reason"),
                "hint": _plain("For the record; the team sees it."),
                "element": field,
            },
        ],
    }


def private_answer(decided: Decided) -> str:
    """What became of an answer, for the person who gave it; escaped."""
    if decided.answer is Answer.ALREADY_DECIDED and decided.request is not None:
        return f"{_decision(decided.request)} Your answer changed nothing."
    return escaped(decided.message, LONGEST_LINE)


def said_in_form(text: str) -> Block:
    """The modal after its button was pressed, when there is something to say; the text is escaped already."""
    return {
        "type": "modal",
        "title": _plain("Blockkeeper"),
        "close": _plain("Close"),
        "blocks": [_section(text)],
    }


def escaped(text: str, longest: int) -> str:
    """Text that Slack shows as it is, of at most `longest` characters after escaping; what is cut ends with an ellipsis.

    Counted in UTF-16 units, of which an emoji has two, since Slack does not say how it counts.
    """
    flat = re.sub(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]", " ", text)
    pieces = [_ENTITIES.get(character, character) for character in flat]
    if sum(map(_units, pieces)) <= longest:
        return "".join(pieces)
    kept, size = list[str](), 0
    for piece in pieces:
        size += _units(piece)
        if size > longest - 1:
            break
        kept.append(piece)
    return "".join(kept).rstrip() + "…"


def _units(text: str) -> int:
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def _decision(request: ApprovalRequest) -> str:
    """Who decided; a person of Slack by a mention, which shows their name."""
    who = mention(request.decided_by or "")
    line = decision_line(request, who) if who else escaped(decision_line(request), LONGEST_LINE)
    status, _, rest = line.partition(" ")
    return f"*{status}* {rest}"


def _story(request: ApprovalRequest, outcome: str | None) -> Iterable[str]:
    """What happened and what happens next."""
    until = f"The block ends on {local(request, request.current_end)}; its groups drain before that."
    match request.status:
        case ApprovalStatus.OPEN:
            yield question_line(request)
            if request.votes:
                yield f"{len(request.votes)} of {len(request.approvers)} said yes so far; {request.missing_votes} more must."
        case _ if outcome:
            yield outcome
        case ApprovalStatus.APPROVED if request.delivery is Delivery.NOBODY_WAITS:
            yield "The workflow that asked no longer waits for it. Look at the state of the block before you rely on it."
        case ApprovalStatus.APPROVED:
            yield (
                "Blockkeeper looks the offer up again and buys it if it is still the same and costs at most "
                f"{format_usd(request.ceiling)}. What becomes of it is told here."
            )
        case ApprovalStatus.REJECTED:
            yield f"Nothing is bought. {until}"
        case ApprovalStatus.EXPIRED:
            yield f"Nobody answered in time. {until}"
        case ApprovalStatus.SUPERSEDED:
            yield f"{request.reason or 'The question no longer applies'}. Nothing was bought through this request."


def _buttons(request: ApprovalRequest, *, dry_run: bool) -> Block:
    """Approve asks once more, with the amount; Reject opens a form. Both carry the request's id and nothing else."""
    fee = format_usd(request.upfront_fee)
    words = (
        "This is a dry run: no money moves." if dry_run else f"{fee} are charged upfront, and it cannot be cancelled."
    )
    confirm = {
        "title": _plain("Approve this purchase?"),
        "text": _plain(f"{request.environment}, until {local(request, request.new_end)}. {words}"[:LONGEST_CONFIRM]),
        "confirm": _plain("Approve"),
        "deny": _plain("Back"),
    }
    approve = {
        "type": "button",
        "style": "primary",
        "action_id": APPROVE,
        "text": _plain("Approve (dry run)" if dry_run else f"Approve {fee}"),
        "value": request.approval_id,
        "confirm": confirm,
    }
    reject = {
        "type": "button",
        "style": "danger",
        "action_id": REJECT,
        "text": _plain("Reject…"),
        "value": request.approval_id,
    }
    return {"type": "actions", "block_id": "answers", "elements": [approve, reject]}


def _fields(rows: Sequence[tuple[str, str]]) -> Iterable[Block]:
    """Two columns on a desk, one below the other on a phone; ten to a section."""
    fields = [_field(label, value) for label, value in rows]
    for start in range(0, len(fields), MOST_FIELDS):
        yield {"type": "section", "fields": fields[start : start + MOST_FIELDS]}


def _field(label: str, value: str) -> Block:
    return _mrkdwn(f"*{escaped(label, LONGEST_FIELD // 4)}*\n{escaped(value, LONGEST_FIELD // 2)}")


def _header(text: str) -> Block:
    return {"type": "header", "text": _plain(escaped(text, LONGEST_HEADER))}


def _section(text: str) -> Block:
    return {"type": "section", "text": _mrkdwn(text)}


def _context(text: str) -> Block:
    return {"type": "context", "elements": [_mrkdwn(escaped(text, LONGEST_FIELD))]}


def _plain(text: str) -> Block:
    return {"type": "plain_text", "text": text, "emoji": False}


def _mrkdwn(text: str) -> Block:
    # verbatim: Slack makes no links of what looks like an address or a channel's name.
    return {"type": "mrkdwn", "text": text, "verbatim": True}
