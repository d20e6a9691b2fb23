"""What AWS says of an account and neither moto nor MiniStack does: quotas, standing with SES, resource groups, permissions.

Answers are checked against botocore's own service model, so that they cannot drift from the SDK.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from typing import Any, NamedTuple
from urllib.parse import unquote

from botocore.loaders import Loader
from botocore.model import ServiceModel
from botocore.validate import ParamValidator

AMPLE = 10_000.0


class AccountError(Exception):
    """A refusal of AWS: its code and message."""

    def __init__(self, code: str, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.code, self.message, self.status = code, message, status


@dataclass
class Account:
    """One account's standing; tests and demos change it.

    Attributes:
        quotas: vCPUs by quota code; one that is None was never changed and has AWS's default, 0.
        suppressed: addresses on the suppression list, with BOUNCE or COMPLAINT.
        resource_groups: members by the group's ARN, as ARNs.
        may: the actions of a role, by its ARN; None is a role that is not known.
        by_organization: whether the organization's policies allow what its roles may.
        verified: identities that SES has verified.
        denied: operations that are refused, such as `GetServiceQuota`.
    """

    quotas: dict[str, float | None] = field(default_factory=dict)
    production: bool = True
    sending: bool = True
    suppressed: dict[str, str] = field(default_factory=dict)
    resource_groups: dict[str, list[str]] = field(default_factory=dict)
    may: Callable[[str], Iterable[str] | None] = lambda _: ()
    by_organization: bool = True
    verified: Callable[[], Iterable[str]] = lambda: ()
    denied: set[str] = field(default_factory=set)

    def answer(self, service: str, operation: str, params: dict[str, Any]) -> dict[str, Any]:
        """An operation's result.

        Raises:
            AccountError: AWS would refuse.
        """
        if operation in self.denied:
            raise AccountError("AccessDeniedException", "User is not authorized to perform this operation.", 403)
        result: dict[str, Any] = _OPERATIONS[service, operation](self, params)
        shape = _model(service).operation_model(operation).output_shape
        report = ParamValidator().validate(result, shape) if shape is not None else None
        if report is not None and report.has_errors():
            raise ValueError(report.generate_report())
        return result

    def _quota(self, params: dict[str, Any]) -> dict[str, Any]:
        value = self.quotas.get(params["QuotaCode"], AMPLE)
        if value is None:
            raise AccountError(
                "NoSuchResourceException", "The request failed because the specified quota is unknown.", 404
            )
        return {"Quota": {"ServiceCode": params["ServiceCode"], "QuotaCode": params["QuotaCode"], "Value": value}}

    def _default_quota(self, params: dict[str, Any]) -> dict[str, Any]:
        return {"Quota": {"ServiceCode": params["ServiceCode"], "QuotaCode": params["QuotaCode"], "Value": 0.0}}

    def _ses_account(self, _: dict[str, Any]) -> dict[str, Any]:
        return {
            "ProductionAccessEnabled": self.production,
            "SendingEnabled": self.sending,
            "EnforcementStatus": "HEALTHY" if self.sending else "SHUTDOWN",
        }

    def _identity(self, params: dict[str, Any]) -> dict[str, Any]:
        name = params["EmailIdentity"]
        if name not in set(self.verified()):
            raise AccountError("NotFoundException", f"Email identity {name} does not exist.", 404)
        kind = "EMAIL_ADDRESS" if "@" in name else "DOMAIN"
        return {"IdentityType": kind, "VerifiedForSendingStatus": True}

    def _suppression(self, params: dict[str, Any]) -> dict[str, Any]:
        address = params["EmailAddress"]
        if address not in self.suppressed:
            raise AccountError("NotFoundException", "Email address is not on your suppression list.", 404)
        at = datetime(2026, 1, 1, tzinfo=UTC)
        found = {"EmailAddress": address, "Reason": self.suppressed[address], "LastUpdateTime": at}
        return {"SuppressedDestination": found}

    def _group(self, params: dict[str, Any]) -> dict[str, Any]:
        name = params.get("Group") or params["GroupName"]
        if name not in self.resource_groups:
            raise AccountError("NotFoundException", f"Cannot find group {name}.", 404)
        kind = "AWS::EC2::CapacityReservation"
        members = [{"ResourceArn": arn, "ResourceType": kind} for arn in self.resource_groups[name]]
        return {"Resources": [{"Identifier": each} for each in members], "ResourceIdentifiers": members}

    def _simulation(self, params: dict[str, Any]) -> dict[str, Any]:
        actions = self.may(params["PolicySourceArn"])
        if actions is None:
            raise AccountError("NoSuchEntity", f"{params['PolicySourceArn']} cannot be found.", 404)
        allowed = set(actions) if self.by_organization else set()
        results = [
            {
                "EvalActionName": action,
                "EvalDecision": "allowed" if action in allowed else "implicitDeny",
                "OrganizationsDecisionDetail": {"AllowedByOrganizations": self.by_organization},
            }
            for action in params["ActionNames"]
        ]
        return {"EvaluationResults": results, "IsTruncated": False}


_OPERATIONS: dict[tuple[str, str], Any] = {
    ("service-quotas", "GetServiceQuota"): Account._quota,
    ("service-quotas", "GetAWSDefaultServiceQuota"): Account._default_quota,
    ("sesv2", "GetAccount"): Account._ses_account,
    ("sesv2", "GetEmailIdentity"): Account._identity,
    ("sesv2", "GetSuppressedDestination"): Account._suppression,
    ("resource-groups", "ListGroupResources"): Account._group,
    ("iam", "SimulatePrincipalPolicy"): Account._simulation,
}
OPERATIONS = frozenset(_OPERATIONS)


@cache
def _model(service: str) -> ServiceModel:
    return ServiceModel(Loader().load_service_model(service, "service-2"), service)


def attach(emitter: Any, account: Account) -> None:
    """Let clients whose events go to `emitter` ask `account`; whatever else they call goes where it would go anyway."""
    from botocore.awsrequest import AWSResponse
    from botocore.compat import HTTPHeaders

    for service, operation in OPERATIONS:

        def call(
            params: dict[str, Any],
            context: dict[str, Any],
            service: str = service,
            operation: str = operation,
            **_: Any,
        ) -> Any:
            given = context.get("blockkeeper_params", {})
            try:
                parsed, status = account.answer(service, operation, given), 200
            except AccountError as refused:
                parsed, status = {"Error": {"Code": refused.code, "Message": refused.message}}, refused.status
            parsed["ResponseMetadata"] = {"HTTPStatusCode": status}
            return AWSResponse(params["url"], status, HTTPHeaders(), None), parsed

        def note(params: dict[str, Any], context: dict[str, Any], **_: Any) -> None:
            context["blockkeeper_params"] = dict(params)

        emitter.register(f"before-parameter-build.{service}.{operation}", note)
        emitter.register(f"before-call.{service}.{operation}", call)


_QUOTA_TARGET = b"ServiceQuotasV20190624."
_SUPPRESSED = "/v2/email/suppression/addresses/"


class HttpAnswer(NamedTuple):
    """An HTTP answer."""

    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes


def takes(method: str, path: str, headers: Mapping[bytes, bytes]) -> bool:
    """Whether a request is for a call that MiniStack does not know: Service Quotas, and one address of SES's suppression list.

    IAM is not asked about these: MiniStack checks permissions only of what it answers itself.
    """
    return headers.get(b"x-amz-target", b"").startswith(_QUOTA_TARGET) or (
        method == "GET" and path.startswith(_SUPPRESSED)
    )


def over_http(account: Account, path: str, headers: Mapping[bytes, bytes], body: bytes) -> HttpAnswer:
    """Answer a request that `takes` has taken, in the wire format of its service."""
    target = headers.get(b"x-amz-target", b"").decode()
    if target:
        service, operation, params = "service-quotas", target.rpartition(".")[2], json.loads(body or b"{}")
    else:
        address = unquote(path.removeprefix(_SUPPRESSED))
        service, operation, params = "sesv2", "GetSuppressedDestination", {"EmailAddress": address}
    kind = b"application/x-amz-json-1.1" if target else b"application/json"
    try:
        status, answer, error = 200, account.answer(service, operation, params), b""
    except AccountError as refused:
        status, answer, error = (
            refused.status,
            {"__type": refused.code, "message": refused.message},
            refused.code.encode(),
        )
    text = json.dumps(answer, default=lambda at: at.timestamp()).encode()
    return HttpAnswer(status, [(b"content-type", kind), *([(b"x-amzn-errortype", error)] if error else [])], text)
