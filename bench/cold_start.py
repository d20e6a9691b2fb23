"""How long a cold start takes, against the least that any function in Python with boto3 must do.

A cold start here is what a fresh process does before it can answer: import the handler's module and make each client that the
function uses. Which those are is read from its permissions in template.yaml, so the list cannot fall behind. The baseline is a
fresh process that does `import boto3` and makes one client: that of the function's own largest service model, since no code of
ours can avoid that one. Both run alternately, so a busy machine slows both; what counts is the ratio of their medians. The ratio of
the fastest runs stands beside it: where the two differ much, the machine was too busy to tell.

    python -m bench.cold_start                     the table
    python -m bench.cold_start --imports buy_extension   the slowest imports of one handler
    python -m bench.cold_start --bytecode none     as on Lambda, where sam build ships no compiled modules
"""

import argparse
import functools
import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import botocore

from local.engine.template import Template

ROOT = Path(__file__).parents[1]
WANTED = 1.3
# boto3's names of services whose IAM prefix is another word. sts is only used beyond the stack's own account.
_BOTO3_NAMES = {"ses": "sesv2", "servicequotas": "service-quotas", "states": "stepfunctions"}
_NOT_AT_START = {"sts"}
_ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "bench",
    "AWS_SECRET_ACCESS_KEY": "bench",
    "AWS_EC2_METADATA_DISABLED": "true",
    "PYTHONPATH": str(ROOT / "functions"),
}
_REPORT = "print(time.process_time() - cpu, time.perf_counter() - wall)"
_CLOCKS = "import time; cpu, wall = time.process_time(), time.perf_counter()"


@dataclass
class Side:
    """One script and its measured times, in seconds."""

    script: str
    cpu: list[float] = field(default_factory=list)
    wall: list[float] = field(default_factory=list)

    def run(self, environment: dict[str, str]) -> None:
        """Run it once in a fresh process."""
        command = [sys.executable, "-c", f"{_CLOCKS}; {self.script}; {_REPORT}"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"{self.script}\n{done.stderr}")
        cpu, wall = done.stdout.split()[-2:]
        self.cpu.append(float(cpu))
        self.wall.append(float(wall))


@dataclass
class Handler:
    """A function of the template: its folder, its environment, and the services that it makes clients of."""

    folder: str
    module: str
    environment: dict[str, str]
    services: list[str]

    @property
    def start(self) -> str:
        """What its cold start does."""
        clients = "".join(f"; client({service!r})" for service in self.services)
        return f"import {self.module}; from blockkeeper.aws.clients import client{clients}"

    @property
    def baseline(self) -> str:
        """The least that a function in its place must do."""
        return f"import boto3; boto3.client({self.largest!r})"

    @property
    def largest(self) -> str:
        """Its service with the largest model in botocore."""
        return max(self.services, key=model_size)


def handlers() -> list[Handler]:
    """Every function of template.yaml, in the template's order."""
    template = Template(ROOT / "template.yaml", {"MonthlyLimit": "0"})
    properties = dict(template.of_type("AWS::Serverless::Function"))
    return [
        Handler(
            function.handler.split(".")[0],
            function.handler.rpartition(".")[0],
            dict(function.environment),
            services(properties[logical_id]["Policies"]),
        )
        for logical_id, function in template.functions.items()
    ]


def services(policies: list[dict[str, Any]]) -> list[str]:
    """boto3's names of the services that the policies allow, each once."""
    found = []
    for policy in policies:
        for statement in policy["Statement"]:
            actions = statement["Action"]
            prefixes = [action.split(":")[0] for action in ([actions] if isinstance(actions, str) else actions)]
            found += [_BOTO3_NAMES.get(prefix, prefix) for prefix in prefixes if prefix not in _NOT_AT_START]
    return list(dict.fromkeys(found))


@functools.cache
def model_size(service: str) -> int:
    """Bytes of botocore's (compressed) model of the service's newest version."""
    folder = Path(botocore.__file__).parent / "data" / service
    return max(folder.glob("*/service-2.json*")).stat().st_size


