"""Mails to people: one subject line, the same facts as text and as HTML that common clients show."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

LONGEST_SUBJECT = 99
_FONT = "font:16px/1.5 system-ui,-apple-system,'Segoe UI',sans-serif;color:#1a1d21"


@dataclass(frozen=True, slots=True)
class Mail:
    """What SES sends, but for its sender and recipient."""

    subject: str
    text: str
    html: str


def compose(
    subject: str,
    opening: str,
    facts: Sequence[tuple[str, str]],
    *,
    link: tuple[str, str] | None = None,
    closing: Sequence[str] = (),
) -> Mail:
    """Write a mail.

    Args:
        subject: of any length and content; see `one_line`.
        opening: what it is about, in a sentence or two.
        facts: (label, value) in reading order.
        link: (words, address) of the one thing to do.
        closing: paragraphs below it.
    """
    width = max((len(label) for label, _ in facts), default=0)
    lines = [opening, "", *(f"{label + ':':<{width + 1}} {value}" for label, value in facts)]
    rows = "".join(
        f'<tr><td style="padding:4px 16px 4px 0;color:#5a6270;vertical-align:top;white-space:nowrap">{escape(label)}</td>'
        f'<td style="padding:4px 0">{escape(value)}</td></tr>'
        for label, value in facts
    )
    html = [
        f"<p>{escape(opening)}</p>",
        f'<table role="presentation" style="border-collapse:collapse;{_FONT}">{rows}</table>',
    ]
    if link:
        words, address = link
        lines += ["", f"{words}:", address]
        html.append(
            f'<p style="margin:24px 0"><a href="{escape(address)}" style="background:#14549c;color:#ffffff;padding:12px 20px;'
            f'border-radius:6px;text-decoration:none;display:inline-block">{escape(words)}</a></p>'
        )
    for paragraph in closing:
        lines += ["", paragraph]
        html.append(f'<p style="color:#5a6270">{escape(paragraph)}</p>')
    body = "\n".join(html)
    page = f'<!doctype html><html lang="en"><body style="margin:0;padding:16px;{_FONT}">\n{body}\n</body></html>\n'
    return Mail(one_line(subject, LONGEST_SUBJECT), "\n".join(lines) + "\n", page)


def one_line(text: str, longest: int) -> str:
    """Text without line breaks and control characters, cut to `longest` characters: a name in a subject forges no header."""
    flat = " ".join(re.sub(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]", " ", text).split())
    return flat if len(flat) <= longest else flat[: longest - 1].rstrip() + "…"
