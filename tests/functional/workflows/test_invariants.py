"""Random walks over everything that can happen to two blocks: after each step what always holds must hold.

A walk is made from its seed alone, so one that fails can be walked again: `walk(seed)`.
"""

import json
import random
from collections import Counter
from datetime import timedelta
from decimal import Decimal

import pytest

from local.engine.errors import ApiError
from local.engine.world import World

from .conftest import END, START, WARM, Story

BLOCKS = {"train": "cr-0a1", "serve": "cr-0b2"}
LIMIT = 15_000
FUNCTIONS = (
    "BuyExtension",
    "LoadBlock",
    "SearchOfferings",
    "RecordExtension",
    "CheckExtension",
    "AskApprovers",
    "CloseApproval",
    "SweepTarget",
    "ListTargets",
    "DecideApproval",
    "Api",
)
PURCHASE = "PurchaseCapacityBlockExtension"
OFFERINGS = "DescribeCapacityBlockExtensionOfferings"


class Walk:
    """One walk: the world, what people did to it, and what they allowed."""

    def __init__(self, seed):
        self.rng = random.Random(seed)  # noqa: S311 - it must repeat
        self.mode = self.rng.choice(["live", "live", "live", "dry-run"])
        self.world = World(
            START,
            parameters={
                "PurchaseMode": self.mode,
                "MonthlyLimit": str(LIMIT),
                "TeamLimits": f"vision={LIMIT - 6000}",
                "SenderEmail": "blockkeeper@example.com",
            },
            schedules=False,
            sandboxes=WARM,
            seed=seed,
            flavour=self.rng.choice(["aws", "ministack"]),
            redrive_keeps_entered_time=self.rng.random() < 0.5,
        )
        self.done = Counter()
        self.by_hand = []
        self.checked = []
        self.said_yes = set()
        self.policy = {}

    # -- what can happen

    def enrol_both(self):
        self.story = Story(self.world)
        for pk, block in BLOCKS.items():
            self.policy[pk] = {
                "capacity_block_id": block,
                "require_approval": self.rng.random() < 0.6,
                "extend_by_days": self.rng.choice([1, 1, 2]),
                "extension_lookahead_days": 3,
                "max_upfront_fee": self.rng.choice(["5000", "12000"]),
                "approvers": ["ann@example.com", "bob@example.com"],
                "quorum": self.rng.choice([1, 1, 2]),
                "team": {"train": "vision"}.get(pk, "speech"),
            }
            payment = {"minutes": self.rng.choice([5, 20]), "end_moves_after_minutes": self.rng.choice([0, 30])}
            self.story.block(block, payment={"outcome": "payment-succeeded", **payment})
            body = {"PK": pk, "region": "us-east-1", "instance_type": "p5.48xlarge", **self.policy[pk]}
            assert self.api("POST", "/", body).status == 201
        # An order is rare on a walk, so what goes wrong with it is planned from the start.
        for kind in self.rng.sample(["timeout_after", "lost_answer", "error_after", "error_before", "throttle"], 2):
            self.world.market.faults.add(kind=kind, operation=PURCHASE)

    def api(self, method, path, body=None):
        headers = {"x-api-key": self.world.api_key(), "content-type": "application/json"}
        return self.world.request(method, path, headers=headers, body=json.dumps(body or {}))

    def sweep(self):
        for _ in range(self.rng.choice([1, 1, 2])):
            self.world.start("DetectExpiry", {})

    def extend_by_hand(self):
        pk = self.rng.choice(list(BLOCKS))
        end = self.story.end(BLOCKS[pk])
        given = {"environment": pk, "reservation_id": BLOCKS[pk], "account": "123456789012", "region": "us-east-1"}
        name = f"{BLOCKS[pk]}-{end:%Y%m%dT%H%MZ}{self.rng.choice(['', '-again', '-by-hand'])}"
        try:
            self.world.start("ExtendBlock", given | {"end_date": f"{end:%Y-%m-%dT%H:%M:%SZ}"}, name)
        except ApiError as error:
            assert error.code == "ExecutionAlreadyExists"  # noqa: PT017

    def answer(self):
        links = self.story.links()
        if not links:
            return
        link, decision = self.rng.randrange(len(links)), self.rng.choice(["approve", "approve", "approve", "reject"])
        if decision == "approve":
            self.said_yes.add(links[link][0].rpartition("/")[2])
        self.story.answer(decision, link)

    def look_at_a_link(self):
        links = self.story.links()
        if links:
            path, query = self.rng.choice(links)
            self.world.request(self.rng.choice(["GET", "HEAD"]), path, query=query)
            if self.rng.random() < 0.5:
                other = self.rng.choice(links)[0]
                self.world.request("POST", other + "x", query=query, body="decision=approve&reason=")

    def answer_by_api(self):
        approvals = self.story.items("approval")
        if not approvals or self.rng.random() < 0.3:
            pk = self.rng.choice(list(BLOCKS))
            answer = self.api("PATCH", f"/{pk}", {})
            if answer.status == 200:
                self.said_yes.add(json.loads(answer.body)["approval_id"])
            return
        approval, decision = self.rng.choice(approvals)["id"], self.rng.choice(["approve", "approve", "reject"])
        if decision == "approve":
            self.said_yes.add(approval)
        self.api("POST", f"/approvals/{approval}/{decision}", {})

    def change_the_record(self):
        pk = self.rng.choice(list(BLOCKS))
        change = self.rng.choice(
            [
                {"require_approval": True},
                {"require_approval": False},
                {"require_approval": None},
                {"max_upfront_fee": "100"},
                {"max_upfront_fee": None},
                {"max_upfront_fee": "12000"},
                {"extend_by_days": 1},
                {"extend_by_days": 2},
                {"extend_until": "2026-05-06T00:00:00Z"},
                {"extend_until": None},
                {"capacity_block_id": self.rng.choice(list(BLOCKS.values()))},
                {"capacity_block_id": BLOCKS[pk]},
            ]
        )
        if self.api("PUT", f"/{pk}", change).status == 200:
            self.policy[pk] |= change

    def refuse_a_trick(self):
        for trick in ({"require_approval": "false"}, {"require_approval": 0}, {"max_upfront_fee": 1}, {"quorum": 0}):
            assert self.api("PUT", "/train", trick).status == 400

    def break_a_call(self):
        kind, operation = self.rng.choice(
            [
                ("timeout_after", PURCHASE),
                ("error_after", PURCHASE),
                ("error_before", PURCHASE),
                ("lost_answer", PURCHASE),
                ("throttle", PURCHASE),
                ("denied", PURCHASE),
                ("payment_failure", PURCHASE),
                ("price_change", PURCHASE),
                ("price_change", OFFERINGS),
                ("empty_offerings", OFFERINGS),
                ("other_durations", OFFERINGS),
                ("describe_limit", OFFERINGS),
                ("throttle", "DescribeCapacityReservations"),
                ("denied", "DescribeCapacityReservations"),
                ("denied", "DescribeCapacityBlockExtensionHistory"),
            ]
        )
        more = {"percent": self.rng.choice(["-10", "20", "60"])} if kind == "price_change" else {}
        self.world.market.faults.add(kind=kind, operation=operation, times=self.rng.choice([1, 1, 3]), **more)

    def crash_a_function(self):
        function, when = self.rng.choice(FUNCTIONS), self.rng.choice(["before", "after"])
        takes = timedelta(seconds=self.rng.choice([0, 30]))
        self.world.engine.crash(function, self.rng.choice([1, 1, 2]), when=when, takes=takes)

    def buy_by_hand(self):
        block = self.rng.choice(list(BLOCKS.values()))
        before = list(self.story.bought(block))
        waiting, self.world.market.faults._waiting = self.world.market.faults._waiting, []
        try:
            self.story.buy_by_hand(block)
        except Exception:  # noqa: BLE001 - EC2 refuses what nobody could buy now
            return
        finally:
            self.world.market.faults._waiting = waiting
        self.by_hand += [each for each in self.story.bought(block) if not any(each is known for known in before)]

    def stop_and_redrive(self):
        executions = [each for name in ("ExtendBlock", "ApprovePurchase") for each in self.world.executions(name)]
        for execution in executions:
            if execution.status == "RUNNING" and self.rng.random() < 0.2:
                self.world.engine.stop(execution)
            if execution.status in ("FAILED", "ABORTED") and self.rng.random() < 0.7:
                self.world.engine.redrive(execution)

    def time_passes(self):
        self.world.run_for(timedelta(minutes=self.rng.choice([1, 10, 60, 240, 700])))

    STEPS = (
        (sweep, 5),
        (extend_by_hand, 3),
        (answer, 6),
        (look_at_a_link, 1),
        (answer_by_api, 2),
        (change_the_record, 4),
        (refuse_a_trick, 0.2),
        (break_a_call, 5),
        (crash_a_function, 5),
        (buy_by_hand, 1),
        (stop_and_redrive, 2),
        (time_passes, 4),
    )

    # -- the walk

    def walk(self, steps):
        with self.world:
            self.enrol_both()
            for _ in range(steps):
                step = self.rng.choices([step for step, _ in self.STEPS], [weight for _, weight in self.STEPS])[0]
                self.done[step.__name__] += 1
                step(self)
                self.world.run_for(timedelta(seconds=self.rng.choice([0, 1, 20, 200, 900])))
                self.check()
            self.come_to_the_end()

    def come_to_the_end(self):
        """Nothing goes wrong any more: whatever is still open comes to its end, and no decision stays undelivered."""
        self.world.market.faults.clear()
        self.world.engine._crashes.clear()
        self.world.run_until_idle()
        self.sweep()
        self.world.run_until_idle()
        self.check()
        assert self.story.items("undelivered") == []
        stopped = [each for each in self.world.executions("ApprovePurchase") if each.status == "ABORTED"]
        open_ones = [each for each in self.story.items("approval") if each["status"] == "OPEN"]
        assert len(open_ones) <= len(stopped)
        assert [each for each in self.world.executions("ExtendBlock") if each.status == "RUNNING"] == []

    # -- what always holds

    def check(self):
        self.check_purchases()
        self.check_budget()
        self.check_events()
        self.check_secrets()

    def check_purchases(self):
        for block in BLOCKS.values():
            ours = [each for each in self.story.bought(block) if not any(each is hand for hand in self.by_hand)]
            per_end = Counter(each.offering.start for each in ours)
            assert all(count == 1 for count in per_end.values()), per_end
            if self.mode != "live":
                assert ours == []
            for extension in ours:
                if not any(extension is each for each in self.checked):
                    self.checked.append(extension)
                    self.check_allowed(block, extension)
        callers = {call.caller for call in self.world.calls if call.operation == PURCHASE}
        assert callers <= {"BuyExtension"}

    def check_allowed(self, block, extension):
        offering = extension.offering
        entry = self.story.purchase(f"{offering.start:%Y-%m-%dT%H:%M:%SZ}", block)
        assert entry is not None
        assert entry["state"] != "REFUSED"
        assert entry["offering_id"] == offering.offering_id
        assert entry["upfront_fee"] == offering.fee
        policy = self.policy[entry["environment"]]
        assert policy["capacity_block_id"] == block
        assert Decimal(offering.fee) <= Decimal(policy["max_upfront_fee"])
        assert offering.hours == 24 * policy["extend_by_days"]
        assert extension.purchased < offering.start - timedelta(hours=3)
        if policy.get("extend_until"):
            assert offering.end <= END + timedelta(hours=36, minutes=30)
        if policy["require_approval"] is not False:
            approval = self.story.item("approval", entry["approval_id"])
            assert approval["status"] == "APPROVED"
            assert approval["used_for"] == f"{block}#{offering.start:%Y-%m-%dT%H:%M:%SZ}"
            assert Decimal(approval["ceiling"]) >= Decimal(offering.fee)
            assert sum(vote == "approve" for vote in approval["votes"].values()) >= approval["quorum"]
            assert entry["approval_id"] in self.said_yes

    def check_budget(self):
        reserved = Counter()
        for entry in self.story.items("purchase"):
            if entry["state"] != "REFUSED":
                for budget in entry["budgets"]:
                    reserved[budget] += Decimal(entry["upfront_fee"])
        for budget in self.story.items("budget"):
            limit = LIMIT - 6000 if budget["id"].endswith("#vision") else LIMIT
            assert Decimal(budget["reserved"]) / 1_000_000 == reserved[budget["id"]] <= limit

    def check_events(self):
        for event in self.world.events:
            if event["detail-type"] == "Extension Confirmed":
                detail = event["detail"]
                end = f"{self.story.end(detail['reservation_id']):%Y-%m-%dT%H:%M:%SZ}"
                assert end > detail["end_date"], event
                assert detail["end"] <= end, event
        for pk, policy in self.policy.items():
            record = self.story.record(pk)
            if record["status"] == "EXTENDED":
                assert record["end_time"] <= f"{self.story.end(policy['capacity_block_id']):%Y-%m-%dT%H:%M:%SZ}"

    def check_secrets(self):
        secrets = [*self.world.engine._calls, self.world.api_key()]
        secrets += [query["signature"] for _, query in self.story.links()]
        seen = self.world.logs.getvalue() + json.dumps(self.world.events)
        seen += "".join(each.input_text for each in self.world.engine.executions.values())
        assert not [secret for secret in secrets if secret in seen]


def walk(seed, steps=30):
    story = Walk(seed)
    story.walk(steps)
    return story


@pytest.mark.parametrize("seed", [304, 309, 310, 312, 301])
def test_what_always_holds_on_a_random_walk(seed):
    story = walk(seed)
    assert story.done.total() == 30
