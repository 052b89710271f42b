"""What `refsim shaders` does: verify a folder once, for each variant of its kernels, or again after each change."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

from refsim.check.runtime import runtime
from refsim.cli import _device
from refsim.cli import _shaders as text
from refsim.cli._shaders_build import Build, opened
from refsim.cli._shaders_repair import Wanted, lines, print_found, repaired
from refsim.cli._shaders_repair import content as repair_content
from refsim.cli._shaders_watch import watch
from refsim.cli.kit.apart import kernel_texts
from refsim.cli.kit.buffers import write_html
from refsim.cli.kit.options import LIMIT
from refsim.cli.kit.progress import progress
from refsim.cli.kit.text import print_json, say
from refsim.core.errors import IncompleteError
from refsim.core.qmath import Profile
from refsim.core.status import DIFFERENT, SAME
from refsim.exec.isolated import IsolatedExecutor
from refsim.modules import SANITIZED
from refsim.modules.trial import Tried
from refsim.modules.verification import FIRST, FolderOutcome

#: Cases of an operator that are looked at if a pattern chooses them: all.
MOST_SANITIZED = 1 << 20
#: What the JSON of a further run repeats of the first one's.
_REPEATED = ("folder", "device", "profiles", "modules", "unknown")


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

    def watch(self, executor: IsolatedExecutor, as_json: bool) -> int:
        """Verify again after each change; the exit status. ``executor`` began to open."""
        return watch(
            lambda: self._opened(executor), self.folder, self.everything, self.limit, as_json, self.repair, self.verbose
        )  # fmt: skip

    def run(self, executor: IsolatedExecutor, html: str | None, as_json: bool) -> int:
        """Verify once; the exit status. ``executor`` began to open."""
        one = bool(self.variant or self.images)
        with self._opened(executor) as build:
            if not as_json:
                text.print_folder(build)
            found = [(build, self._verified(build, as_json))]
            if not as_json:
                text.print_outcome(*found[0], self.everything)
            repairs = [] if self.repair is None else repaired(*found[0], self.repair)
            if self.repair is not None and not as_json:
                print_found(repairs)
        further = build.others() if not one and (found[0][1].right or self.everything) else []
        for variant, images, operators in further:
            if found[-1][1].right or self.everything:
                found.append(self._further(variant, images, operators, as_json))
        if not as_json:
            text.print_modules(build, one, self.verbose)
        if not any(outcome.cases for _, outcome in found) and not build.broken:
            raise IncompleteError(
                self.folder, "no case ran", got=text.nothing(build), need="at least one case"
            )
        wrong = next(((build, one) for build, outcome in found for one in outcome.wrong), None)
        if html is not None and wrong is not None:
            _, one_wrong = wrong
            repaired_lines = (line for one in repairs for line in lines(one))
            remarks = (*text.remarks(one_wrong), *kernel_texts(one_wrong.kernel), *repaired_lines)
            write_html(html, one_wrong.report, remarks)
        same = all(outcome.right for _, outcome in found) and not build.broken
        if as_json:
            first, *rest = [text.content(build, outcome) for build, outcome in found]
            if self.repair is not None:
                first["repair"] = repair_content(repairs)
            print_json("shaders", {**first, "variants": [_brief(row) for row in rest], "same": same})
        return SAME if same else DIFFERENT

    def _further(
        self, variant: str, images: bool, operators: list[str], as_json: bool
    ) -> tuple[Build, FolderOutcome]:
        """The same operators on other modules, with half as many cases and no recordings."""
        asked = replace(
            self, variant=variant, images=images, operators=tuple(operators), count=self.count // 2
        )
        executor = _device.modules(self.folder, self.device, variant, images)
        with asked._opened(executor, recorded=False) as build:
            if not as_json:
                say("")
                say(f"the same with {build.executor.name}")
            outcome = asked._verified(build, as_json)
        if not as_json:
            text.print_outcome(build, outcome, self.everything)
        return build, outcome

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

    def _verified(self, build: Build, as_json: bool) -> FolderOutcome:
        """All cases, stage by stage; a word is said as soon as there is one."""
        begin, outcome = time.perf_counter(), FolderOutcome()

        def found(tried: Tried) -> None:
            if not as_json and len(outcome.bad) == 1:
                say(text.first_word(tried, time.perf_counter() - begin))

        with progress("cases") as advance:  # how many there are shows only when all are drawn
            for stage in build.stages():
                build.verification.run(
                    stage.operators, everything=self.everything, skip=stage.skip, most=stage.most, limit=self.limit,
                    tell=lambda tried: advance(), found=found, before=outcome,
                )  # fmt: skip
                if not outcome.right and not self.everything:
                    break
                if stage.name == FIRST and outcome.right and not as_json:
                    say(text.so_far(stage.operators, outcome, time.perf_counter() - begin))
        return outcome


def _brief(content: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in content.items() if key not in _REPEATED}
