"""The approval page in a real browser of a phone's size: how it looks, what a keyboard, a screen reader and a robot find.

Screenshots go to the folder that BLOCKKEEPER_SCREENSHOTS names, if there is one. Without Chromium on PATH these tests are skipped;
CI tries to install it (.ci/run).
"""

import os
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import pytest
from approval_story import DECIDE_BY, ID
from chromium import Chromium, found

from blockkeeper.domain.approval_page import HEADERS

pytestmark = pytest.mark.skipif(found() is None, reason="no chromium on PATH")
FEE = "7973"

# WCAG 2.2: contrast of each text with what is behind it (1.4.3), size of what is pressed (2.5.5), no sideways scrolling (1.4.10).
LOOKS = """(() => {
  const rgb = text => text.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map(c => c / 255).map(c => c <= .04045 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4)
    .reduce((sum, c, i) => sum + c * [.2126, .7152, .0722][i], 0);
  const behind = node => { for (; node; node = node.parentElement) {
    const colour = rgb(getComputedStyle(node).backgroundColor); if (colour.length < 4 || colour[3]) return colour; }
    return [255, 255, 255]; };
  const faint = [], small = [];
  for (const node of document.querySelectorAll('body *')) {
    const box = node.getBoundingClientRect();
    if (!box.width) continue;
    if ([...node.childNodes].some(child => child.nodeType === 3 && child.data.trim())) {
      const [a, b] = [light(rgb(getComputedStyle(node).color)), light(behind(node))];
      const ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
      if (ratio < 4.5) faint.push([node.tagName, node.textContent.slice(0, 40), ratio]);
    }
    if (node.matches('button, input, textarea, a') && box.height < 44) small.push([node.tagName, box.height]);
  }
  return {faint, small, sideways: document.documentElement.scrollWidth - innerWidth};
})()"""
ROBOT = """(async () => {
  const form = document.forms[0];
  document.querySelectorAll('a, button, input').forEach(node => node.click());
  window.dispatchEvent(new Event('load'));
  for (const button of form.querySelectorAll('button')) { try { form.requestSubmit(button); } catch {} }
  form.submit();
})()"""


@pytest.fixture
def browser(story):
    def answer(method, url, body):
        path = urlsplit(url).path.removeprefix(urlsplit(story.base()).path)
        if not path.startswith("/decide/"):
            return 404, {}, ""
        headers = {} if body is None else {"Content-Type": "application/x-www-form-urlencoded"}
        query = dict(parse_qsl(urlsplit(url).query))
        told = story.world.request(method, path, query=query, body=body, headers=headers)
        return told.status, told.headers, told.body

    browser = Chromium(found(), answer)
    yield browser
    browser.close()


def look(browser, name):
    """Both colour schemes hold what WCAG asks for; screenshots are kept for people."""
    folder = os.environ.get("BLOCKKEEPER_SCREENSHOTS")
    for dark in (False, True):
        browser.dark(dark)
        looks = browser.run(LOOKS)
        assert looks == {"faint": [], "small": [], "sideways": 0}, f"{name}, {'dark' if dark else 'light'}"
        if folder:
            browser.screenshot(Path(folder) / f"{name}-{'dark' if dark else 'light'}.png")


def text(browser):
    return browser.run("document.querySelector('main').innerText")


def test_an_open_request_is_understood_answered_and_shown_as_answered(story, browser):
    execution = story.enrol(time_zone="Europe/Berlin").ask(past_fee_per_instance_hour="37.08")
    browser.open(story.link())
    look(browser, "open")
    names = browser.names()
    assert ("heading", "Extend this Capacity Block?") in names
    assert ("textbox", "Type the upfront fee, in whole dollars") in names
    assert ("textbox", "Reason (may be left empty)") in names
    buttons = [name for role, name in names if role == "button"]
    assert buttons == ["Approve and pay 7,973.38 USD", "Reject, let it end"]
    assert browser.run("document.documentElement.lang") == "en"
    for words in ("13:30 Europe/Berlin", "12 % more", "50,000.00 USD this month", "5.19 USD"):
        assert words in text(browser)
    browser.type("#amount", FEE)
    browser.type("#reason", "Größe 🚀 <b>")
    browser.press("button[value=approve]")
    assert "Your answer is recorded." in text(browser)
    assert "Reason: Größe 🚀 <b>" in text(browser)
    look(browser, "approved")
    story.world.run_until(story.world.now())
    assert execution.output["decision"] == "approved"
    assert {method for method, url in browser.asked if "/decide/" in url} == {"GET", "POST"}
    assert all("/decide/" in url or url.endswith("favicon.ico") for _, url in browser.asked), (
        "nothing comes from elsewhere"
    )


