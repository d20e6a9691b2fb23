"""Handlers run with globals and environment of their own, as in Lambda."""

import io
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from local.engine.sandbox import Sandboxes
from local.engine.template import Function

HANDLER = """
import os
from shared_code import seen
def lambda_handler(event, context):
    seen.append(event)
    if event == "raise":
        raise KeyError(event)
    from lazily_imported import late
    return [list(seen), os.environ["NAME"], late]
"""


def _function(logical_id: str, folder: str) -> Function:
    return Function(logical_id, logical_id, "arn", f"{folder}.app.lambda_handler", {"NAME": logical_id}, 3)


@pytest.fixture
def sandboxes(tmp_path: Path) -> Sandboxes:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "app.py").write_text(HANDLER)
    (tmp_path / "shared_code").mkdir()
    (tmp_path / "shared_code" / "__init__.py").write_text("seen = []")
    (tmp_path / "lazily_imported.py").write_text("late = 1")
    return Sandboxes(tmp_path)


def test_globals_stay_warm_per_function_until_a_cold_start(sandboxes: Sandboxes) -> None:
    one, two = _function("One", "one"), _function("Two", "two")

    def call(function: Function, event: str) -> Any:
        return sandboxes.invoke(function, {}, event, None)

    assert call(one, "a") == [["a"], "One", 1]
    assert call(one, "b") == [["a", "b"], "One", 1]
    assert call(two, "c") == [["c"], "Two", 1]
    sandboxes.cold("One")
    assert call(one, "d") == [["d"], "One", 1]
    assert call(two, "e") == [["c", "e"], "Two", 1]
    sandboxes.cold()
    assert call(two, "f") == [["f"], "Two", 1]


def test_environment_and_modules_are_restored_even_after_an_error(sandboxes: Sandboxes) -> None:
    environment, path = dict(os.environ), list(sys.path)
    with pytest.raises(KeyError):
        sandboxes.invoke(_function("One", "one"), {"AWS_REGION": "x"}, "raise", None)
    assert (dict(os.environ), sys.path) == (environment, path)
    assert not {"one", "one.app", "shared_code"} & sys.modules.keys()


def test_output_of_loggers_and_print_is_kept_apart(tmp_path: Path) -> None:
    (tmp_path / "talk").mkdir()
    code = """
import logging, sys
log = logging.getLogger("talk")
log.addHandler(logging.StreamHandler(sys.stdout)) if not log.handlers else None
log.propagate = False
def lambda_handler(event, context):
    log.warning("logged %s", event)
    print("printed", event)
"""
    (tmp_path / "talk" / "app.py").write_text(code)
    sandboxes = Sandboxes(tmp_path)
    for event in ("one", "two"):
        log = io.StringIO()
        sandboxes.invoke(_function("Talk", "talk"), {}, event, None, log)
        assert log.getvalue() == f"logged {event}\nprinted {event}\n"
