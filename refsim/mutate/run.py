"""Put each bug into a copy of the sources, run cases of the corpus there, and diff what comes out."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from refsim.buffer import PackedBuffer
from refsim.bytediff import Cause, diff
from refsim.case import Bound, bind
from refsim.golden import coverage, rules
from refsim.golden.casefile import contents
from refsim.golden.store import Entry, line
from refsim.mutate.mutant import Mutant, checkout, copy
from refsim.op import Case

CASES = 48
SECONDS = 300.0
MAX_BYTES = 40_000
_STYLES = ("position", "random", "near_ties", "ties", "saturation")

KILLED, CRASHED, REFUSED, STOPPED, SURVIVED = "killed", "crashed", "refused", "build", "survived"


@dataclass(frozen=True)
class Verdict:
    """What became of a mutant.

    ``how``: ``killed`` by different bytes, ``refused`` with a typed error, ``crashed``, stopped by the ``build``, or
    ``survived``. ``case`` is the first that did it, ``tried`` how many cases that took; ``rank`` is the place (from
    1) of the true cause in the diff of that case, None if it is not among those named.
    """

    mutant: Mutant
    how: str
    case: str = ""
    tried: int = 0
    differing: int = 0
    causes: tuple[str, ...] = ()
    rank: int | None = None
    message: str = ""

    @property
    def killed(self) -> bool:
        return self.how != SURVIVED

    def as_json(self) -> dict[str, Any]:
        return {
            "id": self.mutant.id, "bug": self.mutant.bug, "executor": self.mutant.executor, "op": self.mutant.op,
            "killed": self.killed, "how": self.how, "case": self.case, "tried": self.tried,
            "differing": self.differing, "true_causes": list(self.mutant.causes), "causes": list(self.causes),
            "rank": self.rank, "message": self.message,
        }  # fmt: skip


def cases(op: str, count: int = CASES) -> list[tuple[str, Case]]:
    """(name, case) of an operator's cases that are tried, those that show most first: spread over the corpus."""
    total, combinations = rules.RULES[op][0], len(rules.layouts_of(op))
    slots = total // combinations
    found: list[tuple[str, Case]] = []
    for k in range(4 * count):
        slot, combination = (5 + 37 * k) % slots, (7 * k) % combinations
        number = slot * combinations + combination
        if not any(name.endswith(f"/{number:04d}") for name, _ in found):
            found.append((f"{op}/{number:04d}", rules.case(op, number)))
    small = [row for row in found if _size(row[1]) <= MAX_BYTES]
    return sorted(small[:count], key=lambda row: (_STYLES.index(row[1].style), -_telling(row[1])))


def _size(case: Case) -> int:
    return sum(int(np.prod(shape)) for shape, _ in case.inputs.values())


def _telling(case: Case) -> int:
    """How much a case can show: batches, rows, columns and channels, each up to what adds nothing more."""
    sizes = coverage.shape4(case)
    return sum(min(size, most) for size, most in zip(sizes, (2, 9, 4, 9), strict=True))


def twin(case: Case) -> Case:
    """The same shapes and layouts with other data and another quantization."""
    changes = {}
    for name, value in case.params.items():
        if name.endswith("scale"):
            changes[name] = value * 1.5
        elif name.endswith("zp"):
            changes[name] = (value + 128 + 57) % 256 - 128
    return replace(case, params={**case.params, **changes}, seed=case.seed ^ 1)


# --- one mutant ------------------------------------------------------------------------------------------


def run(mutant: Mutant, count: int = CASES, seconds: float = SECONDS) -> Verdict:
    """Seed the bug, run the cases, and judge what came out."""
    with tempfile.TemporaryDirectory(prefix="refsim-mutant-") as scratch:
        root = Path(scratch)
        copy(mutant, checkout(), root)
        if mutant.executor.startswith("gpu"):
            stopped = _build(mutant, root)
            if stopped:
                return Verdict(mutant, STOPPED, message=stopped)
        chosen = cases(mutant.op, count)
        bounds = _write_cases(mutant, chosen, root / "cases")
        message = _run_child(mutant, root, seconds)
        return _judge(mutant, chosen, bounds, root / "cases", message)


def _write_cases(
    mutant: Mutant, chosen: Sequence[tuple[str, Case]], folder: Path
) -> dict[str, tuple[Bound, Bound | None]]:
    """Folder name -> (the case, its twin) as the child will find them, in the order in which it runs them."""
    bounds: dict[str, tuple[Bound, Bound | None]] = {}
    for number, (_, case) in enumerate(chosen):
        mine = bind(case)
        other = bind(twin(case)) if mutant.twin else None
        order = [mine] if other is None else [other, mine] if mutant.twin == "before" else [mine, other]
        for place, bound in enumerate(order):
            name = f"{number:03d}-{place}"
            if bound is mine:
                bounds[name] = (mine, other)
            _write_case(folder / name, bound)
    return bounds


