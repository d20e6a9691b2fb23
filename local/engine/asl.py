"""Reads state machine definitions and refuses what the engine does not know, so that nothing is passed over in silence.

Source: Amazon States Language specification with JSONata, and the Step Functions guide's limits.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from .errors import ALL, DefinitionError
from .query import compiled, is_expression
from .resources import resource_problems

Json = dict[str, Any]


@dataclass(frozen=True)
class _Fields:
    required: frozenset[str]
    optional: frozenset[str]


def _fields(required: str, optional: str) -> _Fields:
    return _Fields(frozenset(required.split()), frozenset(optional.split()))


_STATES = {
    "Task": _fields("Resource", "Arguments Output Assign TimeoutSeconds HeartbeatSeconds Retry Catch Next End"),
    "Map": _fields(
        "ItemProcessor",
        "Items ItemSelector MaxConcurrency ToleratedFailurePercentage ToleratedFailureCount Label Output Assign"
        " Retry Catch Next End",
    ),
    "Parallel": _fields("Branches", "Arguments Output Assign Retry Catch Next End"),
    "Choice": _fields("Choices", "Default Output Assign"),
    "Wait": _fields("", "Seconds Timestamp Output Assign Next End"),
    "Pass": _fields("", "Output Assign Next End"),
    "Succeed": _fields("", "Output"),
    "Fail": _fields("", "Error Cause"),
}
_COMMON = frozenset({"Type", "Comment", "QueryLanguage"})
_MACHINE = _fields("StartAt States", "Comment QueryLanguage Version TimeoutSeconds")
_PROCESSOR = _fields("StartAt States ProcessorConfig", "Comment")
_PROCESSOR_CONFIG = _fields("Mode", "ExecutionType")
_BRANCH = _fields("StartAt States", "Comment")
_CHOICE_RULE = _fields("Condition Next", "Assign Output Comment")
_CATCHER = _fields("ErrorEquals Next", "Assign Output Comment")
_RETRIER = _fields("ErrorEquals", "IntervalSeconds MaxAttempts BackoffRate MaxDelaySeconds JitterStrategy Comment")
_EVALUATED = (
    "Arguments",
    "Output",
    "Assign",
    "Items",
    "ItemSelector",
    "MaxConcurrency",
    "ToleratedFailurePercentage",
    "ToleratedFailureCount",
    "Seconds",
    "Timestamp",
    "TimeoutSeconds",
    "HeartbeatSeconds",
    "Error",
    "Cause",
)
_MAX_SECONDS = 99_999_999


@dataclass(frozen=True)
class Machine:
    """A checked state machine. `key` is what tests call it by, `name` and `arn` are what AWS would."""

    key: str
    name: str
    arn: str
    definition: Json


def load(key: str, name: str, arn: str, definition: Json) -> Machine:
    """Check `definition` wholly. Raises DefinitionError with every problem found."""
    problems = list(_machine_problems(definition))
    if problems:
        raise DefinitionError(name, problems)
    return Machine(key, name, arn, definition)


def all_states(definition: Mapping[str, Any]) -> Iterator[tuple[str, Json]]:
    """Each (name, state), those inside Map and Parallel included."""
    for name, state in definition.get("States", {}).items():
        yield name, state
        for block in _blocks(state):
            yield from all_states(block)


def is_distributed(state: Mapping[str, Any]) -> bool:
    return bool(state["ItemProcessor"]["ProcessorConfig"]["Mode"] == "DISTRIBUTED")


def _blocks(state: Mapping[str, Any]) -> list[Json]:
    return [*([state["ItemProcessor"]] if "ItemProcessor" in state else []), *state.get("Branches", [])]


def _machine_problems(definition: Json) -> Iterator[str]:
    yield from _field_problems("the state machine", definition, _MACHINE, frozenset())
    if definition.get("QueryLanguage") != "JSONata":
        yield "QueryLanguage must be JSONata (the engine knows no JSONPath)"
    names = [name for name, _ in all_states(definition)]
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield f"state name {name!r} is used twice; names are unique in a whole state machine"
    yield from _block_problems(definition, frozenset())


def _block_problems(block: Json, outer_variables: frozenset[str]) -> Iterator[str]:
    states = block.get("States", {})
    if block.get("StartAt") not in states:
        yield f"StartAt {block.get('StartAt')!r} is not a state"
    variables = frozenset(_assigned(states))
    for variable in sorted(variables & outer_variables):
        yield f"variable ${variable} is assigned in an inner and an outer scope"
    for name, state in states.items():
        yield from _state_problems(name, state, states, variables | outer_variables)


def _assigned(states: Mapping[str, Json]) -> Iterator[str]:
    for state in states.values():
        for holder in [state, *state.get("Choices", []), *state.get("Catch", [])]:
            yield from holder.get("Assign", {})


def _state_problems(name: str, state: Json, siblings: Json, variables: frozenset[str]) -> Iterator[str]:
    where = f"state {name!r}"
    kind = state.get("Type")
    if kind not in _STATES:
        yield f"{where}: Type {kind!r} is not known"
        return
    if len(name) > 80:
        yield f"{where}: the name has {len(name)} characters; AWS takes 80"
    if state.get("QueryLanguage", "JSONata") != "JSONata":
        yield f"{where}: QueryLanguage must be JSONata"
    fields = _STATES[kind]
    yield from _field_problems(where, state, fields, _COMMON)
    yield from _transition_problems(where, state, siblings, leads_on="Next" in fields.optional)
    yield from _expression_problems(where, state, kind)
    yield from _choice_problems(where, state)
    yield from _error_handling_problems(where, state)
    yield from _duration_problems(where, state, kind)
    if kind == "Task":
        for problem in resource_problems(str(state.get("Resource")), state.get("Arguments")):
            yield f"{where}: {problem}"
    yield from _inner_problems(where, state, kind, variables)


def _transition_problems(where: str, state: Json, siblings: Json, *, leads_on: bool) -> Iterator[str]:
    if leads_on and ("Next" in state) == (state.get("End") is True):
        yield f"{where}: exactly one of Next and End: true is needed"
    rules = [*state.get("Choices", []), *state.get("Catch", [])]
    for target in [state.get("Next"), state.get("Default"), *(rule.get("Next") for rule in rules)]:
        if target is not None and target not in siblings:
            yield f"{where}: its target {target!r} is not a state beside it"


def _choice_problems(where: str, state: Json) -> Iterator[str]:
    if state["Type"] == "Choice" and not state.get("Choices"):
        yield f"{where}: Choices is empty"
    for index, rule in enumerate(state.get("Choices", [])):
        yield from _field_problems(f"{where} Choices[{index}]", rule, _CHOICE_RULE, frozenset())
        if not is_expression(rule.get("Condition")):
            yield f"{where} Choices[{index}]: Condition must be one {{% expression %}}"


def _duration_problems(where: str, state: Json, kind: str) -> Iterator[str]:
    if kind == "Wait" and ("Seconds" in state) == ("Timestamp" in state):
        yield f"{where}: exactly one of Seconds and Timestamp is needed"
    for field in ("TimeoutSeconds", "HeartbeatSeconds", "Seconds"):
        value = state.get(field)
        low = 0 if field == "Seconds" else 1
        if value is not None and not is_expression(value) and not (_is_int(value) and low <= value <= _MAX_SECONDS):
            yield f"{where}: {field} {value!r} must be a whole number from {low} to {_MAX_SECONDS}"
    timeout, heartbeat = state.get("TimeoutSeconds"), state.get("HeartbeatSeconds")
    if isinstance(timeout, int) and isinstance(heartbeat, int) and heartbeat >= timeout:
        yield f"{where}: HeartbeatSeconds must be smaller than TimeoutSeconds"


def _inner_problems(where: str, state: Json, kind: str, variables: frozenset[str]) -> Iterator[str]:
    if kind == "Parallel":
        for index, branch in enumerate(state.get("Branches", [])):
            yield from _field_problems(f"{where} Branches[{index}]", branch, _BRANCH, frozenset())
            yield from _block_problems(branch, variables)
    if kind == "Map" and "ItemProcessor" in state:
        processor = state["ItemProcessor"]
        config = processor.get("ProcessorConfig", {})
        yield from _field_problems(f"{where} ItemProcessor", processor, _PROCESSOR, frozenset())
        yield from _field_problems(f"{where} ProcessorConfig", config, _PROCESSOR_CONFIG, frozenset())
        mode = config.get("Mode")
        if mode == "DISTRIBUTED":
            if config.get("ExecutionType") != "STANDARD":
                yield f"{where}: ExecutionType {config.get('ExecutionType')!r} must be STANDARD"
            for field in sorted({"Items", "ItemSelector"} & state.keys()):
                yield f"{where}: {field} in a distributed Map; give the array as the state's whole input"
        elif mode == "INLINE":
            fields = {"ToleratedFailurePercentage", "ToleratedFailureCount", "Label"} & state.keys()
            for field in sorted(fields | ({"ExecutionType"} & config.keys())):
                yield f"{where}: {field} belongs to a distributed Map"
        else:
            yield f"{where}: ProcessorConfig Mode {mode!r} must be INLINE or DISTRIBUTED"
        # A distributed Map's children are executions of their own and see no variable from outside.
        yield from _block_problems(processor, frozenset() if mode == "DISTRIBUTED" else variables)


def _error_handling_problems(where: str, state: Json) -> Iterator[str]:
    for field, shape in (("Retry", _RETRIER), ("Catch", _CATCHER)):
        entries = state.get(field, [])
        for index, entry in enumerate(entries):
            spot = f"{where} {field}[{index}]"
            yield from _field_problems(spot, entry, shape, frozenset())
            names = entry.get("ErrorEquals") or []
            if not names:
                yield f"{spot}: ErrorEquals is empty"
            if ALL in names and (len(names) > 1 or index < len(entries) - 1):
                yield f"{spot}: {ALL} must stand alone and last"
            if field == "Retry":
                yield from _retrier_problems(spot, entry)


def _retrier_problems(spot: str, entry: Json) -> Iterator[str]:
    interval = entry.get("IntervalSeconds", 1)
    if not (_is_int(interval) and 1 <= interval <= _MAX_SECONDS):
        yield f"{spot}: IntervalSeconds {interval!r} must be a whole number above 0"
    attempts = entry.get("MaxAttempts", 3)
    if not (_is_int(attempts) and 0 <= attempts <= _MAX_SECONDS):
        yield f"{spot}: MaxAttempts {attempts!r} must be a whole number, 0 or more"
    backoff = entry.get("BackoffRate", 2.0)
    if isinstance(backoff, bool) or not isinstance(backoff, int | float) or backoff < 1:
        yield f"{spot}: BackoffRate {backoff!r} must be 1.0 or more"
    longest = entry.get("MaxDelaySeconds")
    if longest is not None and not (_is_int(longest) and _is_int(interval) and interval < longest <= 31_622_400):
        yield f"{spot}: MaxDelaySeconds {longest!r} must be above IntervalSeconds and below 31622401"
    if entry.get("JitterStrategy", "NONE") not in ("NONE", "FULL"):
        yield f"{spot}: JitterStrategy must be NONE or FULL"


def _field_problems(where: str, holder: Json, fields: _Fields, common: frozenset[str]) -> Iterator[str]:
    for field in sorted(fields.required - holder.keys()):
        yield f"{where}: {field} is missing"
    for field in sorted(holder.keys() - fields.required - fields.optional - common):
        yield f"{where}: field {field!r} is not known here"


def _expression_problems(where: str, state: Json, kind: str) -> Iterator[str]:
    has_result = kind in ("Task", "Map", "Parallel")
    for field in _EVALUATED:
        if field in state:
            result_allowed = has_result and field in ("Output", "Assign")
            yield from _text_problems(f"{where} {field}", state[field], state, result_allowed, errors_allowed=False)
    for part, errors_allowed in (("Choices", False), ("Catch", True)):
        for index, rule in enumerate(state.get(part, [])):
            for field in ("Condition", "Output", "Assign"):
                if field in rule:
                    spot = f"{where} {part}[{index}] {field}"
                    yield from _text_problems(spot, rule[field], state, False, errors_allowed=errors_allowed)
    for variable in state.get("Assign", {}):
        if variable == "states" or not re.fullmatch(r"[A-Za-z_]\w{0,79}", variable):
            yield f"{where}: {variable!r} is no name for a variable"


def _text_problems(where: str, value: Any, state: Json, result_allowed: bool, *, errors_allowed: bool) -> Iterator[str]:
    if isinstance(value, dict):
        for key, item in value.items():
            if key.endswith(".$"):
                yield f"{where}: key {key!r} is JSONPath"
            yield from _text_problems(where, item, state, result_allowed, errors_allowed=errors_allowed)
    elif isinstance(value, list):
        for item in value:
            yield from _text_problems(where, item, state, result_allowed, errors_allowed=errors_allowed)
    elif is_expression(value):
        yield from _syntax_problems(where, value)
        yield from _reference_problems(where, value, state, result_allowed, errors_allowed=errors_allowed)
    elif isinstance(value, str) and (value.lstrip().startswith("{%") or value.rstrip().endswith("%}")):
        yield f"{where}: {value!r} must start with {{% and end with %}} to be evaluated"


def _reference_problems(
    where: str, value: str, state: Json, result_allowed: bool, *, errors_allowed: bool
) -> Iterator[str]:
    if "$states.result" in value and not result_allowed:
        yield f"{where}: $states.result exists only in Output and Assign of Task, Map and Parallel"
    if "$states.errorOutput" in value and not errors_allowed:
        yield f"{where}: $states.errorOutput exists only in Catch"
    if "$states.context.Task.Token" in value and "waitForTaskToken" not in str(state.get("Resource")):
        yield f"{where}: $states.context.Task.Token exists only in a waitForTaskToken task"


def _syntax_problems(where: str, value: str) -> Iterator[str]:
    try:
        compiled(value[2:-2].strip())
    except Exception as error:  # noqa: BLE001 - the parser raises more than one type
        yield f"{where}: {value!r} is not JSONata: {error}"


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
