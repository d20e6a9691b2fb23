"""What a sweep costs, against one that writes every record each time.

Both sides run in this process on the same enrolled blocks, read EC2 and the table in the same way, and make the same decisions;
EC2 and DynamoDB are the local AWS behind HTTP, so a call costs a round trip. Ours is the handler sweep-target as it is deployed:
it writes a record only when EC2's facts or the decision differ from what the record says. The baseline writes each record once a
sweep, as a poller does that stores what it saw. The runs alternate, before each the due blocks are due anew, and what counts is
the ratio.

    python -m bench.sweep
    python -m bench.sweep --blocks 1000 --runs 5
"""

import argparse
import contextlib
import io
import os
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import boto3

from local import server
from local.server import ACCOUNT, LocalAws

ROOT = Path(__file__).parents[1]
NOW = datetime(2026, 5, 4, tzinfo=UTC)
REGION = "us-east-1"
TABLE = "bench"
WANTED = 0.1
# EC2's facts that a record mirrors.
MIRRORED = ("end_time", "start_time", "state", "instance_count", "owner_id")
EVENT = {"account": ACCOUNT, "region": REGION, "trigger": "schedule", "now": "2026-05-04T00:00:00Z"}

Run = Callable[[], dict[str, Any]]


@dataclass
class Side:
    """One way to sweep, with its measured times in seconds and its AWS calls of one sweep."""

    name: str
    run: Run
    seconds: list[float] = field(default_factory=list)
    calls: Counter[str] = field(default_factory=Counter)
    starts: int = 0


def every_record() -> dict[str, Any]:
    """The baseline: read and decide as sweep-target does, and write each record once."""
    from blockkeeper import settings
    from blockkeeper.aws import ec2
    from blockkeeper.aws.environments import list_environments, set_status
    from blockkeeper.domain.environment import Status
    from blockkeeper.domain.sweep import Target, sweep

    records = list(list_environments())
    result = sweep(
        Target(ACCOUNT, REGION, home=True),
        ec2.describe_entries(REGION, ACCOUNT),
        records,
        payment_margin=settings.payment_margin(),
        default_approvers=settings.approver_emails(),
        now=NOW,
    )
    decided = {write.environment.pk: write.status for write in result.writes}
    for record in records:
        status = decided.get(record["PK"], Status(record["status"]))
        seen = {name: record[name] for name in MIRRORED}
        set_status(record["PK"], status, None, NOW, version=record["version"], **seen)
    return {"starts": result.starts, "written": len(records)}


def reads_alone() -> dict[str, Any]:
    """What both sides read, and nothing else: no sweep can be faster."""
    from blockkeeper.aws import ec2
    from blockkeeper.aws.environments import list_environments

    return {"starts": [], "read": len([*list_environments(), *ec2.describe_entries(REGION, ACCOUNT)])}


def enrol(aws: LocalAws, blocks: int, due: int) -> None:
    """Sell `blocks` blocks, `due` of them inside their look-ahead, and enrol them all; the table is made anew."""
    from blockkeeper.aws import environments
    from blockkeeper.domain.enrolment import new_record

    dynamodb = aws.client("dynamodb")
    with contextlib.suppress(dynamodb.exceptions.ResourceNotFoundException):
        dynamodb.delete_table(TableName=TABLE)
    dynamodb.create_table(
        TableName=TABLE,
        BillingMode="PAY_PER_REQUEST",
        AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name in ("kind", "id")],
        KeySchema=[{"AttributeName": "kind", "KeyType": "HASH"}, {"AttributeName": "id", "KeyType": "RANGE"}],
    )
    ids = [f"cr-{blocks}x{number:05}" for number in range(blocks)]
    aws.control("POST", "fleet", {"blocks": [_block(name, number < due) for number, name in enumerate(ids)]})
    for number, name in enumerate(ids):
        record = {
            "PK": f"team-{number:05}",
            "capacity_block_id": name,
            "region": REGION,
            "instance_type": "p5.48xlarge",
            "extend_by_days": 7,
            "approvers": ["maria@example.com"],
            "max_upfront_fee": "80000",
        }
        environments.create(new_record(record, NOW))


def _block(reservation_id: str, due: bool) -> dict[str, Any]:
    end = NOW + timedelta(days=1 if due else 30)
    return {
        "reservation_id": reservation_id,
        "region": REGION,
        "instance_type": "p5.48xlarge",
        "instance_count": 8,
        "availability_zone": f"{REGION}a",
        "start": f"{NOW - timedelta(days=7):%Y-%m-%d}T11:30:00Z",
        "end": f"{end:%Y-%m-%d}T11:30:00Z",
    }


