"""A short way to moto's DynamoDB: what it does is moto's own, how a request gets there and an answer back is not.

moto (5.2) makes each request into one of a web server's, finds the service by its address, parses the body by the service's model,
and looks for each member of an answer under several names. DynamoDB's requests and answers are JSON with the wire's own names
already, and all that was half of a story's time. `test_moto_dynamodb.py` holds both ways together.
"""

import json
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from typing import Any

from botocore.awsrequest import AWSPreparedRequest
from moto.core import responses
from moto.core.botocore_stubber import BotocoreStubber
from moto.core.responses import ActionResult
from moto.dynamodb.parsing.ast_nodes import Node
from moto.dynamodb.parsing.validators import DepthFirstTraverser
from moto.dynamodb.responses import DynamoHandler

from local.http_answer import ANSWERED

_WIRE = {"Content-Type": "application/x-amz-json-1.0"}
_resolved, _traverse = DynamoHandler.serialized, DepthFirstTraverser.traverse
_processed = BotocoreStubber.process_request


def _at_once(stubber: BotocoreStubber, request: AWSPreparedRequest) -> Any:
    if request.url == ANSWERED:
        return None
    target = request.headers.get("X-Amz-Target", "")
    if not (target if isinstance(target, str) else target.decode()).startswith("DynamoDB_"):
        return _processed(stubber, request)
    headers = {name: value if isinstance(value, str) else value.decode() for name, value in request.headers.items()}
    return _handler(headers, request).call_action()


def _handler(headers: Mapping[str, str], request: AWSPreparedRequest) -> DynamoHandler:
    """moto's handler of one request, with what its own `setup_class` would have found out."""
    handler = DynamoHandler()
    handler.headers, handler.querystring, handler.method = headers, {}, request.method
    handler.params = json.loads(request.body or b"{}")
    handler.response_headers = {"server": "amazon.com"}
    handler.region = handler.get_region_from_url(handler, request.url)
    handler.access_key = handler.get_access_key()
    handler.current_account = handler.get_current_account()
    return handler


def _as_it_is(handler: DynamoHandler, answer: ActionResult) -> Any:
    # An error, or a time or an object of moto's own among the members, takes the long way.
    if isinstance(answer.result, dict):
        with suppress(TypeError):
            return 200, {**_WIRE, **handler.response_headers}, json.dumps(answer.result)
    return _resolved(handler, answer)


def _traverse_briefly(traverser: DepthFirstTraverser, root: Node) -> Node:
    """As moto's, which asks anew at every node what kinds of nodes it is to process."""
    kinds = traverser.nodes_to_be_processed()

    def visit(node: Any, place: int = -1) -> Any:
        if not isinstance(node, Node):
            return node
        parent = node.parent
        for number, child in enumerate(node.children or ()):
            traverser.pre_processing_of_child(node, number)
            visit(child, number)
        if isinstance(node, kinds):
            node = traverser.process(node)
            node.parent = parent
            if parent:
                parent.children[place] = node
        return node

    return visit(root)


def attach() -> None:
    """Answer the short way from now on; calling it again changes nothing."""
    BotocoreStubber.process_request = _at_once
    DynamoHandler.serialized = _as_it_is
    DepthFirstTraverser.traverse = _traverse_briefly
    if not hasattr(responses.method_names_from_class, "cache_info"):
        # The names of a class's methods; they do not change.
        responses.method_names_from_class = cache(responses.method_names_from_class)


def detach() -> None:
    """Answer moto's way."""
    BotocoreStubber.process_request = _processed
    DynamoHandler.serialized, DepthFirstTraverser.traverse = _resolved, _traverse
