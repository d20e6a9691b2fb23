"""extend-block with a person in it: the real approve-purchase, mail, link and page."""

import json
from datetime import timedelta

import pytest

from local.engine.world import ACCOUNT

from .conftest import END

DAY = timedelta(days=1)
HOUR = timedelta(hours=1)


def asked(live, **fields):
    """A block that is due and whose approvers have been asked."""
    execution = live.block().enrol(require_approval=True, **fields).extend()
    live.world.run_for(timedelta(minutes=5))
    return execution


def test_an_approved_extension_is_bought(live):
    execution = asked(live)
    assert live.record()["status"] == "EXTENSION_APPROVAL_REQUIRED"
    assert live.orders() == []
    assert len(live.links()) == 1
    assert live.answer("approve").status == 200
    live.world.run_until_idle()
    assert execution.path[-1] == "Extension confirmed"
    assert len(live.orders()) == len(live.bought()) == 1
    (approval,) = live.items("approval")
    assert (approval["status"], approval["used_for"]) == ("APPROVED", "cr-0a1#2026-05-04T11:30:00Z")
    assert live.purchase()["approval_id"] == approval["id"]


def test_a_rejected_extension_is_not(live):
    execution = asked(live)
    assert live.answer("reject", reason="the run is done").status == 200
    live.world.run_until_idle()
    assert (execution.path[-1], execution.status) == ("Extension rejected", "SUCCEEDED")
    assert (live.orders(), live.record()["status"]) == ([], "EXTENSION_REJECTED")
    assert live.record()["error"] == "rejected by ann@example.com: the run is done"


def test_a_person_who_starts_it_again_by_hand_is_asked_again(live):
    asked(live)
    live.answer("reject")
    live.world.run_until_idle()
    again = live.extend(name="cr-0a1-20260504T1130Z-by-hand-20260501T0900Z")
    live.world.run_for(timedelta(minutes=5))
    live.answer("approve")
    live.world.run_until_idle()
    assert again.path[-1] == "Extension confirmed"
    assert len(live.bought()) == 1


def test_case_b04_nobody_answers_and_nothing_is_bought(live):
    execution = asked(live)
    live.world.run_until_idle()
    assert (execution.path[-1], execution.status) == ("Approval expired", "SUCCEEDED")
    assert END - 3 * HOUR <= live.world.now() <= END - 3 * HOUR + timedelta(minutes=1)
    assert (live.orders(), live.record()["status"]) == ([], "EXTENSION_REJECTED")


def test_case_b04_a_late_click_is_told_that_nothing_was_bought(live):
    asked(live)
    live.world.run_until_idle()
    late = live.answer("approve")
    assert late.status == 200
    assert "nothing was bought" in late.body.lower()
    live.world.run_until_idle()
    assert live.orders() == []


@pytest.mark.parametrize("replace", [None, {"max_gap_hours": 24, "max_upfront_fee": "12000"}])
def test_a_yes_too_late_to_be_acted_on_ends_as_too_late_and_plan_b_begins(live, replace):
    """Others search in these seconds, so the buyer comes to it a minute after the last moment to decide."""
    execution = asked(live, replace=replace)
    live.world.run_until(END - 3 * HOUR - timedelta(seconds=20))
    full_at_ms = int((live.world.now() + timedelta(seconds=66.67 + 80)).timestamp() * 1000)
    live.put("rate", {"id": f"{ACCOUNT}#us-east-1#DescribeCapacityBlockExtensionOfferings", "full_at_ms": full_at_ms})
    live.answer("approve")
    live.world.run_until(END - 3 * HOUR + timedelta(minutes=2))
    late = "too late: the last moment to decide was 2026-05-04T08:30:00Z"
    assert (execution.path[-1], execution.output) == ("Too late to extend", {"outcome": "too_late", "reason": late})
    assert "Record the miss" not in execution.path, "no time is lost before plan B"
    assert (live.record()["status"], live.record()["error"], live.orders()) == ("EXPIRING", late, [])
    assert live.told()[-1] == ("Replacement Failed", "no_offering") if replace else ("Block Expiring", "too_late")
    assert ("Extension Failed", "not_allowed") not in live.told()
    assert len(live.world.executions("ReplaceBlock")) == (1 if replace else 0)


