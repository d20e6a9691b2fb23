"""Each state type and field as the Amazon States Language defines it."""

from datetime import timedelta
from typing import Any

import pytest

from local.engine import DefinitionError, missing_branches

from .conftest import START, Functions, ask, engine_of, invoke, machine, run


def test_assigned_variables_show_from_the_next_state_only() -> None:
    first = {"Type": "Pass", "Assign": {"x": 2, "y": "{% $x %}"}, "Output": {"x": "{% $x %}"}, "Next": "Then"}
    steps = machine(
        "Begin",
        {
            "Begin": {"Type": "Pass", "Assign": {"x": 1}, "Next": "First"},
            "First": first,
            "Then": {"Type": "Pass", "Output": {"before": "{% $states.input.x %}", "x": "{% $x %}", "y": "{% $y %}"},
                     "End": True},
        },
    )  # fmt: skip
    assert run(steps).output == {"before": 1, "x": 2, "y": 1}


def test_choice_rules_and_default_have_their_own_output_and_assign() -> None:
    choice = {
        "Type": "Choice",
        "Choices": [
            {"Condition": "{% $states.input.n > 5 %}", "Assign": {"v": "high"}, "Output": {"o": 1}, "Next": "End"},
            {"Condition": "{% $states.input.n > 3 %}", "Assign": {"v": "middle"}, "Next": "End"},
        ],
        "Default": "End",
        "Assign": {"v": "low"},
        "Output": {"o": "default"},
    }
    steps = machine(
        "Pick",
        {"Pick": choice, "End": {"Type": "Succeed", "Output": {"v": "{% $v %}", "in": "{% $states.input %}"}}},
    )
    assert run(steps, given={"n": 6}).output == {"v": "high", "in": {"o": 1}}
    assert run(steps, given={"n": 4}).output == {"v": "middle", "in": {"n": 4}}
    assert run(steps, given={"n": 1}).output == {"v": "low", "in": {"o": "default"}}


def test_choice_without_match_or_boolean_fails() -> None:
    def pick(condition: str) -> dict[str, Any]:
        rule = {"Condition": condition, "Next": "End"}
        return machine("Pick", {"Pick": {"Type": "Choice", "Choices": [rule]}, "End": {"Type": "Succeed"}})

    assert run(pick("{% false %}")).error == "States.NoChoiceMatched"
    assert run(pick("{% 'yes' %}")).error == "States.QueryEvaluationError"


@pytest.mark.parametrize(
    "expression", ["{% $states.input.nothing %}", "{% $unset %}", "{% 1 + 'a' %}", "{% $eval('1') %}"]
)
def test_an_expression_without_a_value_is_an_error(expression: str) -> None:
    execution = run(machine("P", {"P": {"Type": "Pass", "Output": {"a": expression}, "End": True}}))
    assert (execution.status, execution.error) == ("FAILED", "States.QueryEvaluationError")


def test_an_explicit_null_is_a_value() -> None:
    steps = machine("P", {"P": {"Type": "Pass", "Output": {"a": "{% $states.input.x %}"}, "Assign": {"v": None},
                                "Next": "Q"},
                          "Q": {"Type": "Pass", "Output": "{% [$states.input.a, $v] %}", "End": True}})  # fmt: skip
    assert run(steps, given={"x": None}).output == [None, None]


def test_only_whole_strings_are_expressions() -> None:
    with pytest.raises(DefinitionError, match="must start with"):
        engine_of(machine("P", {"P": {"Type": "Pass", "Output": "  {% 1 %}", "End": True}}))
    literal = machine("P", {"P": {"Type": "Pass", "Output": "a {% 1 %} b", "End": True}})
    assert run(literal).output == "a {% 1 %} b"


def test_wait_by_seconds_and_until_a_time() -> None:
    steps = machine(
        "W",
        {
            "W": {"Type": "Wait", "Seconds": "{% $states.input.s %}", "Next": "U"},
            "U": {"Type": "Wait", "Timestamp": "2026-05-05T11:30:00Z", "Next": "Past"},
            "Past": {"Type": "Wait", "Timestamp": "2020-01-01T00:00:00Z", "End": True},
        },
    )
    execution = run(steps, given={"s": 60})
    left = {event.state: event.at for event in execution.history if event.type == "WaitStateExited"}
    assert left == {
        "W": START + timedelta(minutes=1),
        "U": START + timedelta(days=1),
        "Past": START + timedelta(days=1),
    }
    assert run(steps, given={"s": -1}).error == "States.QueryEvaluationError"
    assert run(steps, given={"s": 1.5}).error == "States.QueryEvaluationError"


