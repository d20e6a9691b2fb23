"""`./dev demo`: deploy, load a fleet, and do the main job before the reader's eyes.

    python -m local.demo [--yes] [--svg FILE]

With a terminal it prints the approval links and waits for the person; with `--yes`, or without a terminal, it opens the same
links itself. Exits 0 only if each block's outcome is the expected one.
"""

import argparse
import contextlib
import select
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlencode

from local import server
from local.demo.check import TERMINATION, differences, handed_over, instances_at
from local.demo.fleet import Case, read
from local.demo.screen import Screen, following, found, outcomes
from local.demo.watch import News, Watch, instant, short
from local.stack import PARAMETERS, DeployError, Stack, build, deploy, request

START = datetime(2026, 5, 4, 6, 0, tzinfo=UTC)
PAYMENTS_SPEED = 60.0  # market seconds per real second while payments are waited for
LOOK_SECONDS = 0.5
PAID = timedelta(minutes=21)  # a new block is paid 20 minutes after its order
STARTED = timedelta(minutes=6)  # after its start a block's group has its instances: it goes up after five
PATIENCE_SECONDS = 240.0  # for one part of the story; the machine may be busy


class StuckError(RuntimeError):
    """Something did not happen within the patience."""


class Demo:
    """The story, part by part."""

    def __init__(self, screen: Screen, stack: Stack, cases: list[Case], *, alone: bool) -> None:
        self.screen, self.stack, self.cases = screen, stack, cases
        self.alone = alone
        self.answers = {case.pk: case.expected.answer for case in cases}
        self.watch = Watch(stack, cases)
        self.seen = self.watch.seen

    def play(self) -> dict[str, list[str]]:
        """Tell it all; what differs from the expected outcome, by block."""
        self.enrol()
        self.sweep()
        self.ask()
        self.pay()
        self.let_time_pass()
        self.plan_b()
        wrong = self.finish()
        for pk, problems in self.follow().items():
            wrong.setdefault(pk, []).extend(problems)
        return wrong

    def enrol(self) -> None:
        """Put each block's record into the table, through the REST API."""
        self.screen.heading(f"{len(self.cases)} blocks are enrolled through the REST API")
        for case in self.cases:
            answer = self.stack.api("POST", "/", case.record)
            if answer.status != 201:
                raise StuckError(f"POST / answered {answer.status} for {case.pk}: {answer.body}")
        self.watch.look()

    def sweep(self) -> None:
        """Look at every block once, as the schedule does each 15 minutes."""
        self.screen.heading("detect-expiry looks at every block (the schedule starts it every 15 minutes)")
        execution = self.stack.start("DetectExpiryArn", "demo-first-look")
        self.wait("detect-expiry", lambda: self.ended(execution), told=False)
        self.watch.look()  # the records as the sweep has left them
        self.screen.show(found(self.cases, self.seen))

    def ask(self) -> None:
        """Wait for the mails, and let people answer."""
        self.screen.heading("What is due is searched, asked for and bought")
        due = [case for case in self.cases if case.expected.ends_in]
        asked = [case.pk for case in due if case.record["require_approval"]]
        self.wait("mails to approvers", lambda: all(self.seen[pk].link for pk in asked))
        to_answer = [case for case in due if case.expected.answer]
        if self.alone:
            for case in to_answer:
                self.answer(case)
        else:
            self.let_person_answer(to_answer)

    def answer(self, case: Case) -> None:
        """Open the mail's link and send its form, as a browser does."""
        seen, decision = self.seen[case.pk], case.expected.answer or ""
        if seen.link is None:
            raise StuckError(f"{case.pk}: no mail with a link has come")
        page = request("GET", seen.link)
        if page.status != 200 or f"{case.record['PK']}" not in str(page.body):
            raise StuckError(f"{case.pk}: the approval page answered {page.status}")
        form = urlencode({"decision": decision, "reason": "demo"})
        decided = request("POST", seen.link, form)
        if decided.status != 200:
            raise StuckError(f"{case.pk}: the answer was refused with {decided.status}: {decided.body}")
        self.tell(case.pk, "mail", f"{seen.approver} opens the link and answers: {decision}")

    def let_person_answer(self, to_answer: list[Case]) -> None:
        """Print the links and wait; Enter lets the demo answer what is still open."""
        console = self.screen.console
        console.print()
        console.print(
            "[bold]You are the approver.[/] Open each link, look at the page and decide (the market's clock runs in real time):"
        )
        for case in to_answer:
            console.print(f"  [bold]{case.pk}[/]  {self.seen[case.pk].link}", soft_wrap=True)
        console.print("[dim]Or press Enter here, and the demo answers through the same links.[/]")
        still_open = {case.pk: case for case in to_answer}
        while still_open:
            self.screen.news(self.watch.look())
            for approval in self.stack.api("GET", "/approvals").body:
                pk = approval["environment"]
                if pk in still_open and approval["status"] != "OPEN":
                    self.answers[pk] = {"APPROVED": "approve", "REJECTED": "reject"}.get(approval["status"])
                    self.tell(pk, "mail", f"you answered: {self.answers[pk]}")
                    del still_open[pk]
            if still_open and select.select([sys.stdin], [], [], LOOK_SECONDS)[0]:
                sys.stdin.readline()
                for case in still_open.values():
                    self.answer(case)
                still_open = {}

    def pay(self) -> None:
        """Let the market's clock run faster until all payments are decided."""
        self.stack.aws.control("POST", "clock", {"speed": PAYMENTS_SPEED})
        patient = {
            case.pk for case in self.cases if case.expected.ends_in in ("Approval expired", "No extension offered")
        }
        deciding = [case.pk for case in self.cases if case.expected.ends_in and case.pk not in patient]
        self.wait(
            "payments (a market minute each second)", lambda: all(self.seen[pk].extension.closed for pk in deciding)
        )
        self.stack.aws.control("POST", "clock", {"speed": 1})

    def let_time_pass(self) -> None:
        """Jump to the last moment to decide: unanswered requests expire, and searches end."""
        waiting = [case.pk for case in self.cases if case.expected.ends_in and not self.seen[case.pk].extension.closed]
        deadlines = {a["environment"]: instant(a["decide_by"]) for a in self.stack.api("GET", "/approvals").body}
        moment = max(deadlines[pk] for pk in waiting if pk in deadlines) + timedelta(minutes=1)
        self.screen.heading(f"The market's clock jumps to the last moment to decide, {short(moment)} UTC")
        self.stack.aws.control("POST", "clock", {"set": moment.isoformat()})
        self.wait("what was still open", lambda: all(self.seen[pk].extension.closed for pk in waiting))

    def plan_b(self) -> None:
        """What no extension is to be had for gets a new block, if its record says so."""
        replaced = [case.pk for case in self.cases if case.expected.new_block]
        self.screen.heading("It is too late to extend: plan B finds a new block, buys it once and enrols it")
        self.wait("an order", lambda: all(self.seen[pk].new_blocks for pk in replaced))
        paid = self.watch.now() + PAID
        self.stack.aws.control("POST", "clock", {"set": paid.isoformat()})
        self.wait(
            "its payment", lambda: all(self.seen[pk].plan_b.last_state == "Wait for the handover" for pk in replaced)
        )

    def finish(self) -> dict[str, list[str]]:
        """Look once more at everything, and compare with what was expected."""
        self.screen.heading("detect-expiry looks again")
        execution = self.stack.start("DetectExpiryArn", "demo-last-look")
        self.wait("detect-expiry", lambda: self.ended(execution))
        wrong: dict[str, list[str]] = {}

        def settled() -> bool:
            nonlocal wrong
            wrong = differences(self.stack, self.cases, self.seen, self.answers)
            return not wrong

        with contextlib.suppress(StuckError):  # the table shows what differs
            self.wait("records and groups", settled, patience=60)
        self.screen.show()
        self.screen.show(outcomes(self.cases, self.seen, wrong))
        return wrong

    def follow(self) -> dict[str, list[str]]:
        """Jump to where EC2 terminates the first blocks, and past the next starts; by block, groups that do not follow."""
        grouped = [case for case in self.cases if case.group]
        blocks = [self.seen[case.pk] for case in grouped]
        terminates = min(block.end for block in blocks if block.end is not None) - TERMINATION
        starts = min(block.start for block in blocks if block.start is not None and block.start > terminates)
        new = max(new.start for block in blocks for new in block.new_blocks)
        counts = [(self.watch.now(), self.watch.instances())]
        wrong: dict[str, list[str]] = {}
        for moment, why in (
            (terminates, "EC2 terminates what still runs in the blocks that end first, and plan B's group goes over"),
            (starts + STARTED, "the next block has started"),
            (new + STARTED, "the block that plan B bought has started"),
        ):
            self.screen.heading(f"The market's clock jumps to {short(moment)} UTC: {why}")
            self.stack.aws.control("POST", "clock", {"set": moment.isoformat()})
            expected = {case.pk: instances_at(case, self.seen[case.pk], moment) for case in grouped}
            with contextlib.suppress(StuckError):  # the table shows what differs
                self.wait("groups", lambda expected=expected: self.watch.instances() == expected, patience=60)  # type: ignore[misc]
            with contextlib.suppress(
                StuckError
            ):  # from the first moment on nothing runs in the replaced blocks any more
                self.wait("plan B", lambda: not any(handed_over(case, self.seen[case.pk]) for case in self.cases))
            counts.append((moment, self.watch.instances()))
            for pk, count in expected.items():
                if counts[-1][1].get(pk) != count:
                    problem = (
                        f"its group has {counts[-1][1].get(pk)} instances at {short(moment)}, expected are {count}"
                    )
                    wrong.setdefault(pk, []).append(problem)
        for case in self.cases:
            if problems := handed_over(case, self.seen[case.pk]):
                wrong.setdefault(case.pk, []).extend(problems)
        self.screen.show()
        self.screen.show(following(self.cases, self.seen, counts, wrong))
        return wrong

    # -- waiting ----------------------------------------------------------------------------------------------------------

    def wait(
        self, for_what: str, happened: Callable[[], bool], patience: float = PATIENCE_SECONDS, *, told: bool = True
    ) -> None:
        """Tell the news until something has happened; without `told` a table tells it afterwards."""
        give_up = time.monotonic() + patience
        with self.screen.waiting(
            lambda: f"{short(self.watch.now())} UTC in the market; waiting for {for_what}"
        ) as update:
            while True:
                news = self.watch.look()
                self.screen.news([each for each in news if told or each.kind != "status"])
                if happened():
                    return
                if time.monotonic() > give_up:
                    raise StuckError(f"waited {patience:.0f} s for {for_what}")
                update()
                time.sleep(LOOK_SECONDS)

    def ended(self, execution: str) -> bool:
        """Whether the execution succeeded; another end is an error."""
        described = self.stack.aws.client("stepfunctions").describe_execution(executionArn=execution)
        if described["status"] not in ("RUNNING", "SUCCEEDED"):
            raise StuckError(f"{execution.rsplit(':', 1)[-1]} {described['status']}: {described.get('cause')}")
        return bool(described["status"] == "SUCCEEDED")

    def tell(self, pk: str, kind: str, text: str) -> None:
        """News that the demo makes itself."""
        self.screen.news([News(self.watch.now(), pk, kind, text)])


