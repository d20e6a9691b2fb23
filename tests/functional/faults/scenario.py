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

from .rules import People, broken_rules, groups_follow, ours, told, vote_of
from .troubles import START, Task

END = datetime(2026, 5, 4, 11, 30, tzinfo=UTC)
BEGIN = END - timedelta(hours=6)
DECIDE_BY = END - timedelta(hours=3)
LASTS = timedelta(minutes=80)
STEP = timedelta(minutes=10)
INTENT = Site("BuyExtension", "dynamodb", "TransactWriteItems", 1)
BLOCK, OTHER, PK, GROUP = "cr-0a1", "cr-0b2", "train", "train-nodes"
NAME = f"{BLOCK}-20260504T1130Z"
# What EC2 sells in place of a block that it does not extend: 46.5 hours in another zone, an hour and a half after the end.
SUPPLY = {
    "region": "us-east-1",
    "availability_zone": "us-east-1b",
    "instance_type": "p5.48xlarge",
    "instance_count": 4,
    "start": "2026-05-04T13:00:00Z",
    "end": "2026-05-06T11:30:00Z",
    "hourly_rate": "41.528",
}
REPLACE_BY = datetime(2026, 5, 4, 10, 55, tzinfo=UTC)
"""The last moment to decide on that block: two hours and five minutes before it starts."""
SUBNETS = [
    {"subnet_id": f"subnet-{zone}", "vpc_id": "vpc-1", "region": "us-east-1", "availability_zone": f"us-east-1{zone}"}
    | {"tags": {"tier": "private"}}
    for zone in "ab"
]
NOT_EXTENDED = {
    "extend_by_days": 2,
    "extend_until": "2026-05-06T13:00:00Z",
    "replace": {"max_gap_hours": 24, "max_upfront_fee": "12000"},
}


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
    replaced: bool = False
    """EC2 offers no extension, and a new block."""
    groups: bool = True

    @property
    def order(self):
        return "PurchaseCapacityBlock" if self.replaced else "PurchaseCapacityBlockExtension"

    @property
    def machine(self):
        return "ReplaceBlock" if self.replaced else "ExtendBlock"


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
        Course("new", NOT_EXTENDED, replaced=True, groups=False),
        Course("new_approved", NOT_EXTENDED | {"require_approval": True}, replaced=True, groups=False),
        Course("new_refused", NOT_EXTENDED, replaced=True, groups=False, price_moves=True),
        Course("new_lost", NOT_EXTENDED, replaced=True, groups=False, answer_lost=True),
        Course("new_resumed", NOT_EXTENDED, replaced=True, groups=False, dies_after_intent=True),
        Course("new_unpaid", NOT_EXTENDED, replaced=True, groups=False, payment_fails=True),
        Course("new_pointed", NOT_EXTENDED, replaced=True),
    )
}


