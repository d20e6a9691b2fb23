"""Two blocks of one budget, and everything that people, EC2 and faults may do to them, in any order; the rules hold all the while.

Hypothesis walks: in CI the same walks each time, with HYPOTHESIS_PROFILE=long new ones for as long as wanted. A step is mostly an
order that is brought to its brink and then meets one thing that goes wrong; what is left to chance is which, where, and what came
before. What once broke a rule, in the product or in a mutant of it (`python -m tests.mutations`), is kept as a walk below.
"""

import json
from contextlib import suppress
from datetime import timedelta
from decimal import Decimal
from urllib.parse import parse_qs

import pytest
from botocore.exceptions import ClientError
from faults.rules import PURCHASE, PURCHASE_BLOCK, People, broken_rules, ours, vote_of
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from workflows.conftest import END, WARM, Story

from blockkeeper.aws import ledger
from blockkeeper.domain.ledger import Claim, PurchaseState, contradiction
from blockkeeper_cli import clock
from blockkeeper_cli.resolve import _look
from local.engine.call_faults import Site
from local.engine.errors import ApiError
from local.engine.world import ACCOUNT, ROOT, World

BLOCKS = {"train": "cr-0a1", "serve": "cr-0b2"}
POLICY = {
    "require_approval": False,
    "extend_by_days": 1,
    "extension_lookahead_days": 3,
    "max_upfront_fee": "12000",
    "extend_until": None,
    "approvers": ["ann@example.com", "bob@example.com"],
    "quorum": 1,
    "replace": {"max_gap_hours": 24, "max_upfront_fee": "12000"},
}
RATE = Decimal("41.528")
# New blocks that EC2 sells beside a block's end: zone, start after that end, length.
SUPPLIES = (("a", timedelta(minutes=30), timedelta(hours=24)), ("b", timedelta(minutes=90), timedelta(hours=46.5)))
MACHINES = {"extend": "ExtendBlock", "replace": "ReplaceBlock"}
BUYERS = {"extend": ("BuyExtension", PURCHASE), "replace": ("BuyBlock", PURCHASE_BLOCK)}
OFFERINGS = {"extend": "DescribeCapacityBlockExtensionOfferings", "replace": "DescribeCapacityBlockOfferings"}
LATE = timedelta(minutes=45)

blocks = st.sampled_from(sorted(BLOCKS))
ways = st.sampled_from(["extend", "extend", "replace"])
# What the buyer writes down: INTENT, SENT, BOUGHT or REFUSED (after a release when an INTENT was left), UNKNOWN; and the order.
steps = st.sampled_from(["write 1", "write 2", "write 3", "write 4", "unknown", "order", "order"])
faults = st.sampled_from(
    [
        "throttled",
        "denied",
        "error_before",
        "timeout_before",
        "crash_before",
        "error_after",
        "timeout_after",
        "crash_after",
        "lambda_timeout",
    ]
)
# What people and EC2 do: (machine, environment, way of the order that is about to be).
HAPPENINGS = {
    "approval is wanted": lambda m, pk, _: m._edit(pk, require_approval=True),
    "two must agree": lambda m, pk, _: m._edit(pk, quorum=2),
    "the ceiling is lowered": lambda m, pk, _: m._edit(
        pk, max_upfront_fee="100", replace=POLICY["replace"] | {"max_upfront_fee": "100"}
    ),
    "it shall end sooner": lambda m, pk, _: m._edit(pk, extend_until="2026-05-04T18:00:00Z"),
    "longer for less": lambda m, pk, _: (m._price(pk, "0.4"), m._edit(pk, extend_by_days=2)),
    "dearer": lambda m, pk, _: m._price(pk, "1.05"),
    "cheaper": lambda m, pk, _: m._price(pk, "0.9"),
    "another block is better": lambda m, *_: m._another_block_is_better(),
    "gone": lambda m, pk, _: setattr(m._block(pk).offering, "available", False),
    "offered": lambda m, pk, _: setattr(m._block(pk).offering, "available", True),
    "bought by hand": lambda m, pk, _: m._buy_by_hand(pk),
    "extended by hand at once": lambda m, pk, _: m._extend_by_hand(pk),
    "extended by hand, which the history shows late": lambda m, pk, _: m._extend_by_hand(pk, late=True),
    "dry run": lambda m, *_: m._deploy(live=False),
    "live": lambda m, *_: m._deploy(live=True),
    "started again": lambda m, pk, way: m._start(pk, way, ""),
    "started by hand": lambda m, pk, way: m._start(pk, way),
    "the other way by hand": lambda m, pk, way: m._start(pk, {"extend": "replace", "replace": "extend"}[way]),
    "stopped and redriven": lambda m, pk, _: m._stop_and_redrive(pk),
    "redriven": lambda m, pk, _: m._redrive(pk),
    "deleted and enrolled again": lambda m, pk, _: m._delete_and_enrol_again(pk),
    "swept": lambda m, *_: m.world.start("DetectExpiry", {}),
    "resolved": lambda m, pk, _: m._resolve(pk),
    "nothing": lambda *_: None,
}
happenings = st.sampled_from(sorted(HAPPENINGS))
BEFORE = {
    "extend": ("Buy once", "Buy once", "Search offerings", "Look up the offer again", "Ask for approval"),
    "replace": ("Buy once", "Buy once", "Look for a block", "Look for a block", "Ask for approval"),
}
afterwards = st.sampled_from(
    [
        "nothing",
        "started by hand",
        "stopped and redriven",
        "redriven",
        "the other way by hand",
        "swept",
        "bought by hand",
        "resolved",
    ]
)


