"""Hands on what moto's DynamoDB answers as it is, and keeps what moto looks up anew for each call.

moto (5.2) looks for each member of an answer under several names, whatever the service. DynamoDB's answers are made with the
wire's own names already, and that search was a third of a story's time. `test_moto_dynamodb.py` holds both ways together.
"""

import json
from contextlib import suppress
from functools import cache
from typing import Any

from moto.core import responses
from moto.core.responses import ActionResult
from moto.dynamodb.responses import DynamoHandler

_WIRE = {"Content-Type": "application/x-amz-json-1.0"}
_resolved = DynamoHandler.serialized


def _as_it_is(handler: DynamoHandler, answer: ActionResult) -> Any:
    # An error, or a time or an object of moto's own among the members, takes the long way.
    if isinstance(answer.result, dict):
        with suppress(TypeError):
            return 200, {**_WIRE, **handler.response_headers}, json.dumps(answer.result)
    return _resolved(handler, answer)


def attach() -> None:
    """Answer the short way from now on; calling it again changes nothing."""
    DynamoHandler.serialized = _as_it_is
    if not hasattr(responses.method_names_from_class, "cache_info"):
        # The names of a class's methods; they do not change.
        responses.method_names_from_class = cache(responses.method_names_from_class)


def detach() -> None:
    """Answer moto's way."""
    DynamoHandler.serialized = _resolved
