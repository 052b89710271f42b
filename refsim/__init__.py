"""refsim: a bit-exact reference simulator for the packed int8 (q8ta) kernels of ExecuTorch's Vulkan backend."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from refsim.buffer import PackedBuffer
    from refsim.bytediff import Report, diff
    from refsim.errors import RefsimError
    from refsim.executor import Executor, ExecutorInfo, executors
    from refsim.layout import LAYOUTS, Layout
    from refsim.model import Model, load
    from refsim.op import OPS
    from refsim.qmath import PROFILES, Profile
    from refsim.tensor import TensorDesc

__version__ = "0.1.0"

#: Public name -> the module that has it, imported when first asked for: importing all takes longer than most commands.
_HOME = {
    "LAYOUTS": "layout",
    "OPS": "op",
    "PROFILES": "qmath",
    "Executor": "executor",
    "ExecutorInfo": "executor",
    "Layout": "layout",
    "Model": "model",
    "PackedBuffer": "buffer",
    "Profile": "qmath",
    "RefsimError": "errors",
    "Report": "bytediff",
    "TensorDesc": "tensor",
    "diff": "bytediff",
    "executors": "executor",
    "load": "model",
}

__all__ = [
    "LAYOUTS", "OPS", "PROFILES", "Executor", "ExecutorInfo", "Layout", "Model", "PackedBuffer", "Profile",
    "RefsimError", "Report", "TensorDesc", "diff", "executors", "load",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'refsim' has no attribute {name!r}")
    value = getattr(import_module(f"refsim.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(_HOME))
