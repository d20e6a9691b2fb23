"""Mails and pages: one subject line, everything escaped, nothing that runs or loads."""

import json
import re
from dataclasses import replace
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blockkeeper.domain.approval import ApprovalStatus, Decision, Delivery, closed, open_request, vote
from blockkeeper.domain.approval_mail import question
from blockkeeper.domain.approval_page import HEADERS, STYLE, amount_fits, plain_page, request_page, standing_page
from blockkeeper.domain.mail import LONGEST_SUBJECT, compose, one_line
from blockkeeper.domain.outcome_mail import UnknownEventError, notice, outcome_mail

FACTS = json.loads((Path(__file__).parents[3] / "events" / "approve-purchase.json").read_text())
NOW = datetime(2026, 5, 4, 7, 0, tzinfo=UTC)
MARIA = "maria@example.com"
LINK = "https://api.example.com/v1/decide/x?approver=a&expires=1&signature=s"
EVIL = "<script>alert('x')</script>\"&"


def asked(quorum=1, **changes):
    return open_request(FACTS | changes, [MARIA, "jo@example.com"], quorum, NOW)


class Shape(HTMLParser):
    """Tags, texts and attributes of a page; complains about tags that are not closed."""

    def __init__(self, html):
        super().__init__()
        self.tags, self.attributes, self.open, self.words = [], [], [], []
        self.feed(html)
        assert not self.open, f"not closed: {self.open}"

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += [(tag, *attribute) for attribute in attributes]
        if tag not in {"meta", "br", "input"}:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, text):
        self.words.append(text)

    def values(self, tag, name):
        return [value for found, attribute, value in self.attributes if (found, attribute) == (tag, name)]


def test_the_question_says_all_as_text_and_as_html():
    mail = question(asked(), LINK, dry_run=False)
    assert mail.subject == "Extend team-vision for 7,973.38 USD? Answer by 04 May 08:30 UTC"
    for part in ("8 × p5.48xlarge (64 H100)", "7,973.38 USD", "Mon 4 May 2026, 08:30 UTC", "nothing is bought"):  # noqa: RUF001
        assert part in mail.text
        assert part in "".join(Shape(mail.html).words)
    assert LINK in mail.text.splitlines()
    assert Shape(mail.html).values("a", "href") == [LINK]
    assert "dry-run" not in mail.text
    assert "no money moves" in question(asked(), LINK, dry_run=True).text


@given(st.text(max_size=300))
def test_a_subject_is_one_short_line_whatever_the_names_case_b46(name):
    subject = compose(f"Extend {name}", "x", []).subject
    assert len(subject) <= LONGEST_SUBJECT < 100
    assert subject.splitlines() == [subject]
    assert "\x00" not in subject


def test_the_fee_and_the_deadline_survive_a_long_name():
    subject = question(asked(environment="e" * 128), LINK, dry_run=False).subject
    assert "7,973.38 USD" in subject
    assert subject.endswith("08:30 UTC")
    assert len(subject) < 100


def test_a_name_forges_no_header_and_no_markup():
    mail = compose(
        "a\r\nBcc: x@example.com\u2028b", EVIL, [(EVIL, EVIL)], link=(EVIL, f"https://x/?{EVIL}"), closing=[EVIL]
    )
    assert mail.subject == "a Bcc: x@example.com b"
    assert "script" not in Shape(mail.html).tags


def test_a_cut_line_shows_that_it_is_cut():
    assert one_line("abcdef", 6) == "abcdef"
    assert one_line("abcdefg", 6) == "abcde…"


