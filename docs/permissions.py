# ruff: noqa: INP001, E501 - a script beside what it writes; tables have long lines
"""Writes docs/permissions.md from template.yaml: every role's statements, and why each is there.

    python docs/permissions.py

The reason of a statement is the comment above it in the template; without one, what its actions do (`DOES`). A test keeps page and
template equal.
"""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "permissions.md"
DOES = {
    "dynamodb:DeleteItem": "deletes one item",
    "dynamodb:GetItem": "reads one item",
    "dynamodb:PutItem": "writes an item",
    "dynamodb:Query": "lists the items of one kind",
    "dynamodb:UpdateItem": "changes attributes of an item",
    "ec2:DescribeCapacityBlockExtensionHistory": "sees which extensions were ordered, by anybody",
    "ec2:DescribeCapacityBlockExtensionOfferings": "asks what an extension costs",
    "ec2:DescribeCapacityBlockOfferings": "asks what a new block costs",
    "ec2:DescribeCapacityReservations": "reads the blocks and their ends",
    "ec2:DescribeLaunchTemplateVersions": "sees what a group launches",
    "ec2:DescribeSubnets": "finds a group's subnets, and those of the new block's zone",
    "autoscaling:DescribeAutoScalingGroups": "sees what a group launches",
    "autoscaling:UpdateAutoScalingGroup": "lets a group launch into the new block",
    "events:DescribeRule": "learns by an event that a nested execution has ended (`.sync:2`)",
    "events:PutEvents": "tells the default bus what happened, as source blockkeeper only",
    "events:PutRule": "learns by an event that a nested execution has ended (`.sync:2`)",
    "events:PutTargets": "learns by an event that a nested execution has ended (`.sync:2`)",
    "lambda:InvokeFunction": "calls its own functions",
    "secretsmanager:GetSecretValue": "reads the key that signs approval links",
    "ses:SendEmail": "mails people",
    "sns:Publish": "publishes notices to the topic Notifications",
    "ssm:GetParameter": "learns the address that approval links begin with",
    "states:SendTaskSuccess": "hands a decision to the workflow that waits for it",
    "states:StartExecution": "starts the nested workflows",
    "sts:AssumeRole": "acts in other accounts through the role deployed there",
}
HEAD = """# Permissions

Written from `template.yaml` by `python docs/permissions.py`; do not edit.

One role for each function and each workflow, nothing shared. Besides what stands here SAM gives each function the managed policies
`AWSLambdaBasicExecutionRole` (write logs) and `AWSXRayDaemonWriteAccess` (`Tracing: Active`), and each workflow
`AWSXRayDaemonWriteAccess`. With the parameter `PermissionsBoundary` every role gets that boundary.

- **Only `BuyExtension` and `BuyBlock` may purchase**: the one extensions of Capacity Reservations of the stack's account, the other new
  blocks. In other accounts they do so through `${MemberRoleName}-buyer`, which trusts these two roles ([member-account.yaml](member-account.yaml)).
- No role may delete or change a Capacity Block, an instance or an IAM entity. `PointGroups` may add a version to a launch template; versions are
  never changed.
- `Resource: *` stands only where AWS knows no resource for the action (Describe calls), and for `ec2:RunInstances` from a launch template.
"""
TAIL = """
## Who deploys

`sam deploy` needs CloudFormation, the S3 bucket of SAM's packages, and the right to create what the template lists: IAM roles
(`CAPABILITY_IAM`), Lambda functions, Step Functions state machines, a DynamoDB table, API Gateway, EventBridge rules and a schedule, SQS, SNS,
CloudWatch alarms and a dashboard, a log group, two secrets and two SSM parameters. Where people may create roles only with a boundary, pass
its ARN as `PermissionsBoundary`.

## Who uses the command line

`blockkeeper` works with the caller's own AWS identity, never with a function's role.

| command | needs |
|---|---|
| every command | `cloudformation:DescribeStacks` on the stack, `sts:GetCallerIdentity` |
| `status` | `dynamodb:Query`, `dynamodb:GetItem` on the table |
| `offers`, `extend`, `replace` | the Describe calls of `LoadBlock`, `SearchOfferings` and `SearchBlocks`, `dynamodb:GetItem` on the table; for EC2's answer to `--dry-run` also `ec2:PurchaseCapacityBlockExtension` or `ec2:PurchaseCapacityBlock` |
| `extend`, `replace` | `states:StartExecution` and `states:DescribeExecution` on ExtendBlock and ReplaceBlock |
| `offers`, `extend`, `replace`, `enrol`, `show`, `remove`, `approve`, `reject` | `ssm:GetParameters` on the stack's two parameters, `secretsmanager:GetSecretValue` on the API key's secret |
| `doctor` | what [Doctor](#doctor) may, without `dynamodb:PutItem`, `dynamodb:DeleteItem` and `events:PutEvents`; what is denied is reported, and the rest goes on |
| `history` | `dynamodb:Query`; for one block also `ec2:DescribeCapacityBlockExtensionHistory` |
"""

