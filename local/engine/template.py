"""Reads the project's SAM template as CloudFormation would, far enough to run it in-process.

Parameters, conditions and intrinsic functions are resolved; physical names and ARNs are invented, always the same. What the
reader does not know it refuses.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import yaml

Json = dict[str, Any]
_NO_VALUE = object()
_FUNCTION = "AWS::Serverless::Function"
_STATE_MACHINE = "AWS::Serverless::StateMachine"
_RULE_EVENTS = frozenset({"EventBridgeRule", "CloudWatchEvent"})
_SCHEDULE_EVENTS = frozenset({"Schedule", "ScheduleV2"})
# The property that names a resource, and the service and resource part of its ARN.
_NAME_PROPERTIES = {
    _FUNCTION: ("FunctionName", "lambda", "function:{}"),
    _STATE_MACHINE: ("Name", "states", "stateMachine:{}"),
    "AWS::DynamoDB::Table": ("TableName", "dynamodb", "table/{}"),
    "AWS::Serverless::SimpleTable": ("TableName", "dynamodb", "table/{}"),
    "AWS::SNS::Topic": ("TopicName", "sns", "{}"),
    "AWS::SQS::Queue": ("QueueName", "sqs", "{}"),
    "AWS::SecretsManager::Secret": ("Name", "secretsmanager", "secret:{}-AbCdEf"),
    "AWS::SSM::Parameter": ("Name", "ssm", "parameter{}"),
    "AWS::Events::EventBus": ("Name", "events", "event-bus/{}"),
    "AWS::Events::Rule": ("Name", "events", "rule/{}"),
    "AWS::Scheduler::Schedule": ("Name", "scheduler", "schedule/default/{}"),
    "AWS::Scheduler::ScheduleGroup": ("Name", "scheduler", "schedule-group/{}"),
    "AWS::Logs::LogGroup": ("LogGroupName", "logs", "log-group:{}"),
    "AWS::IAM::Role": ("RoleName", "iam", "role/{}"),
    "AWS::KMS::Key": ("KeyId", "kms", "key/{}"),
}
_REF_IS_ARN = frozenset({_STATE_MACHINE, "AWS::SNS::Topic", "AWS::SecretsManager::Secret"})


@dataclass(frozen=True)
class Function:
    """A Lambda function: `handler` is `name.app.handler`, `environment` has every variable resolved."""

    logical_id: str
    name: str
    arn: str
    handler: str
    environment: Mapping[str, str]
    timeout: int


@dataclass(frozen=True)
class StateMachine:
    """A state machine with its substitutions filled in."""

    logical_id: str
    name: str
    arn: str
    definition: Json


@dataclass(frozen=True)
class Trigger:
    """What starts a function or state machine: an event pattern or a schedule; `input` None passes the event on."""

    name: str
    target: str
    pattern: Json | None = None
    schedule: str | None = None
    input: str | None = None
    input_paths: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Route:
    """A REST API method that a function answers; `path` may have parts such as `{id}`."""

    function: str
    method: str
    path: str
    api_key_required: bool


class Template:
    """The resources of a template under given parameters.

    Raises ValueError for a parameter without value, an unknown intrinsic function or a reference to nothing.
    """

    def __init__(
        self,
        path: Path,
        parameters: Mapping[str, str] | None = None,
        *,
        stack: str = "blockkeeper",
        region: str = "us-east-1",
        account: str = "123456789012",
    ) -> None:
        self._path = path
        document = _read(path, path.stat().st_mtime_ns)
        self._document = document
        self._pseudo = {
            "AWS::AccountId": account,
            "AWS::NoValue": _NO_VALUE,
            "AWS::Partition": "aws",
            "AWS::Region": region,
            "AWS::StackId": f"arn:aws:cloudformation:{region}:{account}:stack/{stack}/1",
            "AWS::StackName": stack,
            "AWS::URLSuffix": "amazonaws.com",
        }
        self.parameters = self._parameters(dict(parameters or {}))
        self._conditions = document.get("Conditions", {})
        self._resources: dict[str, Json] = {
            logical_id: resource
            for logical_id, resource in document.get("Resources", {}).items()
            if "Condition" not in resource or self._condition(resource["Condition"])
        }

    @cached_property
    def functions(self) -> dict[str, Function]:
        """By logical id."""
        shared = self.resolve(self._document.get("Globals", {}).get("Function", {}))
        found = {}
        for logical_id, given in self.of_type(_FUNCTION):
            properties = {**shared, **given}
            variables = {
                **shared.get("Environment", {}).get("Variables", {}),
                **given.get("Environment", {}).get("Variables", {}),
            }
            environment = {name: _text(value) for name, value in variables.items()}
            found[logical_id] = Function(
                logical_id,
                self.name(logical_id),
                self.arn(logical_id),
                properties["Handler"],
                environment,
                int(properties.get("Timeout", 3)),
            )
        return found

    @cached_property
    def state_machines(self) -> dict[str, StateMachine]:
        """By logical id."""
        return {
            logical_id: StateMachine(
                logical_id, self.name(logical_id), self.arn(logical_id), self._definition(logical_id, properties)
            )
            for logical_id, properties in self.of_type(_STATE_MACHINE)
        }

    @cached_property
    def logical_ids(self) -> dict[str, str]:
        """ARN -> logical id of every function and state machine."""
        return {self.arn(logical_id): logical_id for logical_id in [*self.functions, *self.state_machines]}

    @cached_property
    def triggers(self) -> list[Trigger]:
        """What EventBridge rules and schedules start; disabled ones are left out."""
        return [*self._own_events(), *self._rules(), *self._schedules()]

    @cached_property
    def routes(self) -> list[Route]:
        """The REST API's methods."""
        of_api = any(api.get("Auth", {}).get("ApiKeyRequired") for _, api in self.of_type("AWS::Serverless::Api"))
        found = []
        for logical_id, _, event in self._events():
            if event["Type"] == "Api":
                own = event["Properties"]
                key_required = own.get("Auth", {}).get("ApiKeyRequired", of_api)
                found.append(Route(logical_id, own["Method"].upper(), own["Path"], key_required))
        return found

    def of_type(self, *types: str) -> Iterator[tuple[str, Json]]:
        """(logical id, resolved properties) of each resource of these types."""
        for logical_id, resource in self._resources.items():
            if resource["Type"] in types:
                yield logical_id, self.resolve(resource.get("Properties", {}))

    def outputs(self) -> dict[str, Any]:
        """The stack's outputs."""
        return {
            name: self.resolve(output["Value"])
            for name, output in self._document.get("Outputs", {}).items()
            if "Condition" not in output or self._condition(output["Condition"])
        }

    def name(self, logical_id: str) -> str:
        """The physical name."""
        resource = self._resources[logical_id]
        field_name = _NAME_PROPERTIES.get(resource["Type"], ("", "", ""))[0]
        given = self.resolve(resource.get("Properties", {}).get(field_name, _NO_VALUE))
        return f"{self._pseudo['AWS::StackName']}-{logical_id}" if given is _NO_VALUE else _text(given)

    def arn(self, logical_id: str) -> str:
        """The ARN."""
        kind = self._resources[logical_id]["Type"]
        if kind not in _NAME_PROPERTIES:
            raise ValueError(f"no ARN is known for {logical_id} ({kind})")
        _, service, rest = _NAME_PROPERTIES[kind]
        region = "" if service == "iam" else self._pseudo["AWS::Region"]
        return f"arn:aws:{service}:{region}:{self._pseudo['AWS::AccountId']}:{rest.format(self.name(logical_id))}"

    def resolve(self, value: Any) -> Any:
        """`value` with its intrinsic functions replaced."""
        if isinstance(value, list):
            return [item for item in map(self.resolve, value) if item is not _NO_VALUE]
        if not isinstance(value, dict):
            return value
        if len(value) == 1:
            ((name, argument),) = value.items()
            if name in _INTRINSICS:
                return _INTRINSICS[name](self, argument)
            if name.startswith("Fn::"):
                raise ValueError(f"intrinsic function {name} is not known")
        resolved = {key: self.resolve(item) for key, item in value.items()}
        return {key: item for key, item in resolved.items() if item is not _NO_VALUE}

    # --- inside -------------------------------------------------------------------------------------------------------

    def _parameters(self, given: dict[str, str]) -> Json:
        declared: dict[str, Json] = self._document.get("Parameters", {})
        unknown = sorted(given.keys() - declared.keys())
        if unknown:
            raise ValueError(f"the template has no parameter {', '.join(unknown)}")
        values: Json = {}
        for name, declaration in declared.items():
            value = given.get(name, declaration.get("Default"))
            if value is None:
                raise ValueError(f"parameter {name} has no default and no value")
            if declaration.get("AllowedValues") and value not in declaration["AllowedValues"]:
                raise ValueError(f"parameter {name} is {value!r}; allowed are {declaration['AllowedValues']}")
            text = _text(value)
            is_list = declaration["Type"] in ("CommaDelimitedList", "List<String>", "List<Number>")
            values[name] = [part.strip() for part in text.split(",")] if is_list else text
        return values

    def _condition(self, condition: Any) -> bool:
        if isinstance(condition, str):
            return self._condition(self._conditions[condition])
        return bool(self.resolve(condition))

    def _definition(self, logical_id: str, properties: Json) -> Json:
        if "DefinitionUri" not in properties:
            raise ValueError(f"{logical_id} has no DefinitionUri")
        text = (self._path.parent / properties["DefinitionUri"]).read_text("utf-8")
        substitutions = properties.get("DefinitionSubstitutions", {})

        def fill(match: re.Match[str]) -> str:
            if match[1] not in substitutions:
                raise ValueError(f"{logical_id}: ${{{match[1]}}} has no value in DefinitionSubstitutions")
            return json.dumps(_text(substitutions[match[1]]))[1:-1]

        definition: Json = json.loads(re.sub(r"\$\{([A-Za-z0-9_]+)\}", fill, text))
        unused = sorted(name for name in substitutions if f"${{{name}}}" not in text)
        if unused:
            raise ValueError(f"{logical_id}: DefinitionSubstitutions {', '.join(unused)} are not in the definition")
        return definition

    def _events(self) -> Iterator[tuple[str, str, Json]]:
        for logical_id, properties in self.of_type(_FUNCTION, _STATE_MACHINE):
            for name, event in properties.get("Events", {}).items():
                yield logical_id, f"{logical_id}{name}", event

    def _own_events(self) -> Iterator[Trigger]:
        for target, name, event in self._events():
            properties = event.get("Properties", {})
            if properties.get("State") == "DISABLED" or properties.get("Enabled") is False or event["Type"] == "Api":
                continue
            if event["Type"] in _RULE_EVENTS:
                yield self._trigger(name, target, properties, pattern=properties["Pattern"])
            elif event["Type"] in _SCHEDULE_EVENTS:
                expression = properties.get("ScheduleExpression", properties.get("Schedule"))
                yield self._trigger(name, target, properties, schedule=expression)
            else:
                raise ValueError(f"{name}: event type {event['Type']} is not known")

    def _rules(self) -> Iterator[Trigger]:
        for logical_id, properties in self.of_type("AWS::Events::Rule"):
            if properties.get("State") == "DISABLED":
                continue
            for target in properties["Targets"]:
                if target["Arn"] in self.logical_ids:
                    yield self._trigger(
                        logical_id,
                        self.logical_ids[target["Arn"]],
                        target,
                        pattern=properties.get("EventPattern"),
                        schedule=properties.get("ScheduleExpression"),
                    )

    def _schedules(self) -> Iterator[Trigger]:
        for logical_id, properties in self.of_type("AWS::Scheduler::Schedule"):
            target = properties["Target"]
            if properties.get("State") != "DISABLED" and target["Arn"] in self.logical_ids:
                yield self._trigger(
                    logical_id, self.logical_ids[target["Arn"]], target, schedule=properties["ScheduleExpression"]
                )

    @staticmethod
    def _trigger(
        name: str, target: str, properties: Json, *, pattern: Json | None = None, schedule: str | None = None
    ) -> Trigger:
        transformer = properties.get("InputTransformer", {})
        if "InputPath" in properties:
            raise ValueError(f"{name}: InputPath is not known")
        text = transformer.get("InputTemplate", properties.get("Input"))
        return Trigger(name, target, pattern, schedule, text, transformer.get("InputPathsMap", {}))

    def _ref(self, name: str) -> Any:
        if name in self._pseudo:
            return self._pseudo[name]
        if name in self.parameters:
            return self.parameters[name]
        if name not in self._resources:
            return self._generated(name)
        kind = self._resources[name]["Type"]
        if kind == "AWS::SQS::Queue":
            return self._queue_url(name)
        return self.arn(name) if kind in _REF_IS_ARN else self.name(name)

    def _get_att(self, argument: Any) -> Any:
        logical_id, attribute = argument.split(".", 1) if isinstance(argument, str) else argument
        if logical_id not in self._resources:
            if attribute == "Arn" and logical_id.endswith("Role"):
                return f"arn:aws:iam::{self._pseudo['AWS::AccountId']}:role/{self._generated(logical_id)}"
            raise ValueError(f"{logical_id}.{attribute} refers to no resource")
        kind = self._resources[logical_id]["Type"]
        if attribute in ("Arn", "TopicArn") or (kind, attribute) == ("AWS::SecretsManager::Secret", "Id"):
            return self.arn(logical_id)
        if attribute in ("Name", "QueueName", "TopicName"):
            return self.name(logical_id)
        if (kind, attribute) == ("AWS::Serverless::Api", "Stage"):
            return self.resolve(self._resources[logical_id]["Properties"]["StageName"])
        if (kind, attribute) == ("AWS::SQS::Queue", "QueueUrl"):
            return self._queue_url(logical_id)
        return f"{self.name(logical_id)}-{attribute}"

    def _generated(self, name: str) -> str:
        """The name of a resource that SAM makes beside one of the template (`<function>Role`, `<api>Stage`)."""
        if any(name.startswith(logical_id) for logical_id in self._resources) or name == "ServerlessRestApi":
            return f"{self._pseudo['AWS::StackName']}-{name}"
        raise ValueError(f"{name} is neither a parameter nor a resource")

    def _queue_url(self, logical_id: str) -> str:
        region, account = self._pseudo["AWS::Region"], self._pseudo["AWS::AccountId"]
        return f"https://sqs.{region}.amazonaws.com/{account}/{self.name(logical_id)}"

    def _sub(self, argument: Any) -> str:
        text, own = (argument, {}) if isinstance(argument, str) else argument
        variables = self.resolve(own)

        def fill(match: re.Match[str]) -> str:
            name = match[1].strip()
            if name.startswith("!"):
                return f"${{{name[1:]}}}"
            if name in variables:
                return _text(variables[name])
            return _text(self._get_att(name) if "." in name else self._ref(name))

        return re.sub(r"\$\{([^}]*)\}", fill, text)

    def _if(self, argument: list[Any]) -> Any:
        condition, yes, no = argument
        return self.resolve(yes if self._condition(condition) else no)

    def _find_in_map(self, argument: list[Any]) -> Any:
        name, first, second = self.resolve(argument)
        return self.resolve(self._document["Mappings"][name][first][second])

    def _equals(self, argument: list[Any]) -> bool:
        one, other = self.resolve(argument)
        return _text(one) == _text(other)


