"""The SAM template as CloudFormation would resolve it."""

import json
from pathlib import Path
from typing import Any

import pytest

from local.engine.template import Route, Template

from .conftest import machine

TEMPLATE = """
AWSTemplateFormatVersion: 2010-09-09
Transform: AWS::Serverless-2016-10-31
Parameters:
  Mode: {Type: String, Default: dry-run, AllowedValues: [dry-run, live]}
  Targets: {Type: CommaDelimitedList, Default: "1:eu, 2:us"}
Mappings:
  Sizes: {small: {memory: "128"}}
Conditions:
  IsLive: !Equals [!Ref Mode, live]
  IsDry: !Not [!Condition IsLive]
Globals:
  Function:
    Timeout: 30
    Environment: {Variables: {MODE: !Ref Mode, TABLE: !Ref Table}}
Resources:
  Table: {Type: AWS::DynamoDB::Table, Properties: {}}
  Secret: {Type: AWS::SecretsManager::Secret, Properties: {Name: !Sub "${AWS::StackName}/key"}}
  Extra: {Type: AWS::SQS::Queue, Condition: IsLive}
  Find:
    Type: AWS::Serverless::Function
    Properties:
      Handler: find.app.lambda_handler
      Environment:
        Variables:
          SECRET: !Ref Secret
          TARGETS: !Join [",", !Ref Targets]
          FIRST: !Select [0, !Ref Targets]
          QUEUE: !If [IsLive, !Ref Extra, none]
          MEMORY: !FindInMap [Sizes, small, memory]
          MACHINE: !Ref Flow
          ROLE: !GetAtt FindRole.Arn
          TEXT: !Sub ["${a} in ${AWS::Region} ${!kept} ${Table.Arn}", {a: !Ref Mode}]
          GONE: !If [IsLive, x, !Ref AWS::NoValue]
      Events:
        Get: {Type: Api, Properties: {Method: get, Path: "/{PK}"}}
        Poll: {Type: ScheduleV2, Properties: {ScheduleExpression: rate(15 minutes)}}
  Flow:
    Type: AWS::Serverless::StateMachine
    Properties:
      DefinitionUri: flow.asl.json
      DefinitionSubstitutions: {FindArn: !GetAtt Find.Arn}
      Events:
        Warned:
          Type: EventBridgeRule
          Properties: {Pattern: {source: [aws.ec2]}, InputPath: ""}
Outputs:
  FlowArn: {Value: !GetAtt Flow.Arn}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    task: dict[str, Any] = {
        "Type": "Task",
        "Resource": "arn:aws:states:::lambda:invoke",
        "Arguments": {"FunctionName": "${FindArn}"},
        "End": True,
    }
    (tmp_path / "flow.asl.json").write_text(json.dumps(machine("Find", {"Find": task})))
    (tmp_path / "template.yaml").write_text(TEMPLATE.replace(', InputPath: ""', ""))
    return tmp_path


def test_functions_have_their_environment_resolved(folder: Path) -> None:
    template = Template(folder / "template.yaml")
    find = template.functions["Find"]
    assert (find.handler, find.timeout) == ("find.app.lambda_handler", 30)
    assert find.environment == {
        "MODE": "dry-run",
        "TABLE": "blockkeeper-Table",
        "SECRET": "arn:aws:secretsmanager:us-east-1:123456789012:secret:blockkeeper/key-AbCdEf",
        "TARGETS": "1:eu,2:us",
        "FIRST": "1:eu",
        "QUEUE": "none",
        "MEMORY": "128",
        "MACHINE": "arn:aws:states:us-east-1:123456789012:stateMachine:blockkeeper-Flow",
        "ROLE": "arn:aws:iam::123456789012:role/blockkeeper-FindRole",
        "TEXT": "dry-run in us-east-1 ${kept} arn:aws:dynamodb:us-east-1:123456789012:table/blockkeeper-Table",
    }
    live = Template(folder / "template.yaml", {"Mode": "live"}).functions["Find"].environment
    assert live["QUEUE"] == "https://sqs.us-east-1.amazonaws.com/123456789012/blockkeeper-Extra"
    assert live["GONE"] == "x"


def test_state_machines_triggers_routes_and_outputs(folder: Path) -> None:
    template = Template(folder / "template.yaml", stack="dev")
    flow = template.state_machines["Flow"]
    find_arn = "arn:aws:lambda:us-east-1:123456789012:function:dev-Find"
    assert flow.definition["States"]["Find"]["Arguments"]["FunctionName"] == find_arn
    assert template.logical_ids == {find_arn: "Find", flow.arn: "Flow"}
    assert template.outputs() == {"FlowArn": flow.arn}
    assert template.routes == [Route("Find", "GET", "/{PK}", api_key_required=False)]
    poll, warned = template.triggers
    assert (poll.target, poll.schedule) == ("Find", "rate(15 minutes)")
    assert (warned.target, warned.pattern) == ("Flow", {"source": ["aws.ec2"]})


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (("!Ref Flow", "!Ref Flew"), "Flew is neither a parameter nor a resource"),
        (("!GetAtt FindRole.Arn", "!GetAtt NoRule.Arn"), "refers to no resource"),
        (("!Ref Flow", "!ImportValue x"), "Fn::ImportValue is not known"),
        (("FindArn: !GetAtt", "FoundArn: !GetAtt"), "has no value in DefinitionSubstitutions"),
        (("DefinitionSubstitutions: {", "DefinitionSubstitutions: {Other: x, "), "Other are not in the definition"),
        (("Type: Api", "Type: Kinesis"), "event type Kinesis is not known"),
    ],
)
def test_the_unknown_is_refused(folder: Path, change: tuple[str, str], problem: str) -> None:
    path = folder / "template.yaml"
    path.write_text(path.read_text().replace(*change))
    template = Template(path)
    with pytest.raises(ValueError, match=problem):
        assert [template.functions, template.state_machines, template.triggers]


def test_parameters_are_checked(folder: Path) -> None:
    with pytest.raises(ValueError, match="Mode is 'free'"):
        Template(folder / "template.yaml", {"Mode": "free"})
    with pytest.raises(ValueError, match="no parameter Nope"):
        Template(folder / "template.yaml", {"Nope": "x"})