def test_by_keyboard_alone_one_answers_and_enter_in_a_field_does_not(story, browser):
    execution = story.enrol().ask()
    browser.open(story.link())
    order = []
    for _ in range(4):
        browser.key("Tab", 9)
        order.append(browser.run("document.activeElement.id || document.activeElement.value"))
        assert browser.run("getComputedStyle(document.activeElement).outlineStyle") != "none", "the focus is seen"
    assert order == ["amount", "reason", "approve", "reject"]
    browser.type("#amount", FEE)
    browser.key("Enter", 13, "\r")
    browser.settle()
    assert story.status() == "OPEN"
    browser.run("document.querySelector('button[value=reject]').focus()")
    browser._load(lambda: browser.key("Enter", 13, "\r"))
    assert "Rejected by maria@example.com" in text(browser)
    look(browser, "rejected")
    story.world.run_until(story.world.now())
    assert execution.output["decision"] == "rejected"


def test_a_robot_that_runs_the_page_and_sends_its_form_decides_nothing_case_b07(story, browser):
    execution = story.enrol().ask()
    for recipient in ("maria@example.com", "jo@example.com"):
        for button in ("approve", "reject"):
            browser.open(story.link(recipient))
            browser.run(ROBOT)
            browser.settle()
            browser.open(story.link(recipient))
            # Without the browser's own checks, and with a robot's idea of an amount.
            for typed in ("", "1", "test@example.com", "00"):
                browser.run(f"document.forms[0].noValidate = true; document.querySelector('#amount').value = '{typed}'")
                browser.press(f"button[value={button}]")
                assert "is not the fee" in text(browser)
    assert any(method == "POST" for method, _ in browser.asked), "the robot did send forms"
    assert (story.status(), story.item()["votes"], execution.status) == ("OPEN", {}, "RUNNING")


def test_a_wrong_amount_is_said_where_it_is_typed_and_loses_no_word(story, browser):
    story.enrol().ask()
    browser.open(story.link())
    browser.type("#amount", "7937")
    browser.type("#reason", "needed")
    browser.press("button[value=approve]")
    look(browser, "wrong-amount")
    assert browser.run("document.activeElement.id") == "amount"
    assert "alert" in {role for role, _ in browser.names()}
    assert browser.run("document.querySelector('#reason').value") == "needed"
    browser.type("#amount", "$7,973.38")
    browser.press("button[value=approve]")
    assert "Approved by maria@example.com" in text(browser)


@pytest.mark.parametrize(
    "case", ["expired", "superseded", "wrong-link", "cut-link", "no-signature", "four-eyes", "quorum"]
)
def test_every_other_state_says_so_and_holds_no_form_that_could_not_count(story, browser, case):
    story.enrol(
        enrolled_by="maria@example.com" if case == "four-eyes" else None, quorum=2 if case == "quorum" else 1
    ).ask()
    link = story.link()
    words, form = {
        "expired": ("Nobody answered in time", False),
        "superseded": ("by somebody else", False),
        "wrong-link": ("This link is not right", False),
        "cut-link": ("not complete", False),
        "no-signature": ("It cannot be answered here", False),
        "four-eyes": ("somebody else must approve it", True),
        "quorum": ("You have said yes already", True),
    }[case]
    if case == "expired":
        story.world.run_until(DECIDE_BY)
    if case == "superseded":
        story.put("approval", ID, story.item() | {"status": "SUPERSEDED", "reason": "moved by somebody else"})
    if case == "quorum":
        story.answer(link)
    link = {
        "wrong-link": link[:-1] + ("A" if link[-1] != "A" else "B"),
        "cut-link": link[:-3],
        "no-signature": link.partition("?")[0],
    }.get(case, link)
    browser.open(link)
    look(browser, case)
    assert words in text(browser)
    assert browser.run("document.forms.length") == form
    assert browser.run("document.querySelectorAll('button[value=approve]').length") == 0


def test_the_browser_obeys_the_policy_that_nothing_runs(story, browser):
    story.enrol().ask(environment="team-vision")
    browser.open(story.link())
    browser.run(
        "document.body.insertAdjacentHTML('beforeend', '<img src=https://evil.example/x onerror=\"window.ran=1\">')"
    )
    browser.settle()
    assert browser.run("window.ran") is None
    assert not [url for _, url in browser.asked if "evil" in url]
    assert "script-src" not in HEADERS["Content-Security-Policy"]
