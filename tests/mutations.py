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
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).parents[1]
COPIED = ("functions", "cli", "local", "statemachines", "schemas", "events", "template.yaml", "pyproject.toml", "tests")
LEDGER = "functions/blockkeeper/aws/ledger.py"
BUYER = "functions/buy_extension/app.py"
POLICY = "functions/blockkeeper/domain/purchase_policy.py"
RECONCILE = "functions/blockkeeper/domain/ledger.py"
EXTENSION = "functions/blockkeeper/domain/extension.py"
ORDER = "functions/blockkeeper/aws/order.py"
PURCHASE = "functions/blockkeeper/aws/purchase.py"
APPROVAL = "functions/blockkeeper/domain/approval.py"
BLOCK_BUYER = "functions/buy_block/app.py"
BLOCK_POLICY = "functions/blockkeeper/domain/replacement.py"
NEW_BLOCK = "functions/blockkeeper/domain/new_block.py"
EXTEND = "statemachines/extend-block.asl.json"
REPLACE = "statemachines/replace-block.asl.json"

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
        (PURCHASE, '"total_max_attempts": 1', '"total_max_attempts": 3'),
    ],
    "no approval check by the buyer": [
        (POLICY, "no or approval_refusal(approval, offering, reservation_id, deadlines.end) or too_few(", "no or too_few("),
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
    "ordered before SENT is written": [
        (ORDER, "        sent = ledger.mark_sent(key, intended, now)\n", "        sent = intended\n"),
    ],
    "a 500 counts as a refusal": [
        (PURCHASE, 'Order(Answer.UNKNOWN, f"EC2 answered', 'Order(Answer.REFUSED, f"EC2 answered'),
    ],
    "silence counts as a refusal": [
        (PURCHASE, 'Order(Answer.UNKNOWN, f"no answer', 'Order(Answer.REFUSED, f"no answer'),
    ],
    "a failed payment is given back twice": [
        (LEDGER, '"#state = :bought AND attribute_not_exists(#ec2_status) AND ', '"#state = :bought AND '),
        (RECONCILE, "    if purchase.state not in SENT_STATES or purchase.payment is not None:\n",
                    "    if purchase.state not in SENT_STATES:\n"),
    ],
    "a dry run buys": [
        (ORDER, "    if not settings.live():\n", "    if False:\n"),
    ],
    "a yes of a dry run moves money": [
        (POLICY, "    if live and approval is not None and ", "    if False and approval is not None and "),
    ],
    "a quorum that was raised does not bind": [
        (POLICY, "    if yes >= environment.quorum or ", "    if True or "),
    ],
    "one voice is enough": [
        (APPROVAL, "max(self.quorum - len(yes), ", "max(1 - len(yes), "),
        (POLICY, "    if yes >= environment.quorum or ", "    if True or "),
    ],
    "no ceiling for the buyer": [
        (POLICY, "    if offering.fee > environment.max_upfront_fee:\n", "    if False:\n"),
    ],
    "extend_until does not bind": [
        (POLICY, "    if environment.extend_until is None or ", "    if True or "),
    ],
    "no approval check, and ordered again after payment-failed": [
        (POLICY, "no or approval_refusal(approval, offering, reservation_id, deadlines.end) or too_few(", "no or too_few("),
        (RECONCILE, "    if found_ours:\n        return Reconciliation(Step.PAYMENT_FAILED",
                    "    if found_ours:\n        return Reconciliation(Step.ORDER"),
        (LEDGER, '"attribute_not_exists(kind) OR #state = :refused",', '"attribute_not_exists(kind) OR #state <> :sent",'),
        (LEDGER, '{":refused": PurchaseState.REFUSED},', '{":sent": PurchaseState.SENT},'),
    ],
    "another order is never in the way": [
        (LEDGER, "    item = table.get_item(UNRESOLVED, reservation_of(ledger_id)) or {}\n", "    item: dict[str, Any] = {}\n"),
        (LEDGER, ('condition=f"({_OURS_OR_FREE}) AND (attribute_not_exists(#bought) OR #bought <> :other)",\n'
                  '        values={":ledger": ledger_id, ":other": other_ledger_id(ledger_id)},'), ""),
    ],
    "new block: a Retry on Buy once": [
        (REPLACE, '"Comment": "No Retry, ever', '"Retry": [{"ErrorEquals": ["States.TaskFailed"]}],\n"Comment": "No Retry, ever'),
    ],
    "new block: no approval check by the buyer": [
        (BLOCK_POLICY, "no or block_approval_refusal(approval, block, old.reservation_id, end) or too_few(", "no or too_few("),
    ],
    "new block: a yes for another one counts": [
        (BLOCK_POLICY, "    if bound != (reservation_id, end, block.start, block.end, block.zone):\n",
                       "    if bound[:2] != (reservation_id, end):\n"),
    ],
    "new block: ordered again when UNKNOWN": [
        (NEW_BLOCK, "        return BlockReconciliation(Step.UNKNOWN,", "        return BlockReconciliation(Step.ORDER,"),
        (LEDGER, '"attribute_not_exists(kind) OR #state = :refused",', '"attribute_not_exists(kind) OR #state <> :bought",'),
        (LEDGER, '{":refused": PurchaseState.REFUSED},', '{":bought": PurchaseState.BOUGHT},'),
    ],
    "new block: beside an extension": [
        (NEW_BLOCK, "    if extension is not None and extension.status != FAILED:\n", "    if False:\n"),
    ],
    "new block: the old one's end is not read": [
        (BLOCK_BUYER, "    if order.old.end != end:\n", "    if False:\n"),
    ],
    "new block: no ceiling for the buyer": [
        (BLOCK_POLICY, "    if ceiling is None or block.fee > ceiling:\n", "    if False:\n"),
    ],
    "new block: extend_until does not bind": [
        (NEW_BLOCK, "        if self.end_by is not None and block.end > self.end_by:\n", "        if False:\n"),
    ],
}  # fmt: skip

