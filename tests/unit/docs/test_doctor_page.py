"""docs/doctor.md has each check of the code, with its reason word for word, and a remedy."""

import re
from pathlib import Path

from blockkeeper.domain.doctor import WHY, Check

PAGE = (Path(__file__).parents[3] / "docs" / "doctor.md").read_text(encoding="utf-8")


def sections():
    return dict(re.findall(r"^### ([\w-]+)\n(.+?)(?=^##|\Z)", PAGE, re.MULTILINE | re.DOTALL))


def test_each_check_has_its_heading_and_no_heading_lacks_its_check():
    assert list(sections()) == sorted(sections(), key=[str(each) for each in Check].index)
    assert set(sections()) == {str(each) for each in Check}


def test_each_check_has_its_reason_and_a_remedy():
    assert set(WHY) == set(Check)
    for check, text in sections().items():
        assert f"**Why:** {WHY[Check(check)]}\n" in text
        assert "**Remedy:** " in text
