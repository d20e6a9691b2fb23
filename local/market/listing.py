"""Filters and pages, as EC2 and Auto Scaling have them."""

import base64
import binascii
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from local.market.errors import MarketError, invalid_parameter

Item = TypeVar("Item")
Facts = Mapping[str, Callable[[Any], "str | Iterable[str] | None"]]

_FILTER_VALUES_AT_MOST = 200


def matching(items: Iterable[Item], filters: list[dict[str, Any]] | None, facts: Facts) -> list[Item]:
    """The items that satisfy every filter: any of its values, with EC2's wildcards `*` and `?`.

    Raises:
        MarketError: InvalidParameterValue for a filter the operation does not document, FilterLimitExceeded above 200 values.
    """
    kept = list(items)
    filters = filters or []
    if sum(len(f.get("Values", [])) for f in filters) > _FILTER_VALUES_AT_MOST:
        raise MarketError(
            "FilterLimitExceeded", "The maximum number of filter values specified on a single call is 200."
        )
    for each in filters:
        name = each.get("Name", "")
        fact = _fact(name, facts)
        patterns = [_pattern(value) for value in each.get("Values", [])]
        kept = [item for item in kept if any(p.fullmatch(v) for v in _values(fact(item)) for p in patterns)]
    return kept


def _fact(name: str, facts: Facts) -> Callable[[Any], str | Iterable[str] | None]:
    if name in facts:
        return facts[name]
    if name.startswith("tag:") and "tag:" in facts:
        key = name.removeprefix("tag:")
        tags = facts["tag:"]
        return lambda item: [tag[1] for tag in tags(item) or () if tag[0] == key]
    raise invalid_parameter(f"The filter '{name}' is invalid")


def _values(value: str | Iterable[str] | None) -> list[str]:
    if value is None:
        return []
    return [value] if isinstance(value, str) else list(value)


def _pattern(value: str) -> re.Pattern[str]:
    return re.compile(re.escape(value).replace(r"\*", ".*").replace(r"\?", "."), re.DOTALL)


def ec2_page(items: list[Item], params: dict[str, Any]) -> tuple[list[Item], str | None]:
    """One page by MaxResults (1 to 1000; 1000 when left out) and NextToken."""
    size = params.get("MaxResults", 1000)
    if not 1 <= size <= 1000:
        raise invalid_parameter(
            f"Value ( {size} ) for parameter maxResults is invalid. Expecting a value from 1 to 1000."
        )
    return _page(items, params, size, MarketError("InvalidNextToken", "The specified next token is not valid."))


def scaling_page(items: list[Item], params: dict[str, Any], default: int = 50) -> tuple[list[Item], str | None]:
    """One page by MaxRecords (1 to 100) and NextToken."""
    size = params.get("MaxRecords", default)
    if not 1 <= size <= 100:
        raise MarketError("ValidationError", f"MaxRecords is {size}; it must be from 1 to 100")
    return _page(items, params, size, MarketError("InvalidNextToken", "The NextToken value is not valid."))


def _page(
    items: list[Item], params: dict[str, Any], size: int, bad_token: MarketError
) -> tuple[list[Item], str | None]:
    asked = {k: v for k, v in params.items() if k not in {"NextToken", "MaxResults", "MaxRecords", "DryRun"}}
    question = hashlib.sha256(json.dumps(asked, sort_keys=True, default=str).encode()).hexdigest()[:12]
    start = 0
    if params.get("NextToken"):
        try:
            asked_for, start = json.loads(base64.urlsafe_b64decode(params["NextToken"]))
        except (ValueError, TypeError, binascii.Error):
            raise bad_token from None
        if asked_for != question or not isinstance(start, int):
            raise bad_token
    end = start + size
    token = base64.urlsafe_b64encode(json.dumps([question, end]).encode()).decode() if end < len(items) else None
    return items[start:end], token
