"""What goes wrong on the way to AWS and the API: one line, the right exit code, never the key."""

import inspect
import json
import socket
import typing

import boto3
import pytest

from blockkeeper_cli import options as shared
from blockkeeper_cli.main import app

from .conftest import KEY


def one_line(ran, code):
    assert (ran.code, ran.out) == (code, "")
    assert len(ran.err.splitlines()) == 1, ran.err
    assert ran.err.startswith("error: ")
    return ran.err


def test_a_stack_that_is_not_there_is_named_with_the_way_out(cli):
    for words in (("status",), ("history",), ("approve", "a", "--yes")):
        text = one_line(cli(*words, "--stack", "none"), 1)
        assert "no stack none is deployed in us-east-1; pass --stack and --region" in text


def test_the_stack_is_named_by_the_environment_too(cli, monkeypatch):
    monkeypatch.setenv("BLOCKKEEPER_STACK", "other")
    assert "no stack other" in one_line(cli("status"), 1)
    assert cli("status", "--stack", "blockkeeper").code == 0


def test_every_command_names_the_stack_in_the_same_way():
    commands = {command.callback: command for command in app.registered_commands}
    for function in commands:
        options = typing.get_type_hints(function, include_extras=True)
        assert (options["stack"], options["region"], options["profile"], options["json_"]) == (
            shared.Stack,
            shared.Region,
            shared.Profile,
            shared.Json,
        ), function.__name__
        assert inspect.signature(function).parameters["stack"].default == shared.DEFAULT_STACK
    assert len(commands) >= 12


def test_the_region_option_counts(cli):
    assert "deployed in eu-west-1" in one_line(cli("status", "--region", "eu-west-1"), 1)


def test_without_a_region_it_is_asked_for(cli, monkeypatch, tmp_path):
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    assert "pass --region" in one_line(cli("status"), 2)


def test_an_unknown_profile_is_named(cli, monkeypatch, tmp_path):
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    assert "nobody" in one_line(cli("status", "--profile", "nobody"), 2)


def test_a_wrong_option_is_wrong_usage(cli):
    assert cli("status", "--wrong").code == 2
    assert cli("wrong").code == 2


def test_a_key_that_the_api_does_not_know_is_refused_without_showing_it(cli):
    boto3.client("secretsmanager").put_secret_value(
        SecretId="blockkeeper-key", SecretString=json.dumps({"api_key": "an0ther-secret-key"})
    )
    assert "an0ther" not in one_line(cli("status"), 1)


def test_a_secret_of_another_form_is_not_shown(cli):
    for text in (KEY, json.dumps([KEY]), json.dumps({"key": KEY}), json.dumps({"api_key": [KEY]})):
        boto3.client("secretsmanager").put_secret_value(SecretId="blockkeeper-key", SecretString=text)
        assert "blockkeeper-key is no JSON with api_key" in one_line(cli("status"), 1)


@pytest.mark.parametrize(
    ("answer", "code", "words"),
    [
        ((502, json.dumps({"message": "Internal server error"})), 3, "HTTP 502"),
        ((200, "<html>"), 1, "no JSON"),
        ((302, ""), 1, "HTTP 302"),
        ((429, json.dumps({"message": "Too Many Requests"})), 1, "too often"),
    ],
)
def test_an_answer_that_is_none_is_said(cli, monkeypatch, answer, code, words):
    monkeypatch.setattr("urllib3.Retry.sleep", lambda *_: None)
    cli.api_answers = answer
    assert words in one_line(cli("status"), code)


def test_only_reads_are_repeated(cli, monkeypatch):
    monkeypatch.setattr("urllib3.Retry.sleep", lambda *_: None)
    cli.api_answers = (503, "")
    cli("status")
    assert len(cli.requests) == 4
    cli.requests.clear()
    one_line(cli("enrol", "-", given=json.dumps({"PK": "a"})), 3)
    assert len(cli.requests) == 1


def test_an_api_that_does_not_answer_is_not_reached(cli, monkeypatch):
    monkeypatch.setattr("urllib3.Retry.sleep", lambda *_: None)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    url = f"http://127.0.0.1:{port}/v1"
    boto3.client("ssm").put_parameter(Name="/blockkeeper/blockkeeper/apiUrl", Value=url, Overwrite=True)
    assert url in one_line(cli("status"), 3)
    ran = cli("remove", "team-vision", "--yes")
    assert "may have been taken" in one_line(ran, 3)


def test_the_key_is_not_sent_over_plain_http(cli):
    boto3.client("ssm").put_parameter(
        Name="/blockkeeper/blockkeeper/apiUrl", Value="http://192.0.2.1/v1", Overwrite=True
    )
    assert "is not https" in one_line(cli("status"), 1)


def test_a_local_aws_serves_the_api_below_its_endpoint(monkeypatch):
    from blockkeeper_cli.rest import Api

    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:4566/")
    api = Api("https://abc123.execute-api.us-east-1.amazonaws.com/v1", KEY)
    assert api.url == "http://127.0.0.1:4566/_aws/execute-api/abc123/v1"
    assert Api("https://blocks.example.com/v1/", KEY).url == "https://blocks.example.com/v1"
    assert KEY not in repr(api)


def test_a_half_deployed_stack_is_said(cli):
    template = json.dumps({"Resources": {"T": {"Type": "AWS::SNS::Topic"}}})
    boto3.client("cloudformation").create_stack(StackName="half", TemplateBody=template)
    assert "stack half has no output TableName" in one_line(cli("history", "--stack", "half"), 1)


def test_a_record_that_somebody_wrote_by_hand_is_named(cli):
    from blockkeeper.aws import table

    cli.block()
    table.write(table.put_request("environment", "by-hand", {"capacity_block_id": "cr-1"}))
    text = one_line(cli("extend", "by-hand", "--dry-run"), 1)
    assert "record by-hand cannot be read" in text
