"""Verify a folder once, or: verify it, wait for a module to change, verify what it touches, until Ctrl-C.

If the file changes that says how kernels are called, everything is opened anew.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace

from refsim.core.counted import counted
from refsim.core.doing import progress
from refsim.core.errors import IncompleteError, RefsimError
from refsim.core.status import DIFFERENT, SAME
from refsim.exec.isolated import IsolatedExecutor
from refsim.formats import kernels
from refsim.modules import inventory
from refsim.modules.build import Build, Request, opened
from refsim.modules.folder import POLL_S, EditedFile
from refsim.modules.repaired import repaired
from refsim.modules.result import (
    CheckedFolder,
    FolderVerdict,
    WatchedFolder,
    called,
    facts,
    first_word,
    folder_text,
    modules_text,
    nothing,
    verdict,
)
from refsim.modules.trial import Tried
from refsim.modules.verification import ALL, FIRST, FolderOutcome, Stage, stages

#: A verdict for each change, and the exit status in the end.
Verdicts = Generator[WatchedFolder, None, int]


def watch(opened: Callable[[], AbstractContextManager[Build]], request: Request) -> Verdicts:
    """Watch a folder until Ctrl-C. ``opened`` opens it, at first and when its file changes.

    Raises what ``opened`` raises at first; later errors are said, and the next change of the file is waited for.
    """
    description, say = EditedFile(request.folder), request.say
    changed = frozenset[str]()
    while True:
        try:
            with opened() as build:
                say(folder_text(build))
                say(modules_text(build, True, request.verbose))
                status = yield from Watch(build, request, description).run(changed)
            if status is not None:
                return status
        except RefsimError as error:
            if not changed:
                raise
            say([f"  {error}"])
            try:
                while not description.changed():
                    time.sleep(POLL_S)
            except KeyboardInterrupt:
                return DIFFERENT
        changed = frozenset({kernels.NAME})
        say([f"{time.strftime('%H:%M:%S')} {kernels.NAME} changed"])


class Watch:
    """The operators of a build, and which of them are known to be right.

    After a change the first cases of the operators that it touches run before anything else, then the first cases of
    those that are not known to be right, then the rest in the same order. A change while cases run stops them.
    """

    def __init__(self, build: Build, request: Request, description: EditedFile) -> None:
        self.build, self.request, self.description = build, request, description
        self.unsure = set(build.operators)
        self.changed: frozenset[str] = frozenset()
        self.stale = False

    def run(self, changed: frozenset[str] = frozenset()) -> Generator[WatchedFolder, None, int | None]:
        """The verdicts, and the exit status when Ctrl-C ends it: whether all was right at the end; None to open anew.

        ``changed``: why it was opened.
        """
        order: Iterable[Stage] = self.build.stages()
        try:
            self._say(
                f"watching {self.build.path}: {counted(len(self.build.rows), 'module')}; Ctrl-C ends it"
            )
            while True:
                yield from self._verify(order, changed, time.perf_counter())
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

    def _verify(
        self, order: Iterable[Stage], changed: Collection[str], since: float
    ) -> Iterator[WatchedFolder]:
        for stage in order:
            outcome = self.build.verification.run(
                stage.operators,
                everything=self.request.everything,
                skip=stage.skip,
                most=stage.most,
                limit=self.request.limit,
                found=lambda tried: self._say(f"  {first_word(tried, time.perf_counter() - since)}"),
                interrupted=self._interrupted,
            )
            if not (outcome.right and (self.changed or self.stale)):  # more of it comes at once
                yield self._told(stage, changed, outcome, time.perf_counter() - since)
            if not outcome.right or self.changed or self.stale:
                return
            if stage.name == ALL:
                self.unsure -= set(stage.operators)

    def _interrupted(self) -> bool:
        self.changed |= self.build.folder.changed()
        self.stale |= self.description.changed()
        return bool(self.changed) or self.stale

    def _told(
        self, stage: Stage, changed: Collection[str], outcome: FolderOutcome, seconds: float
    ) -> WatchedFolder:
        verdict = FolderVerdict.of(self.build, outcome, seconds)
        whole = stage.name == ALL
        return WatchedFolder(
            **facts(self.build, verdict), changed=sorted(changed), stage="all" if whole else "first", whole=whole,
            operators_run=called(stage.operators), repair=repaired(self.build, outcome, self._interrupted),
        )  # fmt: skip

    def _say(self, line: str) -> None:
        self.request.say([line])


def verified(request: Request, executor: IsolatedExecutor) -> CheckedFolder:
    """Verify the modules of a folder once. ``executor`` began to open."""
    one = bool(request.variant or request.images)
    with opened(request, executor) as build:
        request.say(folder_text(build))
        outcome = _run(build)
        repairs = repaired(build, outcome)
    found = [(build, outcome)]
    further = build.others() if not one and (outcome.right or request.everything) else []
    for variant, images, operators in further:
        if found[-1][1].right or request.everything:
            found.append(_further(request, variant, images, operators))
    if not any(outcome.cases for _, outcome in found) and not build.broken:
        raise IncompleteError(request.folder, "no case ran", got=nothing(build), need="at least one case")
    first, *others = [FolderVerdict.of(*each) for each in found]
    return CheckedFolder(
        **facts(build, first), repair=repairs, variants=others,
        everything=request.everything, listed=list(modules_text(build, one, request.verbose)),
    )  # fmt: skip


def _further(
    request: Request, variant: str, images: bool, operators: list[str]
) -> tuple[Build, FolderOutcome]:
    """The same operators on other modules, with half as many cases and no recordings."""
    other = replace(request, variant=variant, images=images, operators=operators, count=request.count // 2)
    with opened(other, recorded=False) as build:
        return build, _run(build)


def _run(build: Build) -> FolderOutcome:
    """All cases, stage by stage; a word is said as soon as there is one."""
    request, begin, outcome = build.request, time.perf_counter(), FolderOutcome()

    def found(tried: Tried) -> None:
        if len(outcome.bad) == 1:
            request.say([first_word(tried, time.perf_counter() - begin)])

    with progress("cases") as advance:  # how many there are shows only when all are drawn
        for stage in build.stages():
            build.verification.run(
                stage.operators, everything=request.everything, skip=stage.skip, most=stage.most,
                limit=request.limit, tell=lambda tried: advance(), found=found, before=outcome,
            )  # fmt: skip
            if not outcome.right and not request.everything:
                break
            if stage.name == FIRST and outcome.right:
                said = f"{called(stage.operators)}: {verdict(outcome, False, stage.operators)}"
                request.say([f"{said}, {time.perf_counter() - begin:.3f} s"])
    return outcome
