"""Right modules give the right bytes; seeded bugs are found as `refsim shaders` does it, and nearly all are named."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
from needed import needs_device

from modules import build
from modules.bugs import BUGS, Bug
from modules.test_modules_build import needs_tools
from refsim.bytediff import diff
from refsim.core.rng import Rng
from refsim.exec.factory import executor_named
from refsim.golden.judge import KNOWN_DEFECT, SAME, judged
from refsim.modules.build import Build, Request, opened
from refsim.modules.trial import ModuleTrial
from refsim.modules.verification import FIRST_WORD, FolderOutcome, Verification
from refsim.ops.base.binding import bind
from refsim.ops.base.registry import OPS

INDEX = int(os.environ.get("REFSIM_DEVICE", "0"))
SAMPLES = 20
COUNT, FIRST = 24, 3  # cases of the corpus for each operator; how many causes count as named at once
#: What a bug's module needs the executor to be asked for.
OPTIONS = {"_unsigned": "unsigned", "_texture3d": "images"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(shutil.copytree(build.BINARIES, tmp_path_factory.mktemp("modules") / "spirv"))


@pytest.fixture(scope="module")
def shaders(folder: Path) -> Iterator[Build]:
    with needs_device(), opened(Request(str(folder), (), COUNT, "", None, INDEX, "")) as found:
        yield found


# --- right modules ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "op", [name for name, op in OPS.items() if op.upstream.module is not None or op.picks]
)
def test_random_calls(shaders: Build, op: str) -> None:
    rng, ran = Rng(len(op)), 0
    for _ in range(SAMPLES):
        bound = bind(OPS[op].sample(rng))
        if not shaders.takes(bound.call):
            continue
        actual = shaders.executor.run_call(bound.call, bound.inputs)
        if judged(bound, actual).verdict not in (SAME, KNOWN_DEFECT):
            pytest.fail(str(diff(bound.call.expected(bound.inputs), actual, call=bound, device=True)))
        ran += 1
    assert ran


# --- wrong ones ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Found:
    """What the verification of a folder with one wrong module says."""

    bug: Bug
    bad: bool
    says: tuple[str, ...]
    cases: int

    @property
    def named(self) -> bool:
        return any(said.startswith(cause) for cause in self.bug.causes for said in self.says)


@pytest.fixture(scope="module")
def found(shaders: Build, folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[Bug], Found]:
    """What is said of a bug. Each is found once, by the first test that asks: a test has its time for one of them."""
    if needs_tools.args[0]:
        pytest.skip(needs_tools.kwargs["reason"])
    return cache(lambda bug: _found(shaders, folder, bug, tmp_path_factory.mktemp(bug.id)))


def _found(shaders: Build, folder: Path, bug: Bug, scratch: Path) -> Found:
    module = folder / f"{bug.module}.spv"
    right = module.read_bytes()
    module.write_bytes(bug.compiled(scratch))
    try:
        outcome = _verified(shaders, folder, bug)
    finally:
        module.write_bytes(right)
        shaders.refresh([bug.module])
    causes = [str(cause) for row in outcome.wrong for cause in row.kernel.causes[:FIRST]]
    said = (*causes, *(row.message for row in outcome.failed))
    return Found(bug, bool(outcome.bad), said, outcome.cases)


def _verified(shaders: Build, folder: Path, bug: Bug) -> FolderOutcome:
    option = next((word for part, word in OPTIONS.items() if part in bug.module), None)
    if option is None:
        shaders.refresh([bug.module])
        return shaders.verification.run([bug.op])
    executor = executor_named(f"spv:{folder}@{INDEX}+{option}")
    try:
        return Verification(ModuleTrial(executor), COUNT).run([bug.op])
    finally:
        executor.close()


@pytest.mark.long
@pytest.mark.parametrize("bug", BUGS, ids=[bug.id for bug in BUGS])
def test_every_bug_is_found(bug: Bug, found: Callable[[Bug], Found]) -> None:
    assert found(bug).bad


@pytest.mark.long
def test_nearly_every_bug_is_met_at_once_and_named(found: Callable[[Bug], Found]) -> None:
    rows = [found(bug) for bug in BUGS]
    late = [row.bug.id for row in rows if row.cases > FIRST_WORD]
    assert len(late) <= len(rows) // 10, late
    unnamed = {row.bug.id: row.says for row in rows if not row.named}
    assert len(unnamed) <= len(rows) // 10, unnamed