Node = Any


def page() -> str:
    """The whole page."""
    text = (ROOT / "template.yaml").read_text(encoding="utf-8")
    lines = text.splitlines()
    resources = _field(yaml.compose(text), "Resources")
    sections = []
    for name, resource in _fields(resources):
        kind = _field(resource, "Type").value
        if kind in ("AWS::Serverless::Function", "AWS::Serverless::StateMachine"):
            sections.append(f"\n## {name}\n\n{_purpose(resource, kind)}\n\n{_table(resource, lines)}")
    return HEAD + "".join(sections) + TAIL


def _purpose(resource: Node, kind: str) -> str:
    properties = _field(resource, "Properties")
    if kind.endswith("StateMachine"):
        definition = _field(properties, "DefinitionUri").value
        return f"The workflow [{definition}](../{definition})."
    folder = _field(properties, "Handler").value.split(".")[0]
    module = ROOT / "functions" / folder / "app.py"
    says = (ast.get_docstring(ast.parse(module.read_text(encoding="utf-8"))) or "").splitlines()[0]
    says = says.partition(": ")[2] or says
    return f"[functions/{folder}](../functions/{folder}/app.py): {says[0].lower()}{says[1:]}"


def _table(resource: Node, lines: list[str]) -> str:
    rows = []
    for policy in _field(_field(resource, "Properties"), "Policies").value:
        for statement in _field(policy, "Statement").value:
            actions = [_words(action) for action in _each(_field(statement, "Action"))]
            places = [_words(place) for place in _each(_field(statement, "Resource"))]
            why = _comment(lines, statement.start_mark.line) or "; ".join(dict.fromkeys(DOES[name] for name in actions))
            condition = _field(statement, "Condition")
            if condition is not None:
                pair = next(_fields(next(_fields(condition))[1]))
                why += f" (only where `{pair[0]}` is `{_words(pair[1])}`)"
            rows.append(f"| {_code(actions)} | {_code(places)} | {why[0].upper()}{why[1:].rstrip('.')} |")
    return "| may | on | why |\n|---|---|---|\n" + "\n".join(rows) + "\n"


def _comment(lines: list[str], line: int) -> str:
    """The comment above a statement; `line` is that of its first key, which is the dash's."""
    found: list[str] = []
    while line > 0 and lines[line - 1].strip().startswith("#"):
        line -= 1
        found.insert(0, lines[line].strip().removeprefix("#").strip())
    return " ".join(found)


def _words(node: Node) -> str:
    """A resource or an action in a few words: `!GetAtt Table.Arn` and `!Ref Table` are both `Table`."""
    return str(node.value.partition(".")[0] if node.tag == "!GetAtt" else node.value)


def _code(words: list[str]) -> str:
    return "<br>".join(f"`{word}`" for word in words)


def _each(node: Node) -> list[Node]:
    return node.value if isinstance(node, yaml.SequenceNode) else [node]


def _fields(node: Node) -> Iterator[tuple[str, Node]]:
    return ((key.value, value) for key, value in node.value)


def _field(node: Node, name: str) -> Node | None:
    return next((value for key, value in _fields(node) if key == name), None)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
