"""`./dev up` waits for its first sweep, and for no longer than it says."""

from types import SimpleNamespace

import pytest

from local import up


def a_stack(*answers):
    left = list(answers)
    states = SimpleNamespace(describe_execution=lambda executionArn: left.pop(0) if len(left) > 1 else left[0])  # noqa: ARG005, N803 - AWS's own
    started = []
    aws = SimpleNamespace(client=lambda _service: states, log="server.log")
    return SimpleNamespace(aws=aws, start=lambda output, name: started.append((output, name)) or "arn", started=started)


def test_it_waits_until_the_sweep_has_succeeded():
    stack = a_stack({"status": "RUNNING"}, {"status": "RUNNING"}, {"status": "SUCCEEDED"})
    up.sweep(stack)
    assert stack.started == [("DetectExpiryArn", "first-sweep")]


def test_a_sweep_that_fails_says_why_and_where_to_look():
    with pytest.raises(RuntimeError, match=r"first sweep is FAILED: us-east-1 broke; see server\.log"):
        up.sweep(a_stack({"status": "FAILED", "cause": "us-east-1 broke"}))


def test_a_sweep_that_never_ends_is_given_up(monkeypatch):
    monkeypatch.setattr(up, "SWEEP_SECONDS", 0)
    with pytest.raises(RuntimeError, match="has not ended in 0 s"):
        up.sweep(a_stack({"status": "RUNNING"}))
