"""The DynamoDB table: items keyed by `kind` and `id`, read strongly, written on conditions.

Every kind holds few items (environments, approvals, purchases, budgets), so each is one partition and a Query lists it.
Numbers come back as int (we store no fractions: money is text), sets are not used.
"""

import os
import re
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

from boto3.dynamodb.types import TypeDeserializer, TypeSerializer
from botocore.exceptions import ClientError

from blockkeeper.aws.clients import client

Item = dict[str, Any]

_serialize = TypeSerializer().serialize
_deserialize = TypeDeserializer().deserialize


class ConditionFailedError(Exception):
    """The item was not as the write's condition demands: somebody else wrote first. Nothing was written."""


def get_item(kind: str, item_id: str) -> Item | None:
    """One item, strongly consistent, without its keys; None when there is none."""
    answer = _client().get_item(TableName=_name(), Key=_key(kind, item_id), ConsistentRead=True)
    return _plain(answer["Item"]) if "Item" in answer else None


def query_kind(
    kind: str,
    prefix: str = "",
    *,
    after: str | None = None,
    limit: int | None = None,
    where: str | None = None,
    values: Mapping[str, Any] | None = None,
) -> Iterator[Item]:
    """All items of a kind in order of `id`, each with its `id`, page by page.

    Args:
        prefix: only ids that begin with it.
        after: start behind this id.
        limit: at most so many items.
        where: only items for which it holds, in DynamoDB's language; attribute names there as `#name`, values as `:value` from
            `values`. It spares the way of the others, not their reading.
    """
    condition, given = "kind = :kind", {":kind": kind, **(values or {})}
    if prefix:
        condition += " AND begins_with(id, :prefix)"
        given[":prefix"] = prefix
    filtered = {} if where is None else _with_names({"FilterExpression": where}, where)
    start: dict[str, Any] = {"ExclusiveStartKey": _key(kind, after)} if after is not None else {}
    left = limit
    while True:
        page: dict[str, Any] = {} if left is None else {"Limit": left}
        answer = _client().query(
            TableName=_name(),
            KeyConditionExpression=condition,
            ExpressionAttributeValues=_typed(given),
            ConsistentRead=True,
            **filtered,
            **start,
            **page,
        )
        for item in answer["Items"]:
            yield {"id": item["id"]["S"], **_plain(item)}
        if left is not None:
            left -= len(answer["Items"])
        if "LastEvaluatedKey" not in answer or left == 0:
            return
        start = {"ExclusiveStartKey": answer["LastEvaluatedKey"]}


def put_request(
    kind: str,
    item_id: str,
    attributes: Mapping[str, Any],
    condition: str | None = None,
    values: Mapping[str, Any] | None = None,
) -> Item:
    """A whole-item write, for `write` or `transact`. Attributes that are None are left out."""
    present = {name: value for name, value in attributes.items() if value is not None}
    request: Item = {"TableName": _name(), "Item": {**_key(kind, item_id), **_typed(present)}}
    return {"Put": _with_condition(request, condition, values)}


def update_request(
    kind: str,
    item_id: str,
    *,
    set_: Mapping[str, Any] | None = None,
    remove: tuple[str, ...] = (),
    add: Mapping[str, int] | None = None,
    condition: str | None = None,
    values: Mapping[str, Any] | None = None,
) -> Item:
    """A write of some attributes, for `write` or `transact`.

    Args:
        set_: attributes to set; those that are None are removed.
        add: numbers to add to.
        condition: in DynamoDB's language; attribute names there as `#name`, values as `:value` from `values`.
    """
    set_ = set_ or {}
    gone = (*remove, *(name for name, value in set_.items() if value is None))
    kept = {name: value for name, value in set_.items() if value is not None}
    parts = []
    if kept:
        parts.append("SET " + ", ".join(f"#{name} = :set_{name}" for name in kept))
    if gone:
        parts.append("REMOVE " + ", ".join(f"#{name}" for name in gone))
    if add:
        parts.append("ADD " + ", ".join(f"#{name} :add_{name}" for name in add))
    expression = " ".join(parts)
    placeholders = {
        **{f":set_{name}": value for name, value in kept.items()},
        **{f":add_{name}": value for name, value in (add or {}).items()},
        **(values or {}),
    }
    request: Item = {"TableName": _name(), "Key": _key(kind, item_id), "UpdateExpression": expression}
    if placeholders:
        request["ExpressionAttributeValues"] = _typed(placeholders)
    if condition:
        request["ConditionExpression"] = condition
    return {"Update": _with_names(request, f"{expression} {condition or ''}")}


def delete_request(
    kind: str, item_id: str, condition: str | None = None, values: Mapping[str, Any] | None = None
) -> Item:
    """Delete one item, for `write` or `transact`."""
    return {"Delete": _with_condition({"TableName": _name(), "Key": _key(kind, item_id)}, condition, values)}


def write(request: Item) -> Item:
    """Carry out one request of `put_request`, `update_request` or `delete_request`; answers the item as it is then, without keys.

    Raises:
        ConditionFailedError: its condition does not hold; nothing was written.
    """
    ((action, arguments),) = request.items()
    call = {"Put": "put_item", "Update": "update_item", "Delete": "delete_item"}[action]
    wanted = {"ReturnValues": "ALL_NEW"} if action == "Update" else {}
    try:
        answer = getattr(_client(), call)(**arguments, **wanted)
    except ClientError as error:
        if error.response["Error"]["Code"] == "ConditionalCheckFailedException":
            raise ConditionFailedError(f"{arguments.get('ConditionExpression')} does not hold") from error
        raise
    return _plain(answer.get("Attributes", {}))


def transact(requests: list[Item]) -> None:
    """Carry out all requests or none.

    Raises:
        ConditionFailedError: a condition does not hold; its `args` hold the position of each request that failed.
    """
    try:
        _client().transact_write_items(TransactItems=requests)
    except ClientError as error:
        reasons = error.response.get("CancellationReasons") or []
        failed = tuple(i for i, reason in enumerate(reasons) if reason.get("Code") == "ConditionalCheckFailed")
        if error.response["Error"]["Code"] == "TransactionCanceledException" and failed:
            raise ConditionFailedError(*failed) from error
        raise


def _with_condition(request: Item, condition: str | None, values: Mapping[str, Any] | None) -> Item:
    if condition:
        request["ConditionExpression"] = condition
    if values:
        request["ExpressionAttributeValues"] = _typed(values)
    return _with_names(request, condition or "")


def _with_names(request: Item, expression: str) -> Item:
    names = re.findall(r"#(\w+)", expression)
    if names:
        request["ExpressionAttributeNames"] = {f"#{name}": name for name in names}
    return request


def _client() -> Any:
    return client("dynamodb")


def _name() -> str:
    return os.environ["TABLE_NAME"]


def _key(kind: str, item_id: str) -> Item:
    return {"kind": {"S": kind}, "id": {"S": item_id}}


def _typed(attributes: Mapping[str, Any]) -> Item:
    return {name: _serialize(value) for name, value in attributes.items()}


def _plain(item: Mapping[str, Any]) -> Item:
    return {name: _without_decimals(_deserialize(value)) for name, value in item.items() if name not in {"kind", "id"}}


def _without_decimals(value: Any) -> Any:
    if isinstance(value, Decimal):
        return int(value)
    if isinstance(value, list):
        return [_without_decimals(entry) for entry in value]
    if isinstance(value, dict):
        return {name: _without_decimals(entry) for name, entry in value.items()}
    return value
