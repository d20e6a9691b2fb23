"""The channel as a plain page: what Slack would show, with buttons that press Slack's buttons."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from html import escape, unescape
from typing import Any

from .workspace import Message, Workspace

_STYLE = """
:root{color-scheme:light}*{box-sizing:border-box}
body{margin:0;font:15px/1.46 Lato,system-ui,-apple-system,"Segoe UI",sans-serif;color:#1d1c1d;background:#fff}
header{position:sticky;top:0;background:#fff;border-bottom:1px solid #ddd;padding:10px 16px;font-weight:700}
header small{font-weight:400;color:#616061;margin-left:8px}
main{max-width:46rem;padding:0 16px 40px}
article{padding:14px 0 8px;border-bottom:1px solid #eee;overflow-wrap:anywhere}
article.reply{margin-left:28px}
.by{font-weight:700}.by small{font-weight:400;color:#616061}
h2{font-size:18px;line-height:1.35;margin:6px 0}p{margin:6px 0;white-space:pre-line}
.fields{display:grid;grid-template-columns:repeat(auto-fill,minmax(16rem,1fr));gap:8px 16px;margin:8px 0}
.fields div{white-space:pre-line}.context{color:#616061;font-size:13px}
.mention{background:#e8f5fa;color:#1264a3;border-radius:3px;padding:0 2px}
.buttons{display:flex;flex-wrap:wrap;gap:8px;margin:10px 0}
button{font:700 15px/1 inherit;font-family:inherit;padding:9px 14px;border-radius:4px;border:1px solid
#bbb;background:#fff;cursor:pointer}
button.primary{background:#007a5a;border-color:#007a5a;color:#fff}button.danger{background:#e01e5a;border-color:#e01e5a;color:#fff}
select,textarea{font:inherit;padding:6px;border:1px solid #868686;border-radius:4px}textarea{width:100%;min-height:5em}
.private{border-left:4px solid #ddd;padding:4px 10px;margin:8px 0;color:#454245}.private small{display:block;color:#868686}
dialog{position:static;display:block;width:100%;border:1px solid #bbb;border-radius:8px;padding:16px;margin:16px 0;box-shadow:0
4px 16px #0002}
"""


def page(workspace: Workspace) -> str:
    """The channel, with what each person alone sees."""
    parts = [part for message in workspace.standing() for part in _message(workspace, message)]
    parts += [_private(workspace, user, text) for user, text in workspace.private]
    parts += [_form(workspace, user, view) for user, view in workspace.forms.items()]
    body = "\n".join(parts) or "<p>Nothing was posted yet.</p>"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>#gpu-blocks</title><style>{_STYLE}</style></head><body>"
        f"<header># gpu-blocks<small>a Slack on this machine</small></header><main>{body}</main></body></html>\n"
    )


def _message(workspace: Workspace, message: Message) -> Iterator[str]:
    at = datetime.fromtimestamp(float(message.ts), UTC)
    edited = " (edited)" if message.edits else ""
    kind = ' class="reply"' if message.thread_ts else ""
    by = f'<div class="by">Blockkeeper <small>APP {at:%H:%M} UTC{edited}</small></div>'
    yield f'<article{kind} id="m{escape(message.ts)}">{by}'
    for block in message.blocks:
        yield from _block(workspace, message, block)
    yield "</article>"


def _block(workspace: Workspace, message: Message, block: dict[str, Any]) -> Iterator[str]:
    match block["type"]:
        case "header":
            yield f"<h2>{_shown(workspace, block['text'])}</h2>"
        case "section" if "fields" in block:
            fields = "".join(f"<div>{_shown(workspace, each)}</div>" for each in block["fields"])
            yield f'<div class="fields">{fields}</div>'
        case "section":
            yield f"<p>{_shown(workspace, block['text'])}</p>"
        case "context":
            yield f'<p class="context">{" ".join(_shown(workspace, each) for each in block["elements"])}</p>'
        case "actions":
            yield _actions(workspace, message, block)


def _actions(workspace: Workspace, message: Message, block: dict[str, Any]) -> str:
    people = "".join(f'<option value="{user}">{escape(name)}</option>' for user, name in workspace.people.items())
    buttons = "".join(map(_button, block["elements"]))
    return (
        f'<form method="post" action="press"><input type="hidden" name="ts" value="{escape(message.ts)}">'
        f'<div class="buttons">{buttons}<label>as <select name="user">{people}</select></label></div></form>'
    )


def _button(button: dict[str, Any]) -> str:
    confirm = ""
    if "confirm" in button:
        asked = button["confirm"]
        words = f"{asked['title']['text']}\n\n{asked['text']['text']}"
        confirm = f' data-confirm="{escape(words)}" onclick="return confirm(this.dataset.confirm)"'
    return (
        f'<button class="{button.get("style", "")}" name="action_id" value="{escape(button["action_id"])}"{confirm}>'
        f"{escape(button['text']['text'])}</button>"
    )


def _private(workspace: Workspace, user: str, text: str) -> str:
    shown = _shown(workspace, {"type": "mrkdwn", "text": text})
    return (
        f'<div class="private"><small>Only visible to {escape(workspace.people.get(user, user))}</small>{shown}</div>'
    )


def _form(workspace: Workspace, user: str, view: dict[str, Any]) -> str:
    words = "".join(
        f"<p>{_shown(workspace, block['text'])}</p>" for block in view["blocks"] if block["type"] == "section"
    )
    field = next((block for block in view["blocks"] if block["type"] == "input"), None)
    asked, send = "", ""
    if field:
        optional = " (optional)" if field.get("optional") else ""
        longest = field["element"].get("max_length", "")
        label, hint = escape(field["label"]["text"]), escape(field.get("hint", {}).get("text", ""))
        asked = f'<label>{label}{optional}<textarea name="reason" maxlength="{longest}"></textarea></label>'
        asked += f'<p class="context">{hint}</p>'
        send = f'<button class="primary" formaction="submit">{escape(view["submit"]["text"])}</button>'
    reader = escape(workspace.people.get(user, user))
    return (
        f'<dialog open><h2>{escape(view["title"]["text"])}</h2><p class="context">Only {reader} sees this</p>'
        f'<form method="post"><input type="hidden" name="user" value="{escape(user)}">{words}{asked}'
        f'<div class="buttons">{send}<button formaction="close">{escape(view["close"]["text"])}</button></div></form></dialog>'
    )


def _shown(workspace: Workspace, text: dict[str, Any]) -> str:
    """Slack's text as HTML: its three entities, mentions and bold."""
    if text["type"] == "plain_text":
        return escape(text["text"])
    parts = re.split(r"<@([A-Z0-9]+)>", text["text"])
    html = ""
    for place, part in enumerate(parts):
        if place % 2:
            html += f'<span class="mention">@{escape(workspace.people.get(part, part))}</span>'
        else:
            html += re.sub(r"(?<!\w)\*([^*\n]+)\*(?!\w)", r"<b>\1</b>", escape(unescape(part)))
    return html
