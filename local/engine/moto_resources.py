"""Creates in moto what the template would create in AWS, as far as functions use it at run time."""

import json
import re
from functools import cache
from typing import Any

import boto3
from moto.secretsmanager.models import secretsmanager_backends
from moto.ses.models import ses_backends

from .template import Template

_TABLE_PROPERTIES = (
    "AttributeDefinitions",
    "BillingMode",
    "GlobalSecondaryIndexes",
    "KeySchema",
    "LocalSecondaryIndexes",
    "StreamSpecification",
)


def create(template: Template) -> None:
    """Tables, secrets, SSM parameters, topics, queues, and the verified sender."""
    for logical_id, properties in template.of_type("AWS::DynamoDB::Table"):
        wanted = {name: properties[name] for name in _TABLE_PROPERTIES if name in properties}
        _client("dynamodb").create_table(TableName=template.name(logical_id), **wanted)
    for logical_id, properties in template.of_type("AWS::SecretsManager::Secret"):
        text = properties.get("SecretString") or _generated(properties.get("GenerateSecretString", {}))
        created = _client("secretsmanager").create_secret(Name=template.name(logical_id), SecretString=text)
        # Both AWS and moto put six random characters behind the name; functions have the template's ARN in their environment.
        _, _, _, region, account, *_ = created["ARN"].split(":")
        secretsmanager_backends[account][region].secrets[created["Name"]].arn = template.arn(logical_id)
    for logical_id, properties in template.of_type("AWS::SSM::Parameter"):
        value = str(properties["Value"])
        _client("ssm").put_parameter(Name=template.name(logical_id), Value=value, Type=properties["Type"])
    for logical_id, _ in template.of_type("AWS::SNS::Topic"):
        _client("sns").create_topic(Name=template.name(logical_id))
    for logical_id, _ in template.of_type("AWS::SQS::Queue"):
        _client("sqs").create_queue(QueueName=template.name(logical_id))
    sender = template.parameters.get("SenderEmail")
    if sender:
        _client("ses").verify_email_identity(EmailAddress=sender)


@cache
def _client(service: str) -> Any:
    return boto3.client(service)  # type: ignore[call-overload]


def api_key(template: Template) -> str | None:
    """The value of the REST API's key, from the secret that its template property refers to; None without one."""
    for _, properties in template.of_type("AWS::ApiGateway::ApiKey"):
        match = re.fullmatch(r"\{\{resolve:secretsmanager:(.+):SecretString:(\w+)\}\}", properties["Value"])
        if match is None:
            raise ValueError(f"the API key's value {properties['Value']!r} is no reference to a secret")
        secret = _client("secretsmanager").get_secret_value(SecretId=match[1])["SecretString"]
        return str(json.loads(secret)[match[2]])
    return None


def verified(account: str, region: str) -> set[str]:
    """Identities that tests have made with either API of SES; moto never calls one verified itself."""
    # Not through a client: it would count as a call of the function that asks.
    return set(ses_backends[account][region].email_identities)


def sent_mails(account: str, region: str) -> list[Any]:
    return list(ses_backends[account][region].sent_messages)


def _generated(rule: dict[str, Any]) -> str:
    """A secret that CloudFormation would make up; the same in every run."""
    secret = "x" * int(rule.get("PasswordLength", 32))
    if "SecretStringTemplate" not in rule:
        return secret
    return json.dumps({**json.loads(rule["SecretStringTemplate"]), rule["GenerateStringKey"]: secret})
