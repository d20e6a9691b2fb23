"""permissions.md and the member accounts' roles say what template.yaml's functions may do, no more and no less."""

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from local.engine.template import Template

ROOT = Path(__file__).parents[3]
# What functions do in other accounts; mail, the table and the bus are the stack's own.
ELSEWHERE = (
    "ec2:",
    "autoscaling:",
    "batch:",
    "eks:",
    "events:List",
    "iam:PassRole",
    "iam:Simulate",
    "resource-groups:",
    "servicequotas:",
    "sqs:",
)


@pytest.fixture(scope="module")
def stack() -> Template:
    return Template(ROOT / "template.yaml", {"MonthlyLimit": "0"})


@pytest.fixture(scope="module")
def member() -> Template:
    return Template(ROOT / "docs" / "member-account.yaml", {"StackAccountId": "111122223333"}, account="444455556666")


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("permissions", ROOT / "docs" / "permissions.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_page_equals_template(generator: ModuleType):
    page = (ROOT / "docs" / "permissions.md").read_text(encoding="utf-8")
    assert page == generator.page(), "run `python docs/permissions.py`"


def test_only_the_buyers_may_purchase(stack: Template):
    buyers = [name for name, statement in _statements(stack) if "Purchase" in str(statement["Action"])]
    assert buyers == ["BuyExtension", "BuyBlock"]


@pytest.mark.parametrize(
    ("role", "ends"), [("Member", "role/BlockkeeperMember"), ("Buyer", "role/BlockkeeperMember-buyer")]
)
def test_member_role_equals_the_functions_that_assume_it(stack: Template, member: Template, role: str, ends: str):
    functions = {name for name, statement in _statements(stack) if _assumes(statement, ends)}
    wanted = {
        action
        for name, statement in _statements(stack)
        if name in functions
        for action in _listed(statement["Action"])
        if action.startswith(ELSEWHERE)
    }
    properties = dict(member.of_type("AWS::IAM::Role"))[role]
    statements = [each for policy in properties["Policies"] for each in policy["PolicyDocument"]["Statement"]]
    assert {action for statement in statements for action in _listed(statement["Action"])} == wanted

    (trust,) = properties["AssumeRolePolicyDocument"]["Statement"]
    trusted = _listed(trust["Condition"]["ArnLike"]["aws:PrincipalArn"])
    assert {arn.rpartition("/")[2] for arn in trusted} == {f"blockkeeper-{name}Role-*" for name in functions}
    assert all(arn.startswith("arn:aws:iam::111122223333:role/") for arn in trusted)


def test_member_writes_are_bound_to_kinds_of_resources(member: Template):
    for _, role in member.of_type("AWS::IAM::Role"):
        for statement in role["Policies"][0]["PolicyDocument"]["Statement"]:
            reads = (":Describe", "events:ListRules", "servicequotas:Get")
            if not all(any(read in action for read in reads) for action in _listed(statement["Action"])):
                # A launch from a template needs images that others own: only the template is ours.
                resource = statement["Resource"]
                if _listed(statement["Action"]) == ["ec2:RunInstances"]:
                    resource = statement["Condition"]["ArnLike"]["ec2:LaunchTemplate"]
                assert all("444455556666" in each for each in _listed(resource))


def _statements(template: Template) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, properties in template.of_type("AWS::Serverless::Function"):
        for policy in properties["Policies"]:
            for statement in policy["Statement"]:
                yield name, statement


def _assumes(statement: dict[str, Any], ends: str) -> bool:
    return statement["Action"] == "sts:AssumeRole" and statement["Resource"].endswith(ends)


def _listed(value: Any) -> list[str]:
    return [value] if isinstance(value, str) else value