class Blockkeeper(RuleBasedStateMachine):
    """The product, and people who know what they themselves said."""

    template, sandboxes = ROOT / "template.yaml", WARM

    @initialize(
        limit=st.sampled_from([6000, 9000, 40000]),
        hours_before=st.sampled_from([5, 30]),
        minutes=st.sampled_from([2, 2, 30]),
        redrive_keeps_entered_time=st.booleans(),
    )
    def begin(self, limit=40000, hours_before=30, minutes=2, redrive_keeps_entered_time=False):
        parameters = {"PurchaseMode": "live", "MonthlyLimit": str(limit), "SenderEmail": "blockkeeper@example.com"}
        self.world = World(
            END - timedelta(hours=hours_before),
            parameters=parameters,
            schedules=False,
            template=self.template,
            sandboxes=self.sandboxes,
            redrive_keeps_entered_time=redrive_keeps_entered_time,
        )
        self.world.__enter__()
        self.story, self.people, self.orders = Story(self.world), People(), Orders(self.world)
        self.limit, self.live, self.started, self.wrong, self.moments = Decimal(limit), True, 0, [], []
        self.people.watch(self.story)
        self.world.engine.on_task.append(self._a_task_comes)
        for pk, block in BLOCKS.items():
            self.story.block(block, payment={"minutes": minutes, "end_moves_after_minutes": 1})
            self._enrol(pk, POLICY | {"capacity_block_id": block})

    def teardown(self):
        if not hasattr(self, "world"):
            return
        try:
            self._come_to_the_end()
        finally:
            self.world.__exit__(None, None, None)

    # -- an order at its brink

    @rule(pk=blocks, way=ways, asked=st.booleans(), step=steps, fault=faults, then=afterwards)
    def an_order_fails(self, step, fault, pk="train", way="extend", asked=False, then="nothing"):
        self._put_right(pk, require_approval=asked)
        scope = "attempt" if fault.endswith("_after") or fault == "lambda_timeout" else "call"
        self.world.call_faults.plan(fault, self._site(way, step), scope)
        self._order(pk, way)
        self._afterwards(pk, way, then)

    @rule(pk=blocks, way=ways, asked=st.booleans(), step=steps, then=afterwards)
    def a_second_run_comes_first(self, step, pk="train", way="extend", asked=False, then="nothing"):
        self._put_right(pk, require_approval=asked)
        self.world.call_faults.plan("overtaken", self._site(way, step), "call")
        self._order(pk, way)
        self._afterwards(pk, way, then)

    @rule(pk=blocks, way=ways, asked=st.booleans(), before=st.integers(0, 4), happens=happenings, then=afterwards)
    def something_happens_just_before(self, happens, before=0, pk="train", way="extend", asked=False, then="nothing"):
        self._put_right(pk, require_approval=asked)
        self.moments.append((MACHINES[way], BEFORE[way][before], pk, way, happens))
        self._order(pk, way)
        self._afterwards(pk, way, then)

    @rule(pk=blocks, way=ways, dry_run=st.booleans(), happens=happenings, voices=st.integers(1, 2), then=afterwards)
    def something_happens_while_people_are_asked(
        self, happens, pk="train", way="extend", dry_run=False, voices=1, then="nothing"
    ):
        self._put_right(pk, require_approval=True, quorum=voices)
        self._deploy(live=not dry_run)
        self._start(pk, way)
        self._go_on()
        self._happens(pk, way, happens)
        self._deploy(live=True)
        self._everybody_says_yes()
        self._go_on()
        self._afterwards(pk, way, then)

    @rule(pk=blocks, way=ways, asked=st.booleans(), then=afterwards, again=afterwards)
    def a_payment_fails(self, pk="train", way="extend", asked=False, then="nothing", again="nothing"):
        self._put_right(pk, require_approval=asked)
        self._block(pk).payment.outcome = "payment-failed"
        self.world.market.faults.add(kind="payment_failure", operation=PURCHASE_BLOCK)
        self._order(pk, way)
        self.world.run_for(timedelta(hours=1))
        self._put_right(pk)
        self._afterwards(pk, way, then)
        self._afterwards(pk, way, again)

    @rule(pk=blocks, way=ways, asked=st.booleans(), lost=st.booleans(), then=afterwards, again=afterwards)
    def an_order_shows_late(self, pk="train", way="extend", asked=False, lost=True, then="nothing", again="nothing"):
        self._put_right(pk, require_approval=asked)
        self._lag(LATE)
        if lost:
            self.world.market.faults.add(kind="lost_answer", operation=BUYERS[way][1])
        self._order(pk, way)
        self._afterwards(pk, way, then)
        self._afterwards(pk, way, again)

    @rule(pk=blocks, way=ways, step=steps, fault=faults, minutes=st.sampled_from([0, 20, 70]), then=afterwards)
    def an_order_fails_and_a_person_resolves_it(
        self, step, fault, pk="train", way="extend", minutes=70, then="nothing"
    ):
        self._put_right(pk)
        self.world.call_faults.plan(fault, self._site(way, step), "attempt")
        self._order(pk, way)
        self.world.run_for(timedelta(minutes=minutes))
        self._resolve(pk)
        self._afterwards(pk, way, then)

    @rule(pk=blocks, way=ways, step=steps, then=afterwards)
    def a_person_resolves_it_meanwhile(self, step, pk="train", way="extend", then="nothing"):
        self._put_right(pk)
        self.world.call_faults.plan("overtaken", self._site(way, step), "call", lambda: self._resolve(pk))
        self._order(pk, way)
        self._afterwards(pk, way, then)

    @rule(way=ways, percent=st.sampled_from(["-10", "5"]), then=afterwards)
    def the_price_moves_as_it_is_ordered(self, way="extend", percent="5", then="nothing"):
        """EC2 refuses: what was offered is not there any more."""
        self._put_right("train")
        self.world.market.faults.add(kind="price_change", operation=BUYERS[way][1], percent=percent)
        self._order("train", way)
        self._afterwards("train", way, then)

    @rule(ways=st.tuples(ways, ways), asked=st.booleans(), days=st.integers(1, 2))
    def both_are_wanted_at_once(self, ways=("extend", "extend"), asked=False, days=1):
        for pk in BLOCKS:
            self._put_right(pk, require_approval=asked, extend_by_days=days)
        for pk, way in zip(BLOCKS, ways, strict=True):
            self._start(pk, way)
        self._go_on()
        self._everybody_says_yes()
        self._go_on()

    # -- time

    @rule(minutes=st.sampled_from([1, 10, 60, 300]))
    def time_passes(self, minutes):
        self.world.run_for(timedelta(minutes=minutes))

    @rule(count=st.integers(1, 12))
    def a_few_steps(self, count):
        """Stop in between states, where others may come first."""
        for _ in range(count):
            self.world.engine.step()

    @rule()
    def it_goes_on(self):
        self._go_on()

    @rule(copies=st.integers(1, 2))
    def sweep(self, copies):
        for _ in range(copies):
            self.world.start("DetectExpiry", {})

    @rule(minutes=st.sampled_from([-5, 5]))
    def clocks_drift_apart(self, minutes):
        self.world.engine.skew = timedelta(minutes=minutes)

    # -- EC2 and people, at any moment

    @rule(pk=blocks, way=ways, happens=happenings)
    def something_happens(self, pk, way, happens):
        self._happens(pk, way, happens)

    @rule(pk=blocks)
    def it_is_put_right(self, pk):
        self._put_right(pk)

    @rule(nth=st.integers(0, 50))
    def an_event_comes_again(self, nth):
        if events := [event for event in self.world.events if event["source"] == "aws.ec2"]:
            self.world.publish(events[nth % len(events)])

    @rule(pk=blocks)
    def a_warning_comes(self, pk):
        arn = f"arn:aws:ec2:us-east-1:{ACCOUNT}:capacity-reservation/{BLOCKS[pk]}"
        detail = {"capacity-reservation-id": BLOCKS[pk], "end-date": self._end(pk)}
        kind = "Capacity Block Reservation Expiration Warning"
        self.world.publish({"source": "aws.ec2", "detail-type": kind, "resources": [arn], "detail": detail})

    @precondition(lambda self: self.world.mails())
    @rule(decision=st.sampled_from(["approve", "approve", "reject"]), back=st.integers(0, 5))
    def a_link_is_answered(self, decision, back):
        """The newest, or one that was answered, or of a question that is long past."""
        if links := self.story.links():
            self._answer(decision, -1 - back % len(links))

    @rule(pk=blocks, way=ways, suffix=st.sampled_from(["", "-again"]))
    def started_by_hand(self, pk, way, suffix):
        self._start(pk, way, suffix)

    @rule(nth=st.integers(0, 50))
    def stopped_or_redriven(self, nth):
        machines = ("ExtendBlock", "ReplaceBlock", "ApprovePurchase")
        if executions := [each for name in machines for each in self.world.executions(name)]:
            execution = executions[nth % len(executions)]
            if execution.status == "RUNNING":
                self.world.engine.stop(execution)
            with suppress(ApiError):
                self.world.engine.redrive(execution)

    # -- faults, at any moment

    @rule(
        function=st.sampled_from(
            [
                "LoadBlock",
                "SearchOfferings",
                "BuyExtension",
                "RecordExtension",
                "CheckExtension",
                "AskApprovers",
                "SearchBlocks",
                "BuyBlock",
                "RecordReplacement",
                "CheckBlock",
                "EnrolBlock",
            ]
        ),
        when=st.sampled_from(["before", "after"]),
        takes=st.sampled_from([0, 30]),
    )
    def a_function_dies(self, function, when, takes):
        self.world.engine.crash(function, when=when, takes=timedelta(seconds=takes))

    @rule(
        operation=st.sampled_from(
            [*OFFERINGS.values(), "DescribeCapacityReservations", "DescribeCapacityBlockExtensionHistory"]
        ),
        kind=st.sampled_from(["throttle", "denied", "error_before", "describe_limit"]),
        times=st.sampled_from([1, 6]),
    )
    def ec2_cannot_be_read(self, operation, kind, times):
        self.world.market.faults.add(kind=kind, operation=operation, times=times)

    # -- what holds

    @invariant()
    def what_always_holds(self):
        if hasattr(self, "world"):
            assert self._broken() == []

    def _broken(self, **more):
        self._know_new_blocks()
        self.wrong += broken_rules(self.story, self.people, live=self.live, limit=self.limit, **more)
        return list(dict.fromkeys([*self.wrong, *self.orders.sent_again]))

    def _come_to_the_end(self):
        """Nothing goes wrong any more: what is open comes to its end."""
        self.moments.clear()
        self._calm()
        self.world.engine.skew = timedelta(0)
        self._lag(timedelta(0))
        for execution in self._executions(*MACHINES.values()):
            if execution.status == "ABORTED":
                with suppress(ApiError):
                    self.world.engine.redrive(execution)
        self.world.run_until_idle()
        self.world.start("DetectExpiry", {})
        self.world.run_until_idle()
        assert self._broken(final=True) == []
        assert [each for each in self._executions(*MACHINES.values()) if each.status == "RUNNING"] == []

    # -- what happens

    def _happens(self, pk, way, what):
        HAPPENINGS[what](self, pk, way)

    def _stop_and_redrive(self, pk):
        running = [each for each in self._workflows(pk) if each.status == "RUNNING"]
        for execution in running:
            self.world.engine.stop(execution)
        # What is being called goes on by itself meanwhile.
        self.world.engine.scheduler.timer(self.world.now()).then(lambda _: self._redrive(pk))

    def _redrive(self, pk):
        for execution in self._workflows(pk):
            with suppress(ApiError):
                self.world.engine.redrive(execution)

    def _delete_and_enrol_again(self, pk):
        self._judge()
        if self._api("DELETE", f"/{pk}").status in (200, 204):
            self._enrol(pk, self.people.policies.pop(pk))

    def _resolve(self, pk):
        """As `blockkeeper resolve`: a person asks EC2 what became of the block's open order, believes it, and writes it down."""
        with pytest.MonkeyPatch.context() as environment:
            for name, value in self.world.template.functions["SettleOrders"].environment.items():
                environment.setenv(name, str(value))
            environment.setattr(clock, "now", self.world.now)
            key = ledger.unresolved(BLOCKS[pk])
            purchase = None if key is None else ledger.read(key)
            if purchase is None:
                return
            entry = self.story.item("purchase", key)
            seen = _look(key, purchase, entry | {"id": key})
            claim = Claim.NOT_BOUGHT
            if seen.evidence is not None and seen.evidence.state is PurchaseState.BOUGHT:
                claim = Claim.BOUGHT
            now = self.world.now()
            if contradiction(claim, purchase, seen.evidence, ec2_knows=seen.knows, now=now):
                return
            with suppress(ledger.TakenElsewhereError):
                ledger.resolve(key, purchase, claim, who="jo", reason="asked EC2", now=now)
                if claim is Claim.NOT_BOUGHT:
                    self.orders.refused(key)

    def _another_block_is_better(self):
        for supply in self.world.market.offerings.supply:
            supply.hourly_rate *= Decimal("0.4")
            supply.instances = 4 - supply.instances if supply.availability_zone == "us-east-1a" else 4

    def _extend_by_hand(self, pk, late=False):
        for each in self._buy_by_hand(pk):
            each.status = "payment-succeeded"
            self.world.market.blocks.move_end(self._block(pk), each.offering.end)
            if late:
                self._lag(LATE, but=each)

    def _a_task_comes(self, call):
        """Do what waits for this moment; it must not meet itself in what it starts."""
        if call.state == "Buy once":
            call.future.then(lambda answer: self._the_buyer_answers(call.execution, answer))
        pk = json.loads(call.execution.input_text).get("environment")
        due = [each for each in self.moments if each[:3] == (call.execution.machine.key, call.state, pk)]
        self.moments = [each for each in self.moments if each not in due]
        for _, _, _, way, happens in due:
            self._happens(pk, way, happens)

    def _the_buyer_answers(self, execution, answer):
        """It must not say that it does not know of an order that EC2 shows it."""
        if answer.error is not None or answer.result()["Payload"]["result"] != "unknown":
            return
        given, way = execution.input, "replace" if execution.machine.key == "ReplaceBlock" else "extend"
        key = f"{given['reservation_id']}#{given['end_date']}" + ("#block" if way == "replace" else "")
        lag = self.world.market.extensions.history_lags if way == "extend" else self.world.market.offerings.shown_after
        since = self.world.now() - lag - timedelta(minutes=1)
        self.wrong += [
            f"ledger: EC2 shows {each}, and the buyer does not know"
            for each in ours(self.story, self.people)
            if each.key == key and each.at < since
        ]

    def _afterwards(self, pk, way, then):
        self.world.run_for(timedelta(minutes=2))
        self._happens(pk, way, then)
        self._go_on()
        self._everybody_says_yes()
        self.world.run_for(timedelta(minutes=10))

    # -- inside

    def _order(self, pk, way):
        """The workflow that buys is started, people say yes if they are asked, and it goes on to its order."""
        self._start(pk, way)
        self._go_on()
        if self._everybody_says_yes():
            self._go_on()

    def _start(self, pk, way, suffix=None):
        """Under the name that a sweep gives it, unless it is used."""
        end = self.story.end(BLOCKS[pk])
        name = f"{BLOCKS[pk]}-{end:%Y%m%dT%H%MZ}" + ("-replace" if way == "replace" else "")
        if suffix is None:
            used = any(each.name == name for each in self._executions(MACHINES[way]))
            self.started += used
            suffix = f"-by-hand-{self.started}" if used else ""
        given = {"environment": pk, "reservation_id": BLOCKS[pk], "account": ACCOUNT, "region": "us-east-1"}
        with suppress(ApiError):
            self.world.start(MACHINES[way], given | {"end_date": self._end(pk)}, name + suffix)

    def _go_on(self):
        """Until somebody is asked or told, or something is ordered or bought, or nothing more happens for four hours."""
        engine, market = self.world.engine, self.world.market

        def seen():
            return len(self.world.mails()), len(market.extensions._bought), len(market.blocks.all()), self.orders.count

        before, limit = seen(), self.world.now() + timedelta(hours=4)
        self.world.run_until(self.world.now())
        while seen() == before and self.world.now() < limit and (at := engine.scheduler.next_timer_at()) is not None:
            self.world.run_until(min(at, limit))

    def _put_right(self, pk, **policy):
        """What was changed or is broken is as it should be again, so that an order can come to its brink."""
        self._calm()
        self._deploy(live=True)
        self._lag(timedelta(0))
        block = self._block(pk)
        block.hourly_rate, block.offering.available, block.payment.outcome = RATE, True, "payment-succeeded"
        supply = self.world.market.offerings.supply
        if not any(block.end <= each.start <= block.end + timedelta(hours=2) and each.instances for each in supply):
            offer = {
                "region": "us-east-1",
                "instance_type": "p5.48xlarge",
                "instance_count": 4,
                "hourly_rate": str(RATE),
            }
            for zone, gap, length in SUPPLIES:
                start = block.end + gap
                span = {"start": f"{start:%Y-%m-%dT%H:%M:%SZ}", "end": f"{start + length:%Y-%m-%dT%H:%M:%SZ}"}
                self.world.market.load_fleet({"offerings": [offer | span | {"availability_zone": f"us-east-1{zone}"}]})
        wanted = POLICY | policy
        now = self.people.policies.get(pk)
        if now is None:
            self._enrol(pk, wanted | {"capacity_block_id": BLOCKS[pk]})
        elif change := {name: value for name, value in wanted.items() if now.get(name) != value}:
            self._edit(pk, **change)

    def _calm(self):
        self.world.call_faults.planned.clear()
        self.world.market.faults.clear()
        self.world.engine.calm()

    def _lag(self, span, but=None):
        """How late EC2 shows what was bought; what it has shown it shows ever after."""
        since, market = self.world.now() - span, self.world.market
        recent = [each.purchased for each in market.extensions._bought if each is not but]
        if not span or all(at < since for at in recent):
            market.extensions.history_lags = market.offerings.shown_after = span
        if not span:
            for block in market.blocks.all():
                block.shown_from = None

    def _price(self, pk, factor):
        for each in (self._block(pk), *self.world.market.offerings.supply):
            each.hourly_rate *= Decimal(factor)

    def _buy_by_hand(self, pk):
        """What the console buys EC2 shows at once."""
        self._lag(timedelta(0))
        calls, bought = len(self.world.market.calls), list(self.world.market.extensions._bought)
        waiting, self.world.market.faults._waiting = self.world.market.faults._waiting, []
        with suppress(ClientError, IndexError):
            self.story.buy_by_hand(BLOCKS[pk])
        self.world.market.faults._waiting = waiting
        self.people.calls_by_hand += list(self.world.market.calls)[calls:]
        new = [each for each in self.world.market.extensions._bought if not any(each is known for known in bought)]
        self.people.by_hand += new
        self.people.before_a_new_block += [
            each
            for each in new
            if not any(
                block.new_start and (block.block, block.end) == (BLOCKS[pk], each.offering.start)
                for block in ours(self.story, self.people)
            )
        ]
        return new

    def _deploy(self, *, live):
        if live == self.live:
            return
        self._judge()
        self.live = live
        for function in self.world.template.functions.values():
            if "PURCHASE_MODE" in function.environment:
                function.environment["PURCHASE_MODE"] = "live" if live else "dry-run"

    def _judge(self):
        """What was bought is judged by what was allowed until now."""
        self._broken()

    def _know_new_blocks(self):
        """A block that was bought in place of another is under that one's policy."""
        for record in self.story.items("environment"):
            if record["id"] not in self.people.policies and (old := self._policy_of(record.get("replaces"))):
                self.people.policies[record["id"]] = old | {"capacity_block_id": record["capacity_block_id"]}

    def _policy_of(self, block):
        return next((each for each in self.people.policies.values() if each["capacity_block_id"] == block), None)

    def _site(self, way, step):
        function, order = BUYERS[way]
        if step == "order":
            return Site(function, "ec2", order, 1)
        if step == "unknown":
            return Site(function, "dynamodb", "UpdateItem", 1)
        return Site(function, "dynamodb", "TransactWriteItems", int(step.split()[1]))

    def _block(self, pk):
        return self.world.market.blocks.get(BLOCKS[pk], "us-east-1")

    def _end(self, pk):
        return f"{self.story.end(BLOCKS[pk]):%Y-%m-%dT%H:%M:%SZ}"

    def _workflows(self, pk):
        return [each for each in self._executions(*MACHINES.values()) if each.input["environment"] == pk]

    def _executions(self, *machines):
        return [each for name in machines for each in self.world.executions(name)]

    def _enrol(self, pk, policy):
        body = {"PK": pk, "region": "us-east-1", "instance_type": "p5.48xlarge", **policy}
        if self._api("POST", "/", {name: value for name, value in body.items() if value is not None}).status == 201:
            self.people.policies[pk] = policy

    def _edit(self, pk, **change):
        self._judge()
        if self._api("PUT", f"/{pk}", change).status == 200:
            self.people.policies[pk] = self.people.policies[pk] | change

    def _api(self, method, path, body=None):
        headers = {"x-api-key": self.world.api_key(), "content-type": "application/json"}
        return self.world.request(method, path, headers=headers, body=json.dumps(body) if body is not None else None)

    def _everybody_says_yes(self):
        """To every question that is open; whether there was one."""
        said = len(self.people.votes)
        for index, (path, _) in enumerate(self.story.links()):
            if (self.story.item("approval", path.rpartition("/")[2]) or {}).get("status") == "OPEN":
                self._answer("approve", index)
        return len(self.people.votes) > said

    def _answer(self, decision, index):
        path = self.story.links()[index][0]
        approval_id = path.rpartition("/")[2]
        before = self.story.item("approval", approval_id)
        self.story.answer(decision, index)
        self.people.votes += vote_of(self.story, approval_id, before, self.world.now())


