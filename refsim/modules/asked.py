"""What a check of a folder does: verify it once, for each variant of its kernels, or again after each change."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

from refsim.core.doing import progress
from refsim.core.errors import IncompleteError
from refsim.core.qmath import Profile
from refsim.exec.isolated import IsolatedExecutor
from refsim.modules import SANITIZED, executors
from refsim.modules.build import Build, opened
from refsim.modules.repaired import Wanted, repaired
from refsim.modules.result import (
    CheckedFolder,
    FolderVerdict,
    facts,
    first_word,
    folder_text,
    modules_text,
    nothing,
    so_far,
)
from refsim.modules.trial import Tried
from refsim.modules.verification import FIRST, FolderOutcome
from refsim.modules.watch import Say, Verdicts, watch
from refsim.ops.base.target import Behaviour

#: Cases of an operator that are looked at if a pattern chooses them: all.
MOST_SANITIZED = 1 << 20


@dataclass(frozen=True)
class Asked:
    """What is asked for. ``say`` prints something before the verdict; ``again``: options that a rerun needs besides."""

    folder: str
    operators: tuple[str, ...]
    count: int
    pattern: str
    profile: Profile | None
    device: int
    variant: str
    images: bool
    everything: bool
    limit: int
    sanitize: bool
    repeats: int
    repair: Wanted | None = None
    verbose: bool = False
    behaviour: Behaviour | None = None
    say: Say = lambda text: None
    again: Sequence[str] = ()

    def watch(self, executor: IsolatedExecutor) -> Verdicts:
        """Verify again after each change. ``executor`` began to open."""
        return watch(
            lambda: self._opened(executor),
            self.folder,
            self.say,
            self.everything,
            self.limit,
            self.repair,
            self.verbose,
        )

    def run(self, executor: IsolatedExecutor) -> CheckedFolder:
        """Verify once. ``executor`` began to open."""
        one = bool(self.variant or self.images)
        with self._opened(executor) as build:
            self.say(folder_text(build))
            outcome = self._verified(build)
            repairs = [] if self.repair is None else repaired(build, outcome, self.repair)
        found = [(build, outcome)]
        further = build.others() if not one and (outcome.right or self.everything) else []
        for variant, images, operators in further:
            if found[-1][1].right or self.everything:
                found.append(self._further(variant, images, operators))
        if not any(outcome.cases for _, outcome in found) and not build.broken:
            raise IncompleteError(self.folder, "no case ran", got=nothing(build), need="at least one case")
        first, *others = [FolderVerdict.of(*each) for each in found]
        return CheckedFolder(
            **facts(build, first), repair=None if self.repair is None else repairs, variants=others,
            everything=self.everything, listed=list(modules_text(build, one, self.verbose)),
        )  # fmt: skip

    def _further(self, variant: str, images: bool, operators: list[str]) -> tuple[Build, FolderOutcome]:
        """The same operators on other modules, with half as many cases and no recordings."""
        asked = replace(
            self, variant=variant, images=images, operators=tuple(operators), count=self.count // 2
        )
        with asked._opened(executors.of(self.folder, self.device, variant, images), recorded=False) as build:
            return build, asked._verified(build)

    def _opened(self, executor: IsolatedExecutor, recorded: bool = True) -> AbstractContextManager[Build]:
        sanitized = 0 if not self.sanitize else MOST_SANITIZED if self.pattern else SANITIZED
        return opened(
            self.folder, self.operators, self.count, self.pattern, self.profile, self.device, self.variant, self.images,
            recorded, sanitized, self.repeats, list(self.again), executor,
            self.behaviour,
        )  # fmt: skip

    def _verified(self, build: Build) -> FolderOutcome:
        """All cases, stage by stage; a word is said as soon as there is one."""
        begin, outcome = time.perf_counter(), FolderOutcome()

        def found(tried: Tried) -> None:
            if len(outcome.bad) == 1:
                self.say([first_word(tried, time.perf_counter() - begin)])

        with progress("cases") as advance:  # how many there are shows only when all are drawn
            for stage in build.stages():
                build.verification.run(
                    stage.operators, everything=self.everything, skip=stage.skip, most=stage.most, limit=self.limit,
                    tell=lambda tried: advance(), found=found, before=outcome,
                )  # fmt: skip
                if not outcome.right and not self.everything:
                    break
                if stage.name == FIRST and outcome.right:
                    self.say([so_far(stage.operators, outcome, time.perf_counter() - begin)])
        return outcome
