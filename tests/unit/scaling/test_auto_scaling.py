"""What AWS would refuse is refused before the call (case B46), without any stand-in for AWS."""

from datetime import UTC, datetime, timedelta

import pytest
from botocore.exceptions import ClientError, ReadTimeoutError

from blockkeeper.aws.auto_scaling import AutoScaling
from blockkeeper.aws.group_errors import GroupBusyError, GroupRefusedError
from blockkeeper.domain.calendar import ZERO, Action, GroupFacts, Sizes

NOW = datetime(2026, 5, 4, 10, 0, tzinfo=UTC)
GROUP = GroupFacts("train", ZERO)


class Recorder:
    """Takes every call, and answers as it is told."""

    def __init__(self, answer):
        self.answer, self.calls = answer, []

    def __getattr__(self, operation):
        def call(**params):
            self.calls.append((operation, params))
            if isinstance(self.answer, Exception):
                raise self.answer
            return self.answer

        return call


def scaling(answer=None):
    adapter = AutoScaling.__new__(AutoScaling)
    adapter._client = Recorder({} if answer is None else answer)
    return adapter


def action(minutes=30, sizes=ZERO, name="blockkeeper-cr-0a1-end"):
    return Action(name, NOW + timedelta(minutes=minutes), sizes)


@pytest.mark.parametrize(
    ("refused", "words"),
    [
        (action(minutes=0), "takes no start time in the past"),
        (action(minutes=-1), "takes no start time in the past"),
        (action(sizes=Sizes(2, 1, 1)), "0 <= minimum <= desired <= maximum"),
        (action(sizes=Sizes(0, 1, 2)), "0 <= minimum <= desired <= maximum"),
        (action(sizes=Sizes(-1, 1, 1)), "0 <= minimum <= desired <= maximum"),
        (action(sizes=Sizes(None, 1, 1)), "all needed"),
    ],
)
def test_case_b46_an_action_that_aws_refuses_is_not_sent(refused, words):
    adapter = scaling()
    with pytest.raises(GroupRefusedError, match=words):
        adapter.put(GROUP, [action(name="fine"), refused], [], NOW)
    assert adapter._client.calls == []


def test_case_b46_sizes_that_aws_refuses_are_not_sent():
    adapter = scaling()
    with pytest.raises(GroupRefusedError, match="group train has sizes 3/2/2"):
        adapter.set_sizes(GROUP, Sizes(3, 2, 2))
    assert adapter._client.calls == []


def test_at_most_fifty_actions_go_in_a_call():
    adapter = scaling()
    adapter.put(GROUP, [action(minutes=number, name=f"blockkeeper-{number}-end") for number in range(1, 121)], [], NOW)
    assert [len(params["ScheduledUpdateGroupActions"]) for _, params in adapter._client.calls] == [50, 50, 20]
    adapter.delete(GROUP, [f"blockkeeper-{number}-end" for number in range(51)])
    assert [len(params["ScheduledActionNames"]) for _, params in adapter._client.calls[3:]] == [50, 1]


def test_a_refusal_inside_a_good_answer_is_raised_by_name():
    failed = {"ScheduledActionName": "blockkeeper-cr-0a1-end", "ErrorCode": "LimitExceeded", "ErrorMessage": "too many"}
    with pytest.raises(GroupRefusedError, match="blockkeeper-cr-0a1-end: LimitExceeded: too many"):
        scaling({"FailedScheduledUpdateGroupActions": [failed]}).put(GROUP, [action()], [], NOW)
    busy = failed | {"ErrorCode": "ResourceContention"}
    with pytest.raises(GroupBusyError):
        scaling({"FailedScheduledUpdateGroupActions": [busy]}).put(GROUP, [action()], [], NOW)


def test_an_action_that_has_just_run_needs_no_deletion():
    gone = {
        "ScheduledActionName": "x",
        "ErrorCode": "ValidationError",
        "ErrorMessage": "Scheduled action name not found: x",
    }
    scaling({"FailedScheduledActions": [gone]}).delete(GROUP, ["x"])
    other = gone | {"ErrorMessage": "no"}
    with pytest.raises(GroupRefusedError, match="x: ValidationError: no"):
        scaling({"FailedScheduledActions": [other]}).delete(GROUP, ["x"])


@pytest.mark.parametrize(
    ("code", "status", "kind"),
    [
        ("Throttling", 400, GroupBusyError),
        ("ScalingActivityInProgress", 400, GroupBusyError),
        ("ResourceContention", 500, GroupBusyError),
        ("SomethingNew", 503, GroupBusyError),
        ("ValidationError", 400, GroupRefusedError),
        ("AccessDenied", 403, GroupRefusedError),
    ],
)
def test_only_what_may_pass_by_itself_is_worth_another_try(code, status, kind):
    answer = {"Error": {"Code": code, "Message": "m"}, "ResponseMetadata": {"HTTPStatusCode": status}}
    with pytest.raises(kind, match=code):
        scaling(ClientError(answer, "UpdateAutoScalingGroup")).set_sizes(GROUP, ZERO)


def test_an_answer_that_never_comes_is_worth_another_try():
    with pytest.raises(GroupBusyError):
        scaling(ReadTimeoutError(endpoint_url="https://autoscaling")).set_sizes(GROUP, ZERO)
