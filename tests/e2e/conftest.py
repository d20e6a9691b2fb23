"""One stack, deployed by sam to a local AWS with IAM enforced, for all end-to-end tests; each test has blocks of its own."""

import re
from datetime import UTC, datetime
from typing import Any

import pytest
from waiting import eventually

from local import server
from local.stack import PARAMETERS, Stack, build, deploy

START = datetime(2026, 5, 4, 6, 0, tzinfo=UTC)
PAYMENTS_SPEED = 60


class Deployed:
    """The stack, and short ways to do what people and EC2 do."""

    def __init__(self, stack: Stack) -> None:
        self.stack, self.aws = stack, stack.aws
        self.states = self.aws.client("stepfunctions")
        self.ec2 = self.aws.client("ec2")

    def block(self, reservation_id: str, **fields: Any) -> None:
        """Put a block into the market: active, due, 4 x p5.4xlarge."""
        block = {
            "reservation_id": reservation_id,
            "region": "us-east-1",
            "availability_zone": "us-east-1a",
            "instance_type": "p5.4xlarge",
            "instance_count": 4,
            "hourly_rate": "5.191",
            "start": "now-2d",
            "end": "now+24h@11:30",
            "payment": {"minutes": 6},
        }
        self.aws.control("POST", "fleet", {"blocks": [block | fields]})

    def enrol(self, pk: str, reservation_id: str, **fields: Any) -> None:
        """Enrol a block through the REST API."""
        record = {
            "PK": pk,
            "capacity_block_id": reservation_id,
            "region": "us-east-1",
            "instance_type": "p5.4xlarge",
            "extend_by_days": 7,
            "max_upfront_fee": "4000.00",
            "approvers": [f"{pk}@example.com"],
        }
        answer = self.stack.api("POST", "/", record | fields)
        assert answer.status == 201, answer.body

    def now(self) -> datetime:
        return datetime.fromisoformat(self.aws.control("GET", "clock")["now"])

    def jump(self, to: datetime) -> None:
        self.aws.control("POST", "clock", {"set": to.isoformat()})

    def speed(self, speed: float) -> None:
        self.aws.control("POST", "clock", {"speed": speed})

    def record(self, pk: str) -> dict[str, Any]:
        found: dict[str, Any] = self.stack.api("GET", f"/{pk}").body
        return found

    def link(self, pk: str) -> str | None:
        """The link in the mail to the record's approver."""
        for mail in self.stack.mails():
            if mail["To"] == [f"{pk}@example.com"] and (found := re.search(r"http://\S+/decide/\S+", mail["BodyText"])):
                return found[0]
        return None

    def question_in_slack(self, pk: str) -> dict[str, Any] | None:
        """The message in the local Slack that asks about a record."""
        found = [each for each in self.stack.slack()["messages"] if f"Extend {pk} for" in each["words"]]
        return found[-1] if found else None

    def buttons_in_slack(self, pk: str) -> list[dict[str, Any]]:
        """What can be pressed on that message."""
        blocks = (self.question_in_slack(pk) or {"blocks": []})["blocks"]
        return [each for block in blocks if block["type"] == "actions" for each in block["elements"]]

    def thread_in_slack(self, pk: str) -> list[dict[str, Any]]:
        """What was said below that message, oldest first."""
        question = self.question_in_slack(pk)
        return [each for each in self.stack.slack()["messages"] if question and each["thread_ts"] == question["ts"]]

    def ended_in(self, reservation_id: str) -> str | None:
        """The last state of the block's extend-block execution; None while it runs."""
        pages = self.states.get_paginator("list_executions").paginate(
            stateMachineArn=self.stack.outputs["ExtendBlockArn"]
        )
        for execution in (each for page in pages for each in page["executions"]):
            if execution["name"].startswith(reservation_id) and execution["status"] != "RUNNING":
                return self.last_state(execution)
        return None

    def last_state(self, execution: dict[str, Any]) -> str:
        """The last state that an execution entered."""
        pages = self.states.get_paginator("get_execution_history").paginate(executionArn=execution["executionArn"])
        entered = [event.get("stateEnteredEventDetails") for page in pages for event in page["events"]]
        return str([each["name"] for each in entered if each][-1])

    def end(self, reservation_id: str) -> datetime:
        """EC2's EndDate."""
        found = self.ec2.describe_capacity_reservations(CapacityReservationIds=[reservation_id])
        end: datetime = found["CapacityReservations"][0]["EndDate"]
        return end

    def orders(self, reservation_id: str) -> list[dict[str, Any]]:
        """What EC2 has sold for the block."""
        asked = {"CapacityReservationIds": [reservation_id]}
        sold: list[dict[str, Any]] = self.ec2.describe_capacity_block_extension_history(**asked)[
            "CapacityBlockExtensions"
        ]
        return sold


@pytest.fixture(scope="session")
def deployed():
    build()
    with server.start(start_at=START) as aws:
        stack = deploy(aws, {**PARAMETERS, "PurchaseMode": "live", "Targets": f"{aws.account}:us-east-1"})
        aws.control("POST", "clock", {"set": START.isoformat()})
        yield Deployed(stack)


@pytest.fixture(scope="session")
def asked(deployed):
    """Three due blocks after one sweep, their approvers asked: record -> reservation."""
    blocks = {
        "says-yes": "cr-0e2e0000000000001",
        "says-no": "cr-0e2e0000000000002",
        "says-nothing": "cr-0e2e0000000000003",
    }
    for pk, reservation_id in blocks.items():
        deployed.block(reservation_id)
        deployed.enrol(pk, reservation_id)
    deployed.stack.start("DetectExpiryArn", "e2e")
    eventually(lambda: all(deployed.link(pk) for pk in blocks))
    return blocks


@pytest.fixture
def fast(deployed):
    """The market's clock runs a minute each second."""
    deployed.speed(PAYMENTS_SPEED)
    yield
    deployed.speed(1)