def main() -> int:
    parser = argparse.ArgumentParser(prog="./dev demo")
    parser.add_argument("--yes", action="store_true")
    parser.add_argument("--svg", type=Path)
    arguments = parser.parse_args()
    started = time.monotonic()
    screen = Screen()
    fleet, cases = read()
    alone = arguments.yes or not (sys.stdin.isatty() and sys.stdout.isatty())
    screen.heading("Blockkeeper on a local AWS")
    try:
        with screen.step("sam build"):
            build()
        with screen.step("local AWS on 127.0.0.1, with a Capacity Block market"):
            aws = server.start(start_at=START, speed=1)
        with aws:
            with screen.step(f"sam deploy to {aws.endpoint}"):
                stack = deploy(aws, {**PARAMETERS, "PurchaseMode": "live"})
            aws.control("POST", "clock", {"set": START.isoformat()})
            aws.control("POST", "fleet", fleet)
            wrong = Demo(screen, stack, cases, alone=alone).play()
    except (DeployError, StuckError, RuntimeError) as error:
        screen.console.print("\nThe demo stopped:", style="bold red")
        screen.console.print(str(error), markup=False)
        return 1
    except KeyboardInterrupt:
        screen.console.print("\nstopped; the local AWS has ended with it")
        return 130
    screen.show()
    for pk, problems in wrong.items():
        for problem in problems:
            screen.show(f"  {pk}: {problem}")
    verdict = (
        "each outcome is the expected one" if not wrong else f"{len(wrong)} of {len(cases)} blocks came out otherwise"
    )
    screen.show(
        f"  {verdict}; EC2 shows exactly the expected orders, one each, and every group followed its block"
        if not wrong
        else f"  {verdict}"
    )
    screen.console.print(f"  {time.monotonic() - started:.0f} s")
    if arguments.svg:
        screen.save(arguments.svg)
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
