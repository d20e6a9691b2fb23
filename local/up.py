"""`./dev up`: the local AWS with the stack and the demo's fleet in it, until Ctrl-C. Everything ends with this process."""

import contextlib
import signal
import sys
import time

from rich.console import Console

from local import server
from local.demo.fleet import read
from local.stack import PARAMETERS, SENDER, DeployError, Stack, build, deploy

# One takes about ten seconds on a machine of two cores, cold starts included.
SWEEP_SECONDS = 120


def main() -> int:
    console = Console(highlight=False)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with console.status("sam build"):
            build()
        with server.start() as aws:
            with console.status(f"sam deploy to {aws.endpoint}"):
                stack = deploy(aws, {**PARAMETERS, "PurchaseMode": "live"})
            fleet, cases = read()
            aws.control("POST", "fleet", fleet)
            for case in cases:
                stack.api("POST", "/", case.record)
            with console.status("the first sweep"):
                sweep(stack)
            console.print(addresses(stack), soft_wrap=True, markup=False)
            while True:
                time.sleep(1)
    except (DeployError, RuntimeError) as error:
        console.print(str(error), markup=False)
        return 1
    except KeyboardInterrupt:
        with contextlib.suppress(KeyboardInterrupt):
            console.print("\nThe local AWS has ended.")
        return 0


def sweep(stack: Stack) -> None:
    """Look at every block once, as the schedule does each 15 minutes, so that the first look at the records shows what EC2 has.

    Raises:
        RuntimeError: it failed, or has not ended in time.
    """
    states, execution = stack.aws.client("stepfunctions"), stack.start("DetectExpiryArn", "first-sweep")
    give_up = time.monotonic() + SWEEP_SECONDS
    while (found := states.describe_execution(executionArn=execution))["status"] == "RUNNING":
        if time.monotonic() > give_up:
            raise RuntimeError(f"the first sweep has not ended in {SWEEP_SECONDS} s; see {stack.aws.log}")
        time.sleep(0.2)
    if found["status"] != "SUCCEEDED":
        raise RuntimeError(f"the first sweep is {found['status']}: {found.get('cause')}; see {stack.aws.log}")


def addresses(stack: Stack) -> str:
    """What a person needs to use the stack from another terminal."""
    aws = stack.aws
    exports = "\n".join(f"  export {name}={value}" for name, value in aws.environment().items())
    return f"""
The local AWS runs at {aws.endpoint} (log: {aws.log}); the stack blockkeeper is in it, with {SENDER} as its sender.
PurchaseMode is live: the market is invented, no money moves.

In another terminal:
{exports}
  . .venv/bin/activate
  blockkeeper status                     what is enrolled, and what is next
  blockkeeper approvals                  who was asked by the first sweep, by mail and in the channel
  blockkeeper approve vision-train --as maria@example.com
  blockkeeper offers robotics-sim        extensions that EC2 offers for a block that is not due yet
  blockkeeper extend robotics-sim --dry-run
  blockkeeper extend robotics-sim --as ann@example.com
  blockkeeper history
  aws stepfunctions start-execution --state-machine-arn {stack.outputs["DetectExpiryArn"]}

  REST API      {stack.api_url}/
                curl -H "x-api-key: $KEY" {stack.api_url}/blocks, with
                KEY={shell(stack.api_key)}
  Slack         {stack.slack_page}  (a channel of this machine's own, with buttons to press)
  mails         {aws.endpoint}/_ministack/ses/messages
  the market    {aws.endpoint}/_blockkeeper/state
  its clock     curl -X POST -d '{{"speed": 60}}' {aws.endpoint}/_blockkeeper/clock
                (or "advance_seconds", or "set")

The schedule looks at every block each 15 minutes of the market's clock. Ctrl-C ends everything.
"""


def shell(text: str) -> str:
    """The text as one word of a shell."""
    return "'" + text.replace("'", "'\\''") + "'"


if __name__ == "__main__":
    sys.exit(main())