_INTRINSICS: dict[str, Any] = {
    "Condition": lambda t, a: t._condition(a),
    "Ref": Template._ref,
    "Fn::And": lambda t, a: all(t._condition(item) for item in a),
    "Fn::Equals": Template._equals,
    "Fn::FindInMap": Template._find_in_map,
    "Fn::GetAtt": Template._get_att,
    "Fn::If": Template._if,
    "Fn::Join": lambda t, a: t.resolve(a[0]).join(map(_text, t.resolve(a[1]))),
    "Fn::Not": lambda t, a: not t._condition(a[0]),
    "Fn::Or": lambda t, a: any(t._condition(item) for item in a),
    "Fn::Select": lambda t, a: t.resolve(a[1])[int(t.resolve(a[0]))],
    "Fn::Split": lambda t, a: t.resolve(a[1]).split(t.resolve(a[0])),
    "Fn::Sub": Template._sub,
}


@lru_cache(maxsize=8)
def _read(path: Path, _changed: int) -> Json:
    """The document; never to be changed, since the next world reads it too."""
    document: Json = yaml.load(path.read_text("utf-8"), _Loader)  # noqa: S506 - a SafeLoader with CloudFormation's tags
    return document


def _text(value: Any) -> str:
    """A value as CloudFormation writes it into a string."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return ",".join(map(_text, value))
    if isinstance(value, dict) or value is _NO_VALUE:
        raise ValueError(f"{value!r} is no text")
    return str(value)


class _Loader(yaml.SafeLoader):
    """YAML with CloudFormation's short forms, such as `!Ref` and `!GetAtt`."""


def _short_form(loader: _Loader, suffix: str, node: yaml.Node) -> Json:
    name = suffix if suffix in ("Ref", "Condition") else f"Fn::{suffix}"
    if isinstance(node, yaml.ScalarNode):
        return {name: loader.construct_scalar(node)}
    if isinstance(node, yaml.SequenceNode):
        return {name: loader.construct_sequence(node, deep=True)}
    if isinstance(node, yaml.MappingNode):
        return {name: loader.construct_mapping(node, deep=True)}
    raise TypeError(f"!{suffix} has a node of an unknown kind")


_Loader.add_multi_constructor("!", _short_form)
# The template's version is a date to YAML and text to CloudFormation.
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