def test_case_b11_dearer_than_approved_is_asked_again(live):
    execution = asked(live)
    live.world.market.faults.add(kind="price_change", operation="DescribeCapacityBlockExtensionOfferings", value="4000")
    live.answer("approve")
    live.world.run_for(timedelta(minutes=5))
    assert (live.orders(), len(live.links())) == ([], 2)
    live.answer("approve")
    live.world.run_until_idle()
    assert execution.path[-1] == "Extension confirmed"
    assert live.purchase()["upfront_fee"] == "4000"
    used = {approval["ceiling"]: approval.get("used_for") for approval in live.items("approval")}
    assert used == {"3986.69": None, "4000": "cr-0a1#2026-05-04T11:30:00Z"}


def test_a_cheaper_offering_than_approved_is_bought_without_asking_again(live):
    asked(live)
    live.world.market.faults.add(kind="price_change", operation="DescribeCapacityBlockExtensionOfferings", value="3000")
    live.answer("approve")
    live.world.run_until_idle()
    assert len(live.links()) == 1
    assert live.purchase()["upfront_fee"] == "3000"


def test_an_offering_that_is_gone_after_the_yes_is_looked_for_again_without_asking_again(live):
    execution = asked(live)
    live.world.market.faults.add(kind="empty_offerings", operation="DescribeCapacityBlockExtensionOfferings")
    live.answer("approve")
    live.world.run_until_idle()
    assert execution.path[-1] == "Extension confirmed"
    assert len(live.links()) == 1
    assert "Record the miss" in execution.path


def test_a_price_that_changed_after_a_miss_is_a_new_question(live):
    execution = asked(live)
    live.world.market.faults.add(kind="empty_offerings", operation="DescribeCapacityBlockExtensionOfferings")
    live.answer("approve")
    live.world.run_for(timedelta(minutes=1))
    live.world.market.faults.add(kind="price_change", operation="DescribeCapacityBlockExtensionOfferings", value="4500")
    live.world.run_for(HOUR)
    assert (live.orders(), len(live.links())) == ([], 2)
    live.answer("approve")
    live.world.run_until_idle()
    assert execution.path[-1] == "Extension confirmed"
    assert live.purchase()["upfront_fee"] == "4500"


def test_case_b20_extended_by_hand_while_we_asked_closes_the_request(live):
    execution = asked(live)
    live.buy_by_hand()
    live.world.run_for(HOUR)
    live.world.start("DetectExpiry", {})
    live.world.run_until_idle()
    assert execution.path[-1] == "Superseded"
    assert [approval["status"] for approval in live.items("approval")] == ["SUPERSEDED"]
    assert len(live.bought()) == 1


def test_a_request_that_was_closed_while_ec2_shows_the_old_end_makes_no_tight_loop(live):
    execution = asked(live)
    (approval,) = live.items("approval")
    live.put("approval", approval | {"status": "SUPERSEDED", "reason": "closed too early"})
    closed = {"decision": "superseded", "approval_id": approval["id"]} | dict.fromkeys(
        ("decided_by", "decided_at", "reason")
    )
    live.world.engine.send_task_success(approval["task_token"], json.dumps(closed))
    before = len(execution.path)
    live.world.run_for(timedelta(minutes=10))
    turns = execution.path[before:].count("Load the block")
    assert 1 <= turns <= 10
    assert live.orders() == []


def test_case_b20_a_yes_after_somebody_else_extended_buys_nothing(live):
    execution = asked(live)
    live.buy_by_hand()
    live.world.run_for(timedelta(minutes=1))
    live.answer("approve")
    live.world.run_until_idle()
    assert execution.path[-1] == "Superseded"
    assert len(live.bought()) == 1
    assert live.purchase() is None


def test_case_b16_the_record_changed_to_a_lower_ceiling_after_the_yes(live):
    execution = asked(live)
    live.enrol(require_approval=True, max_upfront_fee="1000")
    live.answer("approve")
    live.world.run_until_idle()
    assert execution.path[-1] == "Extension too dear"
    assert live.orders() == []


