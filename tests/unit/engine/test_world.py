"""Template, handlers, moto, market and engine in one world; here with a small application of its own."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import boto3
import pytest

from local.engine import StateError
from local.engine.sandbox import Sandboxes
from local.engine.world import World

from .conftest import ask, invoke, machine

START = datetime(2026, 5, 4, 11, 30, tzinfo=UTC)
TEMPLATE = """
Transform: AWS::Serverless-2016-10-31
Parameters:
  Every: {Type: String, Default: rate(1 hour)}
Globals:
  Function: {Environment: {Variables: {TABLE: !Ref Table}}}
Resources:
  Table:
    Type: AWS::DynamoDB::Table
    Properties:
      BillingMode: PAY_PER_REQUEST
      AttributeDefinitions: [{AttributeName: id, AttributeType: S}]
      KeySchema: [{AttributeName: id, KeyType: HASH}]
  KeySecret:
    Type: AWS::SecretsManager::Secret
    Properties: {GenerateSecretString: {SecretStringTemplate: "{}", GenerateStringKey: api_key}}
  Key:
    Type: AWS::ApiGateway::ApiKey
    Properties: {Value: !Sub "{{resolve:secretsmanager:${KeySecret}:SecretString:api_key}}"}
  Api: {Type: AWS::Serverless::Api, Properties: {StageName: v1, Auth: {ApiKeyRequired: true}}}
  Note:
    Type: AWS::Serverless::Function
    Properties:
      Handler: note.app.lambda_handler
      Events:
        Offered: {Type: EventBridgeRule, Properties: {Pattern: {source: [blockkeeper]}}}
        Ec2: {Type: EventBridgeRule, Properties: {Pattern: {source: [aws.ec2]}, Input: '{"from": "rule"}'}}
        Hourly: {Type: ScheduleV2, Properties: {ScheduleExpression: !Ref Every}}
        Get: {Type: Api, Properties: {Path: "/{id}", Method: get}}
        Open: {Type: Api, Properties: {Path: /open, Method: POST, Auth: {ApiKeyRequired: false}}}
  Ask: {Type: AWS::Serverless::Function, Properties: {Handler: ask.app.lambda_handler}}
  Flow:
    Type: AWS::Serverless::StateMachine
    Properties: {DefinitionUri: flow.json, DefinitionSubstitutions: {NoteArn: !GetAtt Note.Arn, AskArn: !GetAtt Ask.Arn}}
"""
NOTE = """
import json, os
import boto3
count = 0
def lambda_handler(event, context):
    global count
    count += 1
    item = {"id": {"S": f"{context.function_name}-{context.aws_request_id}"}, "event": {"S": json.dumps(event)}}
    boto3.client("dynamodb").put_item(TableName=os.environ["TABLE"], Item=item)
    if isinstance(event, dict) and event.get("detail", {}).get("fail"):
        raise ValueError("told to")
    if "httpMethod" in event:
        return {"statusCode": 200, "headers": {"X-Count": count}, "body": json.dumps([event["path"], event["body"]])}
    return {"count": count}
"""
ASK = """
import json
import boto3
def lambda_handler(event, context):
    answer = boto3.client("events").put_events(Entries=[
        {"Source": "blockkeeper", "DetailType": "Approval Requested", "Detail": "{}"},
        {"Source": "aws.ec2", "DetailType": "Forged", "Detail": "{}"}])
    assert answer["FailedEntryCount"] == 1, answer
    boto3.client("stepfunctions").send_task_success(taskToken=event["token"], output=json.dumps(answer["Entries"][1]))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    flow = machine("Note", {"Note": invoke("${NoteArn}", Next="Ask"), "Ask": ask("${AskArn}")})
    (tmp_path / "flow.json").write_text(json.dumps(flow))
    (tmp_path / "template.yaml").write_text(TEMPLATE)
    for name, code in (("note", NOTE), ("ask", ASK)):
        (tmp_path / "code" / name).mkdir(parents=True)
        (tmp_path / "code" / name / "app.py").write_text(code)
    return tmp_path


