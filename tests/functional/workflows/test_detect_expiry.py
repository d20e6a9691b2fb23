"""detect-expiry: what is due is found from schedule, event or hand, started once, and one bad thing never stops the rest."""

import json
from datetime import timedelta
from pathlib import Path

import pytest

from local.engine.world import ACCOUNT

from .conftest import END

HOUR = timedelta(hours=1)
EVENTS = Path(__file__).parents[3] / "events"


def sweep(story, event=None):
    execution = story.world.start("DetectExpiry", event or {})
    story.world.run_for(timedelta(minutes=2))
    return execution


def test_a_due_block_is_extended_and_a_second_sweep_starts_nothing(live):
    live.block().enrol()
    live.world.run_until(END - 30 * HOUR)
    first, second = sweep(live), sweep(live)
    assert (first.status, second.status) == ("SUCCEEDED", "SUCCEEDED")
    assert [execution.name for execution in live.world.executions("ExtendBlock")] == ["cr-0a1-20260504T1130Z"]
    live.world.run_until_idle()
    assert live.end() == END + timedelta(days=1)


def test_a_block_that_is_not_due_is_mirrored_and_then_left_alone(live):
    live.block().enrol()
    sweep(live)
    record = live.record()
    assert record["status"] == "NO_ACTION_REQUIRED"
    assert (record["end_time"], record["state"], record["instance_count"]) == ("2026-05-04T11:30:00Z", "active", 4)
    sweep(live)
    assert live.record() == record
    assert live.world.executions("ExtendBlock") == []


@pytest.mark.parametrize("kind", ["Scheduled Event", "Capacity Block Renamed"])
def test_the_schedule_and_what_is_not_understood_look_at_every_target_though_they_name_an_account_b01(
    two_regions, kind
):
    event = {"source": "aws.scheduler", "detail-type": kind, "account": ACCOUNT, "region": "us-east-1", "detail": {}}
    assert [each["region"] for each in sweep(two_regions, event).output] == ["us-east-1", "us-west-2"]


def test_a_sweep_reads_once_and_writes_only_what_changed(live):
    live.block().enrol()
    sweep(live)
    live.world.calls.clear()
    sweep(live)
    made = [(call.service, call.operation) for call in live.world.calls if call.caller == "SweepTarget"]
    # The records, and what records that are gone left armed.
    assert made == [("ec2", "DescribeCapacityReservations"), ("dynamodb", "Query"), ("dynamodb", "Query")]


@pytest.mark.parametrize(
    "name",
    [
        "Capacity Block Delivered",
        "Capacity Block Reservation Delivered",
        "Capacity Block Expiration Warning",
        "Capacity Block Reservation Expiration Warning",
    ],
)
def test_case_b01_each_name_of_ec2s_events_starts_a_sweep(live, name):
    live.block().enrol()
    live.world.publish(
        {
            "source": "aws.ec2",
            "detail-type": name,
            "detail": {"capacity-reservation-id": "cr-0a1", "end-date": "2026-05-04T11:30:00Z"},
        }
    )
    live.world.run_for(timedelta(minutes=2))
    assert [execution.status for execution in live.world.executions("DetectExpiry")] == ["SUCCEEDED"]


def test_case_b01_the_documented_underscore_and_an_unknown_name_lead_to_a_sweep_too(live):
    live.block().enrol()
    live.world.run_until(END - 30 * HOUR)
    for key, name in (("detail_type", "Capacity Block Expiration Warning"), ("detail-type", "Capacity Block Renamed")):
        assert sweep(live, {key: name, "source": "aws.ec2", "detail": {}}).status == "SUCCEEDED"
    assert len(live.world.executions("ExtendBlock")) == 1
    assert "UnknownEvent" in live.world.logs.getvalue()


def test_case_b01_a_block_is_found_by_the_schedule_when_no_event_ever_comes(scheduled):
    scheduled.world.market.faults.add(kind="drop_event", times=None)
    scheduled.block().enrol()
    scheduled.world.run_until(END - 40 * HOUR)
    assert scheduled.end() == END + timedelta(days=1)


def test_case_b02_the_warning_40_minutes_before_the_end_asks_nobody_and_drains(live):
    live.block().enrol(require_approval=True)
    live.world.run_until(END - timedelta(minutes=39))
    assert [execution.status for execution in live.world.executions("DetectExpiry")] == ["SUCCEEDED"]
    assert live.world.executions("ExtendBlock") == []
    assert live.record()["status"] == "EXPIRING"
    searched = [call for call in live.world.market.calls if "Offering" in call.operation]
    assert (searched, live.links()) == ([], [])
    (event,) = [event for event in live.world.events if event["source"] == "blockkeeper"]
    assert event["detail-type"] == "Block Expiring"
    assert event["detail"]["reason"].startswith("too late to extend")


def test_case_b25_the_warning_twice_in_a_second_starts_one_extension(live):
    live.block().enrol()
    live.world.run_until(END - 30 * HOUR)
    warning = json.loads((EVENTS / "ec2-event.expiration-warning.json").read_text())
    live.world.publish(warning)
    live.world.publish(warning)
    live.world.run_for(timedelta(minutes=2))
    assert len(live.world.executions("ExtendBlock")) == 1