class Orders:
    """Each live order that the product sends, and whether what it heard leaves open that EC2 took it.

    EC2's own log has no word of an order that was lost on its way; the product cannot tell it from one whose answer was.
    """

    def __init__(self, world):
        self.count, self.sent_again = 0, []
        self._world, self._perhaps_taken = world, set()
        send = world.call_faults.send

        def watched(event_name, request, *given, **more):
            key = self._key(event_name, request)
            if key is None:
                return send(event_name, request, *given, **more)
            self.count += 1
            if key in self._perhaps_taken:
                self.sent_again.append(f"rule 1: an order for {key} was sent again at {world.now():%m-%d %H:%M}")
            self._perhaps_taken.add(key)
            answer = send(event_name, request, *given, **more)
            if self._is_a_refusal(answer):
                self._perhaps_taken.discard(key)
            return answer

        world.call_faults.send = watched

    def refused(self, key):
        """A person has made sure that EC2 did not take it."""
        self._perhaps_taken.discard(key)

    def _key(self, event_name, request):
        if self._world.engine.caller is None or not event_name.endswith((f".{PURCHASE}", f".{PURCHASE_BLOCK}")):
            return None
        body = request.body.decode() if isinstance(request.body, bytes) else request.body
        given = {name: values[0] for name, values in parse_qs(body).items()} if isinstance(body, str) else dict(body)
        if given.get("DryRun") == "true":
            return None
        if event_name.endswith(f".{PURCHASE_BLOCK}"):
            return next(value for name, value in given.items() if name.startswith("TagSpecification") and "#" in value)
        offering = self._world.market.extensions._offerings[given["CapacityBlockExtensionOfferingId"]]
        return f"{given['CapacityReservationId']}#{offering.start:%Y-%m-%dT%H:%M:%SZ}"

    @staticmethod
    def _is_a_refusal(answer):
        return answer is not None and (400 <= answer.status_code < 500 or b"RequestLimitExceeded" in answer.content)


