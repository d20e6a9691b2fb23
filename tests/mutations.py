"""Take one safeguard away at a time and see the fault matrix or the state model go red: `python -m tests.mutations [name ...]`.

Each mutation is a replacement of text that must be there exactly once, in a copy of the tree. A mutant that both let live is a hole
in the proof: exit code 1. `--only matrix` or `--only model` asks one of them.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
COPIED = ("functions", "cli", "local", "statemachines", "schemas", "events", "template.yaml", "pyproject.toml", "tests")
LEDGER = "functions/blockkeeper/aws/ledger.py"
BUYER = "functions/buy_extension/app.py"
POLICY = "functions/blockkeeper/domain/purchase_policy.py"
RECONCILE = "functions/blockkeeper/domain/ledger.py"
EXTENSION = "functions/blockkeeper/domain/extension.py"
EXTEND = "statemachines/extend-block.asl.json"

MUTATIONS: dict[str, list[tuple[str, str, str]]] = {
    "INTENT without its condition": [
        (LEDGER, ('condition="attribute_not_exists(kind) OR #state = :refused",\n'
                  '            values={":refused": PurchaseState.REFUSED},'), ""),
    ],
    "SENT without its condition": [
        (LEDGER, 'condition="#state = :intent AND #offering_id = :offering AND #intended_at = :intended_at",',
                 'condition="attribute_exists(#state) OR :intent = #state OR :offering = #state OR :intended_at = #state",'),
    ],
    "a Retry on Buy once": [
        (EXTEND, '"Comment": "No Retry, ever', '"Retry": [{"ErrorEquals": ["States.TaskFailed"]}],\n"Comment": "No Retry, ever'),
    ],
    "the purchase's answer is trusted": [
        (EXTENSION, "    if reservation.end > end:\n", "    if reservation.end > end or extension:\n"),
    ],
    "boto3 repeats the order": [
        ("functions/blockkeeper/aws/purchase.py", '"total_max_attempts": 1', '"total_max_attempts": 3'),
    ],
    "no approval check by the buyer": [
        (POLICY, " or approval_refusal(approval, offering, reservation_id, deadlines.end)\n", "\n"),
    ],
    "ordered again after payment-failed": [
        (RECONCILE, "    if found_ours:\n        return Reconciliation(Step.PAYMENT_FAILED",
                    "    if found_ours:\n        return Reconciliation(Step.ORDER"),
        (LEDGER, '"attribute_not_exists(kind) OR #state = :refused",', '"attribute_not_exists(kind) OR #state <> :sent",'),
        (LEDGER, '{":refused": PurchaseState.REFUSED},', '{":sent": PurchaseState.SENT},'),
    ],
    "ordered again when UNKNOWN": [
        (RECONCILE, "        return Reconciliation(Step.UNKNOWN,", "        return Reconciliation(Step.ORDER,"),
        (LEDGER, '"attribute_not_exists(kind) OR #state = :refused",', '"attribute_not_exists(kind) OR #state <> :bought",'),
        (LEDGER, '{":refused": PurchaseState.REFUSED},', '{":bought": PurchaseState.BOUGHT},'),
    ],
    "not reconciled": [
        (BUYER, "    found = reconcile(purchase, history, reservation, end)\n",
                "    from blockkeeper.domain.ledger import Reconciliation\n\n    found = Reconciliation(Step.ORDER, '')\n"),
    ],
    "no budget condition": [
        (LEDGER, ('condition=None if budget.limit is None else "attribute_not_exists(#reserved) OR #reserved <= :room",\n'
                 "                values=None if budget.limit is None else "
                 '{":room": _micro(budget.limit - offering.fee)},'), ""),
    ],
    "the fee given back twice": [
        (LEDGER, '*_spend(item, -parse_usd(item["upfront_fee"])),', '*_spend(item, -2 * parse_usd(item["upfront_fee"])),'),
    ],
    "a yes for another new end counts": [
        (POLICY, "    if bound != (reservation_id, end, offering.new_end):\n", "    if bound[:2] != (reservation_id, end):\n"),
    ],
    "a yes for a lower fee counts": [
        (POLICY, "    if offering.fee > ceiling:\n", "    if False:\n"),
    ],
    "a yes is not used up": [
        (LEDGER, 'set_={"used_for": ledger_id},', 'set_={"last_used_for": ledger_id[:9]},'),
    ],
}  # fmt: skip

SUITES = {"matrix": "tests/functional/faults", "model": "tests/functional/model"}


def mutate(tree: Path, name: str) -> None:
    """Apply one mutation. Raises ValueError when the text is not there exactly once: the code has changed, so must the mutation."""
    for file, old, new in MUTATIONS[name]:
        path = tree / file
        text = path.read_text()
        if text.count(old) != 1:
            raise ValueError(f"{name}: {file} has {text.count(old)} times {old!r}")
        path.write_text(text.replace(old, new))


def killed_by(name: str, suite: str) -> str | None:
    """The first test of a suite that fails on the mutant; None when it survives."""
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        tree = Path(folder)
        for entry in COPIED:
            source = ROOT / entry
            if source.is_dir():
                shutil.copytree(source, tree / entry, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(source, tree / entry)
        mutate(tree, name)
        command = [sys.executable, "-m", "pytest", "-q", "-x", "--tb=line", "-p", "no:cacheprovider", SUITES[suite]]
        environment = {**os.environ, "HYPOTHESIS_PROFILE": "ci", "FAULT_MATRIX": "whole"}
        done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return None
    if done.returncode != 1:
        # A course that goes wrong without any fault is found when the matrix is read off it.
        found = re.search(r"(\w+) goes wrong without any fault: .*", done.stdout)
        if found is None:
            raise RuntimeError(f"{name}: {suite} could not be run:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
        return found[0]
    found = re.search(r"^FAILED \S+?(?:\[(.+?)\]|::(\S+))", done.stdout, re.MULTILINE)
    return (found[1] or found[2]) if found else "red"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="mutations to try; all when left out")
    parser.add_argument("--only", choices=SUITES, action="append")
    given = parser.parse_args()
    survivors = 0
    for name in given.names or MUTATIONS:
        by = {suite: killed_by(name, suite) for suite in given.only or SUITES}
        survivors += not any(by.values())
        print(f"{name:38} " + "  ".join(f"{suite}: {killer or 'SURVIVED'}" for suite, killer in by.items()), flush=True)  # noqa: T201
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
