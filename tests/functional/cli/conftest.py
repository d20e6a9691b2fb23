"""The command against moto, the Capacity Block market, and the real API handler behind a loopback server."""

import json
import re
import threading
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import boto3
import pytest
from moto import mock_aws
from typer.testing import CliRunner

from api.app import lambda_handler
from api.routes import ROUTES
from blockkeeper import settings
from blockkeeper.aws import clients, environments, table
from blockkeeper.domain.instants import format_instant
from blockkeeper_cli import clock, output
from blockkeeper_cli.main import app
from local.account import Account
from local.account import attach as attach_account
from local.botocore_market import attach
from local.clock import MarketClock
from local.market import Market

ACCOUNT = "123456789012"
MODELS: dict[Any, Any] = {}
NOW = datetime(2026, 5, 3, 12, 0, tzinfo=UTC)
END = datetime(2026, 5, 4, 11, 30, tzinfo=UTC)
# Long and odd enough that it cannot stand in an output by accident.
KEY = "k3y-Zq7!not-for-eyes-0123456789abcdef"
BLOCK = "cr-0123456789abcdef0"
RECORD = {
    "PK": "team-vision",
    "capacity_block_id": BLOCK,
    "region": "us-east-1",
    "instance_type": "p5.48xlarge",
    "extend_by_days": 1,
    "extension_lookahead_days": 1,
    "approvers": ["maria@example.com"],
    "max_upfront_fee": "12000",
}


def forget_clients():
    """No client outlives the session that it was made of."""
    clients.client.cache_clear()
    clients._session.cache_clear()


class _Gateway(BaseHTTPRequestHandler):
    """Calls the handler as API Gateway does."""

    def _serve(self):
        world: World = self.server.world
        length = int(self.headers.get("content-length") or 0)
        body = self.rfile.read(length).decode() or None
        world.requests.append((self.command, self.path, body))
        if world.api_answers is not None:
            status, text = world.api_answers
        elif self.headers.get("x-api-key") != KEY:
            status, text = 403, json.dumps({"message": "Forbidden"})
        else:
            answer = lambda_handler(self._event(body, world.market.clock.now()), None)
            status, text = answer["statusCode"], answer["body"]
            self.send_response(status)
            for name, value in answer["headers"].items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(text.encode())
            return
        self.send_response(status)
        self.end_headers()
        self.wfile.write(text.encode())

    do_GET = do_POST = do_PUT = do_DELETE = _serve  # noqa: N815 - http.server's own names

    def _event(self, body: str | None, now: datetime) -> dict[str, Any]:
        split = urlsplit(self.path)
        for resource in sorted({route.resource for route in ROUTES}, key=lambda text: text.count("{")):
            match = re.fullmatch(re.sub(r"\\{(\w+)\\}", r"(?P<\1>[^/]+)", re.escape(resource)), split.path)
            if match:
                break
        return {
            "resource": resource,
            "path": split.path,
            "httpMethod": self.command,
            "headers": dict(self.headers),
            "queryStringParameters": dict(parse_qsl(split.query)) or None,
            "pathParameters": {name: unquote(value) for name, value in match.groupdict().items()} or None,
            "requestContext": {"requestTimeEpoch": int(now.timestamp() * 1000)},
            "body": body,
            "isBase64Encoded": False,
        }

    def log_message(self, *_):
        """Tests are quiet."""


@dataclass
class Ran:
    code: int
    out: str
    err: str

    @property
    def json(self):
        return json.loads(self.out)


