"""Plan B: no extension is to be had, so a new block is found, bought once, enrolled, and its groups are handed over."""

from datetime import UTC, datetime, timedelta

import boto3
import pytest

from local.engine.world import ACCOUNT, World

from .conftest import WARM, Story, a_story

END = "2026-05-04T11:30:00Z"
KEY = f"cr-0a1#{END}#block"
NAME = "cr-0a1-20260504T1130Z-replace"
REPLACE = {"max_gap_hours": 24, "max_upfront_fee": "12000"}
# 46.5 hours of four p5.48xlarge; they start an hour and a half after the old block ends, in another zone.
SUPPLY = {
    "region": "us-east-1",
    "availability_zone": "us-east-1b",
    "instance_type": "p5.48xlarge",
    "instance_count": 4,
    "start": "2026-05-04T13:00:00Z",
    "end": "2026-05-06T11:30:00Z",
    "hourly_rate": "41.528",
}
PRIVATE = {"tier": "private"}
SUBNETS = [
    {"subnet_id": f"subnet-{zone}", "vpc_id": "vpc-1", "region": "us-east-1", "availability_zone": f"us-east-1{zone}"}
    | {"tags": PRIVATE | {"Name": f"private-{zone}"}}
    for zone in "ab"
]
GROUP = {
    "name": "train",
    "region": "us-east-1",
    "availability_zone": "us-east-1a",
    "reservation_id": "cr-0a1",
    "subnets": ["subnet-a"],
    "min": 0,
    "max": 4,
    "desired": 4,
}


def at(text):
    return datetime.fromisoformat(f"2026-05-{text}").replace(tzinfo=UTC)


class PlanB(Story):
    """A story whose block cannot be extended, while EC2 sells new ones."""

    def without_extension(self, *, supply=(SUPPLY,), group=True, **fields):
        self.block(offering={"available": False})
        fleet = {"offerings": [SUPPLY | each for each in supply]}
        if group:
            fleet |= {"subnets": SUBNETS, "groups": [GROUP]}
        self.world.market.load_fleet(fleet)
        groups = [{"auto_scaling_group": "train", "drain_minutes": 10}] if group else []
        policy = {"extend_by_days": 2, "extension_lookahead_days": 1, "replace": REPLACE, "groups": groups}
        self.enrol(**policy | fields)
        return self

    def replace(self, name=NAME, pk="train", **fields):
        block = {
            "environment": pk,
            "reservation_id": "cr-0a1",
            "account": ACCOUNT,
            "region": "us-east-1",
            "end_date": END,
        } | fields
        return self.world.start("ReplaceBlock", block, name)

    def queue(self, operation, seconds):
        """Others have so many seconds of turns before ours."""
        full_at = self.world.now() + timedelta(seconds=66.67 + seconds)
        item = {"id": f"{ACCOUNT}#us-east-1#{operation}", "full_at_ms": int(full_at.timestamp() * 1000)}
        self.put("rate", item)

    def purchases(self):
        """Live purchases of new blocks that reached EC2."""
        return [
            call
            for call in self.world.market.calls
            if call.operation == "PurchaseCapacityBlock" and not call.params.get("DryRun")
        ]

    def new_blocks(self):
        """Blocks that EC2 itself has sold, whatever became of their payment."""
        return [block for block in self.world.market.blocks.all() if "blockkeeper:purchase" in block.tags]

    def group(self, name="train"):
        found = boto3.client("autoscaling", region_name="us-east-1").describe_auto_scaling_groups(
            AutoScalingGroupNames=[name]
        )
        return found["AutoScalingGroups"][0]

    def running(self):
        """How many instances run, by reservation."""
        market = self.world.market
        counts = {block.reservation_id: len(market.instances.running_in(block)) for block in market.blocks.all()}
        return {reservation: count for reservation, count in counts.items() if count}

    def said(self, pk="train"):
        return (self.record(pk).get("replacement") or {}).get("outcome")

    def replacement_mails(self):
        return [mail.subject for mail in self.world.mails() if "new block" in mail.subject]


@pytest.fixture
def plan_b():
    with a_story() as world:
        yield PlanB(world)


@pytest.fixture
def swept():
    """Sweeps as deployed, from an hour and a half before the last moment to extend."""
    parameters = {"PurchaseMode": "live", "MonthlyLimit": "50000", "SenderEmail": "blockkeeper@example.com"}
    with World(at("04T07:00"), parameters=parameters, sandboxes=WARM) as world:
        yield PlanB(world)


@pytest.fixture
def rehearsed():
    with a_story(PurchaseMode="dry-run") as world:
        yield PlanB(world)


# ---------------------------------------------------------------- The whole way


