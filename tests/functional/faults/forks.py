"""Tells a course once and lets the process fork at each place where something may go wrong: what came before is told once for all.

The child goes on with its trouble to the end of the story and hands back what was wrong; the parent goes on without any.
"""

import gc
import json
import os
import select
import signal
import time
import traceback
from fnmatch import fnmatch

from .scenario import Telling

# As many as this process of the test run has cores to itself.
AT_ONCE = max(1, (os.cpu_count() or 1) // int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")))
LONGEST_S = 600
"""After so long a child does not come to its end; it takes about a second on an idle machine."""


class Forks:
    """Every scenario of a course. `outcomes`: by its name, what was wrong, in words.

    `wanted` is a pattern of names; `one` is enough: after the first with something wrong no more are begun.
    """

    def __init__(self, course, matrix, wanted="*", *, one=False):
        self.outcomes = {}
        self.kinds = {}
        self._course, self._matrix, self._wanted, self._one = course, matrix, wanted, one
        self._children = {}
        self._report = None

    def run(self):
        """Tell the course with all that may go wrong; answers `outcomes`."""
        gc.collect()
        gc.freeze()
        try:
            wrong = Telling(self._course, fork=self._fork).run()
        except BaseException:
            if self._report is None:
                raise
            wrong = [traceback.format_exc()]
        finally:
            gc.unfreeze()
        if self._report is not None:
            os.write(self._report, json.dumps(wrong).encode())
            # Nothing of the parent's is cleaned up here.
            os._exit(0)
        while self._children:
            self._wait()
        return {self._course.name: wrong} | self.outcomes

    def _fork(self, place):
        """The trouble that strikes here in this process, if it is a child; None in the parent."""
        if self._report is not None:
            return None
        for trouble in self._matrix.troubles(self._course, place):
            name = f"{self._course.name}-{trouble}"
            if not fnmatch(name, self._wanted) or (self._one and any(self.outcomes.values())):
                continue
            self.kinds[name] = trouble.kind
            while len(self._children) >= AT_ONCE:
                self._wait()
            read, write = os.pipe()
            pid = os.fork()
            if pid == 0:
                os.close(read)
                self._report = write
                return trouble
            os.close(write)
            self._children[read] = name, pid, time.monotonic() + LONGEST_S
        return None

    def _wait(self):
        """Take in the outcome of a child that has ended."""
        ready, _, _ = select.select(list(self._children), [], [], 1)
        late = [read for read, (_, _, until) in self._children.items() if time.monotonic() > until]
        for read in {*ready, *late}:
            name, pid, _ = self._children.pop(read)
            if read not in ready:
                os.kill(pid, signal.SIGKILL)
            with os.fdopen(read, "rb") as answer:
                told = answer.read()
            os.waitpid(pid, 0)
            self.outcomes[name] = json.loads(told) if told else ["it did not come to its end"]
