"""The way to AWS: the caller's credentials, the stack that they see, and what the shared adapters read from the environment."""

from __future__ import annotations

import json
import os
import re
from functools import cached_property
from typing import TYPE_CHECKING, Any

from blockkeeper_cli.errors import CommandError, UsageError, error_code
from blockkeeper_cli.rest import Api

if TYPE_CHECKING:
    from blockkeeper.aws.examination import Stack

_ENVIRONMENT = {
    "MemberRoleName": "MEMBER_ROLE_NAME",
    "PaymentMarginMinutes": "PAYMENT_MARGIN_MINUTES",
    "ApproverEmails": "APPROVER_EMAILS",
    "PurchaseMode": "PURCHASE_MODE",
    "MonthlyLimit": "MONTHLY_LIMIT",
    "TeamLimits": "TEAM_LIMITS",
    "SenderEmail": "SENDER_EMAIL",
    "SlackChannel": "SLACK_CHANNEL",
    "SlackSecretName": "SLACK_SECRET_NAME",
    "Targets": "TARGETS",
}


class StackNotFoundError(CommandError):
    """There is no such stack where we look."""


class Connection:
    """One command's connection; each part is read when it is first needed.

    Args:
        stack: name of the stack.
        region: Region of the stack; None is that of the profile or the environment.
        profile: AWS profile; None is the standard chain.
    """

    def __init__(self, stack: str, region: str | None, profile: str | None) -> None:
        import boto3

        boto3.setup_default_session(profile_name=profile, region_name=region)
        found = boto3.DEFAULT_SESSION.region_name if boto3.DEFAULT_SESSION else None
        if found is None:
            raise UsageError("no Region is known; pass --region, or set AWS_REGION")
        self.stack = stack
        self.region: str = found

    def client(self, service: str, region: str | None = None) -> Any:
        """A client in the caller's own account."""
        from blockkeeper.aws.clients import client

        return client(service, region or self.region)

    @cached_property
    def identity(self) -> dict[str, str]:
        """Who calls: `Account`, `Arn` (STS GetCallerIdentity)."""
        answer = self.client("sts").get_caller_identity()
        # The shared adapters take any other account for one whose role is to be assumed.
        os.environ["ACCOUNT_ID"] = answer["Account"]
        return {"Account": answer["Account"], "Arn": answer["Arn"]}

    @property
    def account(self) -> str:
        """The caller's account."""
        return self.identity["Account"]

    @property
    def caller(self) -> str:
        """The caller's name: the last part of the ARN, such as a session's or user's name."""
        return re.split(r"[/:]", self.identity["Arn"])[-1]

    @cached_property
    def outputs(self) -> dict[str, str]:
        """The stack's outputs; its parameters are then where ``blockkeeper.settings`` reads them."""
        from botocore.exceptions import ClientError

        try:
            (stack,) = self.client("cloudformation").describe_stacks(StackName=self.stack)["Stacks"]
        except ClientError as error:
            if error_code(error) == "ValidationError" and "does not exist" in str(error):
                raise self._no_stack() from error
            raise
        outputs = {entry["OutputKey"]: entry["OutputValue"] for entry in stack.get("Outputs", [])}
        parameters = {entry["ParameterKey"]: entry["ParameterValue"] for entry in stack.get("Parameters", [])}
        os.environ.update({_ENVIRONMENT[name]: value for name, value in parameters.items() if name in _ENVIRONMENT})
        if "TableName" in outputs:
            os.environ["TABLE_NAME"] = outputs["TableName"]
        os.environ["ACCOUNT_ID"] = self.account
        return outputs

    def output(self, name: str) -> str:
        """One output of the stack.

        Raises:
            CommandError: the stack has no such output, as one that is half deployed.
        """
        if name not in self.outputs:
            raise CommandError(f"stack {self.stack} has no output {name}; deploy it again with `sam deploy`")
        return self.outputs[name]

    @property
    def targets(self) -> tuple[tuple[str, str], ...]:
        """Accounts and Regions that the stack looks at.

        Raises:
            CommandError: the parameter cannot be read.
        """
        from blockkeeper import settings

        self.output("TableName")
        try:
            return tuple(settings.targets(os.environ.get("TARGETS", ""), self.account, self.region))
        except ValueError as error:
            raise CommandError(f"{error}; correct it with `sam deploy --parameter-overrides Targets=...`") from error

    def as_stack(self) -> Stack:
        """The stack as the doctor must know it."""
        from botocore.exceptions import ClientError

        from blockkeeper import settings
        from blockkeeper.aws.examination import Stack
        from blockkeeper.domain.doctor_account import BUY_BLOCK, BUY_EXTENSION

        self.output("TableName")
        roles = {BUY_EXTENSION: "BuyExtensionRole", BUY_BLOCK: "BuyBlockRole"}
        try:
            buyers = {action: self._role(resource) for action, resource in roles.items()}
        except ClientError:
            buyers = None  # the doctor says so, and goes on
        return Stack(
            account=self.account,
            targets=self.targets,
            approvers=settings.approver_emails(),
            sender=os.environ.get("SENDER_EMAIL", ""),
            member_role=os.environ["MEMBER_ROLE_NAME"],
            buyers=buyers,
            teams=tuple(settings.limits().teams),
            inside=False,
        )

    def _role(self, resource: str) -> str:
        """ARN of a role of the stack, by its name in the template."""
        found = self.client("cloudformation").describe_stack_resource(StackName=self.stack, LogicalResourceId=resource)
        partition, name = self.identity["Arn"].split(":")[1], found["StackResourceDetail"]["PhysicalResourceId"]
        return f"arn:{partition}:iam::{self.account}:role/{name}"

    @cached_property
    def api(self) -> Api:
        """The stack's REST API, with its key."""
        names = {part: f"/blockkeeper/{self.stack}/{part}" for part in ("apiUrl", "apiSecretName")}
        answer = self.client("ssm").get_parameters(Names=list(names.values()))
        found = {entry["Name"]: entry["Value"] for entry in answer["Parameters"]}
        if len(found) < len(names):
            raise self._no_stack()
        secret_name = found[names["apiSecretName"]]
        secret = self.client("secretsmanager").get_secret_value(SecretId=secret_name)["SecretString"]
        try:
            key = json.loads(secret)["api_key"]
        except (ValueError, KeyError, TypeError):
            key = None
        if not isinstance(key, str):
            # Without the cause: its text would show the secret.
            raise CommandError(f"secret {secret_name} is no JSON with api_key; restore it, or deploy again") from None
        return Api(found[names["apiUrl"]], key)

    def _no_stack(self) -> StackNotFoundError:
        return StackNotFoundError(
            f"no stack {self.stack} is deployed in {self.region}; pass --stack and --region, or deploy it with `sam deploy`"
        )