def test_from_no_extension_to_the_nodes_of_the_new_block(swept):
    swept.without_extension()
    world = swept.world
    world.run_until(at("04T08:20"))
    assert swept.running() == {"cr-0a1": 4}
    assert not swept.purchases(), "an extension is wanted first, until the last moment"
    world.run_until(at("04T09:30"))
    (extension,) = world.executions("ExtendBlock")
    assert extension.output["outcome"] == "no_offering"
    (execution,) = world.executions("ReplaceBlock")
    assert execution.name == NAME
    assert len(swept.purchases()) == 1
    (new,) = swept.new_blocks()
    assert new.tags["blockkeeper:purchase"] == KEY
    entry = swept.item("purchase", KEY)
    assert (entry["state"], entry["new_start"], entry["availability_zone"]) == (
        "BOUGHT",
        "2026-05-04T13:00:00Z",
        "us-east-1b",
    )
    assert str(swept.reserved()) == entry["upfront_fee"] == "7724.21"
    record = swept.record("train-20260504")
    assert record["capacity_block_id"] == new.reservation_id
    assert (record["replaces"], record["max_upfront_fee"], record["replace"]) == ("cr-0a1", "12000", REPLACE)
    assert swept.record()["replacement"]["environment"] == "train-20260504"
    assert swept.group()["LaunchTemplate"]["Version"] == "1", "not while nodes run in the old block"

    world.run_until(at("04T10:59"))
    assert swept.running() == {}, "drained before EC2 terminates"
    world.run_until(at("04T11:10"))
    assert execution.status == "SUCCEEDED"
    assert execution.output["outcome"] == "replaced"
    group = swept.group()
    assert (group["LaunchTemplate"]["Version"], group["VPCZoneIdentifier"]) == ("2", "subnet-b")
    world.run_until(at("04T13:07"))
    assert swept.running() == {new.reservation_id: 4}
    assert swept.said() == "replaced"
    assert [subject.split(" ", 1)[1] for subject in swept.replacement_mails()] == [
        "gets a new block from Mon 4 May 2026, 13:00 UTC",
        f"the groups launch into the new block {new.reservation_id}",
    ]
    ends = swept.scheduled_actions("train")[f"blockkeeper-{new.reservation_id}-end"]
    assert ends == at("06T10:43"), "the new block has an end, too"
    assert len(swept.purchases()) == 1


def test_an_overlapping_block_waits_until_the_old_one_is_drained(swept):
    """The group launches into one block at a time, so it goes to zero in between, and never into the wrong one."""
    swept.without_extension(supply=({"start": "2026-05-04T11:00:00Z"},))
    world = swept.world
    world.run_until(at("04T10:45"))
    world.run_until(at("04T10:59"))
    assert swept.running() == {}
    world.run_until(at("04T11:25"))
    (new,) = swept.new_blocks()
    assert swept.running() == {new.reservation_id: 4}
    failed = [each for each in swept.world.market.groups.get(ACCOUNT, "us-east-1", "train").activities
              if each["StatusCode"] == "Failed"]  # fmt: skip
    assert not failed


def test_a_block_in_the_same_zone_changes_the_template_alone(plan_b):
    plan_b.without_extension(supply=({"availability_zone": "us-east-1a"},))
    execution = plan_b.replace()
    plan_b.world.run_until_idle()
    assert execution.output["outcome"] == "replaced"
    group = plan_b.group()
    assert (group["LaunchTemplate"]["Version"], group["VPCZoneIdentifier"]) == ("2", "subnet-a")


# ---------------------------------------------------------------- When it starts


@pytest.mark.parametrize("decision", ["reject", "approve"])
def test_a_rejected_extension_is_not_replaced(swept, decision):
    swept.without_extension(require_approval=True)
    swept.world.market.blocks.get("cr-0a1", "us-east-1").offering.available = True
    swept.world.run_until(at("04T07:30"))
    swept.answer(decision)
    swept.world.run_until(at("04T12:00"))
    assert swept.world.executions("ReplaceBlock") == []
    assert swept.world.executions("ExtendBlock")[0].output["outcome"] == (
        "rejected" if decision == "reject" else "confirmed"
    )


def test_an_extension_that_nobody_answered_is_replaced_with_a_question_of_its_own(swept):
    swept.without_extension(require_approval=True)
    swept.world.market.blocks.get("cr-0a1", "us-east-1").offering.available = True
    swept.world.run_until(at("04T08:45"))
    assert swept.world.executions("ExtendBlock")[0].output["outcome"] == "expired"
    assert swept.said() == "offered"
    swept.answer("approve")
    swept.world.run_until(at("04T14:00"))
    assert swept.said() == "replaced"
    assert len(swept.purchases()) == 1


def test_a_record_without_replace_never_gets_one(swept):
    swept.without_extension()
    swept.put("environment", {k: v for k, v in swept.record().items() if k not in {"kind", "replace"}})
    swept.world.run_until(at("04T12:00"))
    assert swept.world.executions("ReplaceBlock") == []
    assert [mail.subject for mail in swept.world.mails()] != []


def test_the_sweep_starts_what_extend_block_could_not(swept):
    """Enrolled when it is too late to extend: extend-block never runs, plan B does."""
    swept.block(offering={"available": False})
    swept.world.market.load_fleet({"offerings": [SUPPLY], "subnets": SUBNETS, "groups": [GROUP]})
    swept.world.run_until(at("04T09:00"))
    swept.enrol(replace=REPLACE, groups=[{"auto_scaling_group": "train"}], extend_by_days=2, extension_lookahead_days=1)
    swept.world.run_until(at("04T14:00"))
    assert swept.world.executions("ExtendBlock") == []
    assert [execution.output["outcome"] for execution in swept.world.executions("ReplaceBlock")] == ["replaced"]
    assert len(swept.purchases()) == 1


def test_extend_block_ends_as_ever_when_plan_b_runs_already(plan_b):
    plan_b.without_extension(supply=())
    plan_b.replace()
    extension = plan_b.extend()
    plan_b.world.run_until(at("04T09:00"))
    assert extension.output["outcome"] == "no_offering"
    assert len(plan_b.world.executions("ReplaceBlock")) == 1