def test_an_approved_shorter_length_is_bought_though_the_wanted_one_is_back(live):
    live.block(offering={"available": True, "hours": [24]})
    execution = live.enrol(require_approval=True, extend_by_days=2, fallback_days=[1]).extend()
    live.world.run_for(timedelta(minutes=5))
    live.world.market.blocks.get("cr-0a1", "us-east-1").offering.hours = None
    live.answer("approve")
    live.world.run_until_idle()
    assert execution.path[-1] == "Extension confirmed"
    assert (live.end(), len(live.links())) == (END + DAY, 1)


def test_nobody_who_could_be_asked_ends_in_failure_and_buys_nothing(live):
    # The only approver is a Slack user, and no Slack is connected.
    execution = asked(live, approvers=["U0123ABCD"])
    live.world.run_until_idle()
    assert (execution.path[-1], execution.status) == ("Extension failed", "FAILED")
    assert (live.orders(), live.record()["status"]) == ([], "ERROR")


def test_case_b12_six_hours_of_sweeps_ask_once(live):
    live.block().enrol(require_approval=True)
    live.world.run_until(END - 30 * HOUR)
    for _ in range(24):
        live.world.start("DetectExpiry", {})
        live.world.run_for(timedelta(minutes=15))
    assert len(live.world.executions("ExtendBlock")) == 1
    assert len({path for path, _ in live.links()}) == 1
    assert len(live.links()) == 2, "the question, and the reminder 24 hours before the last moment to answer"


def test_case_b41_no_secret_in_logs_histories_or_events(live):
    asked(live)
    (token,) = (approval["task_token"] for approval in live.items("approval"))
    _, query = live.links()[0]
    live.answer("approve")
    live.world.run_until_idle()
    histories = str(
        [execution.history for execution in live.world.engine.executions.values() if "ask" not in execution.name]
    )
    seen = histories + str(live.world.events) + live.world.logs.getvalue()
    for secret in (token, query["signature"]):
        assert secret not in seen


def test_an_offer_that_cannot_be_recorded_is_asked_about_all_the_same(live):
    for nth in range(1, 7):
        live.world.engine.crash("RecordExtension", nth, when="before")
    execution = live.block().enrol(require_approval=True).extend()
    live.world.run_for(HOUR)
    live.answer("approve")
    live.world.run_until_idle()
    assert execution.path[-1] == "Extension confirmed"


def test_through_the_api_records_are_kept_and_a_request_is_approved(live):
    api = Api(live.world)
    live.block()
    record = {
        "PK": "train",
        "name": "train",
        "capacity_block_id": "cr-0a1",
        "region": "us-east-1",
        "instance_type": "p5.48xlarge",
        "extend_by_days": 1,
        "extension_lookahead_days": 2,
        "approvers": ["ann@example.com"],
        "max_upfront_fee": "12000",
    }
    assert api("POST", "/", record)["PK"] == "train"
    assert [kept["PK"] for kept in api("GET", "/")] == ["train"]
    assert api("PUT", "/train", record | {"max_upfront_fee": "9000"})["max_upfront_fee"] == "9000"
    assert api("GET", "/train")["require_approval"] is True
    live.extend()
    live.world.run_for(timedelta(minutes=5))
    assert [block["status"] for block in api("GET", "/blocks")] == ["EXTENSION_APPROVAL_REQUIRED"]
    (request,) = api("GET", "/approvals")
    assert "task_token" not in request
    api("POST", f"/approvals/{request['approval_id']}/approve", {"approver": "ann"})
    live.world.run_until_idle()
    assert live.end() == END + DAY
    api("DELETE", "/train")
    assert api("GET", "/") == []


class Api:
    def __init__(self, world):
        self._world = world

    def __call__(self, method, path, body=None):
        headers = {"content-type": "application/json", "x-api-key": self._world.api_key()}
        answer = self._world.request(method, path, body=None if body is None else json.dumps(body), headers=headers)
        assert answer.status < 300, answer.body
        return json.loads(answer.body) if answer.body else None
