"""Each patch is needed (MiniStack alone is wrong) and works (with it, MiniStack is right).

A failure of `test_upstream_still_needs_it` is good news: remove that patch from `local/ministack_patches.py`.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
PROBE = Path(__file__).with_name("upstream_probe.py")

NEEDED = {
    "timeout as JSONata": "States.Runtime",  # a TypeError within
    "error of the asking function": "States.Timeout",
    "nested .sync under a name in use": "SUCCEEDED",
    "same start on a running execution": 400,
    "RedriveCount": False,
    "EnteredTime is the market's": False,
    "requestTimeEpoch is the market's": False,
    "EventBridge's time is the market's": False,
    "Scheduler's time is the market's": False,
    "resource of a purchase": "*",
    "resource of a template's version": "*",
    "resource of a mail": "*",
    "resource of a task token": "*",
    "source of an event": None,
    "a stack's group lives in the market": False,
    "workers share unpacked layers": False,
}
RIGHT = {
    "timeout as JSONata": "States.Timeout",
    "error of the asking function": "Boom",
    "nested .sync under a name in use": "StepFunctions.ExecutionAlreadyExistsException",
    "same start on a running execution": 200,
    "other input on a running execution": 400,
    "RedriveCount": True,
    "EnteredTime is the market's": True,
    "requestTimeEpoch is the market's": True,
    "EventBridge's time is the market's": True,
    "Scheduler's time is the market's": True,
    "resource of a purchase": "arn:aws:ec2:us-east-1:1:capacity-reservation/cr-0a1",
    "resource of a template's version": "arn:aws:ec2:us-east-1:1:launch-template/lt-0a1",
    "resource of a task token": "the machine",
    "resource of a mail": "arn:aws:ses:us-east-1:1:identity/a@example.com",
    "source of an event": "blockkeeper",
    "sources of events": None,
    "a stack's group lives in the market": True,
    "workers share unpacked layers": True,
}


def probe(*arguments: str) -> dict[str, Any]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    done = subprocess.run(
        [sys.executable, str(PROBE), *arguments],
        cwd=ROOT,
        env=environment | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.fixture(scope="module")
def upstream() -> dict[str, Any]:
    return probe()


@pytest.fixture(scope="module")
def patched() -> dict[str, Any]:
    return probe("patched")


@pytest.mark.parametrize("what", NEEDED)
def test_upstream_still_needs_it(upstream: dict[str, Any], what: str) -> None:
    assert upstream[what] == NEEDED[what]


@pytest.mark.parametrize("what", RIGHT)
def test_patched_it_is_right(patched: dict[str, Any], what: str) -> None:
    assert patched[what] == RIGHT[what]


def test_a_wait_follows_the_markets_clock(upstream: dict[str, Any], patched: dict[str, Any]) -> None:
    assert upstream["a Wait takes real seconds"] >= 1, "of 1 second"
    assert 0.9 <= patched["a Wait takes real seconds"] < 30, "of 600 seconds, at speed 600"
