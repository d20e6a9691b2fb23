"""What Slack refuses of messages and forms.

slack_sdk's models hold Slack's limits (docs.slack.dev, "Block Kit" and "Modal views"); beside them stand those that they leave
out.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from slack_sdk.errors import SlackObjectFormationError
from slack_sdk.models.blocks import Block
from slack_sdk.models.views import View

MOST_BLOCKS = 50
LONGEST_FIELD = 2000
LONGEST_TEXT = 40_000
# Undocumented; people met `msg_blocks_too_long` from 13,172 characters of JSON on (github.com/slackapi/bolt-js/issues/2509).
LONGEST_MESSAGE = 13_000
_KNOWN = frozenset({"actions", "context", "divider", "header", "input", "section"})


def block_problems(blocks: Any) -> list[str]:
    """Why Slack would answer `invalid_blocks`; an empty list means that it takes them."""
    if not isinstance(blocks, list) or not all(isinstance(block, dict) for block in blocks):
        return ["blocks is no list of objects"]
    if len(blocks) > MOST_BLOCKS:
        return [f"{len(blocks)} blocks are more than {MOST_BLOCKS}"]
    return [problem for block in blocks for problem in _of_block(block)]


def view_problems(view: Mapping[str, Any]) -> list[str]:
    """Why Slack would refuse a form."""
    problems = block_problems(view.get("blocks"))
    if any(block.get("type") == "input" for block in view.get("blocks") or []) and "submit" not in view:
        problems.append("a form with an input needs submit")
    try:
        View(**view).to_dict()
    except (SlackObjectFormationError, TypeError, AttributeError) as error:
        problems.append(str(error))
    return problems


def _of_block(block: Mapping[str, Any]) -> Iterator[str]:
    if block.get("type") not in _KNOWN:
        yield f"{block.get('type')!r} is no type of block that is known here"
        return
    try:
        for parsed in Block.parse_all([dict(block)]):
            parsed.to_dict()
    except (SlackObjectFormationError, TypeError, AttributeError) as error:
        yield str(error)
    for text in _texts(block):
        if not text.get("text"):
            yield "a text is empty"
    if any(len(each["text"]) > LONGEST_FIELD for each in block.get("fields", [])):
        yield f"a field is longer than {LONGEST_FIELD}"


def _texts(value: Any) -> Iterator[Mapping[str, Any]]:
    """Every text object inside."""
    if isinstance(value, Mapping):
        if value.get("type") in ("mrkdwn", "plain_text"):
            yield value
            return
        value = list(value.values())
    if isinstance(value, Sequence) and not isinstance(value, str):
        for each in value:
            yield from _texts(each)