def environment_of(handler: Handler, bytecode: str, cache: str) -> dict[str, str]:
    """The environment of a measured process; the baseline gets the same."""
    environment = {**os.environ, **handler.environment, **_ENVIRONMENT, "AWS_DEFAULT_REGION": "us-east-1"}
    environment["AWS_REGION"] = environment["AWS_DEFAULT_REGION"]
    if bytecode == "none":
        environment |= {"PYTHONPYCACHEPREFIX": cache, "PYTHONDONTWRITEBYTECODE": "1"}
    return environment


def measure(handler: Handler, runs: int, bytecode: str) -> tuple[Side, Side]:
    """Run both sides alternately, after one run of each that does not count: it fills the disk's cache."""
    ours, baseline = Side(handler.start), Side(handler.baseline)
    with tempfile.TemporaryDirectory() as cache:
        environment = environment_of(handler, bytecode, cache)
        for turn in range(runs + 1):
            for side in (ours, baseline) if turn % 2 else (baseline, ours):
                side.run(environment)
    for side in (ours, baseline):
        del side.cpu[0], side.wall[0]
    return ours, baseline


def slowest_imports(handler: Handler, shown: int) -> None:
    """Print the imports that a handler adds to `import boto3`, slowest first, in milliseconds with what they import in turn."""
    environment = environment_of(handler, "cached", "")
    script = f"import boto3, sys; print('--- ours', file=sys.stderr, flush=True); {handler.start}"
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", script], env=environment, capture_output=True, text=True, check=True
    )
    lines = done.stderr.split("--- ours\n")[1].splitlines()
    parts = [line.removeprefix("import time:").split("|") for line in lines if line.startswith("import time:")]
    found = sorted(((int(total), name.rstrip()) for _, total, name in parts if total.strip().isdigit()), reverse=True)
    for microseconds, name in found[:shown]:
        print(f"{microseconds / 1000:8.1f} ms {name.strip()}")


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("handlers", nargs="*", help="folders of handlers; all when left out")
    parser.add_argument("--runs", type=int, default=15, help="counted runs of each side (default 15)")
    parser.add_argument("--bytecode", choices=["cached", "none"], default="cached", help="compiled modules at hand")
    parser.add_argument("--imports", metavar="HANDLER", help="show this handler's slowest imports and measure nothing")
    parser.add_argument("--shown", type=int, default=25, help="how many imports to show")
    asked = parser.parse_args(arguments)
    every = {handler.folder: handler for handler in handlers()}
    if asked.imports:
        slowest_imports(every[asked.imports], asked.shown)
        return
    print(f"Python {sys.version.split()[0]}, {asked.runs} runs of each side, alternating; bytecode: {asked.bytecode}")
    print(f"{'':27}{'':20}{'CPU, median':>17}  {'ratios of':>25}")
    print(
        f"{'handler':18} {'clients':>7}  {'baseline: boto3 +':18} {'base':>7} {'ours':>8}"
        f"  {'median':>8} {'fastest':>8} {'wall':>7}"
    )
    above = []
    for name in asked.handlers or every:
        handler = every[name]
        ours, baseline = measure(handler, asked.runs, asked.bytecode)
        base, mine = statistics.median(baseline.cpu), statistics.median(ours.cpu)
        fastest = min(ours.cpu) / min(baseline.cpu)
        wall = statistics.median(ours.wall) / statistics.median(baseline.wall)
        print(
            f"{name:18} {len(handler.services):7}  {handler.largest:18} {base * 1000:4.0f} ms {mine * 1000:5.0f} ms"
            f"  {mine / base:8.2f} {fastest:8.2f} {wall:7.2f}",
            flush=True,
        )
        above += [name] if mine / base > WANTED else []
    print(f"wanted: at most {WANTED}, of medians of CPU time; above it: {', '.join(above) or 'none'}")


if __name__ == "__main__":
    main()
