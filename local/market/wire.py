"""The wire formats of EC2, Auto Scaling, EKS and Batch, read and written from botocore's service models: nothing drifts."""

import json
import re
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from typing import Any, NamedTuple
from urllib.parse import unquote
from xml.sax.saxutils import escape

from botocore.loaders import Loader
from botocore.validate import ParamValidator
from moto.core.model import OperationModel, ServiceModel
from moto.core.parse import EC2QueryParser, QueryParser, RestJSONParser
from moto.core.serialize import EC2Serializer, QuerySerializer, RestJSONSerializer, SerializationContext

from local.market.errors import MarketError

REST = frozenset({"eks", "batch"})
"""Services that speak JSON at paths of their own."""
_PARSERS = {"ec2": EC2QueryParser, "autoscaling": QueryParser}
_SERIALIZERS = {
    "ec2": EC2Serializer,
    "autoscaling": QuerySerializer,
    "eks": RestJSONSerializer,
    "batch": RestJSONSerializer,
}
_MALFORMED = {"eks": "InvalidParameterException", "batch": "ClientException"}


class WireAnswer(NamedTuple):
    """An HTTP answer."""

    status: int
    headers: dict[str, str]
    body: bytes


@cache
def service_model(service: str) -> ServiceModel:
    """botocore's model of a service."""
    return ServiceModel(Loader().load_service_model(service, "service-2"), service)


def _operation(service: str, operation: str) -> OperationModel:
    model: OperationModel = service_model(service).operation_model(operation)
    return model


def parse_request(service: str, operation: str, form: Mapping[str, str]) -> dict[str, Any]:
    """The parameters of a request, in botocore's shapes, from its form fields.

    Raises:
        MarketError: a parameter is missing or malformed.
    """
    model = _operation(service, operation)
    parser = _PARSERS[service](model, timestamp_parser=_instant)
    try:
        params: dict[str, Any] = parser.parse({"values": form})  # type: ignore[typeddict-item]
    except (ValueError, TypeError) as error:
        raise MarketError("InvalidParameterValue" if service == "ec2" else "ValidationError", str(error)) from error
    if model.input_shape is not None:
        report = ParamValidator().validate(params, model.input_shape)
        if report.has_errors():
            raise MarketError("MissingParameter" if service == "ec2" else "ValidationError", report.generate_report())
    return params


def rest_operation(service: str, method: str, path: str) -> tuple[str, dict[str, str]] | None:
    """The operation at a path, and the path's own parameters by their names there; None when the service has none."""
    for name in service_model(service).operation_names:
        http = _operation(service, name).http
        pattern = re.sub(r"\\{(\w+)\\}", r"(?P<\1>[^/]+)", re.escape(http["requestUri"]))
        if http["method"] == method and (found := re.fullmatch(pattern, path)):
            return name, {key: unquote(value) for key, value in found.groupdict().items()}
    return None


def parse_rest(service: str, operation: str, in_path: Mapping[str, str], body: bytes | str | None) -> dict[str, Any]:
    """The parameters of a request in JSON.

    Raises:
        MarketError: a parameter is missing or malformed.
    """
    model = _operation(service, operation)
    request: Any = {"body": body or b"", "headers": {}, "values": {}, "url_params": dict(in_path)}
    try:
        params: dict[str, Any] = RestJSONParser(model, timestamp_parser=_instant).parse(request)
    except (ValueError, TypeError) as error:
        raise MarketError(_MALFORMED[service], str(error)) from error
    assert model.input_shape is not None  # noqa: S101 - all of these take parameters
    report = ParamValidator().validate(params, model.input_shape)
    if report.has_errors():
        raise MarketError(_MALFORMED[service], report.generate_report())
    return params


def _instant(text: str) -> datetime:
    at = datetime.fromisoformat(text)
    return (at if at.tzinfo is not None else at.replace(tzinfo=UTC)).astimezone(UTC)


def answer(service: str, operation: str, result: dict[str, Any]) -> WireAnswer:
    """An operation's result as the service writes it."""
    context = SerializationContext(str(uuid.uuid4()))
    serialized = _SERIALIZERS[service](_operation(service, operation), context).serialize(result)
    kind = "application/json" if service in REST else "text/xml;charset=UTF-8"
    return WireAnswer(serialized["status_code"], {"Content-Type": kind}, _bytes(serialized["body"]))


def refusal(service: str, error: MarketError) -> WireAnswer:
    """A refusal as the service writes it."""
    if service in REST:
        headers = {"Content-Type": "application/json", "x-amzn-ErrorType": error.code}
        return WireAnswer(error.status, headers, _bytes(json.dumps({"message": error.message})))
    fault = f"<Code>{escape(error.code)}</Code><Message>{escape(error.message)}</Message>"
    request_id = uuid.uuid4()
    if service == "ec2":
        body = f"<Response><Errors><Error>{fault}</Error></Errors><RequestID>{request_id}</RequestID></Response>"
    else:
        kind = "Sender" if error.status < 500 else "Receiver"
        body = f"<ErrorResponse><Error><Type>{kind}</Type>{fault}</Error><RequestId>{request_id}</RequestId></ErrorResponse>"
    return WireAnswer(error.status, {"Content-Type": "text/xml;charset=UTF-8"}, _bytes(body))


def _bytes(text: str | bytes) -> bytes:
    return text.encode() if isinstance(text, str) else text