def test_lambda_task_answers_like_the_integration() -> None:
    steps = machine("T", {"T": {**invoke(), "Output": "{% $states.result %}"}})
    result = run(steps, {"f": lambda event, _: {"got": event}}, {"a": 1}).output
    assert result["Payload"] == {"got": {"a": 1}}
    assert result["StatusCode"] == 200


def test_the_context_object() -> None:
    wanted = "{% $states.context %}"
    seen = run(machine("T", {"T": {"Type": "Pass", "Output": wanted, "End": True}}), given={"a": 1}).output
    assert seen["State"] == {"Name": "T", "EnteredTime": "2026-05-04T11:30:00.000Z", "RetryCount": 0}
    assert seen["Execution"]["Input"] == {"a": 1}
    assert seen["Execution"]["RedriveCount"] == 0
    assert seen["StateMachine"]["Name"] == "m"


def _failing(times: int, error: type[Exception] = ValueError) -> Functions:
    calls: list[Any] = []

    def f(event: Any, _: Any) -> dict[str, int]:
        calls.append(event)
        if len(calls) <= times:
            raise error("no")
        return {"calls": len(calls), "retry": event.get("retry", 0)}

    return {"f": f}


def test_retry_counts_per_retrier_backs_off_and_shows_in_the_context() -> None:
    retry = [
        {"ErrorEquals": ["KeyError"], "MaxAttempts": 1},
        {"ErrorEquals": ["ValueError"], "IntervalSeconds": 10, "BackoffRate": 3, "MaxAttempts": 3,
         "MaxDelaySeconds": 60},
    ]  # fmt: skip
    task = invoke(payload={"retry": "{% $states.context.State.RetryCount %}"}, Retry=retry)
    execution = run(machine("T", {"T": task}), _failing(3))
    # 10, 30, and 90 cut to 60 seconds. The count is the one of the moment at which Arguments were evaluated.
    assert execution.stopped_at == START + timedelta(seconds=100)
    assert execution.output == {"calls": 4, "retry": 3}
    assert run(machine("T", {"T": task}), _failing(4)).error == "ValueError"


def test_the_first_retrier_that_matches_decides_even_when_used_up() -> None:
    retry = [{"ErrorEquals": ["ValueError"], "MaxAttempts": 0}, {"ErrorEquals": ["States.ALL"]}]
    assert run(machine("T", {"T": invoke(Retry=retry)}), _failing(1)).error == "ValueError"


def test_catch_order_output_and_assign() -> None:
    catch = [
        {"ErrorEquals": ["KeyError"], "Next": "Wrong"},
        {"ErrorEquals": ["States.TaskFailed"], "Next": "Caught", "Assign": {"e": "{% $states.errorOutput.Error %}"},
         "Output": {"in": "{% $states.input.a %}", "cause": "{% $parse($states.errorOutput.Cause) %}"}},
        {"ErrorEquals": ["States.ALL"], "Next": "Wrong"},
    ]  # fmt: skip
    steps = machine(
        "T",
        {
            "T": invoke(Catch=catch),
            "Caught": {"Type": "Succeed", "Output": {"e": "{% $e %}", "was": "{% $states.input %}"}},
            "Wrong": {"Type": "Fail"},
        },
    )
    output = run(steps, _failing(1), {"a": 1}).output
    assert output["e"] == "ValueError"
    assert output["was"]["in"] == 1
    assert output["was"]["cause"]["errorMessage"] == "no"
    assert output["was"]["cause"]["errorType"] == "ValueError"


def test_a_failed_expression_of_a_task_can_be_caught_but_not_one_of_its_catcher() -> None:
    catch: dict[str, Any] = {"ErrorEquals": ["States.QueryEvaluationError"], "Next": "C"}
    states = {"T": {**invoke(Catch=[catch]), "Output": "{% $nothing %}"}, "C": {"Type": "Succeed"}}
    assert run(machine("T", states), {"f": lambda *_: 1}).path == ["T", "C"]
    catch["Output"] = "{% $nothing %}"
    assert run(machine("T", states), {"f": lambda *_: 1}).error == "States.QueryEvaluationError"


def test_fail_takes_expressions() -> None:
    steps = machine("F", {"F": {"Type": "Fail", "Error": "{% 'No' & 'Offer' %}", "Cause": "none"}})
    execution = run(steps)
    assert (execution.status, execution.error, execution.cause) == ("FAILED", "NoOffer", "none")


def _map(mode: dict[str, Any], states: dict[str, Any], **more: Any) -> dict[str, Any]:
    processor = {"ProcessorConfig": mode, "StartAt": next(iter(states)), "States": states}
    return {"Type": "Map", "ItemProcessor": processor, "End": True, **more}


INLINE = {"Mode": "INLINE"}
DISTRIBUTED = {"Mode": "DISTRIBUTED", "ExecutionType": "STANDARD"}