def due_anew(due: int) -> None:
    """Let the due blocks look as they did before the sweep that found them."""
    from blockkeeper.aws.environments import set_status
    from blockkeeper.domain.environment import Status

    for number in range(due):
        set_status(f"team-{number:05}", Status.NO_ACTION_REQUIRED, None, NOW)


@contextlib.contextmanager
def counted() -> Iterator[Counter[str]]:
    """Count the AWS calls of this process by operation."""
    calls: Counter[str] = Counter()
    emitter = boto3._get_default_session()._session.get_component("event_emitter")  # noqa: SLF001 - the session that aws/clients.py uses

    def note(model: Any, **_: Any) -> None:
        calls[model.name] += 1

    emitter.register("before-call", note, unique_id="bench")
    # Clients copy their session's handlers when they are made.
    _forget_clients()
    try:
        yield calls
    finally:
        emitter.unregister("before-call", unique_id="bench")
        _forget_clients()


def _forget_clients() -> None:
    from blockkeeper.aws.clients import client

    client.cache_clear()


def compare(due: int, runs: int) -> tuple[Side, Side, Side]:
    """Measure both sides and their common reads alternately; one run of each beforehand counts the calls and warms up."""
    from sweep_target.app import lambda_handler

    ours, baseline = Side("blockkeeper", lambda: lambda_handler(EVENT, None)), Side("writes each record", every_record)
    reads = Side("the reads alone", reads_alone)
    sides = (ours, baseline, reads)
    quietly(ours.run)  # the first sweep of a new fleet stores EC2's facts of every block
    for side in sides:
        due_anew(due)
        with counted() as calls:
            side.starts = len(quietly(side.run)["starts"])
        side.calls = calls
        quietly(side.run)  # makes the clients anew, outside the measurement
    for turn in range(runs):
        for side in sides if turn % 2 else reversed(sides):
            due_anew(due)
            begun = time.perf_counter()
            quietly(side.run)
            side.seconds.append(time.perf_counter() - begun)
    if {side.starts for side in (ours, baseline)} != {due}:
        raise SystemExit(f"the sides started {ours.starts} and {baseline.starts} workflows instead of {due}")
    return sides


def quietly(run: Run) -> dict[str, Any]:
    """Run without the log lines and metrics that a handler prints."""
    with contextlib.redirect_stdout(io.StringIO()):
        return run()


def report(blocks: int, sides: tuple[Side, Side, Side]) -> bool:
    """Print one size, and answer whether the ratio is as wanted."""
    for side in sides:
        calls = ", ".join(f"{number} {name}" for name, number in sorted(side.calls.items()))
        per_block = statistics.median(side.seconds) / blocks * 1000
        print(f"{blocks:6}  {side.name:18}  {per_block:9.3f} ms  {sum(side.calls.values()):6}  {calls}")
    ours, baseline, reads = sides
    median = {side.name: statistics.median(side.seconds) for side in sides}
    ratio = median[ours.name] / median[baseline.name]
    floor = median[reads.name] / median[baseline.name]
    pairs = sorted(mine / other for mine, other in zip(ours.seconds, baseline.seconds, strict=True))
    calls = sum(ours.calls.values()) / sum(baseline.calls.values())
    print(
        f"{blocks:6}  ratio: time {ratio:.3f} (pairs {pairs[0]:.3f} to {pairs[-1]:.3f}), AWS calls {calls:.3f};",
        end=" ",
    )
    print(f"the reads alone: time {floor:.3f}", flush=True)
    return ratio <= WANTED


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--blocks", type=int, nargs="+", default=[1000, 3000], help="enrolled blocks (default 1000 3000)"
    )
    parser.add_argument("--due", type=int, default=10, help="how many of them are due (default 10)")
    parser.add_argument("--runs", type=int, default=3, help="counted runs of each side (default 3)")
    asked = parser.parse_args(arguments)
    sys.path.insert(0, str(ROOT / "functions"))
    print(f"{asked.due} blocks due, {asked.runs} runs of each side, alternating; Python {sys.version.split()[0]}")
    print(f"{'blocks':>6}  {'side':18}  {'per block':>12}  {'calls':>6}")
    wanted = []
    for blocks in asked.blocks:
        # A local AWS for each size: a market keeps every block that it ever had.
        with server.start(auth=False, speed=0, start_at=NOW) as aws:
            os.environ.update(aws.environment(), TABLE_NAME=TABLE, ACCOUNT_ID=ACCOUNT, PAYMENT_MARGIN_MINUTES="120")
            enrol(aws, blocks, asked.due)
            wanted.append(report(blocks, compare(asked.due, asked.runs)))
            _forget_clients()
    print(f"wanted: at most {WANTED} of the baseline's time per block; {'reached' if all(wanted) else 'not reached'}")


if __name__ == "__main__":
    main()
