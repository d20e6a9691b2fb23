"""The stack on the local AWS: the real `sam build` and `sam deploy` of template.yaml, and the doors that people use afterwards.

Shared by `./dev demo`, `./dev up` and the end-to-end tests.
"""

import json
import os
import platform
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any

from local import slack
from local.server import ACCOUNT, LocalAws
from local.slack.asgi import BASE as SLACK_BASE
from local.slack.asgi import CONTROL as SLACK_CONTROL

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / ".local" / "build"
CACHE = ROOT / ".local" / "sam-cache"
LOGS = ROOT / ".local" / "log"
STACK = "blockkeeper"
SENDER = "blockkeeper@example.com"
# What the local stack is deployed with, beyond the machine's own.
PARAMETERS = {
    "SenderEmail": SENDER,
    "MonthlyLimit": "500000",
    "Targets": f"{ACCOUNT}:us-east-1,{ACCOUNT}:us-west-2",
    "SlackSecretName": "blockkeeper/slack",
    "SlackChannel": slack.CHANNEL,
}
_TAIL = 2500


class DeployError(RuntimeError):
    """sam ended with an error; the message has the end of its output and where the rest is."""


@dataclass(frozen=True)
class Answer:
    """An HTTP answer; `body` is JSON where it is JSON, else text."""

    status: int
    body: Any


@dataclass(frozen=True)
class Stack:
    """A deployed stack. `api_url` has no slash at its end."""

    aws: LocalAws
    outputs: Mapping[str, str]
    api_url: str
    api_key: str

    def api(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        """Call the REST API with its key."""
        return request(method, f"{self.api_url}{path}", body, **{"x-api-key": self.api_key, **headers})

    def start(self, output: str, name: str, given: Any = None) -> str:
        """Start the state machine that a stack output names; answers the execution's ARN."""
        states = self.aws.client("stepfunctions")
        started = states.start_execution(stateMachineArn=self.outputs[output], name=name, input=json.dumps(given or {}))
        return str(started["executionArn"])

    def mails(self) -> list[dict[str, Any]]:
        """Every mail that SES has sent, oldest first."""
        answer = request("GET", f"{self.aws.endpoint}/_ministack/ses/messages")
        messages: dict[str, list[dict[str, Any]]] = answer.body["messages"]
        return messages.get(self.aws.account, [])

    @property
    def slack_page(self) -> str:
        """The page of the local Slack's channel."""
        return f"{self.aws.endpoint}{SLACK_BASE}/"

    def slack(self, **order: Any) -> Any:
        """What the local Slack has; with one keyword, an order to it: `press`, `submit`, `fail` or `interactions_url`.

        Raises:
            ValueError: it refused; its message.
        """
        answer = request("POST" if order else "GET", f"{self.aws.endpoint}{SLACK_BASE}{SLACK_CONTROL}", order or None)
        if answer.status != HTTPStatus.OK:
            raise ValueError(answer.body["error"])
        return answer.body


def request(method: str, url: str, body: Any = None, **headers: str) -> Answer:
    """One HTTP request to the local AWS; text goes as it is, anything else as JSON. No status raises."""
    if not url.startswith("http://127.0.0.1:"):
        raise ValueError(f"{url} is not on this machine")
    data = body.encode() if isinstance(body, str) else None if body is None else json.dumps(body).encode()
    kind = "application/x-www-form-urlencoded" if isinstance(body, str) else "application/json"
    asked = urllib.request.Request(url, data, {"content-type": kind, **headers}, method=method)  # noqa: S310 - checked above
    try:
        with urllib.request.urlopen(asked, timeout=60) as answer:  # noqa: S310 - checked above
            return Answer(answer.status, _read(answer.read()))
    except urllib.error.HTTPError as error:
        return Answer(error.code, _read(error.read()))


def build() -> None:
    """`sam build`, into .local/build; dependencies come from the package registry."""
    _sam(
        "build",
        "--cached",
        "--cache-dir",
        str(CACHE),
        "--build-dir",
        str(BUILD),
        "--parameter-overrides",
        *_pairs(machine()),
    )


def deploy(aws: LocalAws, parameters: Mapping[str, str], senders: tuple[str, ...] = (SENDER,)) -> Stack:
    """`sam deploy` of what was built, and what an account has besides: verified senders, and the Slack app's secret.

    The API's address on AWS does not resolve here, so links get the local one, as they would with a custom domain.
    """
    ses = aws.client("sesv2")
    for sender in senders:
        ses.create_email_identity(EmailIdentity=sender)
    if name := parameters.get("SlackSecretName"):
        secret = slack.secret(f"{aws.endpoint}{SLACK_BASE}/api/")
        aws.client("secretsmanager").create_secret(Name=name, SecretString=secret)
    template, config = str(BUILD / "template.yaml"), str(ROOT / "samconfig.toml")
    local = ["--config-file", config, "--config-env", "local"]
    _sam(
        "deploy",
        "--template-file",
        template,
        *local,
        "--parameter-overrides",
        *_pairs({**machine(), **parameters}),
        aws=aws,
    )
    described = aws.client("cloudformation").describe_stacks(StackName=STACK)["Stacks"][0]
    outputs = {output["OutputKey"]: output["OutputValue"] for output in described["Outputs"]}
    api_url = aws.api_url(outputs["ApiUrl"])
    aws.client("ssm").put_parameter(Name=f"/blockkeeper/{STACK}/apiUrl", Value=api_url, Type="String", Overwrite=True)
    stored = aws.client("secretsmanager").get_secret_value(SecretId=outputs["ApiKeySecretName"])
    stack = Stack(aws, outputs, api_url, json.loads(stored["SecretString"])["api_key"])
    stack.slack(interactions_url=f"{api_url}/slack/interactions")
    return stack


def machine() -> dict[str, str]:
    """The parameters that make functions run on the machine at hand: MiniStack runs them on its own Python."""
    architecture = "arm64" if platform.machine().lower() in ("arm64", "aarch64") else "x86_64"
    return {"PythonRuntime": f"python{sys.version_info.major}.{sys.version_info.minor}", "Architecture": architecture}


def _pairs(parameters: Mapping[str, str]) -> list[str]:
    return [f"{name}={value}" for name, value in parameters.items()]


def _sam(*arguments: str, aws: LocalAws | None = None) -> None:
    LOGS.mkdir(parents=True, exist_ok=True)
    log = LOGS / f"sam-{arguments[0]}.log"
    environment = {**os.environ, "SAM_CLI_TELEMETRY": "0", **(aws.environment() if aws else {})}
    with log.open("wb") as out:
        code = subprocess.run(
            ["sam", *arguments],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            check=False,
        ).returncode
    if code:
        end = log.read_text("utf-8", "replace")[-_TAIL:]
        raise DeployError(
            f"sam {arguments[0]} ended with {code}; the whole output is in {log.relative_to(ROOT)}\n{end}"
        )


def _read(data: bytes) -> Any:
    text = data.decode("utf-8", "replace")
    try:
        return json.loads(text)
    except ValueError:
        return text
