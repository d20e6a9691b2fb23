"""Runs the real handlers as Lambda does: each function with modules, globals and environment of its own."""

import importlib
import logging
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from types import ModuleType
from typing import Any, TextIO

from .template import Function

_FUNCTIONS = Path(__file__).parents[2] / "functions"


class Sandboxes:
    """The functions' warm processes. One object may serve several worlds in a row, which saves the cold starts."""

    def __init__(self, source: Path = _FUNCTIONS) -> None:
        self._source = source
        self._modules: dict[str, dict[str, ModuleType]] = {}
        self._own = frozenset(
            path.stem for path in source.iterdir() if path.suffix == ".py" or (path.is_dir() and any(path.glob("*.py")))
        )
        # Names of modules that are not the functions' own: there are thousands, and each invocation looks at all of them twice.
        self._foreign: set[str] = set()

    def cold(self, logical_id: str | None = None) -> None:
        """Forget what a function (or every one) has imported and kept in its globals."""
        if logical_id is None:
            self._modules.clear()
        else:
            self._modules.pop(logical_id, None)

    def invoke(
        self, function: Function, platform: Mapping[str, str], event: Any, context: Any, log: TextIO | None = None
    ) -> Any:
        """Run the handler. `platform` is the environment that Lambda adds to the function's own; `log` gets its output."""
        variables = {**platform, **function.environment}
        with self._modules_of(function.logical_id), _environment(variables), _output(log or sys.stdout):
            module, _, attribute = function.handler.rpartition(".")
            return getattr(importlib.import_module(module), attribute)(event, context)

    @contextmanager
    def _modules_of(self, logical_id: str) -> Iterator[None]:
        outside = self._take()
        sys.modules.update(self._modules.get(logical_id, {}))
        sys.path.insert(0, str(self._source))
        try:
            yield
        finally:
            sys.path.remove(str(self._source))
            self._modules[logical_id] = self._take()
            sys.modules.update(outside)

    def _take(self) -> dict[str, ModuleType]:
        new = sys.modules.keys() - self._foreign
        names = {name for name in new if name.partition(".")[0] in self._own}
        self._foreign |= new - names
        return {name: sys.modules.pop(name) for name in names}


@contextmanager
def _output(log: TextIO) -> Iterator[None]:
    """Everything printed and logged goes to `log`, also by loggers that were made in an earlier invocation."""
    handlers = [handler for handler in _stream_handlers() if handler.stream is not sys.stderr]
    before = [handler.setStream(log) for handler in handlers]
    try:
        with redirect_stdout(log):
            yield
    finally:
        for handler, stream in zip(handlers, before, strict=True):
            if stream is not None:
                handler.setStream(stream)


def _stream_handlers() -> Iterator["logging.StreamHandler[TextIO]"]:
    for logger in list(logging.Logger.manager.loggerDict.values()):
        if isinstance(logger, logging.Logger):
            # Not their subclasses: those of test tools capture for others.
            yield from (handler for handler in logger.handlers if type(handler) is logging.StreamHandler)


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.clear()
    os.environ.update({name: before[name] for name in ("PATH", "HOME", "TZ") if name in before} | dict(variables))
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
