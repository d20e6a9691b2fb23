# ruff: noqa: T201
"""Checks every workflow twice: statelint for what the language asks of any machine, and our engine's loader for JSONata.

statelint 3.1.0 follows JSONata by and large, but is behind the language in four places (below). The loader refuses every
field that the engine does not know, every expression that does not parse and every name that leads nowhere, with the template's
substitutions filled in.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from statelint.linter import Linter

from local.engine.asl import load
from local.engine.errors import DefinitionError
from local.engine.template import Template

ROOT = Path(__file__).resolve().parents[2]
# What statelint refuses and Step Functions takes.
BEHIND = (
    re.compile(r"BackoffRate is \d+ but should be a Float"),  # the language asks for a number; JSON has only one kind
    re.compile(
        r'Seconds is "\{%.*%\}" but should be an Integer', re.DOTALL
    ),  # a JSONata string is allowed (guide, "Wait")
    re.compile(r'Timestamp is "\{%.*%\}" but should be an RFC3339 timestamp', re.DOTALL),  # the same
    re.compile(r'Field "Label" not allowed in State Machine\.States\.[^.]+$'),  # names a distributed Map (guide, "Map")
)


def problems(path: Path, template: Template) -> Iterator[str]:
    """What is wrong with the workflow; a workflow that the template does not deploy is wrong too."""
    text = path.read_text("utf-8")
    yield from (problem for problem in Linter.validate(text) if not any(known.search(problem) for known in BEHIND))
    deployed = {
        resource["DefinitionUri"]: logical_id
        for logical_id, resource in template.of_type("AWS::Serverless::StateMachine")
    }
    logical_id = deployed.get(path.relative_to(ROOT).as_posix())
    if logical_id is None:
        yield "no AWS::Serverless::StateMachine of template.yaml has it as its DefinitionUri"
        return
    machine = template.state_machines[logical_id]
    try:
        load(logical_id, machine.name, machine.arn, machine.definition)
    except DefinitionError as error:
        yield str(error)


def main() -> int:
    template = Template(ROOT / "template.yaml", {"MonthlyLimit": "0"})
    failed = False
    for path in sorted((ROOT / "statemachines").glob("*.asl.json")):
        found = list(problems(path, template))
        failed = failed or bool(found)
        print(f"{path.name}: {'ok' if not found else 'wrong'}")
        for problem in found:
            print(f"  {problem}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