SUITES = {"matrix": "tests/functional/faults", "model": "tests/functional/model"}


def mutated(tree: Path, name: str) -> dict[Path, str]:
    """The files that a mutation changes, as they are then. Raises ValueError when a text is not there exactly once: the code has
    changed, so must the mutation.
    """
    texts: dict[Path, str] = {}
    for file, old, new in MUTATIONS[name]:
        path = tree / file
        text = texts.get(path) or path.read_text(encoding="utf-8")
        if text.count(old) != 1:
            raise ValueError(f"{name}: {file} has {text.count(old)} times {old!r}")
        texts[path] = text.replace(old, new)
    return texts


def mutate(tree: Path, name: str) -> None:
    """Apply one mutation to a tree. Raises ValueError as `mutated` does."""
    for path, text in mutated(tree, name).items():
        path.write_text(text, encoding="utf-8")


def killed_by(name: str, suite: str) -> str | None:
    """The first test of a suite that fails on the mutant, and the rule that was broken; None when it survives."""
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        tree = Path(folder)
        for entry in COPIED:
            source = ROOT / entry
            if source.is_dir():
                shutil.copytree(source, tree / entry, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(source, tree / entry)
        mutate(tree, name)
        command = [sys.executable, "-m", "pytest", "-vv", "-x", "--tb=line", "-p", "no:cacheprovider", SUITES[suite]]
        # Of the matrix, the courses that come by what was taken away.
        aimed = "new*" if name.startswith("new block") else "*"
        environment = {**os.environ, "HYPOTHESIS_PROFILE": "ci", "FAULTS": aimed}
        done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return None
    if done.returncode != 1:
        raise RuntimeError(f"{name}: {suite} could not be run:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    # A scenario of the matrix is a subtest.
    found = re.search(r"^(?:SUBFAILED\[(.+?)\]|FAILED \S+?::(.+?)(?: - .*)?$)", done.stdout, re.MULTILINE)
    rule = re.search(r"assert \[(['\"])(.+?)\1[],]", done.stdout)
    return ((found[1] or found[2]) if found else "red") + (f" ({rule[2][:120]})" if rule else "")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="mutations to try; all when left out")
    parser.add_argument("--only", choices=SUITES, action="append")
    parser.add_argument("--jobs", type=int, default=2, help="mutants at a time")
    given = parser.parse_args()
    names, survivors = list(given.names or MUTATIONS), 0
    with ThreadPoolExecutor(given.jobs) as pool:
        for name, by in zip(
            names, pool.map(lambda name: _killers(name, given.only or list(SUITES)), names), strict=True
        ):
            survivors += not any(by.values())
            told = "  ".join(f"{suite}: {killer or 'SURVIVED'}" for suite, killer in by.items())
            print(f"{name:58} {told}", flush=True)  # noqa: T201
    return 1 if survivors else 0


def _killers(name: str, suites: list[str]) -> dict[str, str | None]:
    return {suite: killed_by(name, suite) for suite in suites}


if __name__ == "__main__":
    sys.exit(main())
