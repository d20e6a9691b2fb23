"""Two blocks of one budget, and everything that people, EC2 and faults may do to them, in any order; the rules hold all the while.

Hypothesis walks: in CI the same walks each time, with HYPOTHESIS_PROFILE=long new ones for as long as wanted.
"""

import copy
import json
from contextlib import suppress
from datetime import timedelta
from decimal import Decimal

from botocore.exceptions import ClientError
from faults.rules import PURCHASE, People, broken_rules, vote_of
from hypothesis import note
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from workflows.conftest import END, WARM, Story

from local.engine.call_faults import Site
from local.engine.errors import ApiError
from local.engine.world import ACCOUNT, World

BLOCKS = {"train": "cr-0a1", "serve": "cr-0b2"}
LIMIT = 9000
OFFERINGS = "DescribeCapacityBlockExtensionOfferings"
# What the buyer writes down: INTENT, SENT, BOUGHT or REFUSED (after a release when an INTENT was left), UNKNOWN; and the order.
BUYER = (
    *(Site("BuyExtension", "dynamodb", "TransactWriteItems", nth) for nth in (1, 2, 3, 4)),
    Site("BuyExtension", "dynamodb", "UpdateItem", 1),
    Site("BuyExtension", "ec2", PURCHASE, 1),
)
FUNCTIONS = ("LoadBlock", "SearchOfferings", "BuyExtension", "RecordExtension", "CheckExtension", "AskApprovers")
TASKS = ("Search offerings", "Look up the offer again", "Buy once", "Check the extension", "Record the miss")
BEFORE = ("throttled", "denied", "error_before", "timeout_before", "crash_before")
AFTER = ("error_after", "timeout_after", "crash_after", "lambda_timeout")

blocks = st.sampled_from(sorted(BLOCKS))
spans = st.sampled_from([timedelta(**{unit: n}) for unit, n in (
    ("seconds", 10), ("minutes", 1), ("minutes", 10), ("hours", 1), ("hours", 6), ("hours", 20),
)])  # fmt: skip
CHANGES = (
    {"require_approval": True},
    {"require_approval": False},
    {"max_upfront_fee": "100"},
    {"max_upfront_fee": None},
    {"max_upfront_fee": "12000"},
    {"extend_by_days": 1},
    {"extend_by_days": 2},
    {"extend_until": "2026-05-06T00:00:00Z"},
    {"extend_until": None},
    {"quorum": 2},
    {"quorum": 1},
)