class World:
    """One stack, one market, one terminal or none."""

    def __init__(self, monkeypatch):
        self.monkeypatch = monkeypatch
        self.market = Market(MarketClock(NOW, 0), ACCOUNT)
        self.account = Account(
            may=lambda role: {
                "blockkeeper-BuyExtensionRole": ["ec2:PurchaseCapacityBlockExtension"],
                "blockkeeper-BuyBlockRole": ["ec2:PurchaseCapacityBlock"],
            }.get(role.rpartition("/")[2].rpartition("-")[0]),
            verified=lambda: {"example.com"},
        )
        self.requests: list[tuple[str, str, str | None]] = []
        self.api_answers: tuple[int, str] | None = None
        self.machine = self.plan_b = ""
        self.session: dict[str, str | None] | None = None

    def __call__(self, *words: str, given: str | None = None) -> Ran:
        result = CliRunner().invoke(app, words, input=given)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        for text in (result.stdout, result.stderr):
            assert KEY not in text
            assert "Traceback" not in text
            assert "\x1b" not in text, "colour codes without a terminal"
        return Ran(result.exit_code, result.stdout, result.stderr)

    def terminal(self):
        self.monkeypatch.setattr(output, "interactive", lambda: True)

    def block(self, reservation_id=BLOCK, **fields):
        block = {
            "reservation_id": reservation_id,
            "region": "us-east-1",
            "instance_type": "p5.48xlarge",
            "instance_count": 4,
            "availability_zone": "us-east-1a",
            "start": format_instant(NOW - timedelta(days=6)),
            "end": format_instant(END),
            "hourly_rate": "41.528",
        }
        self.market.load_fleet({"blocks": [{**block, **fields}]})

    def enrol(self, *, unseen=False, **fields):
        """Enrols a block that EC2 has: one is made where a test has made none, unless EC2 is not to be asked."""
        wanted = {**RECORD, **fields}
        place = (wanted["capacity_block_id"], wanted["region"])
        if not unseen and self.market.blocks.get(*place) is None:
            self.block(place[0], region=place[1], instance_type=wanted["instance_type"])
        with self.monkeypatch.context() as patch:
            if unseen:
                patch.setattr("blockkeeper_cli.records.look", lambda *_: None)
            ran = self("enrol", "-", "--json", given=json.dumps(wanted))
        assert ran.code == 0, ran.err
        return ran.json

    def request(self, approval_id=f"{BLOCK}-20260504T1130Z-1", **fields):
        """Stores a request for approval, as ask-approvers does."""
        item = {
            "environment": "team-vision",
            "reservation_id": BLOCK,
            "account": ACCOUNT,
            "region": "us-east-1",
            "current_end": format_instant(END),
            "new_end": format_instant(END + timedelta(days=1)),
            "duration_hours": 24,
            "instance_type": "p5.48xlarge",
            "instance_count": 4,
            "offering_id": "cbe-00000000000000001",
            "upfront_fee": "3986.69",
            "ceiling": "3986.69",
            "status": "OPEN",
            "approvers": ["maria@example.com"],
            "quorum": 1,
            "votes": {},
            "task_token": "t0ken-not-for-eyes",
            "decide_by": "2026-05-04T08:30:00Z",
            "opened_at": format_instant(NOW),
            "version": 1,
        }
        table.write(table.put_request("approval", approval_id, {**item, **fields}))
        return approval_id

    def purchase(self, **fields):
        """Stores an entry of the ledger."""
        item = {
            "state": "BOUGHT",
            "environment": "team-vision",
            "reservation_id": BLOCK,
            "account": ACCOUNT,
            "region": "us-east-1",
            "current_end": format_instant(END),
            "new_end": format_instant(END + timedelta(days=1)),
            "duration_hours": 24,
            "offering_id": "cbe-1",
            "upfront_fee": "3986.69",
            "budgets": ["2026-05"],
            **fields,
        }
        kind = "#block" if "new_start" in item else ""
        table.write(table.put_request("purchase", f"{item['reservation_id']}#{item['current_end']}{kind}", item))

    def set_status(self, pk, status, error=None, **mirrored):
        environments.set_status(pk, environments.Status(status), error, self.market.clock.now(), **mirrored)

    def everything(self):
        """All items of the table."""
        return boto3.client("dynamodb").scan(TableName="blockkeeper")["Items"]

    def executions(self, machine=None):
        listed = boto3.client("stepfunctions").list_executions(stateMachineArn=machine or self.machine)["executions"]
        return [execution["name"] for execution in listed]

    def calls(self, operation):
        return [call for call in self.market.calls if call.operation == operation]


