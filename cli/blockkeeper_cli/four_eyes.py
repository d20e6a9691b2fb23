"""Whether the name of who enrols or asks can keep anybody from approving: names are compared whole (docs/adr/007-four-eyes.md)."""

from __future__ import annotations

from blockkeeper.domain.slack_person import mention
from blockkeeper_cli import output


def note_unlike_approvers(who: str) -> None:
    """Say on standard error that a name is none that approvers have, such as an IAM user's.

    IAM Identity Center names its sessions by user name, which often is the mail address that `approvers` has.
    """
    if "@" not in who and mention(who) is None:
        output.note(
            f"note: approvers are mail addresses and Slack user ids, and {who} is neither, so four_eyes keeps nobody from approving"
            " alone by it; say who you are with --as"
        )