def test_plan_b_that_could_not_be_started_fails_the_sweep_and_is_started_by_the_next(swept):
    """Step Functions refuses extend-block's start, then all four of the first sweep that sees to it."""
    for nth in range(1, 6):
        swept.world.engine.crash("Replace the block", nth, when="before", error="StepFunctions.SfnException")
    swept.without_extension()
    swept.world.run_until(at("04T14:00"))
    assert swept.world.executions("ExtendBlock")[0].output["outcome"] == "no_offering"
    assert [each.error for each in swept.world.executions("DetectExpiry") if each.status == "FAILED"] == [
        "TargetsNotSwept"
    ]
    assert swept.said() == "replaced"
    assert len(swept.purchases()) == 1


def test_case_b25_plan_b_that_is_there_already_is_done_for_the_sweep(swept):
    """Extend-block's own start fails; the sweep then meets the name in use, and its next one starts what is not there."""
    swept.world.engine.crash("Replace the block", when="before", error="StepFunctions.SfnException")
    in_use = "StepFunctions.ExecutionAlreadyExistsException"
    swept.world.engine.crash("Replace the block", 2, when="before", error=in_use)
    swept.without_extension()
    swept.world.run_until(at("04T14:00"))
    assert {each.status for each in swept.world.executions("DetectExpiry")} == {"SUCCEEDED"}
    assert len(swept.world.executions("ReplaceBlock")) == 1
    assert swept.said() == "replaced"


def test_case_b25_plan_b_that_somebody_stopped_is_not_started_again(swept):
    swept.without_extension(supply=())
    swept.world.run_until(at("04T09:00"))
    (execution,) = swept.world.executions("ReplaceBlock")
    swept.world.engine.stop(execution)
    swept.world.run_until(at("04T10:00"))
    assert swept.world.executions("ReplaceBlock") == [execution]
    assert {each.status for each in swept.world.executions("DetectExpiry")} == {"SUCCEEDED"}


# ---------------------------------------------------------------- Asking


def test_a_yes_buys_what_was_asked(plan_b):
    plan_b.without_extension(require_approval=True)
    execution = plan_b.replace()
    plan_b.world.run_for(timedelta(minutes=1))
    assert plan_b.said() == "offered"
    (approval,) = plan_b.items("approval")
    assert (approval["what"], approval["new_start"], approval["decide_by"]) == (
        "block",
        "2026-05-04T13:00:00Z",
        "2026-05-04T10:55:00Z",
    )
    plan_b.answer("approve")
    plan_b.world.run_until_idle()
    assert execution.output["outcome"] == "replaced"
    assert plan_b.item("approval", approval["id"])["used_for"] == KEY


@pytest.mark.parametrize("later", [False, True])
def test_a_yes_too_late_to_be_acted_on_is_no_rules_no_and_the_search_goes_on(plan_b, later):
    """Others buy in these seconds, so the buyer comes to it after the block's last moment; another block may be in time."""
    plan_b.without_extension(require_approval=True)
    execution = plan_b.replace()
    plan_b.world.run_until(at("04T10:54:40"))
    plan_b.queue("PurchaseCapacityBlock", 80)
    plan_b.answer("approve")
    plan_b.world.run_until(at("04T10:57"))
    late = "too late: the last moment to decide on the block of 2026-05-04T13:00:00Z was 2026-05-04T10:55:00Z"
    assert (plan_b.said(), plan_b.record()["replacement"]["reason"]) == ("too_late", late)
    assert plan_b.purchases() == []
    if later:
        plan_b.world.market.load_fleet(
            {"offerings": [SUPPLY | {"start": "2026-05-04T18:00:00Z", "end": "2026-05-06T18:00:00Z"}]}
        )
        plan_b.world.run_until(at("04T13:00"))
        assert plan_b.said() == "offered", "another block is another question"
        plan_b.answer("approve")
    plan_b.world.run_until_idle()
    assert execution.output["outcome"] == ("replaced" if later else "no_offering")
    assert len(plan_b.purchases()) == (1 if later else 0)


def test_a_no_buys_nothing(plan_b):
    plan_b.without_extension(require_approval=True)
    execution = plan_b.replace()
    plan_b.world.run_for(timedelta(minutes=1))
    plan_b.answer("reject", reason="no money")
    plan_b.world.run_until_idle()
    assert (execution.output["outcome"], plan_b.purchases()) == ("rejected", [])
    assert plan_b.replacement_mails() == ["train gets no new block; it ends on Mon 4 May 2026, 11:30 UTC"]


def test_who_starts_it_by_hand_cannot_approve_it_alone_case_b21(plan_b):
    plan_b.without_extension(require_approval=True, approvers=["ann@example.com", "jo@example.com"])
    execution = plan_b.replace(f"{NAME}-by-hand-20260501T0800Z", requested_by="ann@example.com")
    plan_b.world.run_for(timedelta(minutes=1))
    (approval,) = plan_b.items("approval")
    assert approval["id"].endswith("-by-hand-20260501T0800Z"), "a question of its own"
    assert "another approver must say yes" in plan_b.answer("approve", link=0).body
    assert plan_b.purchases() == []
    plan_b.answer("approve", link=1)
    plan_b.world.run_until_idle()
    assert execution.output["outcome"] == "replaced"