def _write_case(folder: Path, bound: Bound) -> None:
    folder.mkdir(parents=True)
    expected = PackedBuffer(bound.call.out)  # the child only runs the case
    for name, data in contents(bound, expected).items():
        (folder / name).write_bytes(data)
    text = {"op": bound.case.op, "line": line(Entry(0, bound.case, ""))}
    (folder / "line.json").write_text(json.dumps(text))


def _environment(root: Path) -> dict[str, str]:
    cache = root / "cache"
    cache.mkdir(exist_ok=True)
    kept = {key: value for key, value in os.environ.items() if key != "NUMBA_CACHE_DIR"}
    return {**kept, "PYTHONPATH": str(root), "XDG_CACHE_HOME": str(cache), "PYTHONDONTWRITEBYTECODE": "1"}


def _run_child(mutant: Mutant, root: Path, seconds: float) -> str:
    """Run the copy on its cases; what it said if it did not end well."""
    mode = "drawn" if mutant.drawn else mutant.twin or "plain"
    command = [sys.executable, "-m", "refsim.mutate.child", str(root / "cases"), mutant.executor, mode]
    try:
        done = subprocess.run(
            command,
            cwd=root,
            env=_environment(root),
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"did not end within {seconds:g} s"
    return "" if done.returncode == 0 else f"exit status {done.returncode}: {done.stderr.strip()[-400:]}"


def _build(mutant: Mutant, root: Path) -> str:
    """Compile the shaders that the operator uses; what stopped it, if anything did.

    Variants are left out, so that every launch takes the plain build.
    """
    from refsim.case import bind as bind_case

    shaders = {step.launch.shader for _, case in cases(mutant.op, 6) for step in bind_case(case).call.steps()}
    code = (
        "import sys, tempfile; from pathlib import Path; from refsim_gpu import build_shaders as b\n"
        "for name in sys.argv[1:]:\n"
        "    code = b.compile_one(b.SHADERS / f'{name}.comp', (), Path(tempfile.mkdtemp(dir='.')))\n"
        "    [p.unlink() for p in (b.SHADERS / 'spirv').glob(f'{name}.*')]\n"
        "    (b.SHADERS / 'spirv' / f'{name}.spv').write_bytes(code)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *sorted(shaders)],
        cwd=root, env=_environment(root), capture_output=True, text=True, check=False,
    )  # fmt: skip
    return "" if done.returncode == 0 else done.stderr.strip().splitlines()[-1]


def _judge(
    mutant: Mutant,
    chosen: Sequence[tuple[str, Case]],
    bounds: dict[str, tuple[Bound, Bound | None]],
    folder: Path,
    message: str,
) -> Verdict:
    for tried, ((name, _), (key, (bound, other))) in enumerate(zip(chosen, bounds.items(), strict=True), 1):
        error, out = folder / f"{key}.error", folder / f"{key}.out"
        if error.exists():
            text = error.read_text()
            rank = next((1 for cause in mutant.causes if cause in text), None)
            return Verdict(mutant, REFUSED, name, tried, causes=(text,), rank=rank, message=text)
        if not out.exists():
            return Verdict(mutant, CRASHED, name, tried, message=message)
        expected = bound.call.expected(bound.inputs)
        actual = PackedBuffer.from_raw(out.read_bytes(), expected.desc.shape, expected.desc.layout)
        if not np.array_equal(actual.raw, expected.raw):
            others = (
                {"the other call's output": other.call.expected(other.inputs).raw}
                if other is not None
                else {}
            )
            report = diff(expected, actual, call=bound, previous=other, others=others, limit=1)
            return Verdict(
                mutant, KILLED, name, tried, report.differing, tuple(map(str, report.causes[:3])),
                _rank(mutant, report.causes),
            )  # fmt: skip
    return Verdict(mutant, SURVIVED, tried=len(chosen), message=message)


def _rank(mutant: Mutant, causes: Sequence[Cause]) -> int | None:
    names = [cause.name for cause in causes]
    return min((names.index(name) + 1 for name in mutant.causes if name in names), default=None)


def run_all(mutants: Sequence[Mutant], workers: int = 1, count: int = CASES) -> Iterator[Verdict]:
    """The verdicts in the order of the mutants."""
    with ThreadPoolExecutor(max(1, workers)) as pool:
        yield from pool.map(lambda mutant: run(mutant, count), mutants)
