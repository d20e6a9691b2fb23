"""What tests say about an approval: enrol, ask, open the page, answer, look. The real template, handlers and workflow run."""

import json
import re
from datetime import UTC, datetime
from html import unescape
from urllib.parse import parse_qsl, urlencode, urlsplit

import boto3
from boto3.dynamodb.types import TypeDeserializer, TypeSerializer
from botocore.awsrequest import AWSResponse

from local.engine.errors import ApiError
from local.slack import CHANNEL

START = datetime(2026, 5, 4, 6, 0, tzinfo=UTC)
DECIDE_BY = datetime(2026, 5, 4, 8, 30, tzinfo=UTC)
PARAMETERS = {"PurchaseMode": "live", "MonthlyLimit": "50000", "SenderEmail": "blockkeeper@example.com"}
SLACK = {"SlackSecretName": "blockkeeper/slack", "SlackChannel": CHANNEL}
ID = "cr-0a1-20260504T1130Z-1"
REQUEST = {
    "approval_id": ID,
    "environment": "team-vision",
    "reservation_id": "cr-0a1",
    "account": "123456789012",
    "region": "us-east-1",
    "current_end": "2026-05-04T11:30:00Z",
    "new_end": "2026-05-05T11:30:00Z",
    "duration_hours": 24,
    "instance_type": "p5.48xlarge",
    "instance_count": 8,
    "offering_id": "cbe-0a1",
    "upfront_fee": "7973.38",
    "ceiling": "7973.38",
    "decide_by": "2026-05-04T08:30:00Z",
}
RECORD = {
    "name": "Vision training",
    "capacity_block_id": "cr-0a1",
    "region": "us-east-1",
    "instance_type": "p5.48xlarge",
    "extend_by_days": 1,
    "extension_lookahead_days": 2,
    "require_approval": True,
    "approvers": ["maria@example.com", "jo@example.com"],
    "quorum": 1,
    "reminder_hours": [],
    "max_upfront_fee": "12000",
    "version": 1,
}


class Story:
    def __init__(self, world):
        self.world = world
        self.refused = {}
        self._dynamodb = boto3.client("dynamodb", region_name="us-east-1")
        (self._table,) = self._dynamodb.list_tables()["TableNames"]
        boto3.client("sesv2", region_name="us-east-1").create_email_identity(EmailIdentity="blockkeeper@example.com")
        emitter = world._session.get_component("event_emitter")
        emitter.register("before-call.sesv2.SendEmail", self._refuse_mail)

    # --- what happens

    def enrol(self, **fields):
        self.put("environment", "team-vision", RECORD | fields)
        return self

    def ask(self, name="first", **changes):
        """Start approve-purchase and let it come to rest at this moment."""
        execution = self.world.start("ApprovePurchase", REQUEST | changes, name)
        self.world.run_until(self.world.now())
        return execution

    def page(self, link, method="GET", **more):
        parts = urlsplit(link)
        path = parts.path.removeprefix(urlsplit(self.base()).path)
        return self.world.request(method, path, query=dict(parse_qsl(parts.query)), **more)

    def answer(self, link, decision="approve", reason="", **more):
        form = {"Content-Type": "application/x-www-form-urlencoded"}
        answer = self.page(link, "POST", body=urlencode({"decision": decision, "reason": reason}), headers=form, **more)
        self.world.run_until(self.world.now())
        return answer

    def refuse_mail(self, recipient, code="MessageRejected", status=400, times=99):
        """SES answers `code` to the next mails to `recipient`."""
        self.refused[recipient] = [code, status, times]

    def break_callback(self, monkeypatch, code="ThrottlingException"):
        def fail(*_):
            raise ApiError(code, "made by the test")

        monkeypatch.setattr(self.world.engine, "send_task_success", fail)

    # --- what there is

    def put(self, kind, item_id, fields):
        item = {"kind": kind, "id": item_id} | {name: value for name, value in fields.items() if value is not None}
        self._dynamodb.put_item(
            TableName=self._table, Item={name: TypeSerializer().serialize(value) for name, value in item.items()}
        )

    def item(self, kind="approval", item_id=ID):
        found = self._dynamodb.get_item(TableName=self._table, Key={"kind": {"S": kind}, "id": {"S": item_id}})
        if "Item" not in found:
            return None
        return {name: TypeDeserializer().deserialize(value) for name, value in found["Item"].items()}

    def status(self):
        return self.item()["status"]

    def undelivered(self):
        return self.item("undelivered") is not None

    def base(self):
        return boto3.client("ssm", region_name="us-east-1").get_parameter(Name="/blockkeeper/blockkeeper/apiUrl")[
            "Parameter"
        ]["Value"]

    def mails(self, recipient=None):
        return [mail for mail in self.world.mails() if recipient in (None, *mail.destinations["ToAddresses"])]

    def link(self, recipient="maria@example.com"):
        """The link in the recipient's last mail."""
        body = unescape(self.mails(recipient)[-1].body)
        (found,) = set(re.findall(r"https://\S+?/decide/[^\s\"<>]+", body))
        return found

    def told(self):
        """Our own events, as (detail-type, detail)."""
        return [
            (event["detail-type"], event["detail"]) for event in self.world.events if event["source"] == "blockkeeper"
        ]

    def _refuse_mail(self, params, **_):
        (recipient,) = json.loads(params["body"])["Destination"]["ToAddresses"]
        code, status, times = self.refused.get(recipient, (None, 0, 0))
        if not times:
            return None
        self.refused[recipient][2] -= 1
        error = {
            "Error": {"Code": code, "Message": f"{recipient} is not wanted"},
            "ResponseMetadata": {"HTTPStatusCode": status},
        }
        return AWSResponse(params["url"], status, {}, None), error