def test_no_answer_is_a_no(plan_b):
    plan_b.without_extension(require_approval=True)
    execution = plan_b.replace()
    plan_b.world.run_until_idle()
    assert (execution.output["outcome"], plan_b.purchases()) == ("expired", [])


def test_a_dearer_block_is_asked_again_case_b11(plan_b):
    plan_b.without_extension(require_approval=True)
    execution = plan_b.replace()
    plan_b.world.run_for(timedelta(minutes=1))
    plan_b.world.market.faults.add(kind="price_change", operation="DescribeCapacityBlockOfferings", percent="10")
    plan_b.answer("approve")
    plan_b.world.run_for(timedelta(minutes=1))
    assert plan_b.purchases() == []
    assert len(plan_b.items("approval")) == 2
    plan_b.answer("approve")
    plan_b.world.run_until_idle()
    assert execution.output["outcome"] == "replaced"
    assert plan_b.item("purchase", KEY)["upfront_fee"] == "8496.63"


def test_a_better_block_does_not_take_the_place_of_the_approved_one(plan_b):
    plan_b.without_extension(require_approval=True)
    execution = plan_b.replace()
    plan_b.world.run_for(timedelta(minutes=1))
    plan_b.world.market.load_fleet({"offerings": [SUPPLY | {"availability_zone": "us-east-1a"}]})
    plan_b.answer("approve")
    plan_b.world.run_until_idle()
    assert execution.output["outcome"] == "replaced"
    assert [block.availability_zone for block in plan_b.new_blocks()] == ["us-east-1b"]


def test_a_price_that_moves_between_the_look_and_the_order_buys_nothing_then(plan_b):
    plan_b.without_extension()
    plan_b.world.market.faults.add(kind="price_change", operation="PurchaseCapacityBlock", percent="10")
    execution = plan_b.replace()
    plan_b.world.run_for(timedelta(minutes=1))
    assert plan_b.item("purchase", KEY)["state"] == "REFUSED"
    assert plan_b.reserved() == 0
    plan_b.world.run_until_idle()
    assert execution.output["outcome"] == "replaced"
    assert (len(plan_b.purchases()), len(plan_b.new_blocks())) == (2, 1)


def test_nobody_to_ask_is_told_once(plan_b):
    plan_b.without_extension(require_approval=True, approvers=["U024BE7LH"])
    plan_b.replace()
    plan_b.world.run_until(at("04T10:00"))
    assert plan_b.purchases() == []
    assert "nobody could be asked" in plan_b.record()["replacement"]["told"]
    assert plan_b.told().count(("Replacement Failed", "failed")) == 1


def test_extended_by_hand_while_people_are_asked_case_b20(plan_b):
    plan_b.without_extension(require_approval=True)
    execution = plan_b.replace()
    plan_b.world.run_for(timedelta(minutes=1))
    plan_b.world.market.blocks.get("cr-0a1", "us-east-1").offering.available = True
    plan_b.buy_by_hand()
    plan_b.world.run_for(timedelta(hours=1))
    plan_b.world.start("DetectExpiry", {})
    plan_b.world.run_for(timedelta(hours=1))
    assert execution.output["outcome"] == "superseded"
    assert plan_b.purchases() == []
    assert plan_b.replacement_mails() == [], "who extended it knows"


# ---------------------------------------------------------------- Bought once


@pytest.mark.parametrize("kind", ["timeout_after", "lost_answer", "error_after"])
def test_case_b17_a_lost_answer_is_looked_up_by_its_tag_never_sent_again(plan_b, kind):
    plan_b.world.market.faults.add(kind=kind, operation="PurchaseCapacityBlock")
    plan_b.without_extension()
    execution = plan_b.replace()
    plan_b.world.run_until_idle()
    assert execution.output["outcome"] == "replaced"
    assert len(plan_b.purchases()) == len(plan_b.new_blocks()) == 1
    assert plan_b.item("purchase", KEY)["state"] == "BOUGHT"


def test_case_b17_an_error_without_effect_stays_unknown_and_calls_a_person(plan_b):
    plan_b.world.market.faults.add(kind="error_before", operation="PurchaseCapacityBlock")
    plan_b.without_extension()
    execution = plan_b.replace()
    plan_b.world.run_until_idle()
    assert (execution.error, plan_b.said()) == ("OutcomeUnknown", "unknown")
    assert (len(plan_b.purchases()), plan_b.new_blocks()) == (1, [])
    assert plan_b.item("purchase", KEY)["state"] == "UNKNOWN"
    assert plan_b.item("unresolved", "cr-0a1")["ledger_id"] == KEY, "nothing else is bought for the block"
    again = plan_b.replace(f"{NAME}-by-hand")
    plan_b.world.run_until_idle()
    assert (again.error, len(plan_b.purchases())) == ("OutcomeUnknown", 1)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("function", ["SearchBlocks", "BuyBlock", "CheckBlock", "EnrolBlock", "PointGroups"])
def test_case_b26_a_function_that_dies_is_run_again_and_nothing_happens_twice(plan_b, function, when):
    plan_b.world.engine.crash(function, when=when, error="Sandbox.Timedout")
    plan_b.without_extension()
    execution = plan_b.replace()
    plan_b.world.run_until_idle()
    assert execution.output["outcome"] == "replaced"
    assert len(plan_b.purchases()) == len(plan_b.new_blocks()) == 1
    assert len(plan_b.items("environment")) == 2
    assert plan_b.group()["LaunchTemplate"]["Version"] == "2"