def _pages():
    approved = vote(asked(), MARIA, Decision.APPROVE, EVIL, NOW)
    return {
        "open": request_page(asked(), MARIA, NOW, dry_run=False),
        "half": request_page(vote(asked(quorum=2), MARIA, Decision.APPROVE, None, NOW), MARIA, NOW, dry_run=False),
        "dry": request_page(asked(), MARIA, NOW, dry_run=True),
        "approved": request_page(approved, MARIA, NOW, dry_run=False, notice=EVIL),
        "unheard": request_page(replace(approved, delivery=Delivery.NOBODY_WAITS), MARIA, NOW, dry_run=False),
        "rejected": request_page(vote(asked(), MARIA, Decision.REJECT, None, NOW), MARIA, NOW, dry_run=False),
        "late": request_page(asked(), MARIA, asked().decide_by, dry_run=False),
        "superseded": request_page(closed(asked(), ApprovalStatus.SUPERSEDED, EVIL, NOW), MARIA, NOW, dry_run=False),
        "wrong": plain_page(EVIL, [EVIL]),
        "evil": request_page(asked(environment=EVIL, instance_type=EVIL), EVIL, NOW, dry_run=False),
    }


PAGES = _pages()
TAGS = {"html", "head", "meta", "title", "style", "body", "main", "div", "h1", "p", "dl", "dt", "dd"}
TAGS |= {"form", "h2", "label", "input", "textarea", "button"}


@pytest.mark.parametrize("name", PAGES)
def test_a_page_runs_nothing_and_loads_nothing_case_b07(name):
    shape = Shape(PAGES[name])
    assert set(shape.tags) <= TAGS
    assert not [
        attribute for _, attribute, _ in shape.attributes if attribute.startswith("on") or attribute in ("src", "href")
    ]
    assert shape.values("html", "lang") == ["en"]
    assert shape.values("meta", "name") == ["viewport"]
    assert "".join(shape.words).count("Blockkeeper") >= 2


@pytest.mark.parametrize("name", PAGES)
def test_only_an_open_request_has_a_form(name):
    shape = Shape(PAGES[name])
    is_open = name in ("open", "half", "dry", "evil")
    assert shape.tags.count("form") == is_open
    if is_open:
        assert shape.values("form", "method") == ["post"]
        assert shape.values("form", "action") == []
        assert (
            shape.values("label", "for")
            == shape.values("input", "id") + shape.values("textarea", "id")
            == ["amount", "reason"]
        )
        # Enter in a one-line field presses the first button, which is none.
        first = [attribute for tag, attribute, _ in shape.attributes if tag == "button"][:2]
        assert first == ["disabled", "hidden"]
        assert shape.values("button", "value") == (["reject"] if name == "half" else ["approve", "reject"])


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("open", "Approve and pay 7,973.38 USD"),
        ("open", "You answer as maria@example.com"),
        ("half", "1 of 2 said yes so far; 1 more must"),
        ("dry", "no money moves"),
        ("approved", "Approved by maria@example.com on Mon 4 May 2026, 07:00 UTC."),
        ("approved", "buys it if it is still the same and costs at most 7,973.38 USD"),
        ("unheard", "no longer waits"),
        ("rejected", "Nothing is bought. The block ends on Mon 4 May 2026, 11:30 UTC"),
        ("late", "Expired: nothing was bought"),
        ("superseded", "Nothing was bought through this request"),
    ],
)
def test_a_page_says_what_happened_and_what_happens_next(name, words):
    assert words in "".join(Shape(PAGES[name]).words)


def test_an_expired_page_is_not_headed_by_a_promise():
    assert "buys it" not in PAGES["late"]
    assert "buys it" not in PAGES["unheard"]


