"""Ends this process if its work takes too long: a change may make a loop endless.

Limits are of processor time, so that other work on the machine makes no difference, and what compiles does not count.
A process that waits for something that never comes uses none. So on the clock it may take `WAITING` times as long.
As a plugin of pytest (``-p mutants.limits``) it watches each test, and all of them, keeps which one runs in a file, and
says in a line what failed.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from mutants import objects
from refsim.core import doing

#: Variables that tell the plugin the seconds for each test, and for all.
EACH_VARIABLE, ALL_VARIABLE = "REFSIM_MUTANT_TEST_SECONDS", "REFSIM_MUTANT_ALL_SECONDS"
#: The variable that names the file with the test that runs: a process that dies cannot say which.
AT_VARIABLE = "REFSIM_MUTANT_AT"
WAITING = 4.0
#: So many characters of what a failed test says are kept.
SAID = 800
#: Something is compiled for so long at most.
COMPILE_SECONDS = 900.0
#: What ends the process; the traceback on stderr says what it did.
SIGNALS = (signal.SIGPROF, signal.SIGALRM)


class Watch:
    """Watches this process from now on: ``seconds`` for everything, and after `begin` some for a piece of it."""

    def __init__(self, seconds: float) -> None:
        self._all, self._each = seconds, seconds
        said = os.dup(2)  # pytest puts another file there while tests run
        faulthandler.enable(said)
        for number in SIGNALS:
            faulthandler.register(number, said, chain=True)
        doing.listen(self._news)
        self._arm(seconds)

    def begin(self, seconds: float) -> None:
        """A piece of work begins, and the one before has ended."""
        self._settle()
        self._each = seconds
        self._arm(min(self._each, self._all))

    def _news(self, kind: str, what: str) -> None:
        if kind == doing.PAUSED:
            self._settle()
            self._arm(COMPILE_SECONDS)
        elif kind == doing.RESUMED:
            self._arm(min(self._each, self._all))

    def _arm(self, seconds: float) -> None:
        self._processor, self._clock = time.process_time(), time.monotonic()
        left = max(seconds, 1e-3)  # 0 would disarm
        signal.setitimer(signal.ITIMER_PROF, left)
        signal.setitimer(signal.ITIMER_REAL, WAITING * left)

    def _settle(self) -> None:
        """Take off what was used since `_arm`."""
        used = max(time.process_time() - self._processor, (time.monotonic() - self._clock) / WAITING)
        self._all -= used
        self._each -= used


def ended_by_limit(status: str) -> bool:
    """Whether a process ended so, by its status in words (`refsim.exec.process.status`)."""
    return status in [f"signal {number.value}" for number in SIGNALS]


# --- the plugin ------------------------------------------------------------------------------------------

_watches: list[Watch] = []


def pytest_configure() -> None:
    """Tests of properties draw the same examples each time, and none fails because the machine is slow."""
    import hypothesis  # it takes its time, and only tests need it

    hypothesis.settings.register_profile(
        "mutants", deadline=None, derandomize=True, suppress_health_check=list(hypothesis.HealthCheck)
    )
    hypothesis.settings.load_profile("mutants")
    objects.install()
    _watches.append(Watch(float(os.environ[ALL_VARIABLE])))


def pytest_runtest_logstart(nodeid: str) -> None:
    if AT_VARIABLE in os.environ:
        Path(os.environ[AT_VARIABLE]).write_text(nodeid)
    _watches[0].begin(float(os.environ[EACH_VARIABLE]))


def pytest_runtest_logreport(report: Any) -> None:
    """pytest's own line about a failed test is cut at the width of a terminal, and says nothing of sources."""
    if report.failed:
        crash = getattr(report.longrepr, "reprcrash", None)
        message = " ".join((crash.message if crash else str(report.longrepr)).split())
        sys.stderr.write(f"FAILED {report.nodeid} - {message[:SAID]}\n")
