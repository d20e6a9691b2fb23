"""Who somebody in Slack is: always a user id within a workspace, never a name.

An approver is written `T012AB3CD:U024BE7LH`, or `U024BE7LH` alone for the workspace that installed the app. Whoever has
answered is recorded as `slack:T012AB3CD:U024BE7LH`.
"""

import re
from collections.abc import Iterable

SLACK_CALLER = "slack:"
# As in schemas/environment.schema.json.
_PERSON = re.compile(r"(?:T[A-Z0-9]{2,20}:)?(?P<user>[UW][A-Z0-9]{2,20})")


def is_slack_approver(approver: str) -> bool:
    """Whether an approver, as a record names them, is asked in Slack: all that is no mail address."""
    return "@" not in approver


def slack_caller(team: str, user: str) -> str:
    """Who answered, for the record: `slack:<team>:<user>`."""
    return f"{SLACK_CALLER}{team}:{user}"


def is_listed(caller: str, approvers: Iterable[str], home_team: str | None) -> bool:
    """Whether a Slack caller is one of the approvers (case B21).

    Args:
        caller: see `slack_caller`.
        home_team: the workspace that installed the app; None when the question was not asked in Slack: then a user id alone is
            nobody.
    """
    team, _, user = caller.removeprefix(SLACK_CALLER).lower().rpartition(":")
    names = {f"{team}:{user}"} | ({user} if home_team is not None and team == home_team.lower() else set())
    return bool(team and user) and any(
        approver.lower() in names for approver in approvers if is_slack_approver(approver)
    )


def mention(person: str) -> str | None:
    """How a message names a Slack person so that Slack shows their name: `<@U024BE7LH>`; None for anybody else.

    Args:
        person: an approver or a recorded caller.
    """
    found = _PERSON.fullmatch(person.removeprefix(SLACK_CALLER))
    return f"<@{found['user']}>" if found else None