def test_two_runs_at_once_buy_once(plan_b):
    plan_b.without_extension(supply=({"instance_count": 8},))
    executions = [plan_b.replace(), plan_b.replace(f"{NAME}-by-hand")]
    plan_b.world.run_until_idle()
    assert len(plan_b.purchases()) == len(plan_b.new_blocks()) == 1
    assert "replaced" in [(execution.output or {}).get("outcome") for execution in executions]
    assert len(plan_b.items("environment")) == 2


def test_a_redriven_execution_buys_once(plan_b):
    plan_b.world.engine.crash("Scale the groups", when="before", error="States.TaskFailed")
    plan_b.without_extension()
    execution = plan_b.replace()
    plan_b.world.run_until_idle()
    assert (execution.error, plan_b.said()) == ("GroupsNotPointed", "groups_not_pointed")
    plan_b.world.engine.redrive(execution)
    plan_b.world.run_until_idle()
    assert len(plan_b.purchases()) == len(plan_b.new_blocks()) == 1


@pytest.mark.parametrize(
    ("after", "state"), [(timedelta(minutes=1), "Wait for the payment"), (timedelta(hours=1), "Wait for the handover")]
)
def test_what_a_stopped_one_has_bought_is_gone_on_with_by_hand(plan_b, after, state):
    """As `blockkeeper replace` starts it: under another name, since the first is used up."""
    plan_b.without_extension(require_approval=True)
    stopped = plan_b.replace()
    plan_b.world.run_for(timedelta(minutes=1))
    plan_b.answer("approve")
    plan_b.world.run_for(after)
    assert stopped.path[-1] == state
    plan_b.world.engine.stop(stopped)
    again = plan_b.replace(f"{NAME}-by-hand-20260501T1000Z", requested_by="jo@example.com")
    plan_b.world.run_until_idle()
    assert again.output["outcome"] == "replaced"
    assert len(plan_b.purchases()) == len(plan_b.new_blocks()) == len(plan_b.items("approval")) == 1
    assert len(plan_b.items("environment")) == 2
    assert plan_b.group()["LaunchTemplate"]["Version"] == "2"


@pytest.mark.parametrize("state", ["Wait for the payment", "Wait for the handover"])
def test_what_a_stopped_one_has_bought_is_gone_on_with_by_a_sweep_in_time_for_its_start(swept, state):
    swept.without_extension()
    execution = {}

    def reached():
        execution["first"] = next(iter(swept.world.executions("ReplaceBlock")), None)
        return execution["first"] is not None and execution["first"].path[-1] == state

    while not reached():
        swept.world.run_for(timedelta(minutes=1))
        assert swept.world.now() < at("04T11:00")
    swept.world.engine.stop(execution["first"])
    swept.world.run_until(at("04T13:15"))
    first, again = sorted(swept.world.executions("ReplaceBlock"), key=lambda each: len(each.name))
    assert (first.status, again.name, again.output["outcome"]) == ("ABORTED", f"{NAME}-found", "replaced")
    assert (len(swept.purchases()), len(swept.items("environment"))) == (1, 2)
    assert swept.group()["LaunchTemplate"]["Version"] == "2"
    (new,) = swept.new_blocks()
    swept.world.run_until(at("04T13:30"))
    assert swept.running() == {new.reservation_id: 4}


def test_what_a_stopped_one_has_bought_is_gone_on_with_when_ec2_has_forgotten_the_old_block(plan_b):
    plan_b.world.market.blocks.forgotten_after = timedelta(hours=1)
    plan_b.without_extension()
    stopped = plan_b.replace()
    plan_b.world.run_for(timedelta(minutes=1))
    plan_b.world.engine.stop(stopped)
    plan_b.world.run_until(at("04T14:00"))
    again = plan_b.replace(f"{NAME}-by-hand-20260504T1400Z")
    plan_b.world.run_until(at("04T15:00"))
    assert again.output["outcome"] == "replaced"
    assert len(plan_b.purchases()) == len(plan_b.new_blocks()) == 1
    assert plan_b.group()["LaunchTemplate"]["Version"] == "2"


def test_nothing_is_bought_in_place_of_a_block_that_ec2_has_forgotten(plan_b):
    plan_b.world.market.blocks.forgotten_after = timedelta(0)
    plan_b.without_extension(supply=())
    execution = plan_b.replace()
    plan_b.world.run_until(at("04T12:00"))
    plan_b.world.market.load_fleet({"offerings": [SUPPLY | {"start": "2026-05-04T20:00:00Z"}]})
    plan_b.world.run_until_idle()
    assert (execution.error, plan_b.purchases()) == ("ReplacementFailed", [])
    assert "BlockNotFoundError" in plan_b.record()["replacement"]["reason"]


def test_an_order_of_unknown_outcome_for_the_extension_blocks_the_block(plan_b):
    plan_b.without_extension()
    plan_b.put("unresolved", {"id": "cr-0a1", "ledger_id": f"cr-0a1#{END}"})
    execution = plan_b.replace()
    plan_b.world.run_until_idle()
    assert (execution.output["outcome"], plan_b.purchases()) == ("too_late", [])