def test_the_headers_let_nothing_in_and_nothing_out():
    policy = HEADERS["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in policy
    assert (HEADERS["Cache-Control"], HEADERS["Referrer-Policy"]) == ("no-store", "no-referrer")
    # The hash is that of exactly what stands between the tags.
    assert re.findall(r"<style>(.*?)</style>", PAGES["open"], re.DOTALL) == [STYLE]


DETAIL = {
    "environment": "team-vision",
    "reservation_id": "cr-0a1",
    "account": "111122223333",
    "region": "us-east-1",
    "end_date": "2026-05-04T11:30:00Z",
}


def test_people_hear_of_a_new_end_with_its_fee():
    mail = outcome_mail(
        "Extension Confirmed",
        DETAIL | {"reason": "EC2 moved the end", "end": "2026-05-05T11:30:00Z", "offering": {"upfront_fee": "7973.38"}},
    )
    assert mail.subject == "team-vision now runs until Tue 5 May 2026, 11:30 UTC"
    assert "7,973.38 USD" in mail.text
    assert "Mon 4 May 2026, 11:30 UTC" in mail.text


def test_an_extension_by_hand_is_told_without_a_fee():
    mail = outcome_mail(
        "Extension Confirmed", DETAIL | {"end": "2026-05-05T11:30:00Z", "reason": "extended by someone else"}
    )
    assert "extended by someone else" in mail.text
    assert "fee" not in mail.text


def test_people_hear_why_nothing_was_extended():
    mail = outcome_mail("Extension Failed", DETAIL | {"reason": "payment failed"})
    assert mail.subject == "team-vision is not extended and ends on Mon 4 May 2026, 11:30 UTC"
    assert "payment failed" in mail.text


def test_people_hear_that_it_is_too_late_case_b02():
    mail = outcome_mail("Block Expiring", DETAIL)
    assert "too late to extend" in mail.subject
    assert "draining now" in mail.text


def test_another_event_is_told_to_nobody():
    with pytest.raises(UnknownEventError):
        outcome_mail("Groups Scaled", DETAIL)


BLOCK = json.loads((Path(__file__).parents[3] / "events" / "approve-purchase.block.json").read_text())


def test_a_new_block_is_asked_for_in_words_of_its_own():
    request = open_request(BLOCK, [MARIA, "jo@example.com"], 1, NOW)
    mail = question(request, LINK, dry_run=False)
    assert mail.subject == "New block for team-vision for 55,813.66 USD? Answer by 04 May 08:30 UTC"
    page = "".join(Shape(request_page(request, MARIA, NOW, dry_run=False)).words)
    for part in (
        "buy a new Capacity Block from Tue 5 May 2026, 11:30 UTC until Tue 12 May 2026, 11:30 UTC in zone us-east-1a",
        "cr-0a1, which ends on Mon 4 May 2026, 11:30 UTC",
    ):
        assert part in mail.text
        assert part in page
    assert "Buy a new Capacity Block?" in page
    assert "Extend " not in mail.text + page


@pytest.mark.parametrize("typed", ["7973", "7,973", "7.973", "7973.38", "$7,973.38", " 7 973,38 USD "])
def test_the_fee_counts_however_it_is_typed(typed):
    assert amount_fits(asked(), typed)


@pytest.mark.parametrize("typed", ["", "0", "7974", "797", "79733", "fee", "-", "7973.3", "1"])
def test_anything_else_is_not_the_fee_case_b07(typed):
    assert not amount_fits(asked(), typed)


def test_who_has_only_the_address_sees_whether_it_is_open_and_nothing_else():
    page = "".join(Shape(standing_page(asked(), NOW)).words)
    assert "It cannot be answered here" in page
    for secret in ("7,973", "team-vision", "maria", "cr-0a1", "111122223333"):
        assert secret not in page


@given(st.text(max_size=300), st.sampled_from(["Approval Requested", "Approval Decided", "Extension Failed"]))
def test_every_notice_has_one_short_line_whatever_the_names_case_b46(name, kind):
    more = {"new_end": "2026-05-05T11:30:00Z", "upfront_fee": "7973.38", "decide_by": "2026-05-04T08:30:00Z", "told": 1}
    subject = notice(kind, DETAIL | more | {"environment": name, "decision": "approved"}).subject
    assert len(subject) < 100
    assert subject.splitlines() == [subject]


@given(st.text(max_size=300))
def test_the_question_has_one_short_line_whatever_the_names_case_b46(name):
    for reminder in (False, True):
        subject = question(asked(environment=name), LINK, dry_run=False, reminder=reminder).subject
        assert len(subject) < 100
        assert subject.splitlines() == [subject]
        assert "7,973.38 USD" in subject


def test_why_a_request_became_pointless_is_a_sentence():
    reason = "the block's end was moved to 2026-05-05T11:30:00Z by somebody else"
    page = request_page(closed(asked(), ApprovalStatus.SUPERSEDED, reason, NOW), MARIA, NOW, dry_run=False)
    assert "The block's end was moved to 2026-05-05T11:30:00Z by somebody else. Nothing was bought" in "".join(
        Shape(page).words
    )
