"""The page behind an approver's link, through the REST API."""

import json
from datetime import timedelta
from pathlib import Path

import boto3
import pytest
from approval_story import DECIDE_BY, ID

FORM = {"Content-Type": "application/x-www-form-urlencoded"}


def secret():
    manager = boto3.client("secretsmanager", region_name="us-east-1")
    (found,) = [entry for entry in manager.list_secrets()["SecretList"] if "LinkKey" in entry["Name"]]
    return manager, found["Name"]


def test_the_page_shows_the_facts_and_a_form(story):
    story.enrol().ask()
    page = story.page(story.link())
    assert page.status == 200
    for words in (
        "p5.48xlarge (64 H100)",
        "7,973.38 USD",
        "Tue 5 May 2026, 11:30 UTC",
        "maria@example.com",
        "<form",
    ):
        assert words in page.body
    assert page.headers["cache-control"] == "no-store"
    assert page.headers["referrer-policy"] == "no-referrer"
    assert "default-src 'none'" in page.headers["content-security-policy"]


def test_a_scanner_that_fetches_everything_decides_nothing_case_b07(story):
    execution = story.enrol().ask()
    for recipient in ("maria@example.com", "jo@example.com"):
        link = story.link(recipient)
        for more in ("", "&decision=approve", "&decision=reject&reason=x", "&d=approve"):
            for _ in range(3):
                assert story.page(link + more).status == 200
                head = story.page(link + more, "HEAD")
                assert (head.status, head.body) == (200, "")
                assert head.headers["content-type"] == "text/html; charset=utf-8"
        # A robot that posts the link as it is has no form to send.
        assert story.page(link, "POST", headers=FORM, body="").status == 400
    story.world.run_until(DECIDE_BY - timedelta(seconds=1))
    assert (story.status(), execution.status, story.item()["votes"]) == ("OPEN", "RUNNING", {})
    story.answer(story.link())
    assert execution.output["decision"] == "approved"


def test_a_forged_link_is_refused_and_changes_nothing(story):
    story.enrol().ask()
    link = story.link()
    jo = story.link("jo@example.com")
    signature = link.partition("signature=")[2]
    forged = [
        link.replace(ID, f"{ID[:-1]}2"),
        link[:-1] + ("A" if link[-1] != "A" else "B"),
        jo.replace(jo.partition("signature=")[2], signature),
        link.replace("expires=1777883400", "expires=1877883400"),
    ]
    for url in forged:
        for answer in (story.page(url), story.answer(url)):
            assert answer.status == 403
            assert "This link is not right" in answer.body
            assert "<form" not in answer.body
            assert "7,973.38" not in answer.body
            assert signature not in answer.body
    assert story.item()["votes"] == {}


def test_the_sample_of_a_request_needs_only_a_signature_that_fits(story):
    execution = story.enrol().ask()
    event = json.loads((Path(__file__).parents[3] / "events" / "decide-request.json").read_text())
    assert story.world.invoke("DecideApproval", event)["statusCode"] == 403
    event["queryStringParameters"]["signature"] = story.link().partition("signature=")[2]
    assert story.world.invoke("DecideApproval", event)["statusCode"] == 200
    story.world.run_until(story.world.now())
    assert execution.output["reason"] == "The run needs one more day"


def test_a_link_that_was_cut_off_says_so(story):
    story.enrol().ask()
    for url in (story.link()[:-3], story.link().partition("&")[0]):
        page = story.page(url)
        assert page.status == 400
        assert "not complete" in page.body
    page = story.page(story.link().partition("?")[0])
    assert page.status == 200
    assert "the link was cut off" in page.body
    assert story.page(story.link().partition("?")[0].replace(ID, "cr-0a1-none")).status == 404


def test_a_request_that_is_gone_is_not_found(story):
    story.enrol().ask()
    link = story.link()
    story._dynamodb.delete_item(TableName=story._table, Key={"kind": {"S": "approval"}, "id": {"S": ID}})
    for answer in (story.page(link), story.answer(link)):
        assert answer.status == 404
        assert "no such request" in answer.body


def test_a_link_outlives_one_rotation_of_the_key(story):
    execution = story.enrol().ask()
    manager, name = secret()
    manager.put_secret_value(SecretId=name, SecretString=json.dumps({"key": "n" * 64}))
    assert story.page(story.link()).status == 200
    story.answer(story.link())
    assert execution.output["decision"] == "approved"


def test_a_link_dies_with_the_second_rotation(story):
    story.enrol().ask()
    manager, name = secret()
    for key in ("n", "m"):
        manager.put_secret_value(SecretId=name, SecretString=json.dumps({"key": key * 64}))
    assert story.page(story.link()).status == 403


def test_an_unusable_key_neither_signs_nor_accepts(story):
    story.enrol().ask()
    link = story.link()
    manager, name = secret()
    for text in ('{"key": "short"}', '{"other": 1}', "[]", "null", "not json"):
        manager.put_secret_value(SecretId=name, SecretString=text)
        page = story.page(link)
        assert (page.status, "Please try again" in page.body) == (503, True)
    other = story.ask("other", approval_id="cr-0a1-20260504T1130Z-2")
    story.world.run_until(DECIDE_BY)
    assert (other.status, other.error) == ("FAILED", "UnusableKeyError")
    assert len(story.mails()) == 2


@pytest.mark.parametrize("base64", [False, True])
def test_a_reason_of_any_script_arrives_whole_case_b05(story, base64):
    execution = story.enrol().ask()
    answer = story.answer(story.link(), reason="*p5* für Größe 🚀\r\nzweite Zeile", base64=base64)
    assert answer.status == 200
    assert execution.output["reason"] == "*p5* für Größe 🚀\nzweite Zeile"