def test_two_blocks_that_together_exceed_the_limit_only_one_is_bought():
    with a_story(MonthlyLimit="10000") as world:
        story = PlanB(world).without_extension(supply=({}, {"availability_zone": "us-east-1c"}), group=False)
        story.block("cr-0b2", offering={"available": False})
        story.enrol("other", capacity_block_id="cr-0b2", replace=REPLACE, extend_by_days=2)
        other = {"environment": "other", "reservation_id": "cr-0b2", "account": ACCOUNT, "region": "us-east-1"}
        executions = [
            story.replace(),
            world.start("ReplaceBlock", other | {"end_date": END}, "cr-0b2-20260504T1130Z-replace"),
        ]
        world.run_until_idle()
        assert len(story.purchases()) == len(story.new_blocks()) == 1
        assert sorted(str(execution.error) for execution in executions) == ["None", "OverBudget"]
        assert str(story.reserved()) == "7724.21"


def test_case_b47_a_rehearsal_goes_all_the_way_and_buys_nothing(rehearsed):
    rehearsed.without_extension()
    execution = rehearsed.replace()
    rehearsed.world.run_until_idle()
    assert execution.output["outcome"] == "dry_run"
    assert (rehearsed.purchases(), rehearsed.new_blocks(), rehearsed.item("purchase", KEY)) == ([], [], None)
    asked = [call for call in rehearsed.world.market.calls if call.operation == "PurchaseCapacityBlock"]
    assert [call.error for call in asked] == ["DryRunOperation"]


def test_a_purchase_waits_for_its_turn(plan_b):
    plan_b.without_extension()
    plan_b.queue("DescribeCapacityBlockOfferings", 100)
    plan_b.queue("PurchaseCapacityBlock", 300)
    execution = plan_b.replace()
    plan_b.world.run_until_idle()
    assert execution.output["outcome"] == "replaced"
    assert execution.path.count("Wait for a turn to buy") == 1


@pytest.mark.parametrize("operation", ["DescribeCapacityBlockOfferings", "PurchaseCapacityBlock"])
def test_a_queue_too_long_to_stand_in_is_asked_again_for_a_turn_of_ones_own(plan_b, operation):
    plan_b.without_extension()
    plan_b.queue(operation, 700)
    began = plan_b.world.now()
    execution = plan_b.replace()
    plan_b.world.run_until_idle()
    assert execution.output["outcome"] == "replaced"
    (call,) = [call for call in plan_b.world.market.calls if call.operation == operation]
    assert call.at >= began + timedelta(seconds=700)


# ---------------------------------------------------------------- Payment


def test_case_b03_a_payment_that_fails_enrols_nothing(plan_b):
    plan_b.world.market.faults.add(kind="payment_failure", operation="PurchaseCapacityBlock")
    plan_b.without_extension()
    execution = plan_b.replace()
    plan_b.world.run_until_idle()
    assert (execution.error, plan_b.said()) == ("PaymentFailed", "payment_failed")
    assert [record["id"] for record in plan_b.items("environment")] == ["train"]
    assert plan_b.reserved() == 0, "what was not paid does not count in the month"
    again = plan_b.replace(f"{NAME}-by-hand")
    plan_b.world.run_until_idle()
    assert (again.error, len(plan_b.purchases())) == ("PaymentFailed", 1), "one purchase for a block and an end"


def test_a_payment_that_cannot_be_read_is_read_again(plan_b):
    plan_b.without_extension()
    for nth in range(1, 7):
        plan_b.world.engine.crash("CheckBlock", nth, when="before")
    execution = plan_b.replace()
    plan_b.world.run_until_idle()
    assert execution.output["outcome"] == "replaced"


def test_an_order_that_ec2_never_shows_calls_a_person(plan_b):
    plan_b.without_extension()
    execution = plan_b.replace()
    plan_b.world.run_for(timedelta(minutes=1))
    (new,) = plan_b.new_blocks()
    new.tags.clear()
    plan_b.world.run_until_idle()
    assert (execution.error, plan_b.said()) == ("OutcomeUnknown", "unknown")


# ---------------------------------------------------------------- Enrolling and handing over


def test_a_policy_that_is_gone_leaves_the_block_to_a_person(plan_b):
    plan_b.without_extension()
    execution = plan_b.replace()
    plan_b.world.run_for(timedelta(minutes=1))
    boto3.client("dynamodb", region_name="us-east-1").delete_item(
        TableName=plan_b._table, Key={"kind": {"S": "environment"}, "id": {"S": "train"}}
    )
    plan_b.world.run_until_idle()
    assert execution.error == "BlockNotEnrolled"
    assert ("Replacement Failed", "not_enrolled") in plan_b.told()


def test_a_name_that_is_taken_gets_the_reservation_behind_it(plan_b):
    plan_b.without_extension()
    plan_b.enrol("train-20260504", capacity_block_id="cr-0c3")
    plan_b.replace()
    plan_b.world.run_until_idle()
    (new,) = plan_b.new_blocks()
    assert plan_b.record(f"train-{new.reservation_id}")["capacity_block_id"] == new.reservation_id
    assert plan_b.record("train-20260504")["capacity_block_id"] == "cr-0c3"


