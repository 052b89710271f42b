"""`refsim shaders --watch`: verify, wait for a module to change, verify what it touches, until Ctrl-C.

If the file changes that says how kernels are called, everything is opened anew.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import AbstractContextManager

from refsim.cli import _shaders as text
from refsim.cli._shaders_build import Build
from refsim.cli._shaders_repair import Found, Wanted, print_found, repaired
from refsim.cli._shaders_repair import content as repair_content
from refsim.cli.kit.apart import print_kernels
from refsim.cli.kit.text import print_json_line, say
from refsim.core.counted import counted
from refsim.core.errors import RefsimError
from refsim.core.status import DIFFERENT, SAME
from refsim.formats import kernels
from refsim.modules import inventory
from refsim.modules.folder import POLL_S
from refsim.modules.verification import ALL, FolderOutcome, Stage, stages


class EditedFile:
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
    repair: Wanted | None = None,
    verbose: bool = False,
) -> int:
    """Watch the folder ``path`` until Ctrl-C; the exit status. ``opened`` opens it, at first and when its file changes.

    Raises what ``opened`` raises at first; later errors are said, and the next change of the file is waited for.
    """
    description = EditedFile(path)
    changed = frozenset[str]()
    while True:
        try:
            with opened() as build:
                if not as_json:
                    text.print_folder(build)
                    text.print_modules(build, True, verbose)
                status = Watch(build, description, everything, limit, as_json, repair).run(changed)
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

    After a change the first cases of the operators that it touches run before anything else, then the first cases of
    those that are not known to be right, then the rest in the same order. A change while cases run stops them.
    """

    def __init__(
        self,
        build: Build,
        description: EditedFile,
        everything: bool,
        limit: int,
        as_json: bool,
        repair: Wanted | None = None,
    ) -> None:
        self.repair = repair
        self.build, self.everything, self.limit, self.as_json = build, everything, limit, as_json
        self.description = description
        self.unsure = set(build.operators)
        self.changed: frozenset[str] = frozenset()
        self.stale = False

    def run(self, changed: frozenset[str] = frozenset()) -> int | None:
        """The exit status, when Ctrl-C ends it: whether all was right at the end; None to have everything opened anew.

        ``changed``: why it was opened.
        """
        order: Iterable[Stage] = self.build.stages()
        try:
            self._say(
                f"watching {self.build.path}: {counted(len(self.build.rows), 'module')}; Ctrl-C ends it"
            )
            while True:
                self._verify(order, changed, time.perf_counter())
                while not (self.changed or self.stale):
                    self.changed = self.build.folder.wait(POLL_S)
                    self.stale = self.description.changed()
                if self.stale:
                    return None
                changed, self.changed = self.changed, frozenset()
                order = self._stages(self._update(changed))
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

    def _stages(self, touched: Sequence[str]) -> Iterable[Stage]:
        """What is to be run after a change; operators whose modules are still being written come later."""
        later = {*touched, *inventory.affected(self.build.folder.unsettled, self.build.operators)}
        return stages(touched, [op for op in self.build.operators if op in self.unsure and op not in later])

    def _verify(self, order: Iterable[Stage], changed: Collection[str], since: float) -> None:
        for stage in order:
            outcome = self.build.verification.run(
                stage.operators,
                everything=self.everything,
                skip=stage.skip,
                most=stage.most,
                limit=self.limit,
                found=lambda tried: self._say(f"  {text.first_word(tried, time.perf_counter() - since)}"),
                interrupted=self._interrupted,
            )
            self._tell(stage, changed, outcome, time.perf_counter() - since)
            if not outcome.right or self.changed or self.stale:
                return
            if stage.name == ALL:
                self.unsure -= set(stage.operators)

    def _interrupted(self) -> bool:
        self.changed |= self.build.folder.changed()
        self.stale |= self.description.changed()
        return bool(self.changed) or self.stale

    def _tell(self, stage: Stage, changed: Collection[str], outcome: FolderOutcome, seconds: float) -> None:
        if (self.changed or self.stale) and outcome.right:
            return  # more of it comes at once
        if self.as_json:
            facts = text.content(self.build, outcome) | {
                "changed": sorted(changed), "stage": stage.name, "seconds": round(seconds, 3),
            }  # fmt: skip
            if self.repair is not None:
                facts["repair"] = repair_content(self._repaired(outcome))
            print_json_line("shaders", SAME if outcome.right else DIFFERENT, facts)
            return
        verdict = text.verdict(outcome, stage.name == ALL)
        say(f"  {text.called(stage.operators)}: {verdict}, {seconds:.3f} s")
        text.print_findings(self.build, outcome)
        print_kernels([found.kernel for found in outcome.wrong])
        if self.repair is not None:
            print_found(self._repaired(outcome))

    def _repaired(self, outcome: FolderOutcome) -> list[Found]:
        """A search for a repair, until a module changes."""
        assert self.repair is not None
        return repaired(self.build, outcome, self.repair, self._interrupted)

    def _say(self, line: str) -> None:
        if not self.as_json:
            say(line)