def _world(folder: Path, sandboxes: Sandboxes | None = None, **options: Any) -> World:
    sandboxes = sandboxes or Sandboxes(folder / "code")
    return World(START, template=folder / "template.yaml", sandboxes=sandboxes, **options)


def _notes() -> list[Any]:
    items = boto3.client("dynamodb").scan(TableName="blockkeeper-Table")["Items"]
    return [json.loads(item["event"]["S"]) for item in items]


def test_a_workflow_runs_with_real_handlers_and_its_calls_are_recorded(folder: Path) -> None:
    with _world(folder) as world:
        execution = world.start("Flow", {"a": 1}, "one")
        world.run_until_idle()
        assert execution.output["ErrorCode"] == "NotAuthorizedForSourceException"
        assert [(call.caller, call.service, call.operation) for call in world.calls] == [
            ("Note", "dynamodb", "PutItem"),
            ("Ask", "events", "PutEvents"),
            ("Ask", "stepfunctions", "SendTaskSuccess"),
            ("Note", "dynamodb", "PutItem"),  # the rule for our own events started it
        ]
        assert world.calls[0].params["TableName"] == "blockkeeper-Table"
        assert [event["detail-type"] for event in world.events if event["source"] == "blockkeeper"] == [
            "Approval Requested"
        ]
        assert world.executions("Flow") == [execution]
        assert len(_notes()) == 2


def test_functions_stay_warm_over_worlds_when_told_so_and_their_clients_follow(folder: Path) -> None:
    sandboxes = Sandboxes(folder / "code")
    for expected in (1, 2):
        with _world(folder, sandboxes) as world:
            assert world.invoke("Note", {}) == {"count": expected}
            assert len(_notes()) == 1
    with _world(folder, sandboxes) as world:
        world.cold("Note")
        assert world.invoke("Note", {}) == {"count": 1}


def test_schedules_run_on_the_virtual_clock(folder: Path) -> None:
    with _world(folder) as world:
        world.run_for(timedelta(hours=3))
        assert [note["time"] for note in sorted(_notes(), key=lambda n: n["time"])] == [
            "2026-05-04T12:30:00Z",
            "2026-05-04T13:30:00Z",
            "2026-05-04T14:30:00Z",
        ]
    with _world(folder, schedules=False) as world:
        world.run_for(timedelta(hours=3))
        assert _notes() == []


def test_an_event_invocation_is_tried_three_times(folder: Path) -> None:
    with _world(folder) as world:
        world.publish({"source": "blockkeeper", "detail-type": "x", "detail": {"fail": True}})
        world.run_until_idle()
        assert world.now() == START + timedelta(minutes=3)
        assert [(function, error.error) for function, error in world.failures] == [("Note", "ValueError")]
        assert len(_notes()) == 3


def test_rules_give_their_own_input(folder: Path) -> None:
    with _world(folder) as world:
        world.publish({"source": "aws.ec2", "detail-type": "Capacity Block Delivered", "detail": {}})
        world.run_until_idle()
        assert _notes() == [{"from": "rule"}]


def test_rest_api(folder: Path) -> None:
    with _world(folder) as world:
        key = {"x-api-key": "x" * 32}
        assert world.request("GET", "/abc").status == 403
        assert world.request("GET", "/a/b", headers=key).status == 403
        answer = world.request("GET", "/abc", headers=key)
        assert (answer.status, answer.json(), answer.headers["x-count"]) == (200, ["/abc", None], "1")
        assert world.request("POST", "/open", body="ü", base64=True).json() == ["/open", "w7w="]
        world.engine.crash("Note", when="before")
        assert world.request("POST", "/open").status == 502


def test_only_one_world_at_a_time_and_nothing_stays_behind(folder: Path) -> None:
    with _world(folder):
        other = _world(folder)
        with pytest.raises(RuntimeError, match="another world"):
            other.__enter__()
    assert World.current is None
    with _world(folder) as world:
        world.engine.crash("Note", when="after")
        with pytest.raises(StateError, match=r"Lambda\.Unknown"):
            world.invoke("Note", {})
        assert len(_notes()) == 1
