"""Every schema is one, says what each field is, and every sample in events/ is what its schema says."""

import json
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from blockkeeper.domain.enrolment import DEFAULTS, KEPT_FIELDS, RESERVED_WORDS
from blockkeeper.domain.environment import Environment, Status
from blockkeeper.schema_check import SCHEMAS, schema, schema_problems, without_read_only

EVENTS = Path(__file__).parents[3] / "events"
NAMES = sorted(path.name.removesuffix(".schema.json") for path in SCHEMAS.glob("*.schema.json"))
# `events/<schema>[.<case>].json`; requests are checked by no schema but answered, in tests/functional/api and .../approval.
SAMPLES = sorted(
    path for path in EVENTS.glob("*.json") if not path.name.startswith(("api-request.", "decide-request."))
)


def fields(node, path="$"):
    for name, words in node.get("properties", {}).items():
        yield f"{path}.{name}", words
        yield from fields(words, f"{path}.{name}")
    if isinstance(node.get("items"), dict):
        yield f"{path}[]", node["items"]
        yield from fields(node["items"], f"{path}[]")


@pytest.mark.parametrize("name", [name for name in NAMES if name != "fleet"])  # the fleet is the local AWS's own
def test_schema_is_valid_and_every_field_is_described(name):
    read = schema(name)
    Draft202012Validator.check_schema(read)
    assert read["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert read["title"]
    bare = [path for path, words in fields(read) if "description" not in words and not path.endswith("[]")]
    assert bare == []


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_sample_is_what_its_schema_says(path):
    name = path.name.split(".")[0]
    assert name in NAMES, f"{path.name} is named after no schema"
    assert schema_problems(name, without_read_only(name, json.loads(path.read_text()))) == []


@pytest.mark.parametrize(
    "name",
    ["approval-answer", "approve-purchase", "decide-form", "ec2-event", "environment", "extend-block", "scale-groups"],
)
def test_what_comes_from_outside_has_a_sample(name):
    assert any(path.name.split(".")[0] == name for path in SAMPLES)


def test_the_records_fields_are_the_same_in_schema_domain_and_rules():
    properties = schema("environment")["properties"]
    kept = {name for name, words in properties.items() if words.get("readOnly")}
    # A sample client's own field, which is dropped, and what is computed at each answer.
    of_the_api_alone = {"approval", "warnings"}
    assert kept == {*KEPT_FIELDS, *of_the_api_alone}
    domain = {name if name != "pk" else "PK" for name in Environment.__dataclass_fields__}
    assert domain == set(properties) - of_the_api_alone
    assert properties["status"]["enum"] == [status.value for status in Status]
    assert {name: properties[name]["default"] for name in DEFAULTS} == dict(DEFAULTS)
    assert all(word in properties["PK"]["description"] for word in RESERVED_WORDS)


@pytest.mark.parametrize("key", ["detail-type", "detail_type"])
@pytest.mark.parametrize("middle", ["", "Reservation "])
@pytest.mark.parametrize("name", ["Delivered", "Expiration Warning"])
def test_case_b01_both_spellings_of_name_and_key(key, middle, name):
    event = json.loads((EVENTS / "ec2-event.delivered.json").read_text())
    event.pop("detail-type")
    assert schema_problems("ec2-event", {**event, key: f"Capacity Block {middle}{name}"}) == []
    assert [problem.field for problem in schema_problems("ec2-event", {**event, key: "Capacity Block Gone"})] == [key]


@pytest.mark.parametrize(
    ("event", "field"),
    [
        ({"source": "aws.ec2", "detail": {"capacity-reservation-id": "cr-0a1"}}, "body"),
        ({"source": "aws.ec2", "detail-type": "Capacity Block Delivered"}, "detail"),
        (
            {"source": "aws.ec2", "detail-type": "Capacity Block Delivered", "detail": {}},
            "detail.capacity-reservation-id",
        ),
        (
            {
                "source": "me",
                "detail-type": "Capacity Block Delivered",
                "detail": {"capacity-reservation-id": "cr-0a1"},
            },
            "source",
        ),
        (
            {
                "source": "aws.ec2",
                "detail-type": "AWS API Call via CloudTrail",
                "detail": {"eventSource": "ec2.amazonaws.com", "eventName": "RunInstances"},
            },
            "detail.eventName",
        ),
    ],
)
def test_broken_events_name_the_field(event, field):
    assert [problem.field for problem in schema_problems("ec2-event", event)] == [field]
