"""api: the REST API. API Gateway has matched the path to a resource; the route table says who answers."""

from typing import Any

from api.http import RefusedError, parse_request, render, render_refusal
from api.routes import ROUTES
from blockkeeper.telemetry import count, handler, log

_BY_RESOURCE = {(route.resource, route.method): route for route in ROUTES}


@handler
def lambda_handler(event: dict[str, Any], _context: Any) -> dict[str, Any]:
    """Answer an API Gateway REST proxy event with its proxy response; errors are JSON as `schemas/error.schema.json` says."""
    request = parse_request(event)
    route = _BY_RESOURCE.get((request.resource, request.method))
    if route is None:
        return render_refusal(_unrouted(request.resource, request.method))
    try:
        return render(route.function(request))
    except RefusedError as refusal:
        return render_refusal(refusal)
    except Exception:  # noqa: BLE001 - the client must get JSON whatever breaks; the log has the trace, the metric an alarm
        log.exception("the request failed", extra={"operation": route.operation})
        count("ApiFailed")
        message = "something broke on our side; nothing is known to have changed, so read before you repeat the request"
        return render_refusal(RefusedError(500, "internal", message))


def _unrouted(resource: str, method: str) -> RefusedError:
    allowed = ", ".join(known for path, known in _BY_RESOURCE if path == resource)
    if not allowed:
        return RefusedError(404, "not_found", "there is no such path; see GET /openapi.json")
    message = f"{method} is not for this path; use {allowed}"
    return RefusedError(405, "method_not_allowed", message, headers={"Allow": allowed})