@pytest.mark.parametrize(
    ("subnets", "text"),
    [
        ([SUBNETS[0]], "it is not clear which subnet of us-east-1b it belongs into (name it in replace.subnets)"),
        ([SUBNETS[0], SUBNETS[1] | {"tags": {"tier": "public"}}], "it is not clear which subnet"),
    ],
)
def test_a_group_whose_subnet_is_not_clear_is_left_to_a_person(plan_b, subnets, text):
    plan_b.without_extension(group=False, groups=[{"auto_scaling_group": "train"}, {"auto_scaling_group": "gone"}])
    plan_b.world.market.load_fleet({"subnets": subnets, "groups": [GROUP]})
    execution = plan_b.replace()
    plan_b.world.run_until_idle()
    (new,) = plan_b.new_blocks()
    assert execution.error == "GroupsNotPointed"
    assert text in execution.cause
    assert f"CapacityReservationTarget {new.reservation_id}, and a subnet in us-east-1b" in execution.cause
    assert "gone: there is no such Auto Scaling group" in execution.cause
    assert plan_b.group()["LaunchTemplate"]["Version"] == "1", "nothing is changed"
    assert plan_b.replacement_mails()[-1] == f"train: the new block {new.reservation_id} needs you"


def test_subnets_that_the_policy_names_are_used(plan_b):
    plan_b.without_extension(
        group=False, replace=REPLACE | {"subnets": ["subnet-b"]}, groups=[{"auto_scaling_group": "train"}]
    )
    other = SUBNETS[1] | {"tags": {"tier": "public"}}
    plan_b.world.market.load_fleet({"subnets": [SUBNETS[0], other], "groups": [GROUP]})
    execution = plan_b.replace()
    plan_b.world.run_until_idle()
    assert execution.output["outcome"] == "replaced"
    assert plan_b.group()["VPCZoneIdentifier"] == "subnet-b"


def test_a_block_that_was_extended_after_all_keeps_its_groups(plan_b):
    plan_b.without_extension()
    execution = plan_b.replace()
    plan_b.world.run_for(timedelta(hours=1))
    plan_b.world.market.blocks.get("cr-0a1", "us-east-1").offering.available = True
    plan_b.buy_by_hand()
    plan_b.world.run_until_idle()
    assert (execution.error, plan_b.said()) == ("GroupsNotPointed", "groups_not_pointed")
    assert "was extended until 2026-05-05T11:30:00Z after all" in execution.cause
    assert plan_b.group()["LaunchTemplate"]["Version"] == "1"


def test_groups_that_cannot_be_changed_are_tried_again_and_then_told(plan_b):
    plan_b.world.market.faults.add(kind="throttle", operation="UpdateAutoScalingGroup", times=3)
    plan_b.without_extension()
    execution = plan_b.replace()
    plan_b.world.run_until_idle()
    assert execution.output["outcome"] == "replaced"


def test_groups_that_are_always_busy_are_left_to_a_person(plan_b):
    for nth in range(1, 7):
        plan_b.world.engine.crash("PointGroups", nth, when="before")
    plan_b.without_extension()
    execution = plan_b.replace()
    plan_b.world.run_until_idle()
    assert execution.error == "GroupsNotPointed"


# ---------------------------------------------------------------- Nothing is bought


def test_no_block_is_searched_for_until_the_last_moment(plan_b):
    plan_b.without_extension(supply=())
    execution = plan_b.replace()
    plan_b.world.run_until_idle()
    assert execution.output["outcome"] == "no_offering"
    assert at("05T09:00") <= plan_b.world.now() < at("05T12:00"), "the end, and the longest gap after it"
    assert plan_b.told().count(("Replacement Failed", "no_offering")) == 1


def test_when_nothing_is_to_be_had_everybody_is_told_and_the_groups_drain_in_good_time(swept):
    """Both approvers hear of each thing once; nothing runs any more when EC2 would terminate it at 11:00."""
    swept.without_extension(supply=(), approvers=["ann@example.com", "jo@example.com"])
    swept.world.run_until(at("04T10:42:59"))
    assert swept.running() == {"cr-0a1": 4}
    swept.world.run_until(at("04T10:59"))
    assert swept.running() == {}
    heard = {who: [mail.subject for mail in swept.world.mails() if who in str(vars(mail))] for who in ("ann@", "jo@")}
    assert heard["ann@"] == heard["jo@"]
    assert heard["ann@"] == [
        "train is not extended and ends on Mon 4 May 2026, 11:30 UTC",
        "train ends on Mon 4 May 2026, 11:30 UTC; it is too late to extend",
        "train gets no new block; it ends on Mon 4 May 2026, 11:30 UTC",
    ]
    assert swept.purchases() == []


def test_a_block_that_comes_later_is_bought(plan_b):
    plan_b.world.market.faults.add(kind="empty_offerings", operation="DescribeCapacityBlockOfferings", times=3)
    plan_b.without_extension()
    execution = plan_b.replace()
    plan_b.world.run_until_idle()
    assert execution.output["outcome"] == "replaced"


def test_a_shorter_length_of_the_policy_is_bought_when_the_wanted_one_is_not_offered(plan_b):
    plan_b.without_extension(extend_by_days=7, fallback_days=[5, 2])
    execution = plan_b.replace()
    plan_b.world.run_until_idle()
    assert execution.output["outcome"] == "replaced"


def test_too_dear_is_never_bought(plan_b):
    plan_b.without_extension(supply=({"fee": "12000.01"},))
    execution = plan_b.replace()
    plan_b.world.run_until_idle()
    assert (execution.output["outcome"], plan_b.purchases()) == ("too_dear", [])


