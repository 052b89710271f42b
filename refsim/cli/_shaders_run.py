"""What `refsim shaders` does: verify a folder once, for each variant of its kernels, or again after each change."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

from refsim.check.runtime import runtime
from refsim.cli._shaders import (
    CheckedFolder,
    FolderVerdict,
    facts,
    first_word,
    folder_text,
    modules_text,
    nothing,
    remarks,
    so_far,
)
from refsim.cli._shaders_repair import Wanted, repaired
from refsim.cli._shaders_watch import Verdicts, watch
from refsim.cli.kit.options import LIMIT
from refsim.cli.kit.progress import progress
from refsim.cli.kit.report import ToldReport, kernel_texts
from refsim.cli.kit.text import meanwhile
from refsim.core.errors import IncompleteError
from refsim.core.qmath import Profile
from refsim.exec.isolated import IsolatedExecutor
from refsim.modules import SANITIZED, executors
from refsim.modules.build import Build, opened
from refsim.modules.trial import Tried
from refsim.modules.verification import FIRST, FolderOutcome

#: Cases of an operator that are looked at if a pattern chooses them: all.
MOST_SANITIZED = 1 << 20


@dataclass(frozen=True)
class Asked:
    """What the command line asks for."""

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
    release: str | None = None

    def watch(self, executor: IsolatedExecutor) -> Verdicts:
        """Verify again after each change. ``executor`` began to open."""
        return watch(
            lambda: self._opened(executor),
            self.folder,
            self.everything,
            self.limit,
            self.repair,
            self.verbose,
        )

    def run(self, executor: IsolatedExecutor, html: str | None) -> CheckedFolder:
        """Verify once. ``executor`` began to open."""
        one = bool(self.variant or self.images)
        with self._opened(executor) as build:
            meanwhile(folder_text(build))
            outcome = self._verified(build)
            repairs = [] if self.repair is None else repaired(build, outcome, self.repair)
        found = [(build, outcome)]
        further = build.others() if not one and (outcome.right or self.everything) else []
        for variant, images, operators in further:
            if found[-1][1].right or self.everything:
                found.append(self._further(variant, images, operators))
        if not any(outcome.cases for _, outcome in found) and not build.broken:
            raise IncompleteError(self.folder, "no case ran", got=nothing(build), need="at least one case")
        wrong = next((one for _, outcome in found for one in outcome.wrong), None)
        if html is not None and wrong is not None:
            edits = (line for one in repairs for line in one.lines())
            ToldReport(wrong.report, None).write_html(
                html, [*remarks(wrong), *kernel_texts(wrong.kernel), *edits]
            )
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
            recorded, sanitized, self.repeats, self._again, executor,
            None if self.release is None else runtime(self.release).behaviour,
        )  # fmt: skip

    @property
    def _again(self) -> list[str]:
        """What a rerun of one case needs besides, so that it says the same."""
        words = ["--limit", str(self.limit)] if self.limit != LIMIT else []
        words += ["--runtime", self.release] if self.release is not None else []
        return words if self.profile is None else [*words, "--profile", self.profile.name]

    def _verified(self, build: Build) -> FolderOutcome:
        """All cases, stage by stage; a word is said as soon as there is one."""
        begin, outcome = time.perf_counter(), FolderOutcome()

        def found(tried: Tried) -> None:
            if len(outcome.bad) == 1:
                meanwhile([first_word(tried, time.perf_counter() - begin)])

        with progress("cases") as advance:  # how many there are shows only when all are drawn
            for stage in build.stages():
                build.verification.run(
                    stage.operators, everything=self.everything, skip=stage.skip, most=stage.most, limit=self.limit,
                    tell=lambda tried: advance(), found=found, before=outcome,
                )  # fmt: skip
                if not outcome.right and not self.everything:
                    break
                if stage.name == FIRST and outcome.right:
                    meanwhile([so_far(stage.operators, outcome, time.perf_counter() - begin)])
        return outcome