def test_inline_map_scopes_variables_and_keeps_order() -> None:
    inner = {
        "In": {"Type": "Pass", "Assign": {"mine": "{% $states.input.n * $factor %}"}, "Next": "Out"},
        "Out": {"Type": "Pass", "Output": "{% $mine %}", "End": True},
    }
    items = _map(INLINE, inner, Items="{% $states.input.list %}", MaxConcurrency=2,
                 ItemSelector={"n": "{% $states.context.Map.Item.Value + $states.context.Map.Item.Index %}"})  # fmt: skip
    steps = machine("A", {"A": {"Type": "Pass", "Assign": {"factor": 10}, "Next": "M"}, "M": items})
    assert run(steps, given={"list": [1, 2, 3]}).output == [10, 30, 50]
    assert run(steps, given={"list": []}).output == []
    assert run(steps, given={"list": 5}).error == "States.QueryEvaluationError"


def test_inline_map_runs_no_more_than_max_concurrency_at_a_time() -> None:
    steps = machine("M", {"M": _map(INLINE, {"W": {"Type": "Wait", "Seconds": 10, "End": True}},
                                    Items=[1, 2, 3, 4, 5], MaxConcurrency=2)})  # fmt: skip
    assert run(steps).stopped_at == START + timedelta(seconds=30)


def test_one_failed_iteration_fails_an_inline_map_and_stops_the_others() -> None:
    seen: list[int] = []

    def f(event: int, _: Any) -> int:
        seen.append(event)
        if event == 2:
            raise KeyError("two")
        return event

    inner = {"W": {"Type": "Wait", "Seconds": "{% $states.input %}", "Next": "T"}, "T": invoke()}
    execution = run(machine("M", {"M": _map(INLINE, inner, Items=[3, 2, 1])}), {"f": f})
    assert (execution.error, seen) == ("KeyError", [1, 2])


@pytest.mark.parametrize(
    ("limits", "error"),
    [
        ({}, "States.ExceedToleratedFailureThreshold"),
        ({"ToleratedFailureCount": 1}, "States.ExceedToleratedFailureThreshold"),
        ({"ToleratedFailureCount": 2}, None),
        ({"ToleratedFailurePercentage": 49}, "States.ExceedToleratedFailureThreshold"),
        ({"ToleratedFailurePercentage": 50}, None),
        ({"ToleratedFailurePercentage": 100, "ToleratedFailureCount": 1}, "States.ExceedToleratedFailureThreshold"),
    ],
)
def test_distributed_map_tolerates_failures_up_to_its_limits(limits: dict[str, int], error: str | None) -> None:
    def f(event: int, _: Any) -> int:
        if event % 2:
            raise ValueError(event)
        return event

    steps = machine("M", {"M": _map(DISTRIBUTED, {"T": invoke()}, **limits)})
    execution = run(steps, {"f": f}, [0, 1, 2, 3])
    assert execution.error == error
    assert len(execution.children) == 4
    if error is None:
        assert execution.output == [0, 2]
        engine = engine_of(steps, {"f": f}, flavour="ministack")
        other = engine.start("m", [0, 1, 2, 3])
        engine.run_until_idle()
        assert other.output == [0, None, 2, None]


def test_distributed_map_hides_outer_variables_and_items() -> None:
    inner = {"P": {"Type": "Pass", "Output": "{% $outer %}", "End": True}}
    steps = machine("A", {"A": {"Type": "Pass", "Assign": {"outer": 1}, "Next": "M"}, "M": _map(DISTRIBUTED, inner)})
    execution = run(steps, given=[1])
    assert execution.children[0].error == "States.QueryEvaluationError"
    with pytest.raises(DefinitionError, match="Items in a distributed Map"):
        engine_of(machine("M", {"M": _map(DISTRIBUTED, inner, Items=[1])}))


def test_parallel_gathers_outputs_in_order_and_fails_as_a_whole() -> None:
    def branch(seconds: int, end: dict[str, Any]) -> dict[str, Any]:
        name = f"W{seconds}"
        wait = {"Type": "Wait", "Seconds": seconds, "Next": f"E{seconds}"}
        return {"StartAt": name, "States": {name: wait, f"E{seconds}": end}}

    def both(second: dict[str, Any]) -> dict[str, Any]:
        one = branch(5, {"Type": "Pass", "Output": "{% $states.input.a %}", "End": True})
        parallel = {"Type": "Parallel", "Arguments": {"a": 7}, "Branches": [one, branch(1, second)], "End": True}
        return machine("P", {"P": parallel})

    assert run(both({"Type": "Succeed", "Output": 1})).output == [7, 1]
    failed = run(both({"Type": "Fail", "Error": "X"}))
    assert (failed.error, failed.stopped_at) == ("X", START + timedelta(seconds=1))