class Telling:
    """One run of a course; `trouble` strikes at its place, and what lasts of it is over after `LASTS`.

    `fork` is called with each place when the story gets there first, and answers the trouble that strikes there, if any.
    """

    def __init__(self, course, trouble=None, sandboxes=WARM, fork=lambda _: None):
        self._sandboxes, self._fork = sandboxes, fork
        self.course = course
        self.trouble = trouble
        self.people = People()
        self.limit = Decimal(6000 if course.room_for_one_of_two else 50000)
        self.struck_at = None
        self._has_struck = lambda: False
        self.places = {}
        """Where the story has been, in order: `Site`, `Task` or the start."""
        self._answered = set()
        self._started = self._due = 0
        self._wrong = []

    def run(self):
        """Everything from the first sweep to past the block's end; answers what was wrong, in words."""
        parameters = {"PurchaseMode": "live", "MonthlyLimit": str(self.limit), "SenderEmail": "blockkeeper@example.com"}
        parameters["ScheduleExpression"] = "rate(1 hour)"
        begin = DECIDE_BY - STEP if self.course.replaced else BEGIN
        with World(begin, parameters=parameters, sandboxes=self._sandboxes) as world:
            self.world = world
            self.story = Story(world)
            self._begin()
            self._reach(START)
            world.engine.on_task.append(
                lambda call: self._reach(
                    Task(call.execution.machine.key, call.state, call.resource.split(":")[5]), call
                )
            )
            world.on_call.append(lambda call: self._reach(call.site))
            world.start("DetectExpiry", {})
            undrained = None
            while world.now() < self._until() and not self._is_settled():
                world.run_for(STEP)
                self._a_person_looks()
                self._the_trouble_ends()
                if world.now() == END - timedelta(minutes=30):
                    undrained = groups_follow(self.story, GROUP, self.story.end(), at=world.now())
            world.start("DetectExpiry", {})
            world.run_for(STEP)
            return [*self._wrong, *filter(None, [undrained]), *self._what_was_wrong()]

    def _until(self):
        """EC2 begins to terminate; a new block is handed over then, and has started an hour and a half after the end."""
        return END + timedelta(hours=2) if self.course.replaced else END - timedelta(minutes=30)

    def _is_settled(self):
        """Extended or replaced, nothing on its way, and the fault over: the sweeps that follow find nothing to do; one is run."""
        over = self.trouble is None or (self.struck_at is not None and not self._lasts())
        running = any(each.status == "RUNNING" for each in self.world.engine.executions.values())
        if self.course.replaced and self.course.groups:
            # From there on it is scale-groups' work, for hours: it arranges what begins with the new block.
            running = Task("ReplaceBlock", "Scale the groups", "states") not in self.places
        reached = self.story.end() > END or bool(self._handed_over()) or (self.course.groups and bool(self._new()))
        return reached and over and not running and not self._due

    def _handed_over(self):
        """The runs of replace-block that came to their good end."""
        return [each for each in self.world.executions("ReplaceBlock") if each.status == "SUCCEEDED" and self._new()]

    def _new(self):
        """What EC2 sold in place of the block and was paid, or still may be."""
        return [each for each in ours(self.story, self.people) if each.new_start and not each.failed]

    def _lasts(self):
        return self.trouble.lasting and self.world.now() < self.struck_at + LASTS

    def _begin(self):
        payment = {"minutes": 2, "end_moves_after_minutes": 0}
        if self.course.payment_fails:
            payment["outcome"] = "payment-failed"
        self.story.block(payment=payment, offering={"available": not self.course.replaced})
        group = {"name": GROUP, "region": "us-east-1", "availability_zone": "us-east-1a", "reservation_id": BLOCK}
        size = 4 if self.course.groups else 0
        group |= {"min": size, "max": size, "desired": size}
        if self.course.replaced:
            group |= {"subnets": ["subnet-a"]}
            self.world.market.load_fleet({"offerings": [SUPPLY], "subnets": SUBNETS})
            if self.course.payment_fails:
                self.world.market.faults.add(kind="payment_failure", operation="PurchaseCapacityBlock")
        self.world.market.load_fleet({"groups": [group]})
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
        groups = [{"auto_scaling_group": GROUP, "drain_minutes": 20}] if self.course.groups else []
        self.story.enrol(PK, groups=groups, **record)
        if self.course.price_moves:
            self.world.market.faults.add(kind="price_change", operation=self.course.order, percent="5")
        if self.course.answer_lost:
            self.world.market.faults.add(kind="lost_answer", operation=self.course.order)
            self.world.market.extensions.history_lags = timedelta(minutes=3)
        if self.course.dies_after_intent:
            buyer = "BuyBlock" if self.course.replaced else "BuyExtension"
            self.world.call_faults.plan("crash_after", INTENT._replace(caller=buyer), "attempt")

    def _reach(self, place, call=None):
        """The story is at a place; the first time something may go wrong there."""
        if place in self.places or (isinstance(place, Site) and place.caller not in self.world.template.functions):
            return
        self.places[place] = True
        self.trouble = self._fork(place) or self.trouble
        if self.trouble is not None and self.trouble.place == place:
            self.struck_at = self.world.now()
            self._has_struck = self.trouble.strike(self, call)

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
        again = REPLACE_BY if self.course.replaced else DECIDE_BY - timedelta(hours=1)
        if self.course.payment_fails and again <= self.world.now() < again + STEP:
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
        """docs/operations.md, "A failed extension", "A failed replacement" and "Outcome unknown"."""
        executions = self.world.executions(self.course.machine)
        last = REPLACE_BY if self.course.replaced else DECIDE_BY
        late = self.world.now() > last - STEP and not self._new()
        if late or any(each.status == "RUNNING" for each in executions):
            return
        failed = [each for each in executions if each.status != "SUCCEEDED"]
        entry = self.entry()
        shown = self._new() if self.course.replaced else self.story.bought()
        if not failed or self.story.end() != END or self._handed_over():
            return
        if entry and entry["state"] in ("SENT", "UNKNOWN") and not shown and not self.course.replaced:
            self.buy_by_hand()
        elif not shown or self.course.replaced or (entry and entry["state"] in ("SENT", "UNKNOWN", "BOUGHT")):
            self._started += 1
            self.start(f"by-hand-{self._started}")

    def entry(self):
        return self.story.purchase(end="2026-05-04T11:30:00Z" + ("#block" if self.course.replaced else ""))

    def start(self, suffix=None):
        """Somebody starts the workflow that buys; without a suffix under the name that the sweep gives it."""
        name = NAME + ("-replace" if self.course.replaced else "") + (f"-{suffix}" if suffix else "")
        given = {"environment": PK, "reservation_id": BLOCK, "account": ACCOUNT, "region": "us-east-1"}
        with suppress(ApiError):
            return self.world.start(self.course.machine, given | {"end_date": "2026-05-04T11:30:00Z"}, name)

    def edit(self, **change):
        """Somebody changes the record through the API; what was bought before is judged by what it said before."""
        self._wrong += self._rules()
        headers = {"x-api-key": self.world.api_key(), "content-type": "application/json"}
        answer = self.world.request("PUT", f"/{PK}", headers=headers, body=json.dumps(change))
        assert answer.status == 200, answer.body
        self.people.policies[PK] |= change

    def buy_by_hand(self):
        calls, bought = len(self.world.market.calls), list(self.story.bought())
        offering = self.world.market.blocks.get(BLOCK, "us-east-1").offering
        available, offering.available = offering.available, True
        with suppress(ClientError):
            self.story.buy_by_hand()
        offering.available = available
        self.people.calls_by_hand += list(self.world.market.calls)[calls:]
        new = [each for each in self.story.bought() if not any(each is known for known in bought)]
        self.people.by_hand += new
        self.people.before_a_new_block += [] if self._new() else new

    # -- the trouble

    def _the_trouble_ends(self):
        if self.struck_at is not None and self.world.now() >= self.struck_at + LASTS:
            self.world.call_faults.planned.clear()
            self.world.engine.calm()

    # -- the outcome

    def _what_was_wrong(self):
        wrong = self._rules(final=True, tended=True)
        extended = self.story.end() > END
        if self.course.replaced and not extended:
            wrong += self._what_was_wrong_with_the_new_block()
        elif not extended and self._extension_is_meant() and not self._waits_for_a_person():
            wrong.append(f"liveness: the block was not extended: {self.story.record()}, {told(self.story)}")
        group = self.world.market.groups.get(ACCOUNT, "us-east-1", GROUP)
        early = [action.starts for action in group.schedule.values() if action.starts < self.story.end() - STEP * 6]
        if self.course.groups and extended and (group.size() != 4 or early):
            wrong.append(
                f"rule 5: the block is extended, and {GROUP} has {group.size()} of 4 instances, or drains {early}"
            )
        if not extended and not self._new() and not told(self.story):
            wrong.append("the block ended as it was, and nobody was told")
        if self.trouble is not None and not self._has_struck():
            wrong.append("the fault never struck: the matrix has an empty scenario")
        return wrong

    def _extension_is_meant(self):
        if self.course.room_for_one_of_two:
            return self.story.end(OTHER) == END
        fee = self.world.market.blocks.get(BLOCK, "us-east-1").fee(24)
        return not self.course.payment_fails and fee <= Decimal(self.people.policies[PK]["max_upfront_fee"])

    def _what_was_wrong_with_the_new_block(self):
        """Liveness: it is bought, enrolled, and its groups launch into it, or somebody was told that they do not."""
        if self.course.payment_fails:
            return
        new = self._new()
        if Decimal(self.people.policies[PK]["replace"]["max_upfront_fee"]) < 7000 and not new:
            return
        if not new and self._waits_for_a_person():
            return
        if not new:
            yield f"liveness: no new block was bought: {self.story.record()}, {told(self.story)}"
            return
        block = new[0].thing
        enrolled = [
            each for each in self.story.items("environment") if each["capacity_block_id"] == block.reservation_id
        ]
        if not enrolled:
            yield f"liveness: {block.reservation_id} is not enrolled: {self.story.record()}, {told(self.story)}"
        pointed = self.world.market.groups.get(ACCOUNT, "us-east-1", GROUP)
        if self.course.groups and pointed.zones != ["us-east-1b"] and not told(self.story):
            yield f"liveness: {GROUP} was not pointed at the new block, and nobody was told"

    def _waits_for_a_person(self):
        """An order was written down as sent and never reached EC2: a person must tell, with `blockkeeper resolve`, and was told."""
        unknown = [each for each in self.story.items("purchase") if each["state"] == "UNKNOWN"]
        alarmed = any("OutcomeUnknown" in each for each in told(self.story))
        shown = [each for entry in unknown for each in self.story.bought(entry["reservation_id"])]
        return bool(unknown) and alarmed and not shown and not self._new()

    def _rules(self, **more):
        return broken_rules(self.story, self.people, limit=self.limit, **more)
