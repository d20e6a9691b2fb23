"""Errors in words: what, why, the remedy, and the exit code; spans and times; what help loads."""

import os
import subprocess
import sys
from datetime import UTC, datetime

import pytest
from botocore import exceptions as aws

from blockkeeper_cli import clock, output
from blockkeeper_cli.errors import CommandError, UsageError, explain, missing_action


def refusal(code, message="", operation="GetParameters"):
    return aws.ClientError({"Error": {"Code": code, "Message": message}}, operation)


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (aws.NoCredentialsError(), 3, "no AWS credentials were found; sign in"),
        (aws.TokenRetrievalError(provider="sso", error_msg="expired"), 3, "sign in"),
        (aws.UnauthorizedSSOTokenError(), 3, "aws sso login"),
        (aws.EndpointConnectionError(endpoint_url="https://ssm.us-east-1.amazonaws.com"), 3, "AWS does not answer"),
        (aws.ReadTimeoutError(endpoint_url="https://ssm.us-east-1.amazonaws.com"), 3, "AWS does not answer"),
        (aws.NoRegionError(), 2, "--region"),
        (aws.ProfileNotFound(profile="x"), 2, "list-profiles"),
        (refusal("ExpiredTokenException"), 3, "have expired"),
        (refusal("ExpiredToken"), 3, "have expired"),
        (refusal("UnrecognizedClientException"), 3, "does not accept these credentials"),
        (refusal("RequestLimitExceeded"), 1, "wait a minute"),
        (refusal("AccessDeniedException"), 1, "may not do ssm:GetParameters"),
        (
            refusal("UnauthorizedOperation", operation="DescribeCapacityReservations"),
            1,
            "ec2:DescribeCapacityReservations",
        ),
        (refusal("Strange", "two\nlines"), 1, "GetParameters was refused: Strange: two lines"),
    ],
)
def test_an_expected_error_becomes_one_line(error, code, words):
    known = explain(error)
    assert known is not None
    assert known.exit_code == code
    assert words in str(known)
    assert "\n" not in str(known)


def test_the_action_that_aws_names_is_believed():
    message = "User: arn:aws:iam::1:user/a is not authorized to perform: dynamodb:Query on resource: x"
    assert missing_action(refusal("AccessDeniedException", message, "Scan")) == "dynamodb:Query"


def test_a_fault_of_ours_keeps_its_traceback():
    assert explain(ZeroDivisionError()) is None


@pytest.mark.parametrize(
    ("minutes", "words"),
    [(None, "-"), (0, "0m"), (59, "59m"), (60, "1h 00m"), (125, "2h 05m"), (1440, "1d 0h"), (4565, "3d 4h")],
)
def test_a_span_is_shown_in_its_two_largest_units(minutes, words):
    assert output.span(minutes) == words


def test_a_moment_is_shown_in_utc():
    assert output.moment("2026-05-04T13:30:00+02:00") == "2026-05-04 11:30"
    assert output.moment(None) == "-"


def test_a_confirmation_needs_a_terminal_or_a_yes(monkeypatch):
    monkeypatch.setattr(output, "interactive", lambda: False)
    output.confirm("?", yes=True)
    with pytest.raises(UsageError, match="--yes"):
        output.confirm("?", yes=False)
    monkeypatch.setattr(output, "interactive", lambda: True)
    monkeypatch.setattr("typer.confirm", lambda *_, **__: False)
    with pytest.raises(CommandError, match="nothing was done"):
        output.confirm("?", yes=False)


def test_the_clock_is_this_machines_but_for_a_local_aws(monkeypatch):
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    before = datetime.now(UTC)
    assert before <= clock.now() <= datetime.now(UTC)
    asked = []

    class Pool:
        def __init__(self, **_):
            pass

        def request(self, method, url):
            asked.append((method, url))
            return type("Answer", (), {"data": b'{"now": "2026-05-04T11:30:00+00:00"}'})

    monkeypatch.setattr("urllib3.PoolManager", Pool)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "https://vpce.example.com")
    assert clock.now() >= before
    assert asked == []
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:4566")
    assert clock.now() == datetime(2026, 5, 4, 11, 30, tzinfo=UTC)
    assert asked == [("GET", "http://127.0.0.1:4566/_blockkeeper/clock")]


def test_help_loads_neither_boto3_nor_http():
    script = (
        "import sys\n"
        "from blockkeeper_cli.main import app\n"
        "try: app(['--help'])\n"
        "except SystemExit: pass\n"
        "heavy = {'boto3', 'botocore', 'urllib3', 'jsonschema', 'aws_lambda_powertools'} & set(sys.modules)\n"
        "sys.exit(', '.join(heavy) or 0)\n"
    )
    paths = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ran = subprocess.run([sys.executable, "-c", script], env=paths, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    for command in ("status", "offers", "extend", "approve", "reject", "history", "Exit codes"):
        assert command in ran.stdout
