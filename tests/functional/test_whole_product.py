"""What the functional tests together must have shown; see conftest.py for how this comes last."""

import re

import pytest

from blockkeeper.aws.calls import CALLS
from local.engine.coverage import missing_branches
from local.engine.template import Template
from local.engine.world import ACCOUNT, REGION, ROOT

TEMPLATE = Template(ROOT / "template.yaml", {"MonthlyLimit": "1"}, region=REGION, account=ACCOUNT)

# botocore's names of services and operations differ from IAM's here and there (Service Authorization Reference).
_SERVICES = {"resourcegroups": "resource-groups", "sesv2": "ses", "stepfunctions": "states"}
_ACTIONS = {
    # A tag on what is made is authorized, too (EC2 User Guide, "Grant permission to tag resources during creation").
    ("ec2", "PurchaseCapacityBlock"): {"ec2:PurchaseCapacityBlock", "ec2:CreateTags"},
}
# AWS lets everybody ask who they are (STS API reference, GetCallerIdentity).
_NEEDS_NO_GRANT = {"sts:GetCallerIdentity"}
# Granted for accounts other than the stack's own, or for what only a deployed stack does.
_NOT_SEEN_HERE = {"sts:AssumeRole"}
# Auto Scaling asks whether who gives a group a launch template may launch it, and pass its role ("Control launch template usage").
_ASKED_BY_AUTO_SCALING = {"PointGroups": {"ec2:RunInstances", "iam:PassRole"}}


@pytest.mark.parametrize("machine", sorted(TEMPLATE.state_machines))
def test_every_branch_of_every_state_machine_has_run(machine, ran):
    missing = missing_branches(TEMPLATE.state_machines[machine].definition, ran.branches[machine])
    assert not missing, "\n".join(missing)


@pytest.mark.parametrize("function", sorted(TEMPLATE.functions))
def test_each_function_is_granted_exactly_the_calls_that_it_makes(function, ran):
    made = set().union(*(_actions(service, operation) for service, operation in ran.calls[function]))
    granted = _granted(function)
    assert made - granted - _NEEDS_NO_GRANT == set(), "calls that the template does not grant"
    assert granted - made - _NOT_SEEN_HERE - _ASKED_BY_AUTO_SCALING.get(function, set()) == set(), (
        "grants that no test needs"
    )


def test_case_b40_each_call_that_is_made_is_looked_for_at_the_start(ran):
    """A call that the doctor does not look for would be missed when boto3 does not know it."""
    made = {(service, operation) for calls in ran.calls.values() for service, operation in calls}
    known = {(_word(service), operation) for service, operations in CALLS.items() for operation in operations}
    assert {(_word(service), operation) for service, operation in made} <= known


def test_only_the_buyers_may_purchase_each_its_own():
    purchases = {name: {each for each in _granted(name) if "Purchase" in each} for name in TEMPLATE.functions}
    assert {name: actions for name, actions in purchases.items() if actions} == {
        "BuyExtension": {"ec2:PurchaseCapacityBlockExtension"},
        "BuyBlock": {"ec2:PurchaseCapacityBlock"},
    }


def _word(service):
    return re.sub(r"[^a-z0-9]", "", service.lower())


def _actions(service, operation):
    service = _word(service)
    if (service, operation) in _ACTIONS:
        return _ACTIONS[service, operation]
    return {f"{_SERVICES.get(service, service)}:{operation}"}


def _granted(function):
    resources = dict(TEMPLATE.of_type("AWS::Serverless::Function"))
    policies = resources[function].get("Policies", [])
    actions = set()
    for policy in policies:
        for statement in policy["Statement"]:
            given = statement["Action"]
            actions.update([given] if isinstance(given, str) else given)
    assert not any("*" in action for action in actions)
    return actions
