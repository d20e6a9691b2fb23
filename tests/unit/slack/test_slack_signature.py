"""The signature over the raw bytes (case B05)."""

import hmac
import time
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from slack_sdk.signature import SignatureVerifier

from blockkeeper.domain.slack_signature import is_from_slack

NOW = datetime(2026, 5, 4, 6, 0, tzinfo=UTC)
STAMP = str(int(NOW.timestamp()))
SECRET = "8f742231b10e8888abcd99yyyzzz85a5"


def sign(body, timestamp=STAMP, secret=SECRET):
    return "v0=" + hmac.new(secret.encode(), f"v0:{timestamp}:".encode() + body, "sha256").hexdigest()


def test_slacks_own_example():
    # docs.slack.dev, "Verifying requests from Slack": the example's secret, timestamp and body, and the signature printed there.
    body = (
        b"token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V&channel_name=foobar"
        b"&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text=&response_url=https%3A%2F%2Fhooks.slack.com%2F"
        b"commands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c"
    )
    printed = "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503"
    assert is_from_slack(SECRET, "1531420618", printed, body, datetime.fromtimestamp(1531420618, UTC))


@given(st.binary(max_size=200))
def test_exactly_the_signed_bytes_count(body):
    assert is_from_slack(SECRET, STAMP, sign(body), body, NOW)
    assert not is_from_slack(SECRET, STAMP, sign(body), body + b" ", NOW)
    assert not is_from_slack(SECRET + "x", STAMP, sign(body), body, NOW)
    assert not is_from_slack(SECRET, str(int(STAMP) + 1), sign(body), body, NOW)


@pytest.mark.parametrize(
    ("seconds", "counts"), [(0, True), (300, True), (-300, True), (301, False), (-301, False), (86400, False)]
)
def test_five_minutes_both_ways(seconds, counts):
    assert is_from_slack(SECRET, STAMP, sign(b"x"), b"x", NOW + timedelta(seconds=seconds)) is counts


@pytest.mark.parametrize(
    "junk", [None, "", " ", "x", "-1", "1e9", "1777874400.5", "٠١٢٣", "1" * 40, "1777874400\n", "nan", "0x1"]
)
def test_a_timestamp_that_is_none_is_no_signature(junk):
    assert not is_from_slack(SECRET, junk, sign(b"x", junk or ""), b"x", NOW)


@pytest.mark.parametrize(
    "junk", [None, "", "v0=", "v1=" + sign(b"x")[3:], sign(b"x").upper(), sign(b"x")[3:], "v0=ü", "\ud800"]
)
def test_a_signature_that_is_none(junk):
    assert not is_from_slack(SECRET, STAMP, junk, b"x", NOW)


@pytest.mark.parametrize("secret", ["", None])
def test_without_a_secret_nothing_is_signed(secret):
    assert not is_from_slack(secret, STAMP, sign(b"x", secret=""), b"x", NOW)


@given(st.text(max_size=100))
def test_slack_sdk_says_the_same_where_it_can(text):
    class Clock:
        def now(self):
            return NOW.timestamp()

    theirs = SignatureVerifier(SECRET, Clock())
    body = text.encode("utf-8", "replace")
    signature = theirs.generate_signature(timestamp=STAMP, body=body)
    assert theirs.is_valid(body, STAMP, signature)
    assert is_from_slack(SECRET, STAMP, signature, body, NOW)


@pytest.mark.parametrize(
    ("body", "timestamp", "signature"), [(b"x", "junk", "v0=1"), (b"\xff", STAMP, "v0=1"), (b"x", STAMP, "v0=ü")]
)
def test_slack_sdk_raises_where_a_no_is_wanted(body, timestamp, signature):
    """Why we do not use it; once it does not, we can."""
    with pytest.raises((ValueError, TypeError)):
        SignatureVerifier(SECRET).is_valid(body, timestamp if timestamp == "junk" else str(int(time.time())), signature)
    assert not is_from_slack(SECRET, timestamp, signature, body, NOW)
