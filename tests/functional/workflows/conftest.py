"""A stack in one process with one block that ends on 2026-05-04 at 11:30 UTC, and the story told on its clock."""

import html
import re
from datetime import UTC, datetime
from functools import cache
from urllib.parse import parse_qsl, urlencode

import boto3
import pytest
from boto3.dynamodb.types import TypeDeserializer, TypeSerializer

from local.engine.execution import Execution
from local.engine.sandbox import Sandboxes
from local.engine.world import ACCOUNT, World

# Functions stay warm from test to test, as they do from event to event.
WARM = Sandboxes()
START = datetime(2026, 5, 1, 8, 0, tzinfo=UTC)
END = datetime(2026, 5, 4, 11, 30, tzinfo=UTC)


@cache
def client(service):
    """A client that several stories use: making one takes as long as many calls. It is made in the first story's world."""
    return boto3.client(service, region_name="us-east-1")


class Story:
    """What tests say about a world: enrol, extend, buy, look."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._dynamodb = client("dynamodb")
        (self._table,) = self._dynamodb.list_tables()["TableNames"]
        client("sesv2").create_email_identity(EmailIdentity="blockkeeper@example.com")

    def block(self, reservation_id="cr-0a1", **fields):
        block = {
            "reservation_id": reservation_id,
            "region": "us-east-1",
            "instance_type": "p5.48xlarge",
            "instance_count": 4,
            "availability_zone": "us-east-1a",
            "start": "2026-04-27T11:30:00Z",
            "end": "2026-05-04T11:30:00Z",
            "hourly_rate": "41.528",
        }
        self.world.market.load_fleet({"blocks": [block | fields]})
        return self

    def enrol(self, pk="train", **fields):
        record = {
            "PK": pk,
            "name": pk,
            "capacity_block_id": "cr-0a1",
            "region": "us-east-1",
            "instance_type": "p5.48xlarge",
            "extend_by_days": 1,
            "extension_lookahead_days": 2,
            "require_approval": False,
            "approvers": ["ann@example.com"],
            "max_upfront_fee": "12000",
        }
        self.put("environment", {"id": pk, "version": 1} | {k: v for k, v in (record | fields).items() if k != "PK"})
        return self

    def put(self, kind, item):
        """Write an item to the table as it stands, past the product."""
        typed = {k: TypeSerializer().serialize(v) for k, v in (item | {"kind": kind}).items() if v is not None}
        self._dynamodb.put_item(TableName=self._table, Item=typed)

    def extend(self, name="cr-0a1-20260504T1130Z", end="2026-05-04T11:30:00Z", pk="train") -> Execution:
        block = {
            "environment": pk,
            "reservation_id": "cr-0a1",
            "account": ACCOUNT,
            "region": "us-east-1",
            "end_date": end,
        }
        return self.world.start("ExtendBlock", block, name)

    def item(self, kind, item_id):
        found = self._dynamodb.get_item(TableName=self._table, Key={"kind": {"S": kind}, "id": {"S": item_id}})
        return {k: TypeDeserializer().deserialize(v) for k, v in found["Item"].items()} if "Item" in found else None

    def items(self, kind):
        found = self._dynamodb.query(
            TableName=self._table,
            KeyConditionExpression="kind = :kind",
            ExpressionAttributeValues={":kind": {"S": kind}},
        )
        return [{k: TypeDeserializer().deserialize(v) for k, v in item.items()} for item in found["Items"]]

    def record(self, pk="train"):
        return self.item("environment", pk)

    def purchase(self, end="2026-05-04T11:30:00Z", reservation_id="cr-0a1"):
        return self.item("purchase", f"{reservation_id}#{end}")

    def reserved(self, month="2026-05"):
        """USD that the month's budget has reserved."""
        return ((self.item("budget", month) or {}).get("reserved") or 0) / 1_000_000

    def orders(self):
        """Live purchase calls that reached EC2."""
        return [
            call
            for call in self.world.market.calls
            if call.operation == "PurchaseCapacityBlockExtension" and not call.params.get("DryRun")
        ]

    def bought(self, reservation_id="cr-0a1"):
        """Extensions that EC2 itself has taken, whatever became of their payment."""
        return self.world.market.extensions.of(reservation_id)

    def end(self, reservation_id="cr-0a1"):
        return self.world.market.blocks.get(reservation_id, "us-east-1").end

    def buy_by_hand(self, reservation_id="cr-0a1"):
        """Somebody extends the block in the console."""
        ec2 = client("ec2")
        offers = ec2.describe_capacity_block_extension_offerings(
            CapacityReservationId=reservation_id, CapacityBlockExtensionDurationHours=24
        )["CapacityBlockExtensionOfferings"]
        ec2.purchase_capacity_block_extension(
            CapacityReservationId=reservation_id,
            CapacityBlockExtensionOfferingId=offers[0]["CapacityBlockExtensionOfferingId"],
        )

    def links(self):
        """The approval links that were mailed, as (path, query), oldest first."""
        texts = [str(vars(mail)) for mail in self.world.mails()]
        found = [re.search(r"https://[^/\s]+/v1(/decide/[^\s?\"<]+)\?([^\s\"<\\]+)", text) for text in texts]
        return [(match[1], dict(parse_qsl(html.unescape(match[2])))) for match in found if match]

    def answer(self, decision, link=-1, reason=""):
        """Somebody opens the mailed link and presses a button."""
        path, query = self.links()[link]
        form = urlencode({"decision": decision, "reason": reason})
        headers = {"content-type": "application/x-www-form-urlencoded"}
        return self.world.request("POST", path, query=query, body=form, headers=headers)

    def scheduled_actions(self, group):
        actions = client("autoscaling").describe_scheduled_actions(AutoScalingGroupName=group)
        return {action["ScheduledActionName"]: action["StartTime"] for action in actions["ScheduledUpdateGroupActions"]}

    def told(self):
        """Detail-types and outcomes of our own events, in order."""
        return [
            (event["detail-type"], event["detail"].get("outcome"))
            for event in self.world.events
            if event["source"] == "blockkeeper"
        ]


def a_story(*, schedules=False, **parameters):
    wanted = {"PurchaseMode": "live", "MonthlyLimit": "50000", "SenderEmail": "blockkeeper@example.com"} | parameters
    return World(START, parameters=wanted, schedules=schedules, sandboxes=WARM)


@pytest.fixture
def live():
    with a_story() as world:
        yield Story(world)


@pytest.fixture
def dry():
    with a_story(PurchaseMode="dry-run") as world:
        yield Story(world)


@pytest.fixture
def live_without_budget():
    with a_story(MonthlyLimit="0") as world:
        yield Story(world)


@pytest.fixture
def live_with_room_for_one():
    with a_story(MonthlyLimit="6000") as world:
        yield Story(world)


@pytest.fixture
def scheduled():
    with a_story(schedules=True) as world:
        yield Story(world)


@pytest.fixture
def two_regions():
    with a_story(Targets=f"{ACCOUNT}:us-east-1,{ACCOUNT}:us-west-2") as world:
        yield Story(world)
