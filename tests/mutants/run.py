"""Put each bug into a copy of the sources, run there what should show it, and judge what comes out."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from shutil import which

from mutants import cases, graphs
from mutants.bugs import GPU, LOWERING
from mutants.mutant import CASES, MODEL, Mutant
from mutants.outcome import Outcome
from mutants.tree import copy
from refsim.core.errors import RefsimError
from refsim.core.extras import TORCH_FIX


def run(mutant: Mutant, count: int = cases.COUNT) -> Outcome:
    """Seed the bug, run what should show it, and judge. FormatError if the mutant no longer applies."""
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="refsim-mutant-") as scratch:
        root = Path(scratch)
        copy(mutant, root)
        if mutant.stage == CASES:
            outcome = cases.run(mutant, root, count)
        elif mutant.stage == MODEL:
            outcome = graphs.run_model(mutant, root)
        else:
            outcome = graphs.run_network(mutant, root)
    return replace(outcome, seconds=round(time.monotonic() - begin, 1))


def run_all(mutants: Sequence[Mutant], workers: int = 1) -> Iterator[Outcome]:
    """The outcomes in the order of the mutants."""
    with ThreadPoolExecutor(max(1, workers)) as pool:
        yield from pool.map(run, mutants)


def missing(place: str) -> str | None:
    """Why mutants of a place cannot be run here, if so."""
    if place == LOWERING:
        return None if find_spec("torch") else f"torch is not installed ({TORCH_FIX})"
    if place != GPU:
        return None
    if which("glslc") is None or which("spirv-opt") is None:
        return "glslc and spirv-tools are not installed (make gpu)"
    try:
        from refsim_gpu import vulkan

        found = vulkan.devices()
    except (ImportError, RefsimError) as error:
        return str(error)
    return None if found and find_spec("kp") else "no Vulkan device, or the module kp is not built (make gpu)"
