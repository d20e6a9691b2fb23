"""The route table: what the API answers, and what its OpenAPI document says, from one source."""

from collections.abc import Callable
from dataclasses import dataclass

from api import approvals, blocks, environments
from api.http import Answer, Request
from api.openapi import document

PAGED = ("limit", "cursor")


@dataclass(frozen=True, slots=True)
class Route:
    """One method of one resource.

    Attributes:
        resource: the path in API Gateway's spelling, such as `/{PK}`; the template lists the same.
        takes: schema of the body, from `schemas/`; None when there is none.
        status, gives: of success; `gives` is a schema's name, `[name]` for an array of it, `a|b` for either, or
            None for any object.
        query: names of the query parameters.
        refusals: statuses of refusals beyond 400.
    """

    method: str
    resource: str
    function: Callable[[Request], Answer]
    operation: str
    gives: str | None = None
    takes: str | None = None
    status: int = 200
    query: tuple[str, ...] = ()
    refusals: tuple[int, ...] = ()


def serve_openapi(_request: Request) -> Answer:
    """`GET /openapi.json`: this table as an OpenAPI 3.1 document."""
    return Answer(200, document(ROUTES))


_BODY = (413, 415)
_ONE = (404, *_BODY)

ROUTES = (
    Route(
        "GET",
        "/",
        environments.list_or_read,
        "listEnvironments",
        "[environment]|environment",
        query=("PK", *PAGED),
        refusals=(404,),
    ),
    Route(
        "POST", "/", environments.create, "createEnvironment", "environment", "environment", 201, refusals=(409, *_BODY)
    ),
    Route(
        "PUT",
        "/",
        environments.change,
        "changeEnvironmentInBody",
        "environment",
        "environment-change",
        query=("PK",),
        refusals=(409, 412, *_BODY),
    ),
    Route("DELETE", "/", environments.delete, "deleteEnvironmentInQuery", query=("PK",), refusals=(409, 412, *_ONE)),
    Route(
        "PATCH",
        "/",
        environments.approve,
        "approveEnvironmentInBody",
        "approval",
        "approval-answer",
        query=("PK",),
        refusals=(409, *_ONE),
    ),
    Route("GET", "/{PK}", environments.read, "readEnvironment", "environment", refusals=(404,)),
    Route(
        "PUT",
        "/{PK}",
        environments.change,
        "changeEnvironment",
        "environment",
        "environment-change",
        refusals=(409, 412, *_BODY),
    ),
    Route("DELETE", "/{PK}", environments.delete, "deleteEnvironment", refusals=(409, 412, *_ONE)),
    Route(
        "PATCH",
        "/{PK}",
        environments.approve,
        "approveEnvironment",
        "approval",
        "approval-answer",
        refusals=(409, *_ONE),
    ),
    Route("GET", "/blocks", blocks.list_blocks, "listBlocks", "[block]", query=PAGED),
    Route(
        "GET",
        "/approvals",
        approvals.list_approvals,
        "listApprovals",
        "[approval]",
        query=("status", "environment", *PAGED),
    ),
    Route(
        "POST",
        "/approvals/{id}/approve",
        approvals.approve,
        "approve",
        "approval",
        "approval-answer",
        refusals=(409, *_ONE),
    ),
    Route(
        "POST",
        "/approvals/{id}/reject",
        approvals.reject,
        "reject",
        "approval",
        "approval-answer",
        refusals=(409, *_ONE),
    ),
    Route("GET", "/openapi.json", serve_openapi, "readOpenapi"),
)
