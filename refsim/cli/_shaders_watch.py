"""`refsim shaders --watch`: verify, wait for a module to change, verify what it touches, until Ctrl-C.

If the file changes that says how kernels are called, everything is opened anew.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager

from refsim.cli import _shaders as text
from refsim.cli._main import DIFFERENT, SAME
from refsim.cli._output import print_json_line, say
from refsim.cli._shaders_build import Build
from refsim.core.counted import counted
from refsim.core.errors import RefsimError
from refsim.formats import kernels
from refsim.modules import inventory
from refsim.modules.folder import POLL_S
from refsim.modules.verification import FIRST_WORD, Outcome

FIRST, ALL = "first", "all"


class Description:
    """The file ``refsim.toml`` of a folder of modules, or such a file itself, as somebody edits it."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._known = self._last = self._look()

    def changed(self) -> bool:
        """Whether it holds other bytes than when this was true last, or is new or gone; does not wait.

        Bytes count once they are found twice: an editor may write them in several pieces.
        """
        before, self._last = self._last, self._look()
        if self._last == self._known or self._last != before:
            return False
        self._known = self._last
        return True

    def _look(self) -> bytes | None:
        _, file = kernels.find(self.path)
        if file is None:
            return None
        try:
            with open(file, "rb") as opened:
                return opened.read(kernels.MAX_BYTES + 1)
        except OSError:  # somebody replaces it
            return None


def watch(
    opened: Callable[[], AbstractContextManager[Build]],
    path: str,
    everything: bool,
    limit: int,
    as_json: bool,
) -> int:
    """Watch the folder ``path`` until Ctrl-C; the exit status. ``opened`` opens it, at first and when its file changes.

    Raises what ``opened`` raises at first; later errors are said, and the next change of the file is waited for.
    """
    description = Description(path)
    changed = frozenset[str]()
    while True:
        try:
            with opened() as build:
                if not as_json:
                    text.print_folder(build, True)
                status = Watch(build, description, everything, limit, as_json).run(changed)
            if status is not None:
                return status
        except RefsimError as error:
            if not changed:
                raise
            say(f"  {error}", err=as_json)
            try:
                while not description.changed():
                    time.sleep(POLL_S)
            except KeyboardInterrupt:
                return DIFFERENT
        changed = frozenset({kernels.NAME})
        if not as_json:
            say(f"{time.strftime('%H:%M:%S')} {kernels.NAME} changed")


class Watch:
    """The operators of a build, and which of them are known to be right.

    After a change the first cases of the operators that it touches run before anything else, then the rest of
    their cases, then the operators that are not known to be right. A change while cases run stops them.
    """

    def __init__(
        self, build: Build, description: Description, everything: bool, limit: int, as_json: bool
    ) -> None:
        self.build, self.everything, self.limit, self.as_json = build, everything, limit, as_json
        self.description = description
        self.unsure = set(build.operators)
        self.changed: frozenset[str] = frozenset()
        self.stale = False

    def run(self, changed: frozenset[str] = frozenset()) -> int | None:
        """The exit status, when Ctrl-C ends it: whether all was right at the end; None to have everything opened anew.

        ``changed``: why it was opened.
        """
        touched = list(self.build.operators)
        try:
            self._say(
                f"watching {self.build.path}: {counted(len(self.build.rows), 'module')}; Ctrl-C ends it"
            )
            while True:
                self._verify(touched, changed, time.perf_counter())
                while not (self.changed or self.stale):
                    self.changed = self.build.folder.wait(POLL_S)
                    self.stale = self.description.changed()
                if self.stale:
                    return None
                changed, self.changed = self.changed, frozenset()
                touched = self._update(changed)
        except KeyboardInterrupt:
            self._say("ended")
            return DIFFERENT if self.unsure or self.build.broken else SAME

    def _update(self, changed: frozenset[str]) -> list[str]:
        """Take the modules as they are now; returns the operators that they touch."""
        self._say(f"{time.strftime('%H:%M:%S')} {', '.join(sorted(changed))} changed")
        try:
            self.build.refresh(changed)
        except RefsimError as error:
            self._say(f"  {error}")
            return []
        for module, why in self.build.broken.items():
            if module in changed:
                self._say(f"  {why}")
        touched = inventory.affected(changed, self.build.operators, self.build.own)
        self.unsure = (self.unsure & set(self.build.operators)) | set(touched)
        return touched

    def _verify(self, touched: Sequence[str], changed: Collection[str], since: float) -> None:
        later = {*touched, *inventory.affected(self.build.folder.unsettled, self.build.operators)}
        rest = [op for op in self.build.operators if op in self.unsure and op not in later]
        stages = ((touched, 0, FIRST_WORD, FIRST), (touched, FIRST_WORD, None, ALL), (rest, 0, None, ALL))
        for operators, skip, most, stage in stages:
            if not operators:
                continue
            outcome = self.build.verification.run(
                operators,
                everything=self.everything,
                skip=skip,
                most=most,
                limit=self.limit,
                interrupted=self._interrupted,
            )
            self._tell(operators, changed, outcome, stage, time.perf_counter() - since)
            if not outcome.right or self.changed or self.stale:
                return
            if stage == ALL:
                self.unsure -= set(operators)

    def _interrupted(self) -> bool:
        self.changed |= self.build.folder.changed()
        self.stale |= self.description.changed()
        return bool(self.changed) or self.stale

    def _tell(
        self, operators: Sequence[str], changed: Collection[str], outcome: Outcome, stage: str, seconds: float
    ) -> None:
        if (self.changed or self.stale) and outcome.right:
            return  # more of it comes at once
        if self.as_json:
            facts = text.content(self.build, outcome) | {
                "changed": sorted(changed), "stage": stage, "seconds": round(seconds, 3),
            }  # fmt: skip
            print_json_line("shaders", SAME if outcome.right else DIFFERENT, facts)
            return
        names = (
            ", ".join(operators) if len(operators) <= text.MOST_NAMES else counted(len(operators), "operator")
        )
        say(f"  {names}: {text.verdict(outcome, stage == ALL)}, {seconds:.3f} s")
        text.print_findings(self.build, outcome)

    def _say(self, line: str) -> None:
        if not self.as_json:
            say(line)
