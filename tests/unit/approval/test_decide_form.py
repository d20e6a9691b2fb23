"""The form of the approval page: what a browser sends is read, anything else is refused with field, rule and remedy."""

import base64
import json
from urllib.parse import urlencode

import pytest

from blockkeeper.domain.approval import Decision
from decide_approval.form import FORM, Form, FormError, read_form


def event(body, content_type=FORM, **more):
    return {"headers": {"Content-Type": content_type}, "body": body, **more}


def test_what_a_browser_sends_is_read():
    assert read_form(event("decision=approve&reason=")) == Form(Decision.APPROVE, None, None)
    assert read_form(event("decision=reject")) == Form(Decision.REJECT, None, None)
    assert read_form(event("reason=+too+dear%0D%0Areally+&decision=reject")) == Form(
        Decision.REJECT, "too dear\nreally", None
    )


def test_a_base64_body_is_decoded_first_case_b05():
    body = base64.b64encode(urlencode({"decision": "approve", "reason": "*p5* für Größe"}).encode()).decode()
    assert read_form(event(body, isBase64Encoded=True)) == Form(Decision.APPROVE, "*p5* für Größe", None)


@pytest.mark.parametrize("name", ["Content-Type", "content-type", "CONTENT-TYPE"])
def test_a_header_in_any_case_and_with_a_charset_is_a_form(name):
    headers = {name: "Application/X-WWW-Form-URLencoded; charset=UTF-8"}
    assert read_form({"headers": headers, "body": "decision=reject"}).decision is Decision.REJECT


def test_the_example_of_the_schema_is_a_form(request):
    example = json.loads((request.config.rootpath / "events" / "decide-form.json").read_text())
    assert read_form(event(urlencode(example))) == Form(Decision.APPROVE, "The run needs one more day", None)


@pytest.mark.parametrize(
    ("sent", "status", "words"),
    [
        (event("decision=maybe"), 400, 'decision is "maybe"; it is approve or reject'),
        (event("decision=APPROVE"), 400, "approve or reject"),
        (event("reason=x"), 400, "decision is missing"),
        (event(None), 400, "decision is missing"),
        (event("decision=approve&decision=reject"), 400, "a field twice"),
        (event("decision=approve&approver=jo"), 400, "approver is unknown"),
        (event(urlencode({"decision": "approve", "reason": "x" * 501})), 400, "up to 500 characters"),
        (event(urlencode({"decision": "approve", "reason": "a\x00b"})), 400, "reason is"),
        (event("decision=approve&reason=%ff"), 400, "a form in UTF-8"),
        (event("&".join(f"a{i}=1" for i in range(11))), 400, "cannot be read"),
        (event("%%%", isBase64Encoded=True), 400, "cannot be read"),
        (event("/w==", isBase64Encoded=True), 400, "cannot be read"),
        (event(json.dumps({"decision": "approve"}), "application/json"), 415, FORM),
        ({"headers": None, "body": "decision=approve"}, 415, "Content-Type"),
    ],
)
def test_anything_else_is_refused_with_the_remedy(sent, status, words):
    with pytest.raises(FormError) as refused:
        read_form(sent)
    assert refused.value.status == status
    assert words in str(refused.value)
    assert all(problem.remedy for problem in refused.value.problems)
