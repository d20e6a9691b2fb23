"""The clock of a block's last two hours is what the rules say now, and its times are right."""

import importlib.util
import re
from datetime import timedelta
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree as ET

import pytest

DOCS = Path(__file__).parents[3] / "docs"
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("clock", DOCS / "clock.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_picture_is_what_the_script_draws_now(script):
    assert (DOCS / "clock.svg").read_text("utf-8") == script.picture(), "run python docs/clock.py"


def test_its_times_are_those_that_the_rules_give_by_hand():
    """T is 11:30. EC2 terminates at 11:00, UltraServers at 10:30; before that 5 min reserve, the hook, and 2 min of lateness."""
    texts = ["".join(each.itertext()) for each in ET.parse(DOCS / "clock.svg").iter(f"{SVG}text")]  # noqa: S314 - ours
    scale_ins = [re.findall(r"\d\d:\d\d", text)[0] for text in texts if text.startswith("to zero")]
    assert scale_ins == ["10:53", "10:48", "10:43", "10:13"]
    moments = dict(re.findall(r"(\d\d:\d\d) \((T.*?)\)", "\n".join(texts)))
    assert moments == {
        "11:30": "T",
        "11:00": "T - 30 min",
        "10:55": "T - 35 min",
        "10:50": "T - 40 min",
        "10:30": "T - 60 min",
    }
    assert any("decides until 08:30" in text for text in texts), "T - 60 min - 2 h for the payment"


def test_it_sees_a_changed_rule(script, monkeypatch):
    monkeypatch.setattr("blockkeeper.domain.deadlines.DRAIN_MARGIN", timedelta(minutes=6))
    assert "to zero at 10:52" in script.picture()
    assert (DOCS / "clock.svg").read_text("utf-8") != script.picture()


def test_the_guide_computes_the_same_times():
    page = (DOCS / "scaling.md").read_text("utf-8")
    for computed in ("11:00 - 2 - 5 = 10:53", "11:00 - 5 - 2 - 5 = 10:48", "11:00 - 10 - 2 - 5 = 10:43"):
        assert computed in page
    assert "(clock.svg)" in page