def _deploy(url: str, machine: str, plan_b: str, **parameters: str) -> None:
    """What the command reads of the template: two SSM parameters, the outputs and the parameters."""
    wanted = {
        "PurchaseMode": "dry-run",
        "MonthlyLimit": "50000",
        "ApproverEmails": "",
        "PaymentMarginMinutes": "120",
        "MemberRoleName": "BlockkeeperMember",
        "SenderEmail": "blockkeeper@example.com",
        "Targets": "",
        **parameters,
    }
    outputs = {"TableName": "blockkeeper", "ExtendBlockArn": machine, "ReplaceBlockArn": plan_b}
    outputs |= {"ApiKeySecretName": "blockkeeper-key"}
    paths = {"Url": ("apiUrl", url), "Secret": ("apiSecretName", "blockkeeper-key")}
    roles = {
        buyer: {
            "Type": "AWS::IAM::Role",
            "Properties": {"RoleName": f"blockkeeper-{buyer}-ABC", "AssumeRolePolicyDocument": {"Statement": []}},
        }
        for buyer in ("BuyExtensionRole", "BuyBlockRole")
    }
    template = {
        "Parameters": {name: {"Type": "String"} for name in wanted},
        "Resources": {
            name: {
                "Type": "AWS::SSM::Parameter",
                "Properties": {"Name": f"/blockkeeper/blockkeeper/{path}", "Type": "String", "Value": value},
            }
            for name, (path, value) in paths.items()
        }
        | roles,
        "Outputs": {name: {"Value": value} for name, value in outputs.items()},
    }
    client = boto3.client("cloudformation")
    values = [{"ParameterKey": name, "ParameterValue": value} for name, value in wanted.items()]
    client.create_stack(StackName="blockkeeper", TemplateBody=json.dumps(template), Parameters=values)


@pytest.fixture
def deployed():
    """Parameters of the stack, for a test module to change."""
    return {}


@pytest.fixture
def cli(monkeypatch, deployed):
    variables = {
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "TABLE_NAME": "blockkeeper",
        "ACCOUNT_ID": ACCOUNT,
        "PAYMENT_MARGIN_MINUTES": "120",
        "STACK_NAME": "blockkeeper",
        "PURCHASE_MODE": "dry-run",
        "MONTHLY_LIMIT": "0",
        "MEMBER_ROLE_NAME": "BlockkeeperMember",
        "APPROVER_EMAILS": "",
        "COLUMNS": "80",
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    for name in ("AWS_PROFILE", "AWS_ENDPOINT_URL", "BLOCKKEEPER_STACK", "FORCE_COLOR", "AWS_REGION"):
        monkeypatch.delenv(name, raising=False)
    # The API's function has it from Lambda; the command is not to see it.
    monkeypatch.setattr(settings, "own_targets", lambda: settings.targets("", ACCOUNT, "us-east-1"))
    world = World(monkeypatch)
    monkeypatch.setattr(clock, "now", world.market.clock.now)
    set_up = boto3.setup_default_session

    def with_market(**options):
        """As a process of its own, but botocore's models are parsed once, and a session with the same options is kept."""
        if world.session == options:
            return
        world.session = options
        set_up(**options)
        boto3.DEFAULT_SESSION._session.get_component("data_loader")._cache = MODELS
        attach(boto3.DEFAULT_SESSION, world.market)
        attach_account(boto3.DEFAULT_SESSION._session.get_component("event_emitter"), world.account)
        forget_clients()

    monkeypatch.setattr(boto3, "setup_default_session", with_market)
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Gateway)
    server.world = world
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    with mock_aws():
        monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)
        boto3.setup_default_session(profile_name=None, region_name=None)
        boto3.client("dynamodb").create_table(
            TableName="blockkeeper",
            BillingMode="PAY_PER_REQUEST",
            KeySchema=[{"AttributeName": "kind", "KeyType": "HASH"}, {"AttributeName": "id", "KeyType": "RANGE"}],
            AttributeDefinitions=[
                {"AttributeName": "kind", "AttributeType": "S"},
                {"AttributeName": "id", "AttributeType": "S"},
            ],
        )
        boto3.client("secretsmanager").create_secret(Name="blockkeeper-key", SecretString=json.dumps({"api_key": KEY}))
        machines = {
            name: boto3.client("stepfunctions").create_state_machine(
                name=name,
                definition=json.dumps({"StartAt": "A", "States": {"A": {"Type": "Succeed"}}}),
                roleArn=f"arn:aws:iam::{ACCOUNT}:role/{name}",
            )["stateMachineArn"]
            for name in ("extend-block", "replace-block")
        }
        world.machine, world.plan_b = machines["extend-block"], machines["replace-block"]
        _deploy(f"http://127.0.0.1:{server.server_port}", world.machine, world.plan_b, **deployed)
        yield world
    server.shutdown()
    server.server_close()
    thread.join()
    forget_clients()
