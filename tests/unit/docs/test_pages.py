"""What the pages name exists: links, headings of alarms, parameters, outputs, states, events, refusal codes."""

import json
import re
from pathlib import Path

import pytest
import yaml

from blockkeeper.aws.purchase import REFUSALS
from blockkeeper.domain.durations import LEGAL_DAYS
from blockkeeper.domain.ledger import PurchaseState
from blockkeeper.domain.outcome import CONSEQUENCES
from blockkeeper.domain.replacement_outcome import ReplacementOutcome, detail_type_of
from blockkeeper.schema_check import schema_problems
from local.engine.template import _Loader

ROOT = Path(__file__).parents[3]
PAGES = [
    ROOT / "README.md",
    ROOT / "CHANGELOG.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "examples").rglob("*.md")),
]
TEMPLATE = yaml.load((ROOT / "template.yaml").read_text(encoding="utf-8"), _Loader)  # noqa: S506 - a SafeLoader


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_resolve(page: Path):
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if re.match(r"https?://", target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), f"{target} is not there"
        if anchor:
            assert anchor in _anchors(file), f"{target}: no such heading"


def test_alarms_name_headings():
    alarms = {
        name: resource["Properties"]["AlarmDescription"]
        for name, resource in TEMPLATE["Resources"].items()
        if resource["Type"] == "AWS::CloudWatch::Alarm"
    }
    headings = re.findall(r"^## (.+)$", (ROOT / "docs" / "operations.md").read_text(encoding="utf-8"), re.MULTILINE)
    for name, description in alarms.items():
        (named,) = re.findall(r'docs/operations\.md, "([^"]+)"', description) or [None]
        assert named in headings, f"{name}: {description}"
    assert len(alarms) > 5


def test_readme_has_each_parameter_with_its_default():
    rows = dict(re.findall(r"^\| `(\w+)` \| (.+?) \| .+ \|$", _readme("## Deploy it"), re.MULTILINE))
    defaults = {name: given.get("Default") for name, given in TEMPLATE["Parameters"].items()}
    words = {name: {None: "none, required", "": "empty"}.get(value, f"`{value}`") for name, value in defaults.items()}
    assert rows == words


def test_readme_has_each_output():
    line = next(line for line in _readme("## Deploy it").splitlines() if line.startswith("The stack's outputs:"))
    named = re.findall(r"`(\w+)`", line.partition(". ")[0])
    assert named == list(TEMPLATE["Outputs"])


def test_readme_record_is_accepted_also_with_a_plan_b():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    example, plan_b = re.findall(r"```json\n(.+?)```", readme, re.DOTALL)
    record = json.loads(example)
    assert schema_problems("environment", record) == []
    assert schema_problems("environment", record | json.loads(f"{{{plan_b}}}")) == []
    assert record["extend_by_days"] in LEGAL_DAYS


def test_commands_name_deployed_parameters():
    for page in PAGES:
        for given in re.findall(r"sam (?:deploy|build) .*--parameter-overrides ([^\n`)]+)", page.read_text("utf-8")):
            assert {pair.split("=")[0] for pair in given.split()} <= set(TEMPLATE["Parameters"]), given


def test_architecture_has_each_outcome_with_its_consequence():
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| .+? \| `(\w+)`.*? \| (\w+) \| ([\w ]+) \|$", page, re.MULTILINE)
    ends = {outcome: (status, event) for outcome, status, event in rows}
    wanted = {
        str(outcome): (each.status.value, each.detail_type)
        for outcome, each in CONSEQUENCES.items()
        if outcome not in ("offered", "purchased", "end_not_moved")  # steps on the way, not ends
    }
    assert ends == wanted


def test_architecture_names_each_end_of_extend_block():
    states = json.loads((ROOT / "statemachines" / "extend-block.asl.json").read_text(encoding="utf-8"))["States"]
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    ends = re.findall(r"^\| ([\w ]+?)(?: \(Fail\))? \| ", page.partition("### extend-block")[2], re.MULTILINE)
    for name, state in states.items():
        if state["Type"] in ("Succeed", "Fail"):
            assert state.get("Error", name) in ends


def test_architecture_has_each_event_and_ledger_state():
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    sources = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "functions").rglob("*.py"))
    published = set(re.findall(r'(?:publish|_announce)\(\s*"([A-Z][\w ]+)"', sources)) | {
        e.detail_type for e in CONSEQUENCES.values()
    }
    published |= {detail_type for outcome in ReplacementOutcome if (detail_type := detail_type_of(outcome))}
    events = page.partition("## Our events")[2].partition("\n## ")[0]
    assert set(re.findall(r"^\| ([A-Z][\w ]+) \|", events, re.MULTILINE)) == published
    assert all(state in page for state in PurchaseState)


@pytest.mark.parametrize(
    ("workflow", "heading"),
    [("extend-block", "## A failed extension"), ("replace-block", "## A failed replacement")],
)
def test_operations_explain_each_failure(workflow, heading):
    states = json.loads((ROOT / "statemachines" / f"{workflow}.asl.json").read_text(encoding="utf-8"))["States"]
    errors = {state["Error"] for state in states.values() if state["Type"] == "Fail"}
    page = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    section = page.partition(heading)[2].partition("\n## ")[0]
    explained = set(re.findall(r"^\| (\w+) \| ", section, re.MULTILINE)) - {"error"}
    assert explained == errors


def test_adr_005_lists_the_refusals():
    page = (ROOT / "docs" / "adr" / "005-refusal-codes.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| [a-z ]+ \| ([A-Z].+) \|$", page, re.MULTILINE)
    assert {code for row in rows for code in row.split(", ")} == REFUSALS


def _readme(heading: str) -> str:
    return (ROOT / "README.md").read_text(encoding="utf-8").partition(heading)[2].partition("\n### ")[0]


def _anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