class Blockkeeper(RuleBasedStateMachine):
    """The product, and people who know what they themselves said."""

    @initialize(
        approval=st.lists(st.booleans(), min_size=2, max_size=2),
        redrive_keeps_entered_time=st.booleans(),
        hours_before=st.sampled_from([5, 8, 30]),
        minutes=st.sampled_from([5, 90]),
    )
    def begin(self, approval, redrive_keeps_entered_time, hours_before, minutes):
        parameters = {"PurchaseMode": "live", "MonthlyLimit": str(LIMIT), "SenderEmail": "blockkeeper@example.com"}
        self.world = World(
            END - timedelta(hours=hours_before),
            parameters=parameters,
            schedules=False,
            sandboxes=WARM,
            redrive_keeps_entered_time=redrive_keeps_entered_time,
        )
        self.world.__enter__()
        self.story, self.people, self.live = Story(self.world), People(), True
        self.people.watch(self.story)
        for (pk, block), require_approval in zip(BLOCKS.items(), approval, strict=True):
            self.story.block(block, payment={"minutes": minutes, "end_moves_after_minutes": 10})
            policy = {
                "capacity_block_id": block,
                "require_approval": require_approval,
                "extend_by_days": 1,
                "extension_lookahead_days": 3,
                "max_upfront_fee": "12000",
                "approvers": ["ann@example.com", "bob@example.com"],
            }
            self._enrol(pk, policy)
        self.world.start("DetectExpiry", {})

    def teardown(self):
        if not hasattr(self, "world"):
            return
        try:
            self._come_to_the_end()
        finally:
            self.world.__exit__(None, None, None)

    # -- time

    @rule(span=spans)
    def tick(self, span):
        self.world.run_for(span)

    @rule(count=st.integers(1, 12))
    def a_few_steps(self, count):
        """Stop in between states, where others may come first."""
        for _ in range(count):
            self.world.engine.step()

    @rule()
    def until_somebody_is_asked_or_it_is_bought(self):
        before = len(self.story.links()), len(self.world.market.extensions._bought)
        for _ in range(30):
            self.world.run_for(timedelta(minutes=10))
            if (len(self.story.links()), len(self.world.market.extensions._bought)) != before:
                return

    @rule(copies=st.integers(1, 2))
    def sweep(self, copies):
        for _ in range(copies):
            self.world.start("DetectExpiry", {})

    @rule(minutes=st.sampled_from([-5, 0, 5]))
    def clocks_drift_apart(self, minutes):
        self.world.engine.skew = timedelta(minutes=minutes)

    # -- EC2

    @rule(data=st.data())
    def an_event_comes_again(self, data):
        if events := [event for event in self.world.events if event["source"] == "aws.ec2"]:
            self.world.publish(copy.deepcopy(data.draw(st.sampled_from(events))))

    @rule(block=st.sampled_from(sorted(BLOCKS.values())))
    def a_warning_comes(self, block):
        arn = f"arn:aws:ec2:us-east-1:{ACCOUNT}:capacity-reservation/{block}"
        detail = {"capacity-reservation-id": block, "end-date": f"{self.story.end(block):%Y-%m-%dT%H:%M:%SZ}"}
        self.world.publish(
            {"source": "aws.ec2", "detail-type": "Capacity Block Reservation Expiration Warning", "resources": [arn],
             "detail": detail}
        )  # fmt: skip

    @rule(pk=blocks, percent=st.sampled_from([-10, 5, 60]))
    def the_price_changes(self, pk, percent):
        self._block(pk).hourly_rate *= 1 + Decimal(percent) / 100

    @rule(percent=st.sampled_from(["-10", "5", "60"]))
    def the_price_changes_just_before_the_order(self, percent):
        self.world.market.faults.add(kind="price_change", operation=PURCHASE, percent=percent)

    @rule(pk=blocks)
    def the_offering_vanishes_or_returns(self, pk):
        offering = self._block(pk).offering
        offering.available = not offering.available

    @rule(pk=blocks)
    def the_payment_will_fail(self, pk):
        payment = self._block(pk).payment
        payment.outcome = "payment-failed"

    @rule(pk=blocks)
    def somebody_buys_in_the_console(self, pk):
        calls, bought = len(self.world.market.calls), list(self.world.market.extensions._bought)
        waiting, self.world.market.faults._waiting = self.world.market.faults._waiting, []
        with suppress(ClientError, IndexError):
            self.story.buy_by_hand(BLOCKS[pk])
        self.world.market.faults._waiting = waiting
        self.people.calls_by_hand += list(self.world.market.calls)[calls:]
        new = [each for each in self.world.market.extensions._bought if not any(each is known for known in bought)]
        self.people.by_hand += new

    # -- people

    @precondition(lambda self: self.story.links())
    @rule(decision=st.sampled_from(["approve", "approve", "approve", "reject"]), who=st.integers(0, 1))
    def the_newest_question_is_answered(self, decision, who):
        links = self.story.links()
        newest = links[-1][0]
        mine = [index for index, (path, _) in enumerate(links) if path == newest]
        self._answer(decision, mine[who % len(mine)])

    @precondition(lambda self: self.story.links())
    @rule(data=st.data(), decision=st.sampled_from(["approve", "approve", "reject"]))
    def some_link_is_answered(self, data, decision):
        """Again, late, or of a question that is long past."""
        self._answer(decision, data.draw(st.integers(0, len(self.story.links()) - 1)))

    @rule(pk=blocks, change=st.sampled_from(CHANGES))
    def the_policy_is_edited(self, pk, change):
        if self._api("PUT", f"/{pk}", change).status == 200:
            self.people.policies[pk] |= change

    @rule(pk=blocks)
    def deleted_and_enrolled_again(self, pk):
        if self._api("DELETE", f"/{pk}").status in (200, 204):
            self._enrol(pk, self.people.policies.pop(pk))

    @rule(live=st.booleans())
    def the_purchase_mode_is_deployed(self, live):
        self.live = live
        for function in self.world.template.functions.values():
            if "PURCHASE_MODE" in function.environment:
                function.environment["PURCHASE_MODE"] = "live" if live else "dry-run"

    @rule(pk=blocks, suffix=st.sampled_from(["", "-again", "-by-hand"]))
    def started_by_hand(self, pk, suffix):
        end = self.story.end(BLOCKS[pk])
        given = {"environment": pk, "reservation_id": BLOCKS[pk], "account": ACCOUNT, "region": "us-east-1"}
        given |= {"end_date": f"{end:%Y-%m-%dT%H:%M:%SZ}"}
        with suppress(ApiError):
            self.world.start("ExtendBlock", given, f"{BLOCKS[pk]}-{end:%Y%m%dT%H%MZ}{suffix}")

    @rule(data=st.data())
    def stopped_or_redriven(self, data):
        executions = [each for name in ("ExtendBlock", "ApprovePurchase") for each in self.world.executions(name)]
        if executions:
            execution = data.draw(st.sampled_from(executions))
            if execution.status == "RUNNING":
                self.world.engine.stop(execution)
            with suppress(ApiError):
                self.world.engine.redrive(execution)

    # -- faults

    @rule(site=st.sampled_from(BUYER), kind=st.sampled_from(BEFORE + AFTER))
    def the_buyer_fails(self, site, kind):
        self.world.call_faults.plan(kind, site, "attempt" if kind in AFTER else "call")

    @rule(site=st.sampled_from(BUYER))
    def the_buyer_is_overtaken_by_another(self, site):
        self.world.call_faults.plan("overtaken", site, "call")

    @rule(minutes=st.sampled_from([0, 3, 45]))
    def the_history_lags(self, minutes):
        self.world.market.extensions.history_lags = timedelta(minutes=minutes)

    @rule(
        function=st.sampled_from(FUNCTIONS), when=st.sampled_from(["before", "after"]), takes=st.sampled_from([0, 30])
    )
    def a_function_dies(self, function, when, takes):
        self.world.engine.crash(function, when=when, takes=timedelta(seconds=takes))

    @rule(
        operation=st.sampled_from([OFFERINGS, "DescribeCapacityReservations", "DescribeCapacityBlockExtensionHistory"]),
        kind=st.sampled_from(["throttle", "denied", "error_before", "describe_limit"]),
        times=st.sampled_from([1, 6]),
    )
    def ec2_cannot_be_read(self, operation, kind, times):
        self.world.market.faults.add(kind=kind, operation=operation, times=times)

    # -- what holds

    @invariant()
    def rules(self):
        if hasattr(self, "world"):
            assert self._broken() == []

    def _broken(self, **more):
        return broken_rules(self.story, self.people, live=self.live, limit=Decimal(LIMIT), **more)

    def _come_to_the_end(self):
        """Nothing goes wrong any more: what is open comes to its end."""
        self.world.call_faults.planned.clear()
        self.world.market.faults.clear()
        self.world.engine.calm()
        self.world.engine.skew = self.world.market.extensions.history_lags = timedelta(0)
        for _ in range(2):
            self.world.run_until_idle()
            self.world.start("DetectExpiry", {})
            for execution in self.world.executions("ExtendBlock"):
                if execution.status == "ABORTED":
                    with suppress(ApiError):
                        self.world.engine.redrive(execution)
        self.world.run_until_idle()
        assert self._broken(final=True) == []
        assert [each for each in self.world.executions("ExtendBlock") if each.status == "RUNNING"] == []

    # -- inside

    def _block(self, pk):
        return self.world.market.blocks.get(BLOCKS[pk], "us-east-1")

    def _enrol(self, pk, policy):
        body = {"PK": pk, "region": "us-east-1", "instance_type": "p5.48xlarge", **policy}
        body = {name: value for name, value in body.items() if value is not None}
        answer = self._api("POST", "/", body)
        note(f"enrol {pk}: {answer.status}")
        if answer.status == 201:
            self.people.policies[pk] = policy

    def _api(self, method, path, body=None):
        headers = {"x-api-key": self.world.api_key(), "content-type": "application/json"}
        return self.world.request(method, path, headers=headers, body=json.dumps(body) if body is not None else None)

    def _answer(self, decision, index):
        path = self.story.links()[index][0]
        approval_id = path.rpartition("/")[2]
        before = self.story.item("approval", approval_id)
        self.story.answer(decision, index)
        self.people.votes += vote_of(self.story, approval_id, before, self.world.now())


Blockkeeper.TestCase.__test__ = True
TestBlockkeeper = Blockkeeper.TestCase
