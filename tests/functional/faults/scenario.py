"""One block near its end, told on the virtual clock while one thing goes wrong: the world, its people, and what became of it."""

import json
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from botocore.exceptions import ClientError
from workflows.conftest import WARM, Story

from local.engine.call_faults import Site
from local.engine.errors import ApiError
from local.engine.world import ACCOUNT, World

from .rules import People, broken_rules, groups_follow, told, vote_of

END = datetime(2026, 5, 4, 11, 30, tzinfo=UTC)
BEGIN = END - timedelta(hours=6)
DECIDE_BY = END - timedelta(hours=3)
LASTS = timedelta(minutes=80)
STEP = timedelta(minutes=10)
INTENT = Site("BuyExtension", "dynamodb", "TransactWriteItems", 1)
BLOCK, OTHER, PK, GROUP = "cr-0a1", "cr-0b2", "train", "train-nodes"


@dataclass(frozen=True)
class Course:
    """How it goes when nothing goes wrong: what the record says, and what the world does by itself."""

    name: str
    record: dict = field(default_factory=dict)
    price_moves: bool = False
    answer_lost: bool = False
    dies_after_intent: bool = False
    payment_fails: bool = False
    room_for_one_of_two: bool = False


COURSES = {
    course.name: course
    for course in (
        Course("policy"),
        Course("approved", {"require_approval": True}),
        Course("refused", price_moves=True),
        Course("lost", answer_lost=True),
        Course("resumed", dies_after_intent=True),
        Course("unpaid", payment_fails=True),
        Course("crowded", room_for_one_of_two=True),
    )
}


