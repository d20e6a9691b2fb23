"""Answers boto3's calls to EC2, Auto Scaling, EKS and Batch from a market in the same process.

Everything of botocore stays in the way: its validation, serializer, signer, retries, errors and parser; only the sending is
replaced. So a test sees what it would see of AWS, and nothing can drift from the SDK. Calls that the market does not know,
and other services, go where they would go anyway (for instance to moto's `mock_aws`, which may be active at the same time).
"""

import re
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import boto3
from botocore import session as botocore_session
from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from botocore.exceptions import ConnectionClosedError, ReadTimeoutError

from local.http_answer import ANSWERED, http_answer
from local.market import LostAnswerError, Market, MarketError, wire
from local.market.caller import Caller

_SERVICES = {"ec2": "ec2", "auto-scaling": "autoscaling", "eks": "eks", "batch": "batch"}
_CREDENTIAL = re.compile(r"Credential=(?P<key>[^/]+)/\d{8}/(?P<region>[^/]+)/")
_ACCOUNT = re.compile(r"\d{12}")

AccountOf = Callable[[str], "str | None"]


def attach(
    session: boto3.Session | botocore_session.Session, market: Market, account_of: AccountOf | None = None
) -> None:
    """Let clients that `session` makes after this call EC2 and Auto Scaling of `market`.

    `account_of` maps an access key to its account. Left out: a key of twelve digits is its own account, temporary credentials
    of moto's STS belong to the role's account, any other to the market's own.
    """
    raw = session._session if isinstance(session, boto3.Session) else session
    known = market.operations()

    def send(request: AWSPreparedRequest, event_name: str, **_more: Any) -> AWSResponse | None:
        _, service_id, operation = event_name.split(".")
        service = _SERVICES[service_id]
        if (service, operation) not in known:
            return None
        access_key, region = _signer(request)
        account = (account_of or account_of_key)(access_key) or market.account_id
        return _sent(market, service, operation, request, Caller(account, region))

    for service_id in _SERVICES:
        raw.get_component("event_emitter").register_first(f"before-send.{service_id}", send)


def account_of_key(access_key: str) -> str | None:
    """The account that an access key names or, with moto's STS, belongs to."""
    if _ACCOUNT.fullmatch(access_key):
        return access_key
    from moto.sts.models import sts_backends

    for account_id, partitions in sts_backends.items():
        for backend in partitions.values():
            if any(role.access_key_id == access_key for role in backend.assumed_roles):
                return str(account_id)
    return None


def _signer(request: AWSPreparedRequest) -> tuple[str, str]:
    authorization = request.headers.get("Authorization", "")
    found = _CREDENTIAL.search(authorization.decode() if isinstance(authorization, bytes) else authorization)
    if found is None:
        raise ValueError(f"{request.url} carries no signature; the market needs one to know the account and the Region")
    return found["key"], found["region"]


def _sent(
    market: Market, service: str, operation: str, request: AWSPreparedRequest, caller: Caller
) -> AWSResponse | None:
    try:
        params = _params(service, operation, request)
    except MarketError as refused:
        return _answered(request, wire.refusal(service, refused))
    if not market.answers(service, params, caller.region, caller.account):
        return None
    try:
        result = market.call(service, operation, params, caller.region, caller.account)
    except MarketError as refused:
        return _answered(request, wire.refusal(service, refused))
    except LostAnswerError as lost:
        if lost.hangs:
            raise ReadTimeoutError(endpoint_url=request.url, error=lost) from lost
        raise ConnectionClosedError(endpoint_url=request.url, error=lost) from lost
    return _answered(request, wire.answer(service, operation, result))


def _params(service: str, operation: str, request: AWSPreparedRequest) -> dict[str, Any]:
    if service in wire.REST:
        found = wire.rest_operation(service, request.method, urlsplit(request.url).path)
        assert found is not None  # noqa: S101 - botocore made the request from the same model
        return wire.parse_rest(service, operation, found[1], request.body)  # type: ignore[arg-type]
    body = request.body.decode() if isinstance(request.body, bytes) else str(request.body)
    return wire.parse_request(service, operation, dict(parse_qsl(body, keep_blank_values=True)))


def _answered(request: AWSPreparedRequest, answer: wire.WireAnswer) -> AWSResponse:
    url, request.url = request.url, ANSWERED
    return http_answer(url, answer.status, answer.body, answer.headers)