def test_timeout_of_a_callback_literal_or_evaluated() -> None:
    catch = [{"ErrorEquals": ["States.Timeout"], "Next": "Late"}]
    for seconds in (90, "{% $states.input.s %}"):
        steps = machine("Ask", {"Ask": ask(TimeoutSeconds=seconds, Catch=catch), "Late": {"Type": "Succeed"}})
        execution = run(steps, {"ask": lambda *_: None}, {"s": 90})
        assert execution.path == ["Ask", "Late"]
        assert execution.stopped_at == START + timedelta(seconds=90)
    assert run(steps, {"ask": lambda *_: None}, {"s": 0}).error == "States.QueryEvaluationError"
    only = machine("Ask", {"Ask": ask(TimeoutSeconds=9, Catch=[{"ErrorEquals": ["States.TaskFailed"], "Next": "Late"}]),
                           "Late": {"Type": "Succeed"}})  # fmt: skip
    assert run(only, {"ask": lambda *_: None}).error == "States.Timeout"


def test_execution_timeout() -> None:
    steps = machine("W", {"W": {"Type": "Wait", "Seconds": 100, "End": True}}, TimeoutSeconds=50)
    execution = run(steps)
    assert (execution.status, execution.error) == ("TIMED_OUT", "States.Timeout")


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"InputPath": "$"}, "'InputPath' is not known"),
        ({"Resource": "arn:aws:states:::sqs:sendMessage"}, "is not known"),
        ({"Resource": "arn:aws:states:::aws-sdk:ec2:describeNothing"}, "no API of the SDK"),
        (
            {"Resource": "arn:aws:states:::aws-sdk:ec2:describeInstances", "Arguments": {"Nope": 1}},
            "'Nope' is not known",
        ),
        ({"Arguments": {"FunctionName": "other"}}, "'other' does not exist"),
        ({"Arguments": {"FunctionName": "f", "Payload": "{% $states.result %}"}}, r"\$states.result exists only"),
        ({"Output": "{% $states.errorOutput %}"}, "exists only in Catch"),
        ({"Output": "{% ( %}"}, "is not JSONata"),
        ({"Output": "{% 1"}, "must start with"),
        ({"Next": "T"}, "exactly one of Next and End"),
        ({"Retry": [{"ErrorEquals": ["States.ALL"]}, {"ErrorEquals": ["X"]}]}, "must stand alone and last"),
        ({"Retry": [{"ErrorEquals": ["X"], "BackoffRate": 0.5}]}, "BackoffRate"),
        ({"Retry": [{"ErrorEquals": ["X"], "Backoff": 2}]}, "'Backoff' is not known"),
        ({"Catch": [{"ErrorEquals": ["X"], "Next": "Gone"}]}, "'Gone' is not a state"),
        ({"TimeoutSeconds": 0}, "TimeoutSeconds"),
        ({"TimeoutSeconds": 5, "HeartbeatSeconds": 5}, "HeartbeatSeconds must be smaller"),
        ({"QueryLanguage": "JSONPath"}, "must be JSONata"),
        ({"Assign": {"states": 1}}, "no name for a variable"),
    ],
)
def test_the_unknown_is_refused_at_load_time(change: dict[str, Any], problem: str) -> None:
    with pytest.raises(DefinitionError, match=problem):
        engine_of(machine("T", {"T": {**invoke(), **change}}), {"f": lambda *_: None})


def test_unknown_types_and_query_languages_are_refused() -> None:
    with pytest.raises(DefinitionError, match="Type 'Loop' is not known"):
        engine_of(machine("T", {"T": {"Type": "Loop", "End": True}}))
    with pytest.raises(DefinitionError, match="QueryLanguage must be JSONata"):
        engine_of({"StartAt": "T", "States": {"T": {"Type": "Succeed"}}})


def test_coverage_tells_what_never_ran() -> None:
    steps = machine(
        "Pick",
        {
            "Pick": {
                "Type": "Choice",
                "Choices": [{"Condition": "{% $states.input.go %}", "Next": "T"}],
                "Default": "No",
            },
            "No": {"Type": "Succeed"},
            "T": invoke(Retry=[{"ErrorEquals": ["ValueError"]}], Catch=[{"ErrorEquals": ["States.ALL"], "Next": "No"}]),
        },
    )
    engine = engine_of(steps, _failing(1))
    engine.start("m", {"go": True})
    engine.run_until_idle()
    assert missing_branches(steps, engine.coverage["m"]) == ["Pick > Default", "No", "T > Catch[0]"]
    engine.crash("T", when="before", error="Lambda.Unknown")
    engine.start("m", {"go": True})
    engine.start("m", {"go": False})
    engine.run_until_idle()
    assert missing_branches(steps, engine.coverage["m"]) == []
