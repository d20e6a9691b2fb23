"""The real template, state machines and handlers in the engine: one extension, asked for by mail and bought once."""

import html
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import parse_qsl

import pytest

from local.engine.sandbox import Sandboxes
from local.engine.world import World

START = datetime(2026, 5, 2, 11, 30, tzinfo=UTC)
BLOCK = {
    "reservation_id": "cr-0123456789abcdef0",
    "region": "us-east-1",
    "instance_type": "p5.48xlarge",
    "instance_count": 2,
    "availability_zone": "us-east-1a",
    "start": "2026-04-27T11:30:00Z",
    "end": "2026-05-04T11:30:00Z",
    "hourly_rate": "31.464",
    "offering": {"available": True},
    "payment": {"minutes": 30, "outcome": "payment-succeeded"},
}
ENVIRONMENT = {
    "PK": "team-vision",
    "name": "Vision training",
    "capacity_block_id": BLOCK["reservation_id"],
    "region": "us-east-1",
    "instance_type": "p5.48xlarge",
    "end_time": BLOCK["end"],
    "extend_by_days": 1,
    "extension_lookahead_days": 2,
    "require_approval": True,
    "approvers": ["maria@example.com"],
    "max_upfront_fee": "60000.00",
}
KEY = {"x-api-key": "x" * 40}


@pytest.fixture(scope="module")
def sandboxes() -> Sandboxes:
    return Sandboxes()


@contextmanager
def _enrolled(sandboxes: Sandboxes, **options: Any) -> Iterator[World]:
    parameters = {"MonthlyLimit": "500000", "PurchaseMode": "live", "SenderEmail": "blocks@example.com"}
    with World(START, parameters=parameters, schedules=False, sandboxes=sandboxes, **options) as world:
        world.market.load_fleet({"blocks": [BLOCK]})
        assert world.request("POST", "/", body=json.dumps(ENVIRONMENT), headers=KEY).status == 201
        yield world


def _approve(world: World) -> None:
    """Follow the mail's link and say yes."""
    (mail,) = world.mails()
    link = re.search(r'href="https://[^/]+/v1(/decide/[^?"]+)\?([^"]+)"', str(mail.body))
    assert link is not None
    query = dict(parse_qsl(html.unescape(link[2])))
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    assert world.request("GET", link[1], query=query).status == 200
    assert world.request("POST", link[1], query=query, headers=form, body="decision=approve&reason=fine").status == 200


def _story(world: World) -> None:
    world.start("DetectExpiry", {})
    world.run_for(timedelta(minutes=5))
    _approve(world)
    world.run_for(timedelta(hours=2))


def test_an_approved_extension_is_bought_once_and_confirmed(sandboxes: Sandboxes) -> None:
    with _enrolled(sandboxes) as world:
        world.start("DetectExpiry", {})
        world.run_for(timedelta(minutes=5))
        tokens = world.engine.open_tokens()
        _approve(world)
        world.run_for(timedelta(hours=2))
        (execution,) = world.executions("ExtendBlock")
        assert (execution.status, execution.path[-1]) == ("SUCCEEDED", "Extension confirmed")
        (call,) = [call for call in world.calls if call.operation == "PurchaseCapacityBlockExtension"]
        assert (call.caller, call.params["DryRun"]) == ("BuyExtension", False)
        assert world.request("GET", "/team-vision", headers=KEY).json()["end_time"] == "2026-05-05T11:30:00Z"
        assert (len(tokens), world.failures) == (1, [])
        # Case B41: the token has been in play, and no function has written it down.
        assert tokens[0] not in world.logs.getvalue()


def test_a_lost_answer_of_the_buyer_buys_nothing_twice_case_b17(sandboxes: Sandboxes) -> None:
    with _enrolled(sandboxes) as world:
        world.engine.crash("BuyExtension", when="after", error="Sandbox.Timedout", takes=timedelta(seconds=90))
        _story(world)
        (execution,) = world.executions("ExtendBlock")
        assert (execution.status, execution.path.count("Buy once")) == ("SUCCEEDED", 2)
        assert [call.operation for call in world.calls].count("PurchaseCapacityBlockExtension") == 1


def test_the_same_seed_tells_the_same_story(sandboxes: Sandboxes) -> None:
    histories = []
    for _ in range(2):
        with _enrolled(sandboxes, seed=7) as world:
            _story(world)
            histories.append([(e.arn, e.status, e.output, e.history) for e in world.engine.executions.values()])
    assert histories[0] == histories[1]