def test_an_unreadable_fee_is_never_bought(plan_b, monkeypatch):
    monkeypatch.setattr("local.market.rules.fee_text", lambda _fee: "1,000")
    plan_b.without_extension()
    execution = plan_b.replace()
    plan_b.world.run_until_idle()
    assert (execution.error, plan_b.purchases()) == ("OfferingNotReadable", [])


def test_a_purchase_that_is_always_refused_ends_in_failure(plan_b):
    plan_b.world.market.faults.add(kind="denied", operation="PurchaseCapacityBlock", times=None)
    plan_b.without_extension()
    execution = plan_b.replace()
    plan_b.world.run_until_idle()
    assert (execution.error, plan_b.said()) == ("PurchaseRefused", "refused")
    assert (plan_b.reserved(), plan_b.new_blocks()) == (0, [])


@pytest.mark.parametrize(
    ("fields", "end"),
    [
        ({"replace": None}, "PurchaseNotAllowed"),
        ({"require_approval": True, "approvers": []}, "PurchaseNotAllowed"),
        ({"capacity_block_id": "cr-0b2"}, "not_extendable"),
    ],
)
def test_a_policy_that_does_not_allow_it_buys_nothing(plan_b, fields, end):
    plan_b.without_extension(**fields)
    execution = plan_b.replace()
    plan_b.world.run_until_idle()
    assert end in (execution.error, (execution.output or {}).get("outcome"))
    assert plan_b.purchases() == []


def test_a_policy_that_changes_between_the_look_and_the_order_counts(plan_b):
    plan_b.without_extension()
    plan_b.queue("PurchaseCapacityBlock", 100)
    execution = plan_b.replace()
    plan_b.world.run_for(timedelta(seconds=50))
    plan_b.enrol(replace=REPLACE | {"max_upfront_fee": "100"})
    plan_b.world.run_until_idle()
    assert plan_b.purchases() == []
    assert execution.path[-1] in ("Block too dear", "No block offered")


def test_a_record_that_is_gone_buys_nothing(plan_b):
    plan_b.block(offering={"available": False})
    execution = plan_b.replace()
    plan_b.world.run_until_idle()
    assert execution.output["outcome"] == "not_extendable"


def test_when_it_is_too_late_nothing_is_bought(plan_b):
    plan_b.without_extension(replace=REPLACE | {"max_gap_hours": 0})
    plan_b.world.run_until(at("04T09:30"))
    execution = plan_b.replace()
    plan_b.world.run_until_idle()
    assert (execution.output["outcome"], plan_b.purchases()) == ("too_late", [])


def test_an_extension_that_waits_for_its_payment_is_waited_for(plan_b):
    plan_b.without_extension()
    plan_b.world.market.blocks.get("cr-0a1", "us-east-1").offering.available = True
    plan_b.buy_by_hand()
    execution = plan_b.replace()
    plan_b.world.run_until_idle()
    assert "Wait and look again" in execution.path
    assert (execution.output["outcome"], plan_b.purchases()) == ("superseded", [])


def test_a_malformed_input_is_refused_at_once(plan_b):
    execution = plan_b.world.start("ReplaceBlock", {"environment": "train"}, "by-hand")
    plan_b.world.run_until_idle()
    assert execution.error == "InputRefused"
    assert "reservation_id" in execution.cause


def test_what_can_never_be_read_ends_in_failure(plan_b):
    plan_b.world.market.faults.add(kind="denied", operation="DescribeCapacityReservations", times=None)
    plan_b.without_extension()
    execution = plan_b.replace()
    plan_b.world.run_until_idle()
    assert (execution.error, plan_b.purchases()) == ("ReplacementFailed", [])


@pytest.mark.parametrize(
    ("first", "path"), [(1, "Record the purchase"), (7, "Record the new block"), (13, "Record the outcome")]
)
def test_what_cannot_be_recorded_stops_nothing_but_the_end(plan_b, first, path):
    plan_b.without_extension()
    for nth in range(1, first + 6):
        plan_b.world.engine.crash("RecordReplacement", nth, when="before")
    execution = plan_b.replace()
    plan_b.world.run_until_idle()
    assert path in execution.path
    assert execution.error == ("OutcomeNotRecorded" if path == "Record the outcome" else None)
    assert len(plan_b.purchases()) == 1
    assert plan_b.group()["LaunchTemplate"]["Version"] == "2"


def test_an_offer_or_a_miss_that_cannot_be_recorded_stops_nothing(plan_b):
    plan_b.world.market.faults.add(kind="empty_offerings", operation="DescribeCapacityBlockOfferings", times=1)
    plan_b.without_extension(require_approval=True)
    for nth in range(1, 13):
        plan_b.world.engine.crash("RecordReplacement", nth, when="before")
    execution = plan_b.replace()
    plan_b.world.run_for(timedelta(hours=2))
    plan_b.answer("approve")
    plan_b.world.run_until_idle()
    assert execution.output["outcome"] == "replaced"


def test_case_b43_a_quota_of_zero_is_told_as_such(plan_b):
    plan_b.world.account.quotas["L-DA6814F2"] = None
    plan_b.world.market.faults.add(kind="describe_limit", operation="DescribeCapacityBlockOfferings", times=None)
    plan_b.without_extension()
    execution = plan_b.replace()
    plan_b.world.run_until_idle()
    assert (execution.error, plan_b.purchases()) == ("QuotaIsZero", [])
    assert "quota-code L-DA6814F2" in plan_b.record()["replacement"]["reason"]