def test_case_b18_a_region_that_cannot_be_read_fails_alone(two_regions):
    story = two_regions
    story.block().enrol()
    story.block("cr-0b2", region="us-west-2", availability_zone="us-west-2a")
    story.enrol("west", capacity_block_id="cr-0b2", region="us-west-2")
    story.world.run_until(END - 30 * HOUR)
    story.world.market.faults.add(kind="denied", operation="DescribeCapacityReservations", region="us-east-1", times=50)
    execution = sweep(story)
    assert (execution.status, execution.error) == ("FAILED", "TargetsNotSwept")
    assert [started.name for started in story.world.executions("ExtendBlock")] == ["cr-0b2-20260504T1130Z"]
    assert "status" not in story.record()


def test_case_b18_a_second_page_that_fails_is_no_shorter_list(live):
    for number in range(1200):
        live.block(f"cr-{number:04x}")
    live.enrol(capacity_block_id="cr-04af")
    live.world.market.faults.add(kind="denied", operation="DescribeCapacityReservations", times=None)
    assert sweep(live).status != "SUCCEEDED"
    live.world.market.faults.clear()
    live.world.run_for(HOUR)
    assert "status" not in live.record()
    assert sweep(live).status == "SUCCEEDED"
    assert live.record()["status"] == "NO_ACTION_REQUIRED"


def test_a_reservation_with_our_tag_is_enrolled_without_an_api_call(live):
    live.block(tags={"blockkeeper:environment": "tagged"})
    sweep(live)
    assert live.record("tagged")["capacity_block_id"] == "cr-0a1"
    assert live.record("tagged")["require_approval"] is True


def test_a_workflow_that_cannot_be_started_fails_the_sweep_and_is_started_by_the_next(live):
    live.block().enrol()
    live.world.run_until(END - 30 * HOUR)
    live.world.engine.crash("Extend the block", when="before", error="StepFunctions.SfnException")
    for nth in range(2, 5):
        live.world.engine.crash("Extend the block", nth, when="before", error="StepFunctions.SfnException")
    failed = sweep(live)
    live.world.run_for(timedelta(minutes=5))
    assert failed.status == "FAILED"
    assert sweep(live).status == "SUCCEEDED"
    assert len(live.world.executions("ExtendBlock")) == 1


def grouped(live):
    """A block and a group of nodes that follows it."""
    live.block()
    group = {
        "name": "train-nodes",
        "region": "us-east-1",
        "availability_zone": "us-east-1a",
        "reservation_id": "cr-0a1",
    }
    live.world.market.load_fleet({"groups": [group | {"min": 0, "max": 4, "desired": 0}]})
    live.enrol(groups=[{"auto_scaling_group": "train-nodes"}])


def test_the_groups_follow_the_block_from_enrolment_over_an_extension(live):
    grouped(live)
    sweep(live)
    before = live.scheduled_actions("train-nodes")
    assert {name: at for name, at in before.items() if name.endswith("-end")} == {
        "blockkeeper-cr-0a1-end": END - timedelta(minutes=37)
    }
    sweep(live)
    assert len(live.world.executions("ScaleGroupsWorkflow")) == 1
    live.extend()
    live.world.run_until_idle()
    assert live.scheduled_actions("train-nodes")["blockkeeper-cr-0a1-end"] == END + timedelta(days=1, minutes=-37)


def test_a_block_whose_workflow_has_ended_is_not_started_again(live):
    live.block().enrol(require_approval=True)
    live.world.run_until(END - 30 * HOUR)
    sweep(live)
    live.answer("reject")
    assert sweep(live).status == "SUCCEEDED"
    assert [execution.path[-1] for execution in live.world.executions("ExtendBlock")] == ["Extension rejected"]
    assert live.record()["status"] == "EXTENSION_REJECTED"


def test_listing_the_targets_is_tried_again(live):
    live.world.engine.crash("ListTargets", when="before")
    assert sweep(live).status == "SUCCEEDED"


def ending(live):
    """A block in its last hour, whose groups are looked at in each sweep."""
    grouped(live)
    live.world.run_until(END - timedelta(minutes=50))
    return live


def test_two_sweeps_in_one_minute_scale_once(live):
    ending(live)
    sweeps = [live.world.start("DetectExpiry", {})]
    live.world.run_for(timedelta(seconds=20))
    sweeps.append(live.world.start("DetectExpiry", {}))
    live.world.run_for(timedelta(seconds=20))
    assert [execution.status for execution in sweeps] == ["SUCCEEDED", "SUCCEEDED"]
    assert len(live.world.executions("ScaleGroupsWorkflow")) == 1


def test_groups_whose_workflow_cannot_be_started_fail_the_sweep(live):
    ending(live)
    for nth in range(1, 5):
        live.world.engine.crash("Scale its groups", nth, when="before", error="StepFunctions.SfnException")
    execution = sweep(live)
    live.world.run_for(timedelta(minutes=5))
    assert (execution.status, execution.error) == ("FAILED", "TargetsNotSwept")


@pytest.mark.parametrize(
    "odd", [[], "now", 7, {"detail-type": 5}, {"detail-type": None, "account": ["x"], "region": {}}]
)
def test_an_input_that_is_no_event_leads_to_a_sweep_and_is_counted(live, odd):
    live.block().enrol()
    live.world.start("DetectExpiry", odd)
    live.world.run_for(timedelta(minutes=2))
    assert [execution.status for execution in live.world.executions("DetectExpiry")] == ["SUCCEEDED"]
    assert live.record()["status"] == "NO_ACTION_REQUIRED"
