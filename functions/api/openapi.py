"""The API's OpenAPI 3.1 document, made from the route table and `schemas/`."""

from __future__ import annotations

import inspect
import re
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from blockkeeper.schema_check import schema

if TYPE_CHECKING:
    from collections.abc import Iterable

    from api.routes import Route

API_VERSION = "0.1.0"
_COMPONENTS = ("environment", "approval", "approval-answer", "block", "error")
_QUERY: dict[str, dict[str, Any]] = {
    "PK": {"description": "Name of the record.", "schema": {"type": "string"}},
    "limit": {
        "description": "At most so many; the header x-next-cursor then leads to the next page.",
        "schema": {"type": "integer", "minimum": 1, "maximum": 1000},
    },
    "cursor": {"description": "x-next-cursor of the page before.", "schema": {"type": "string"}},
    "environment": {"description": "Only those of this record.", "schema": {"type": "string"}},
    "status": {
        "description": "Only those with this status.",
        "schema": {"enum": ["OPEN", "APPROVED", "REJECTED", "EXPIRED", "SUPERSEDED"]},
    },
}
_PATH = {
    "PK": {"description": "Name of the record.", "schema": {"type": "string"}},
    "id": {"description": "Id of the approval.", "schema": {"type": "string"}},
}


def document(routes: Iterable[Route]) -> dict[str, Any]:
    """The document as JSON values."""
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.resource, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Blockkeeper",
            "version": API_VERSION,
            "description": "Enrols EC2 Capacity Blocks, shows where they stand, and takes answers to approvals.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": ".", "description": "The address that this document was read from."}],
        "security": [{"apiKey": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {"apiKey": {"type": "apiKey", "in": "header", "name": "x-api-key"}},
            "schemas": {**{name: _component(name) for name in _COMPONENTS}, "environment-change": _change()},
        },
    }


def _operation(route: Route) -> dict[str, Any]:
    summary, _, description = (inspect.getdoc(route.function) or "").partition("\n\n")
    operation: dict[str, Any] = {
        "operationId": route.operation,
        "summary": " ".join(summary.split()),
        "parameters": [
            *(
                {"name": name, "in": "path", "required": True, **_PATH[name]}
                for name in re.findall(r"{(\w+)}", route.resource)
            ),
            *({"name": name, "in": "query", **_QUERY[name]} for name in route.query),
        ],
        "responses": {
            str(route.status): {
                "description": "Done.",
                "content": {"application/json": {"schema": _gives(route.gives)}},
            },
            **{str(status): _refusal(status) for status in (400, *sorted(route.refusals))},
        },
    }
    if description:
        operation["description"] = " ".join(description.split())
    if route.takes:
        operation["requestBody"] = {
            "required": route.takes != "approval-answer",
            "content": {"application/json": {"schema": _reference(route.takes)}},
        }
    return operation


def _gives(name: str | None) -> dict[str, Any]:
    if name is None:
        return {"type": "object"}
    if "|" in name:
        return {"oneOf": [_gives(part) for part in name.split("|")]}
    if name.startswith("["):
        return {"type": "array", "items": _reference(name.strip("[]"))}
    return _reference(name)


def _refusal(status: int) -> dict[str, Any]:
    return {
        "description": f"Refused: {HTTPStatus(status).phrase}.",
        "content": {"application/json": {"schema": _reference("error")}},
    }


def _reference(name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{name}"}


def _component(name: str) -> dict[str, Any]:
    return {key: value for key, value in schema(name).items() if key not in {"$schema", "$id"}}


def _change() -> dict[str, Any]:
    """A change names only what changes; null takes a field back to its default."""
    whole = _component("environment")
    fields = {
        name: {**words, "type": [words["type"], "null"]} if "type" in words and "enum" not in words else words
        for name, words in whole["properties"].items()
    }
    return {
        "title": "EnvironmentChange",
        "description": "Fields to change; null takes a field back to its default. A new record needs the required ones.",
        "type": "object",
        "additionalProperties": False,
        "properties": fields,
    }
