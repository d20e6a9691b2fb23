"""A client of the real handler, called as API Gateway calls it."""

import json
import re
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

import boto3

from api.app import lambda_handler
from api.routes import ROUTES
from blockkeeper.domain.instants import parse_instant

NOW = "2026-05-01T12:00:00Z"
SAMPLE = {
    "PK": "team-vision",
    "name": "Vision training",
    "capacity_block_id": "cr-0123456789abcdef0",
    "region": "us-east-1",
    "instance_type": "p5.48xlarge",
    "end_time": "2026-05-04T11:30:00Z",
    "extend_by_days": 7,
    "extension_lookahead_days": 2,
    "require_approval": True,
}
COMPLETE = {**SAMPLE, "approvers": ["maria@example.com"], "max_upfront_fee": "60000.00"}


@dataclass
class Response:
    status: int
    headers: dict[str, str]
    text: str
    body: Any = field(init=False)

    def __post_init__(self):
        self.body = json.loads(self.text)


def gateway_event(method, path, *, body=None, query=None, headers=None, now=NOW, encoded=False):
    """The proxy event; the path is matched as API Gateway does: a fixed segment before a parameter."""
    for resource in sorted({route.resource for route in ROUTES}, key=lambda text: text.count("{")):
        match = re.fullmatch(re.sub(r"\\{(\w+)\\}", r"(?P<\1>[^/]+)", re.escape(resource)), path)
        if match:
            break
    else:
        resource, match = path, None
    return {
        "resource": resource,
        "path": path,
        "httpMethod": method,
        "headers": headers or {},
        "queryStringParameters": query,
        "pathParameters": match.groupdict() or None if match else None,
        "requestContext": {"requestTimeEpoch": int(parse_instant(now).timestamp() * 1000)},
        "body": body,
        "isBase64Encoded": encoded,
    }


class Api:
    """A client of the handler."""

    def __call__(self, method, path, body=None, *, raw=None, headers=None, now=NOW, encoded=False, **query):
        text = raw if raw is not None else None if body is None else json.dumps(body)
        event = gateway_event(method, path, body=text, query=query or None, headers=headers, now=now, encoded=encoded)
        answer = lambda_handler(event, None)
        assert answer["headers"]["Content-Type"] == "application/json"
        return Response(answer["statusCode"], answer["headers"], answer["body"])

    def enrol(self, **fields):
        answer = self("POST", "/", {**COMPLETE, **fields})
        assert answer.status == 201, answer.text
        return answer

    def pages(self, path, **query):
        """Follows `x-next-cursor` to the end."""
        while True:
            answer = self("GET", path, **query)
            assert answer.status == 200, answer.text
            yield answer
            if "x-next-cursor" not in answer.headers:
                return
            query = {**query, "cursor": answer.headers["x-next-cursor"]}
            assert answer.headers["Link"] == f'<?{urlencode(query)}>; rel="next"'


def make_table():
    boto3.client("dynamodb", region_name="us-east-1").create_table(
        TableName="blockkeeper",
        BillingMode="PAY_PER_REQUEST",
        KeySchema=[{"AttributeName": "kind", "KeyType": "HASH"}, {"AttributeName": "id", "KeyType": "RANGE"}],
        AttributeDefinitions=[
            {"AttributeName": "kind", "AttributeType": "S"},
            {"AttributeName": "id", "AttributeType": "S"},
        ],
    )