def test_a_reason_is_shown_as_text(story):
    story.enrol().ask()
    body = story.answer(story.link(), reason="<img src=x onerror=alert(1)>").body
    assert "<img" not in body
    assert "&lt;img src=x" in body


def test_a_form_that_no_browser_sends_says_what_is_wrong_and_decides_nothing(story):
    story.enrol().ask()
    wrong = [
        ("decision=maybe&reason=x", FORM, 400, "Decision is &quot;maybe&quot;; it is approve or reject (press one of"),
        ("approve", {"Content-Type": "text/plain"}, 415, "x-www-form-urlencoded"),
    ]
    for body, headers, status, words in wrong:
        answer = story.page(story.link(), "POST", body=body, headers=headers)
        assert answer.status == status
        assert words in answer.body
        assert "Nothing was decided or changed" in answer.body
    assert story.status() == "OPEN"


def test_a_second_click_and_a_second_person_hear_who_decided_case_b06(story):
    execution = story.enrol().ask()
    story.answer(story.link(), "approve")
    for link, decision in ((story.link(), "approve"), (story.link("jo@example.com"), "reject")):
        again = story.answer(link, decision)
        assert again.status == 200
        assert "Approved by maria@example.com on Mon 4 May 2026, 06:00 UTC. Your answer changed nothing." in again.body
    assert execution.output["decision"] == "approved"
    assert [name for name, _ in story.told()].count("Approval Decided") == 1


def test_after_the_decision_every_link_shows_it_case_b04(story):
    story.enrol().ask()
    story.answer(story.link(), "reject", "too dear")
    for link in (story.link(), story.link("jo@example.com")):
        page = story.page(link)
        assert "Rejected by maria@example.com" in page.body
        assert "Reason: too dear" in page.body
        assert "<form" not in page.body
    story.world.run_until(DECIDE_BY)
    assert "Rejected by maria@example.com" in story.page(story.link()).body


def test_someone_who_is_taken_off_the_record_may_still_answer_what_they_were_asked(story):
    """Who was asked is fixed with the question; the record's next question asks others."""
    story.enrol().ask()
    story.enrol(approvers=["kim@example.com"])
    story.ask("again")
    assert story.mails("kim@example.com") == []
    assert "Your answer is recorded." in story.answer(story.link()).body


def test_a_table_that_is_away_is_no_decision(story):
    story.enrol().ask()
    link = story.link()
    story._dynamodb.delete_table(TableName=story._table)
    answer = story.answer(link)
    assert answer.status == 503
    assert "Open the link again" in answer.body


def test_nothing_that_opens_a_door_is_in_a_log_an_event_or_an_answer_case_b41(story, monkeypatch):
    """Every path at once: ask, refuse, retry, forge, answer, deliver late, close."""
    story.refuse_mail("jo@example.com")
    story.world.engine.crash("AskApprovers", when="after")
    executions = [story.enrol().ask()]
    story.world.run_for(timedelta(minutes=1))
    link = story.link()
    signature = link.partition("signature=")[2]
    tokens = [story.item()["task_token"]]
    answers = [story.page(url) for url in (link, link[:-2], f"{link[:-1]}_")]
    answers.append(story.page(link, "POST", headers=FORM, body="x=1"))
    with monkeypatch.context() as patch:
        story.break_callback(patch, "InternalError")
        answers.append(story.answer(link))
    executions += [story.ask("second"), story.ask("other", ceiling="1")]
    executions.append(story.ask("third", approval_id="cr-0a1-20260504T1130Z-3"))
    tokens.append(story.item(item_id="cr-0a1-20260504T1130Z-3")["task_token"])
    story.world.run_until_idle()
    answers += [story.page(link), story.answer(link)]
    manager, name = secret()
    key = json.loads(manager.get_secret_value(SecretId=name)["SecretString"])["key"]
    manager.put_secret_value(SecretId=name, SecretString=f'{{"key": {key}')
    answers.append(story.page(link))
    told = {
        "logs": story.world.logs.getvalue(),
        "events": json.dumps(story.world.events),
        "answers": json.dumps([[answer.body, answer.headers] for answer in answers]),
        "ends": json.dumps(
            [[execution.input, execution.output, execution.error, execution.cause] for execution in executions]
        ),
    }
    assert told["logs"].count("\n") > 5, "nothing was logged, so nothing was searched"
    assert [execution.status for execution in executions] == ["SUCCEEDED", "SUCCEEDED", "FAILED", "SUCCEEDED"]
    for where, text in told.items():
        for value in (signature, key, *tokens):
            assert len(value) > 30
            assert value not in text, f"a secret is in the {where}"
    assert "@example.com" not in told["logs"]


def test_a_form_without_the_fee_typed_in_decides_nothing_case_b07(story):
    """What a browser sends for a robot: the page's own form has the field; a program that answers for a person leaves it out."""
    execution = story.enrol().ask()
    for decision in ("approve", "reject"):
        for typed in ("", "1", "7973.39"):
            answer = story.page(story.link(), "POST", body=f"decision={decision}&reason=x&amount={typed}", headers=FORM)
            assert answer.status == 400
            assert "is not the fee" in answer.body
    assert (story.status(), execution.status) == ("OPEN", "RUNNING")
    story.page(story.link(), "POST", body="decision=approve&reason=x&amount=7973", headers=FORM)
    assert story.status() == "APPROVED"
    assert "Approved by maria" in story.page(story.link(), "POST", body="decision=reject&amount=1", headers=FORM).body
