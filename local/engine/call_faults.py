"""Faults of any AWS call that the product makes, planned for the place where it is made."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Literal, NamedTuple, get_args

from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from botocore.exceptions import ReadTimeoutError

from local.http_answer import ANSWERED, http_answer
from local.market import MarketError, wire

from .errors import LambdaDiedError

Kind = Literal[
    "throttled", "denied", "error_before", "error_after", "timeout_before", "timeout_after",
    "crash_before", "crash_after", "lambda_timeout", "overtaken",
]  # fmt: skip
Scope = Literal["attempt", "call", "lasting"]

_XML = {"ec2": "ec2", "auto-scaling": "autoscaling"}
# The code with which a service says that it is asked too often, and that it does not allow a call (each service's API Reference).
_THROTTLED = {
    "ec2": ("RequestLimitExceeded", 503),
    "auto-scaling": ("Throttling", 400),
    "dynamodb": ("ThrottlingException", 400),
    "sesv2": ("TooManyRequestsException", 429),
}
_DENIED = {"ec2": ("UnauthorizedOperation", 403), "auto-scaling": ("AccessDenied", 403)}
_BROKEN = {"ec2": ("InternalError", 500), "dynamodb": ("InternalServerError", 500)}


class Site(NamedTuple):
    """Where a call is made: the function, and which of one invocation's calls of that operation it is, from 1."""

    caller: str
    service: str
    operation: str
    nth: int

    def __str__(self) -> str:
        return f"{self.caller}.{self.service}.{self.operation}" + (f".{self.nth}" if self.nth > 1 else "")


@dataclass
class CallFault:
    """One thing that goes wrong where `site` says.

    `scope` attempt: with one HTTP request, so that the SDK's retry meets what the first did; call: with every request of one
    call; lasting: with every call until it is taken out of `CallFaults.planned`. A crash ends the invocation there and then;
    overtaken: just before the call a second invocation with the same event runs from its beginning to its end, or `meanwhile`.
    """

    kind: Kind
    site: Site
    scope: Scope
    meanwhile: Callable[[], object] | None = None
    strikes: int = 0
    call: int | None = None

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind) or self.scope not in get_args(Scope):
            raise ValueError(f"{self.kind!r} with scope {self.scope!r} is no fault")

    def is_due(self, site: Site | None, call: int) -> bool:
        if site != self.site:
            return False
        if self.scope == "lasting":
            return True
        return not self.strikes if self.scope == "attempt" else self.call in (None, call)


@dataclass
class CallFaults:
    """The planned faults, and the call that is being made."""

    planned: list[CallFault] = field(default_factory=list)
    site: Site | None = None
    call: int = 0
    """A number for each call, however many requests it takes."""

    def plan(self, kind: Kind, site: Site, scope: Scope, meanwhile: Callable[[], object] | None = None) -> CallFault:
        fault = CallFault(kind, site, scope, meanwhile)
        self.planned.append(fault)
        return fault

    def enter(self, site: Site | None) -> None:
        """A call begins; None when a test makes it, which no fault strikes."""
        self.site = site
        self.call += 1

    def send(
        self,
        event_name: str,
        request: AWSPreparedRequest,
        effect: Callable[[], AWSResponse | None],
        *,
        timeout: timedelta,
        run_again: Callable[[], object],
    ) -> AWSResponse | None:
        """Answer one HTTP request: by `effect`, or as the fault that is due here says.

        `timeout` is that of the function that calls, for a crash by it; `run_again` invokes it with the same event.
        """
        fault = next((fault for fault in self.planned if fault.is_due(self.site, self.call)), None)
        if fault is None:
            return effect()
        fault.strikes += 1
        fault.call = self.call
        if fault.kind == "overtaken":
            here = self.site, self.call
            self.planned.remove(fault)
            (fault.meanwhile or run_again)()
            self.site, self.call = here
            return effect()
        if fault.kind in ("error_after", "timeout_after", "crash_after", "lambda_timeout") and effect() is None:
            _moto(event_name, request)
        url, request.url = request.url, ANSWERED
        if fault.kind == "lambda_timeout":
            raise LambdaDiedError("Sandbox.Timedout", timeout)
        if fault.kind.startswith("crash"):
            raise LambdaDiedError("Lambda.Unknown")
        if fault.kind.startswith("timeout"):
            raise ReadTimeoutError(endpoint_url=url)
        return _refusal(event_name.split(".")[1], fault.kind, url)


def _moto(event_name: str, request: AWSPreparedRequest) -> None:
    from moto.core.models import botocore_stubber

    botocore_stubber(event_name=event_name, request=request)


def _refusal(service: str, kind: str, url: str) -> AWSResponse:
    known, default = {
        "throttled": (_THROTTLED, ("ThrottlingException", 400)),
        "denied": (_DENIED, ("AccessDeniedException", 400)),
    }.get(kind, (_BROKEN, ("InternalFailure", 500)))
    code, status = known.get(service, default)
    if service in _XML:
        answer = wire.refusal(_XML[service], MarketError(code, f"{kind}, by a test", status))
        return http_answer(url, answer.status, answer.body, answer.headers)
    body = json.dumps({"__type": code, "message": f"{kind}, by a test"}).encode()
    return http_answer(url, status, body, {"x-amzn-errortype": code})