class Telling:
    """One run of a course; `trouble` is put in, and what lasts of it is over after `LASTS`."""

    def __init__(self, course, trouble=None, sandboxes=WARM):
        self._sandboxes = sandboxes
        self.course = course
        self.trouble = trouble
        self.people = People()
        self.limit = Decimal(6000 if course.room_for_one_of_two else 50000)
        self.struck_at = None
        self.tasks = {}
        """(state machine, state, lambda or states) of each task that ran, in order."""
        self._answered = set()
        self._started = self._due = 0
        self._wrong = []

    def run(self):
        """Everything from the first sweep to past the block's end; answers what was wrong, in words."""
        parameters = {"PurchaseMode": "live", "MonthlyLimit": str(self.limit), "SenderEmail": "blockkeeper@example.com"}
        parameters["ScheduleExpression"] = "rate(1 hour)"
        with World(BEGIN, parameters=parameters, sandboxes=self._sandboxes) as world:
            self.world = world
            self.story = Story(world)
            self._begin()
            world.engine.on_task.append(self._note)
            self._has_struck = (lambda: False) if self.trouble is None else self.trouble.put(self)
            world.start("DetectExpiry", {})
            while world.now() < END - timedelta(minutes=30) and not self._is_settled():
                world.run_for(STEP)
                self._a_person_looks()
                self._the_trouble_ends()
            undrained = groups_follow(self.story, GROUP, self.story.end(), at=world.now())
            world.start("DetectExpiry", {})
            world.run_for(STEP)
            return [*self._wrong, *filter(None, [undrained]), *self._what_was_wrong()]

    def _is_settled(self):
        """Extended, nothing on its way, and the fault over: the sweeps that follow find nothing to do, of which one is run."""
        over = self.trouble is None or (self.struck_at is not None and not self._lasts())
        running = any(each.status == "RUNNING" for each in self.world.engine.executions.values())
        return self.story.end() > END and over and not running and not self._due

    def _lasts(self):
        return self.trouble.lasting and self.world.now() < self.struck_at + LASTS

    def _begin(self):
        payment = {"minutes": 2, "end_moves_after_minutes": 0}
        if self.course.payment_fails:
            payment["outcome"] = "payment-failed"
        self.story.block(payment=payment)
        group = {"name": GROUP, "region": "us-east-1", "availability_zone": "us-east-1a", "reservation_id": BLOCK}
        self.world.market.load_fleet({"groups": [{**group, "min": 4, "max": 4, "desired": 4}]})
        record = {
            "capacity_block_id": BLOCK,
            "require_approval": False,
            "extend_by_days": 1,
            "max_upfront_fee": "12000",
            "extend_until": "2026-05-05T13:00:00Z",
            **self.course.record,
        }
        self.people.policies[PK] = record
        self.people.watch(self.story)
        if self.course.room_for_one_of_two:
            self.story.block(OTHER, payment=payment)
            self.people.policies["other"] = record | {"capacity_block_id": OTHER}
            self.story.enrol("other", **self.people.policies["other"])
        self.story.enrol(PK, groups=[{"auto_scaling_group": GROUP, "drain_minutes": 20}], **record)
        if self.course.price_moves:
            self.world.market.faults.add(kind="price_change", operation="PurchaseCapacityBlockExtension", percent="5")
        if self.course.answer_lost:
            self.world.market.faults.add(kind="lost_answer", operation="PurchaseCapacityBlockExtension")
            self.world.market.extensions.history_lags = timedelta(minutes=3)
        if self.course.dies_after_intent:
            self.world.call_faults.plan("crash_after", INTENT, "attempt")

    def _note(self, call):
        self.tasks[call.execution.machine.key, call.state, call.resource.split(":")[5]] = True

    def later(self, after, happens):
        """Something happens by itself after a while."""

        def due(_):
            self._due -= 1
            happens()

        self._due += 1
        self.world.engine.scheduler.timer(self.world.now() + after).then(due)

    # -- people

    def _a_person_looks(self):
        self._answer_what_was_asked()
        if self.course.payment_fails and self.world.now() == DECIDE_BY - timedelta(hours=1):
            self.start("by-hand-0")
        elif self.struck_at is not None and not self._lasts():
            self._do_what_operations_says()

    def _answer_what_was_asked(self):
        for index, (path, _) in enumerate(self.story.links()):
            approval_id = path.rpartition("/")[2]
            question = self.story.item("approval", approval_id)
            if approval_id in self._answered or question is None or question["status"] != "OPEN":
                continue
            self.story.answer("approve", index)
            if votes := vote_of(self.story, approval_id, question, self.world.now()):
                self._answered.add(approval_id)
                self.people.votes += votes

    def _do_what_operations_says(self):
        """docs/operations.md, "A failed extension" and "Outcome unknown"."""
        executions = self.world.executions("ExtendBlock")
        if self.world.now() > DECIDE_BY - STEP or any(each.status == "RUNNING" for each in executions):
            return
        failed = [each for each in executions if each.status != "SUCCEEDED"]
        entry = self.story.purchase()
        shown = self.story.bought()
        if not failed or self.story.end() != END:
            return
        if entry and entry["state"] in ("SENT", "UNKNOWN") and not shown:
            self.buy_by_hand()
        elif not shown or (entry and entry["state"] in ("SENT", "UNKNOWN", "BOUGHT")):
            self._started += 1
            self.start(f"by-hand-{self._started}")

    def start(self, suffix=None):
        """Somebody starts extend-block; without a suffix under the name that the sweep gives it."""
        name = f"{BLOCK}-20260504T1130Z" + (f"-{suffix}" if suffix else "")
        with suppress(ApiError):
            return self.story.extend(name, pk=PK)

    def edit(self, **change):
        """Somebody changes the record through the API; what was bought before is judged by what it said before."""
        self._wrong += self._rules()
        headers = {"x-api-key": self.world.api_key(), "content-type": "application/json"}
        answer = self.world.request("PUT", f"/{PK}", headers=headers, body=json.dumps(change))
        assert answer.status == 200, answer.body
        self.people.policies[PK] |= change

    def buy_by_hand(self):
        calls, bought = len(self.world.market.calls), list(self.story.bought())
        with suppress(ClientError):
            self.story.buy_by_hand()
        self.people.calls_by_hand += list(self.world.market.calls)[calls:]
        self.people.by_hand += [each for each in self.story.bought() if not any(each is known for known in bought)]

    # -- the trouble

    def _the_trouble_ends(self):
        if self.trouble is None:
            return
        if self.struck_at is None and self._has_struck():
            self.struck_at = self.world.now()
        if self.struck_at is not None and self.world.now() >= self.struck_at + LASTS:
            self.world.call_faults.planned.clear()
            self.world.engine.calm()

    # -- the outcome

    def _what_was_wrong(self):
        wrong = self._rules(final=True, tended=True)
        extended = self.story.end() > END
        fee = self.world.market.blocks.get(BLOCK, "us-east-1").fee(24)
        meant = not self.course.payment_fails and fee <= Decimal(self.people.policies[PK]["max_upfront_fee"])
        if self.course.room_for_one_of_two:
            meant = self.story.end(OTHER) == END
        group = self.world.market.groups.get(ACCOUNT, "us-east-1", GROUP)
        early = [action.starts for action in group.schedule.values() if action.starts < self.story.end() - STEP * 6]
        if extended and (group.size() != 4 or early):
            wrong.append(
                f"rule 5: the block is extended, and {GROUP} has {group.size()} of 4 instances, or drains {early}"
            )
        if not extended and not told(self.story):
            wrong.append("the block ended as it was, and nobody was told")
        if self.trouble is not None and self.struck_at is None:
            wrong.append("the fault never struck: the matrix has an empty scenario")
        if meant and not extended:
            wrong.append(f"liveness: the block was not extended: {self.story.record()}, {told(self.story)}")
        return wrong

    def _rules(self, **more):
        return broken_rules(self.story, self.people, limit=self.limit, **more)
