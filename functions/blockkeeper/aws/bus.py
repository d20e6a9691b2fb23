"""Our own events on the default EventBridge bus: source `blockkeeper`; docs/architecture.md lists the detail-types."""

import json
from collections.abc import Mapping
from typing import Any

from blockkeeper.aws.clients import client

SOURCE = "blockkeeper"


class EventNotTakenError(Exception):
    """EventBridge answered 200 but did not take the event (PutEvents, `FailedEntryCount`)."""


def publish(detail_type: str, detail: Mapping[str, Any]) -> None:
    """Put one event on the default bus.

    Args:
        detail_type: such as `Extension Confirmed`.
        detail: JSON values only: ids, times and amounts as text. Never a task token, secret or link (design rule 8).

    Raises:
        EventNotTakenError: the bus refused it.
    """
    entry = {"Source": SOURCE, "DetailType": detail_type, "Detail": json.dumps(detail, sort_keys=True)}
    answer = client("events").put_events(Entries=[entry])
    if answer["FailedEntryCount"]:
        failed = answer["Entries"][0]
        raise EventNotTakenError(
            f"{detail_type} was not taken: {failed.get('ErrorCode')}: {failed.get('ErrorMessage')}"
        )
