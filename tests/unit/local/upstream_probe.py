"""What MiniStack does in a fresh process, without our patches or (argument `patched`) with them; prints JSON.

Run by `test_ministack_patches.py`: patching changes modules for good, so that each run needs a process of its own.
"""

import io
import json
import sys
import time
import uuid
import zipfile
from datetime import UTC, datetime, timedelta
from typing import Any

from ministack.core import iam_actions, lambda_runtime
from ministack.services import apigateway_v1, eventbridge, lambda_svc, scheduler, stepfunctions
from ministack.services.cloudformation import provisioners

from local.clock import MarketClock
from local.market import Market

START = datetime(2026, 5, 1, tzinfo=UTC)
MARKET = Market(MarketClock(START, speed=600))
QUEUE_TASK = "arn:aws:states:::sqs:sendMessage.waitForTaskToken"
FUNCTION_TASK = "arn:aws:states:::lambda:invoke.waitForTaskToken"


def machine(states: dict[str, Any]) -> str:
    name = f"m{uuid.uuid4().hex[:8]}"
    arn = f"arn:aws:states:us-east-1:000000000000:stateMachine:{name}"
    definition = {"QueryLanguage": "JSONata", "StartAt": "A", "States": states}
    stepfunctions._state_machines[arn] = {
        "stateMachineArn": arn,
        "name": name,
        "definition": json.dumps(definition),
        "roleArn": "arn:aws:iam::000000000000:role/r",
        "type": "STANDARD",
        "creationDate": "2026-05-01T00:00:00.000Z",
    }
    return arn


def run(states: dict[str, Any], **request: Any) -> dict[str, Any]:
    """The finished execution of a machine."""
    arn = request.pop("arn", None) or machine(states)
    _, _, body = stepfunctions._start_sync_execution({"stateMachineArn": arn, "input": "{}", **request})
    found: dict[str, Any] = json.loads(body)
    return found


def passing(**output: str) -> dict[str, Any]:
    return {"A": {"Type": "Pass", "Output": output, "End": True}}


def asking(resource: str, **more: Any) -> dict[str, Any]:
    task = {
        "Type": "Task",
        "Resource": resource,
        "Arguments": {"FunctionName": "f", "Payload": {}},
        "End": True,
        **more,
    }
    return {"A": task}


def fail_to_ask(*_: Any) -> None:
    raise stepfunctions._ExecutionError("Boom", "cannot ask")


def nested(arn: str) -> dict[str, Any]:
    arguments = {"StateMachineArn": arn, "Name": "taken", "Input": {}}
    return {
        "A": {
            "Type": "Task",
            "Resource": "arn:aws:states:::states:startExecution.sync:2",
            "Arguments": arguments,
            "End": True,
        }
    }


