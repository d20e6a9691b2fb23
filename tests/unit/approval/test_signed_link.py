"""Links: whoever alters anything in one is refused, and learns nothing from it."""

from datetime import UTC, datetime, timedelta
from urllib.parse import parse_qsl, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blockkeeper.domain.signed_link import (
    AlteredLinkError,
    IncompleteLinkError,
    approver_id,
    read_link,
    signed_link,
)

KEY, OLDER, OTHER = b"k" * 64, b"o" * 64, b"x" * 64
UNTIL = datetime(2026, 5, 4, 8, 30, tzinfo=UTC)
ID = "cr-0a1-20260504T1130Z-1"


def link(key=KEY, approver="maria@example.com"):
    return signed_link("https://api.example.com/v1", ID, approver, UNTIL, key)


def parts(key=KEY):
    return dict(parse_qsl(urlsplit(link(key)).query))


def test_a_link_comes_back_as_it_went_out():
    read = read_link(ID, parts(), [KEY])
    assert (read.approval_id, read.approver, read.expires) == (ID, approver_id("maria@example.com"), UNTIL)
    assert urlsplit(link()).path == f"/v1/decide/{ID}"
    assert set(parts()) == {"approver", "expires", "signature"}


def test_a_link_names_nobody_case_b41():
    assert "maria" not in link()
    assert approver_id("Maria@Example.com") == approver_id("maria@example.com")
    assert approver_id("jo@example.com") != approver_id("maria@example.com")


def test_each_approver_has_a_link_of_their_own():
    assert link() != link(approver="jo@example.com")


def test_a_link_ends_at_its_time_case_b04():
    read = read_link(ID, parts(), [KEY])
    assert not read.expired(UNTIL - timedelta(seconds=1))
    assert read.expired(UNTIL)


def test_a_key_can_be_rotated_without_breaking_open_requests():
    assert read_link(ID, parts(OLDER), [KEY, OLDER]).approval_id == ID
    with pytest.raises(AlteredLinkError):
        read_link(ID, parts(OLDER), [KEY])


def test_the_older_key_is_not_asked_for_when_the_current_one_fits():
    def keys():
        yield KEY
        raise AssertionError("the older key was read for nothing")

    read_link(ID, parts(), keys())


@pytest.mark.parametrize("name", ["approver", "expires", "signature"])
@pytest.mark.parametrize(
    "value", [None, "", "x", "maria@example.com", "-1", "0", "1e9", "177788340\u0660", "a" * 300, "a\nb"]
)
def test_a_link_that_lost_a_part_says_which(name, value):
    given_ = parts()
    if value is None:
        del given_[name]
    else:
        given_[name] = value
    with pytest.raises(IncompleteLinkError, match=name):
        read_link(ID, given_, [KEY])


def test_every_alteration_gets_the_same_answer():
    right = parts()
    altered = [
        (f"{ID}2", right),
        (ID, right | {"approver": approver_id("jo@example.com")}),
        (ID, right | {"expires": str(int(right["expires"]) + 1)}),
        (ID, right | {"signature": "A" * 43}),
        (ID, parts(OTHER)),
    ]
    answers = set()
    for approval_id, given_ in altered:
        with pytest.raises(AlteredLinkError) as refused:
            read_link(approval_id, given_, [KEY, OLDER])
        answers.add(str(refused.value))
    assert len(answers) == 1
    assert right["signature"] not in answers.pop()


@given(st.text(max_size=60), st.integers(0, 42), st.characters())
def test_no_other_text_is_taken_for_the_signature(approval_id, at, character):
    given_ = parts()
    other = given_["signature"][:at] + character + given_["signature"][at + 1 :]
    if other != given_["signature"]:
        with pytest.raises((AlteredLinkError, IncompleteLinkError)):
            read_link(ID, given_ | {"signature": other}, [KEY])
    if approval_id != ID:
        with pytest.raises((AlteredLinkError, IncompleteLinkError)):
            read_link(approval_id, given_, [KEY])
