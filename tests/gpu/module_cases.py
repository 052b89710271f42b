"""Folders of our own kernels that keep upstream's calling conventions, and cases for them."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

from refsim.ops.base.binding import BoundCase, bind
from refsim.ops.base.registry import OPS
from refsim_gpu.modules import ModuleExecutor, Options

ROOT = Path(__file__).parents[2]
SPIRV = ROOT / "tests" / "modules" / "spirv"
MODELS = sorted((ROOT / "tests" / "data" / "models").glob("*.pte"))
LINEAR_HEAD = ROOT / "tests" / "data" / "models" / "linear_head.pte"
INDEX = int(os.environ.get("REFSIM_DEVICE", "0"))
EVERY = int(os.environ.get("REFSIM_MODULES_EVERY", "6"))  # 1 repeats all recordings
#: Operators of which a folder of modules can compute calls, themselves or by their parts.
WITH_MODULES = [name for name, op in OPS.items() if op.upstream.module is not None or op.picks]


def opened(folder: Path, **options: Any) -> ModuleExecutor:
    return ModuleExecutor(str(folder), Options(INDEX, **options))


def folder_with(tmp_path: Path, *names: str) -> Path:
    folder = tmp_path / "modules"
    folder.mkdir(exist_ok=True)
    for name in names:
        shutil.copy(SPIRV / f"{name}.spv", folder)
    return folder


def case_of(op: str, **changes: Any) -> BoundCase:
    return bind(OPS[op].cases.example.changed(**changes))


def right(executor: ModuleExecutor, bound: BoundCase) -> bool:
    return executor.run_call(bound.call, bound.inputs) == bound.call.expected(bound.inputs)