def findings(*, patched: bool) -> dict[str, Any]:
    stepfunctions._SERVICE_DISPATCH["arn:aws:states:::sqs:sendMessage"] = lambda *_: {}
    if not patched:
        stepfunctions._call_lambda = fail_to_ask
    found: dict[str, Any] = {}

    seconds = "{% 1 %}"
    found["timeout as JSONata"] = run(asking(QUEUE_TASK, TimeoutSeconds=seconds))["error"]
    found["error of the asking function"] = run(asking(FUNCTION_TASK, TimeoutSeconds=1))["error"]

    child = machine(passing(ok="yes"))
    run({}, arn=child, name="taken")
    again = run(nested(child))
    found["nested .sync under a name in use"] = again.get("error") or again["status"]

    waiting = machine(
        {"A": {"Type": "Wait", "Seconds": 1200, "End": True}} if patched else asking(QUEUE_TASK, TimeoutSeconds=2)
    )
    start = {"stateMachineArn": waiting, "name": "n", "input": '{"a": 1}'}
    stepfunctions._start_execution(start)
    found["same start on a running execution"] = stepfunctions._start_execution({**start, "input": '{"a":1}'})[0]
    found["other input on a running execution"] = stepfunctions._start_execution({**start, "input": "{}"})[0]

    output = run(
        passing(
            count="{% $exists($states.context.Execution.RedriveCount) %}",
            entered="{% $states.context.State.EnteredTime %}",
        )
    )
    told = json.loads(output["output"])
    found["RedriveCount"] = told["count"]
    entered = datetime.fromisoformat(told["entered"])
    found["EnteredTime is the market's"] = START <= entered < START + timedelta(days=1)

    before = time.monotonic()
    run({"A": {"Type": "Wait", "Seconds": 600 if patched else 1, "End": True}})
    found["a Wait takes real seconds"] = time.monotonic() - before
    event = apigateway_v1._build_lambda_event_v1(
        "a", "v1", {}, {"id": "r", "path": "/"}, "/", "GET", {"host": "h"}, b"", {}, {}
    )
    told_at = datetime.fromtimestamp(event["requestContext"]["requestTimeEpoch"] / 1000, UTC)
    found["requestTimeEpoch is the market's"] = START <= told_at < START + timedelta(days=1)
    for name, now in {"EventBridge": eventbridge._now_ts(), "Scheduler": scheduler.time.time()}.items():
        found[f"{name}'s time is the market's"] = START <= datetime.fromtimestamp(now, UTC) < START + timedelta(days=1)
    form = {"Action": ["PurchaseCapacityBlockExtension"], "CapacityReservationId": ["cr-0a1"]}
    found["resource of a purchase"] = iam_actions.extract_resource_arn(
        "ec2", "POST", "/", {}, b"", form, "us-east-1", "1"
    )
    form = {"Action": ["CreateLaunchTemplateVersion"], "LaunchTemplateId": ["lt-0a1"]}
    found["resource of a template's version"] = iam_actions.extract_resource_arn(
        "ec2", "POST", "/", {}, b"", form, "us-east-1", "1"
    )
    found["resource of a task token"] = resource_of_a_token()
    mail = json.dumps({"FromEmailAddress": "a@example.com"}).encode()
    found["resource of a mail"] = iam_actions.extract_resource_arn(
        "ses", "POST", "/v2/email/outbound-emails", {}, mail, {}, "us-east-1", "1"
    )
    for name, sources in {"source of an event": ["blockkeeper"], "sources of events": ["blockkeeper", "other"]}.items():
        body = json.dumps({"Entries": [{"Source": source} for source in sources]}).encode()
        found[name] = iam_actions.request_tag_context("events", "events:PutEvents", body, {}).get("events:source")
    layer = zipped({"python/in_layer.py": ""})
    provisioners._provision_resource(
        "AWS::AutoScaling::AutoScalingGroup",
        "G",
        {"AutoScalingGroupName": "g", "MinSize": "0", "MaxSize": "2", "VPCZoneIdentifier": ["subnet-1"]},
        "stack",
    )
    found["a stack's group lives in the market"] = [group.maximum for group in MARKET.groups.by_key.values()] == [2]
    found["workers share unpacked layers"] = library_of_a_worker(layer) == library_of_a_worker(layer)
    return found


def resource_of_a_token() -> str:
    """What IAM takes as the resource of SendTaskSuccess; the state machine, shortened, where it knows."""
    arn = machine(asking(QUEUE_TASK, Arguments={"MessageBody": "{% $states.context.Task.Token %}"}, TimeoutSeconds=1))
    resources = []

    def send(_resource: str, arguments: dict[str, Any]) -> dict[str, Any]:
        body = json.dumps({"taskToken": arguments["MessageBody"]}).encode()
        resources.append(iam_actions.extract_resource_arn("states", "POST", "/", {}, body, {}, "us-east-1", "1"))
        return {}

    stepfunctions._SERVICE_DISPATCH["arn:aws:states:::sqs:sendMessage"] = send
    run({}, arn=arn)
    (resource,) = resources
    return "the machine" if resource == arn else resource


def zipped(files: dict[str, str]) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return packed.getvalue()


def library_of_a_worker(layer: bytes) -> str:
    """Where a new worker imports its layer's module from."""
    lambda_svc._resolve_layer_zip = lambda _: layer
    code = zipped({"app.py": "import in_layer\ndef handler(event, context):\n    return in_layer.__file__\n"})
    runtime = f"python{sys.version_info.major}.{sys.version_info.minor}"
    arn = "arn:aws:lambda:us-east-1:000000000000:function:f"
    config = {
        "FunctionName": "f",
        "FunctionArn": arn,
        "Runtime": runtime,
        "Handler": "app.handler",
        "Layers": ["layer"],
    }
    worker = lambda_runtime.Worker("f", config, code)
    try:
        return str(worker.invoke({}, "1")["result"])
    finally:
        worker.kill()


def main() -> None:
    patched = sys.argv[1:] == ["patched"]
    if patched:
        from local import ministack_patches

        stepfunctions._call_lambda = fail_to_ask
        ministack_patches.apply(MARKET)
    sys.stdout.write(json.dumps(findings(patched=patched)) + "\n")


if __name__ == "__main__":
    main()
