"""HTTP as such: routes, methods, the OpenAPI document, and bodies of any kind."""

import json
import logging
import re
import tomllib
from pathlib import Path

import pytest
from api_client import COMPLETE, gateway_event
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from openapi_spec_validator import validate
from samtranslator.yaml_helper import yaml_parse

from api import environments as routes_of_environments
from api.app import lambda_handler
from api.openapi import API_VERSION
from api.routes import ROUTES
from blockkeeper.schema_check import schema_problems

ROOT = Path(__file__).parents[3]


def test_the_document_is_valid_openapi(api):
    answer = api("GET", "/openapi.json")
    assert answer.status == 200
    validate(answer.body)
    assert answer.body["openapi"].startswith("3.1")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert answer.body["info"]["version"] == project["version"] == API_VERSION


def test_every_documented_route_is_reached_and_every_route_is_documented(api):
    document = api("GET", "/openapi.json").body
    documented = {(path, method.upper()) for path, methods in document["paths"].items() for method in methods}
    assert documented == {(route.resource, route.method) for route in ROUTES}
    operations = [operation["operationId"] for methods in document["paths"].values() for operation in methods.values()]
    assert len(set(operations)) == len(operations)
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            named = path.replace("{PK}", "team-vision").replace("{id}", "cr-0a1-20260504T1130Z-1")
            answer = api(method.upper(), named)
            assert str(answer.status) in operation["responses"], f"{method} {path} answers {answer.status}"
            assert answer.status != 405
            parameters = {parameter["name"] for parameter in operation["parameters"] if parameter["in"] == "path"}
            assert parameters == set(re.findall(r"{(\w+)}", path))


def test_the_template_routes_exactly_the_documented_paths_here():
    template = yaml_parse((ROOT / "template.yaml").read_text())
    events = template["Resources"]["ApiFunction"]["Properties"]["Events"].values()
    routed = {(event["Properties"]["Path"], event["Properties"]["Method"]) for event in events}
    assert routed == {(route.resource, route.method) for route in ROUTES}


@pytest.mark.parametrize("method", ["HEAD", "OPTIONS", "TRACE", "POST", "get"])
def test_wrong_method(api, method):
    answer = api(method, "/blocks")
    assert (answer.status, answer.body["error"]["code"]) == (405, "method_not_allowed")
    assert answer.headers["Allow"] == "GET"
    assert schema_problems("error", answer.body) == []


def test_root_says_what_it_allows(api):
    assert set(api("HEAD", "/").headers["Allow"].split(", ")) == {"GET", "POST", "PUT", "PATCH", "DELETE"}


@pytest.mark.parametrize("path", ["/decide/x", "/approvals/x", "/approvals/x/y", "/a/b"])
def test_unknown_path(api, path):
    answer = api("GET", path)
    assert answer.status == 404
    assert schema_problems("error", answer.body) == []


@pytest.mark.parametrize("path", sorted((ROOT / "events").glob("api-request.*.json")), ids=lambda path: path.stem)
def test_samples_of_requests_are_answered(api, path):
    api("POST", "/", COMPLETE)
    answer = lambda_handler(json.loads(path.read_text()), None)
    expected = {"api-request.create": 409, "api-request.approve": 404}
    assert answer["statusCode"] == expected.get(path.stem, 200)


def test_what_breaks_inside_is_json_too_and_says_nothing_of_it(api, monkeypatch, caplog):
    def broken(_):
        raise RuntimeError("s3cret of the inside")

    monkeypatch.setattr(routes_of_environments.environments, "load_record", broken)
    with caplog.at_level(logging.ERROR):
        answer = api("GET", "/team-vision")
    assert (answer.status, answer.body["error"]["code"]) == (500, "internal")
    assert "s3cret" not in answer.text
    assert schema_problems("error", answer.body) == []


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
FIELDS = [
    "PK",
    *COMPLETE,
    "fallback_days",
    "groups",
    "replace",
    "extend_until",
    "quorum",
    "team",
    "status",
    "version",
    "approval",
]
ANY_RECORD = st.dictionaries(st.sampled_from(FIELDS), JSON, max_size=6)
ROUTED = [(route.method, route.resource) for route in ROUTES]


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    route=st.sampled_from(ROUTED),
    body=st.one_of(
        ANY_RECORD.map(json.dumps),
        ANY_RECORD.map(lambda change: json.dumps({**COMPLETE, **change})),
        JSON.map(json.dumps),
        st.text(),
        st.none(),
    ),
    pk=st.one_of(st.just("team-vision"), st.text()),
    query=st.dictionaries(st.sampled_from(["PK", "limit", "cursor", "status", "x"]), st.text(), max_size=3),
    headers=st.dictionaries(st.sampled_from(["If-Match", "Content-Type", "x-api-key"]), st.text(), max_size=2),
    encoded=st.booleans(),
)
def test_no_request_breaks_the_api(api, *, route, body, pk, query, headers, encoded):  # noqa: ARG001 - the table must be there
    method, resource = route
    event = gateway_event(method, "/", body=body, query=query or None, headers=headers, encoded=encoded)
    parameters = dict.fromkeys(re.findall(r"{(\w+)}", resource), pk)
    answer = lambda_handler({**event, "resource": resource, "pathParameters": parameters or None}, None)
    assert answer["statusCode"] < 500, answer["body"]
    said = json.loads(answer["body"])
    answer["body"].encode()
    if answer["statusCode"] >= 400:
        assert schema_problems("error", said) == []


LIKELY = st.fixed_dictionaries(
    {},
    optional={
        "name": st.text(min_size=1),
        "capacity_block_id": st.sampled_from(["cr-0a1", "cr-0b2"]),
        "extend_by_days": st.integers(1, 30),
        "approvers": st.lists(st.sampled_from(["a@example.com", "U024BE7LH"])),
        "quorum": st.integers(1, 3) | st.none(),
        "fallback_days": st.lists(st.integers(1, 7)),
        "max_upfront_fee": st.decimals(0, 99999, places=2).map(str) | st.none(),
        "extend_until": st.datetimes().map(lambda moment: moment.isoformat() + "Z"),
    },
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(change=ANY_RECORD | LIKELY)
def test_any_change_is_refused_whole_or_leaves_a_readable_record(api, change):
    api("DELETE", "/team-vision")
    api.enrol()
    before = api("GET", "/team-vision")
    text = json.dumps(change)
    answer = api("PUT", "/team-vision", raw=text)
    after = api("GET", "/team-vision")
    if answer.status == 200:
        assert answer.body == after.body
        assert "cannot be read" not in api("GET", "/blocks").body[0]["next_step"]
    else:
        assert answer.status == 400
        assert after.body == before.body
