"""The gates of our own refuse what they are for, and let through only what they say."""

import importlib.util
import json
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path

import pytest
from statelint.linter import Linter

from local.engine.template import Template
from local.gates import workflows
from local.gates.workflows import BEHIND, problems

ROOT = Path(__file__).resolve().parents[3]
WORKFLOWS = sorted((ROOT / "statemachines").glob("*.asl.json"))


@pytest.fixture(scope="module")
def template():
    return Template(ROOT / "template.yaml", {"MonthlyLimit": "0"})


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_our_workflows_pass(path, template):
    assert list(problems(path, template)) == []


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ('"Default": "Record the outcome"', '"Default": "Nowhere"', "Nowhere"),
        ('"StartAt": "Begin"', '"StartAt": "Begin", "Bogus": 1', "Bogus"),
        ("$states.input", "$states.input ((", "JSONata"),
    ],
)
def test_a_broken_workflow_is_refused(tmp_path, monkeypatch, old, new, text):
    for folder in ("statemachines", "schemas"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    (tmp_path / "statemachines").unlink()
    (tmp_path / "statemachines").mkdir()
    for path in WORKFLOWS:
        content = path.read_text("utf-8")
        broken = content.replace(old, new, 1) if path.name == "extend-block.asl.json" else content
        (tmp_path / "statemachines" / path.name).write_text(broken, "utf-8")
    (tmp_path / "template.yaml").write_text((ROOT / "template.yaml").read_text("utf-8"), "utf-8")
    monkeypatch.setattr(workflows, "ROOT", tmp_path)
    template = Template(tmp_path / "template.yaml", {"MonthlyLimit": "0"})
    found = list(problems(tmp_path / "statemachines" / "extend-block.asl.json", template))
    assert any(text in problem for problem in found), found


def test_statelint_is_still_behind_in_each_of_these_places():
    """A failure is good news: that exception can go from local/gates/workflows.py."""
    complaints = [problem for path in WORKFLOWS for problem in Linter.validate(path.read_text("utf-8"))]
    for known in BEHIND:
        assert any(known.search(complaint) for complaint in complaints), known.pattern


def test_nothing_here_reaches_a_real_account(monkeypatch):
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL"):
        monkeypatch.setenv(name, "theirs")
    loader = SourceFileLoader("dev", str(ROOT / "dev"))
    dev = importlib.util.module_from_spec(importlib.util.spec_from_loader("dev", loader))
    monkeypatch.setitem(sys.modules, "dev", dev)
    loader.exec_module(dev)
    environment = dev.clean_env()
    assert "theirs" not in json.dumps(environment)
    assert environment["AWS_ACCESS_KEY_ID"] == "111122223333"
    assert not Path(environment["AWS_SHARED_CREDENTIALS_FILE"]).exists()
