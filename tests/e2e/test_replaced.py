"""The story "Replaced" on the deployed stack: plan B with real packaging, IAM, mail, link and events.

tests/functional/workflows/test_replaced.py tells the same story in one process; its times are the same.
"""

import json
import warnings

import pytest
from on_the_deployed_stack import OnTheDeployedStack

from tests.stories.replaced import FEE, OLD, PK, tell

pytestmark = pytest.mark.e2e


@pytest.fixture
def engine(deployed):
    deployed.speed(0)
    yield OnTheDeployedStack(deployed)
    deployed.speed(1)


def ended_badly(deployed, *reservations):
    """Executions about the reservations that did not end well, or gave a task up, each with its failed tasks.

    A task that failed and went well when it was tried again is told as a warning: two runs may arrange one group in the same
    moment, and the one that does not find what it wrote tries again.
    """
    states, found = deployed.states, []
    for machine in states.list_state_machines()["stateMachines"]:
        pages = states.get_paginator("list_executions").paginate(stateMachineArn=machine["stateMachineArn"])
        for execution in (each for page in pages for each in page["executions"]):
            if not execution["name"].startswith(reservations):
                continue
            histories = states.get_paginator("get_execution_history").paginate(executionArn=execution["executionArn"])
            events = [event for page in histories for event in page["events"]]
            failed = [event for event in events if event["type"].endswith(("Failed", "TimedOut"))]
            given_up = [event for event in failed if not went_well_then(event, events)]
            if execution["status"] not in {"RUNNING", "SUCCEEDED"} or given_up:
                found.append((execution["name"], execution["status"], failed))
            elif failed:
                warnings.warn(f"{execution['name']}: {failed}", stacklevel=1)
    return found


def went_well_then(failed, events):
    """Whether a task that failed went well before its state was left; one whose error was caught did not."""
    after = [event["type"] for event in events if event["id"] > failed["id"]]
    return next((kind for kind in after if kind in {"TaskSucceeded", "TaskStateExited"}), None) == "TaskSucceeded"


def refused_in_logs(deployed):
    """Lines in the logs of the stack's functions that speak of a refusal by IAM; another test's function is meant to be refused."""
    logs = deployed.aws.client("logs")
    groups = [
        group["logGroupName"]
        for page in logs.get_paginator("describe_log_groups").paginate()
        for group in page["logGroups"]
        if "purchase-as-" not in group["logGroupName"]
    ]
    lines = [
        event["message"]
        for group in groups
        for page in logs.get_paginator("filter_log_events").paginate(logGroupName=group)
        for event in page["events"]
    ]
    assert lines, "the functions log"
    return [line for line in lines if "AccessDenied" in line or "UnauthorizedOperation" in line]


def test_plan_b_from_no_extension_to_the_nodes_of_the_new_block(deployed, engine):
    new = tell(engine)
    assert ended_badly(deployed, OLD, new) == []
    refused = refused_in_logs(deployed)
    assert refused == []
    (row,) = json.loads(engine.blockkeeper("history", OLD, "--json").stdout)
    assert (row["what"], row["ledger"], row["ec2"]) == ("block", "BOUGHT", "payment-succeeded")
    assert (row["upfront_fee"], row["approved_by"], row["team"]) == (FEE, f"{PK}@example.com", "vision")
    assert (row["availability_zone"], row["duration_hours"]) == ("us-east-1b", 46)
    shown = engine.blockkeeper("status", PK)
    assert f"replaced by {new}" in " ".join(shown.stdout.split())
