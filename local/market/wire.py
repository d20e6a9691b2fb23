"""EC2's and Auto Scaling's wire format, read and written from botocore's own service models: nothing drifts from the SDK."""

import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from typing import Any, NamedTuple
from xml.sax.saxutils import escape

from botocore.loaders import Loader
from botocore.validate import ParamValidator
from moto.core.model import OperationModel, ServiceModel
from moto.core.parse import EC2QueryParser, QueryParser
from moto.core.serialize import EC2Serializer, QuerySerializer, SerializationContext

from local.market.errors import MarketError

_PARSERS = {"ec2": EC2QueryParser, "autoscaling": QueryParser}
_SERIALIZERS = {"ec2": EC2Serializer, "autoscaling": QuerySerializer}


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


def _instant(text: str) -> datetime:
    at = datetime.fromisoformat(text)
    return (at if at.tzinfo is not None else at.replace(tzinfo=UTC)).astimezone(UTC)


def answer(service: str, operation: str, result: dict[str, Any]) -> WireAnswer:
    """An operation's result as the service writes it."""
    context = SerializationContext(str(uuid.uuid4()))
    serialized = _SERIALIZERS[service](_operation(service, operation), context).serialize(result)
    return WireAnswer(serialized["status_code"], {"Content-Type": "text/xml;charset=UTF-8"}, _bytes(serialized["body"]))


def refusal(service: str, error: MarketError) -> WireAnswer:
    """A refusal as the service writes it."""
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
