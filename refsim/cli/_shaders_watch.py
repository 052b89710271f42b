"""`refsim shaders --watch`: verify, wait for a module to change, verify what it touches, until Ctrl-C."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Sequence

import click

from refsim.cli import _shaders as text
from refsim.cli._main import DIFFERENT, SAME
from refsim.cli._output import say
from refsim.cli._shaders_build import Build
from refsim.core.errors import RefsimError
from refsim.golden import modules
from refsim.golden.verification import FIRST_WORD, Outcome

FIRST, ALL = "first", "all"


class Watch:
    """The operators of a build, and which of them are known to be right.

    After a change the first cases of the operators that it touches run before anything else, then the rest of
    their cases, then the operators that are not known to be right. A change while cases run stops them.
    """

    def __init__(self, build: Build, everything: bool, limit: int, as_json: bool) -> None:
        self.build, self.everything, self.limit, self.as_json = build, everything, limit, as_json
        self.unsure = set(build.operators)
        self.changed: frozenset[str] = frozenset()

    def run(self) -> int:
        """The exit status, when Ctrl-C ends it: whether all was right at the end."""
        touched, changed = list(self.build.operators), frozenset[str]()
        try:
            self._say(f"watching {self.build.path}: {len(self.build.rows)} modules; Ctrl-C ends it")
            while True:
                self._verify(touched, changed, time.perf_counter())
                changed = self.changed or self.build.folder.wait()
                self.changed = frozenset()
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
        touched = modules.affected(changed, self.build.operators, self.build.own)
        self.unsure = (self.unsure & set(self.build.operators)) | set(touched)
        return touched

    def _verify(self, touched: Sequence[str], changed: Collection[str], since: float) -> None:
        later = {*touched, *modules.affected(self.build.folder.unsettled, self.build.operators)}
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
            if not outcome.right or self.changed:
                return
            if stage == ALL:
                self.unsure -= set(operators)

    def _interrupted(self) -> bool:
        self.changed |= self.build.folder.changed()
        return bool(self.changed)

    def _tell(
        self, operators: Sequence[str], changed: Collection[str], outcome: Outcome, stage: str, seconds: float
    ) -> None:
        if self.changed and outcome.right:
            return  # more of it comes at once
        if self.as_json:
            facts = text.content(self.build, outcome) | {
                "changed": sorted(changed), "stage": stage, "seconds": round(seconds, 3),
            }  # fmt: skip
            click.echo(json.dumps({"verb": "shaders", "schema": 1, **facts}))  # one line, however long
            return
        names = ", ".join(operators) if len(operators) <= text.MOST_SHOWN else f"{len(operators)} operators"
        say(f"  {names}: {text.verdict(outcome, stage == ALL)}, {seconds:.3f} s")
        text.print_findings(self.build, outcome)

    def _say(self, line: str) -> None:
        if not self.as_json:
            say(line)