class Walk:
    """Calls rules one after another, and looks after each, as Hypothesis does."""

    def __init__(self, **begin):
        self._machine = Blockkeeper()
        self._machine.begin(**begin)

    def __getattr__(self, name):
        def step(**given):
            getattr(self._machine, name)(**given)
            self._machine.what_always_holds()

        return step

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._machine.world.__exit__(None, None, None)


# Each broke a mutant or the product itself.
WALKS = {
    "a second run at the intent": lambda w: w.a_second_run_comes_first(step="write 1"),
    "a second run between intent and sent": lambda w: w.a_second_run_comes_first(step="write 2"),
    "a crash before the intent": lambda w: w.an_order_fails(step="write 1", fault="crash_before"),
    "EC2 takes the order and says 500": lambda w: w.an_order_fails(
        step="order", fault="error_after", then="started by hand"
    ),
    "EC2 takes the order and is not heard": lambda w: w.an_order_fails(step="order", fault="timeout_after"),
    "an order is throttled": lambda w: w.an_order_fails(step="order", fault="throttled", then="started by hand"),
    "the price moves as it is ordered": lambda w: w.the_price_moves_as_it_is_ordered(),
    "an unpaid order is wanted again": lambda w: w.a_payment_fails(asked=True, then="started by hand"),
    "a lost order is wanted again": lambda w: w.an_order_shows_late(then="started by hand"),
    "both cost more than the limit": lambda w: w.both_are_wanted_at_once(days=2),
    "dearer than what was asked": lambda w: w.something_happens_while_people_are_asked(happens="dearer"),
    "longer than what was asked": lambda w: w.something_happens_while_people_are_asked(happens="longer for less"),
    "two say yes": lambda w: w.something_happens_while_people_are_asked(happens="live", voices=2),
    "yes in a dry run": lambda w: w.something_happens_while_people_are_asked(happens="live", dry_run=True),
    "approval is wanted at last": lambda w: w.something_happens_just_before(happens="approval is wanted"),
    "the ceiling is lowered at last": lambda w: w.something_happens_just_before(happens="the ceiling is lowered"),
    "it shall end sooner at last": lambda w: w.something_happens_just_before(happens="it shall end sooner"),
    "two must agree at last": lambda w: w.something_happens_just_before(happens="two must agree", asked=True),
    "dry run at last": lambda w: w.something_happens_just_before(happens="dry run"),
    "an order that was lost is bought by hand": lambda w: w.an_order_fails(
        step="order", fault="timeout_before", then="bought by hand"
    ),
    "a new block beside a late extension": lambda w: w.an_order_shows_late(lost=False, then="the other way by hand"),
    "a lost order that nobody can find is ordered again": lambda w: w.an_order_fails_and_a_person_resolves_it(
        step="order", fault="timeout_before", then="started by hand"
    ),
    "a person resolves an order as it is sent": lambda w: w.a_person_resolves_it_meanwhile(step="order"),
    "a person resolves an order as it is written down": lambda w: w.a_person_resolves_it_meanwhile(step="write 3"),
    "new: a lost order that nobody can find is ordered again": lambda w: w.an_order_fails_and_a_person_resolves_it(
        way="replace", step="order", fault="timeout_before", then="started by hand"
    ),
    "new: a crash at the order": lambda w: w.an_order_fails(way="replace", step="order", fault="crash_before"),
    "new: a lost order is wanted again": lambda w: w.an_order_shows_late(way="replace", then="started by hand"),
    "new: another one than asked": lambda w: w.something_happens_while_people_are_asked(
        way="replace", happens="another block is better"
    ),
    **{
        f"new: {happens} at last": lambda w, happens=happens: w.something_happens_just_before(
            way="replace", happens=happens
        )
        for happens in (
            "approval is wanted",
            "the ceiling is lowered",
            "it shall end sooner",
            "bought by hand",
            "extended by hand, which the history shows late",
        )
    },
}


@pytest.mark.parametrize("name", WALKS)
def test_a_walk_that_was_kept(name):
    # Three orders of a day fit, two of two days do not.
    with Walk(limit=12500) as walk:
        WALKS[name](walk)


Blockkeeper.TestCase.__test__ = True
TestBlockkeeper = Blockkeeper.TestCase
