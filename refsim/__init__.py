"""refsim: a bit-exact reference simulator for the packed int8 (q8ta) kernels of ExecuTorch's Vulkan backend."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from refsim.bytediff import Report, diff
    from refsim.core.buffer import PackedBuffer
    from refsim.core.errors import DeviceError, RefsimError
    from refsim.core.layout import LAYOUTS, Layout
    from refsim.core.qmath import PROFILES, Profile
    from refsim.core.tensor import TensorDesc
    from refsim.devtools.inspector import inspector_comparator
    from refsim.exec.executor import Executor
    from refsim.exec.factory import ExecutorInfo, executors
    from refsim.exec.model import Model, load
    from refsim.exec.plugin import ExecutorPlugin, OperatorCall
    from refsim.ops.base.registry import OPS

__version__ = "0.1.0"

#: Public name -> the module that has it, imported when first asked for: importing all takes longer than most commands.
_HOME = {
    "LAYOUTS": "core.layout",
    "OPS": "ops.base.registry",
    "PROFILES": "core.qmath",
    "DeviceError": "core.errors",
    "Executor": "exec.executor",
    "ExecutorInfo": "exec.executor",
    "ExecutorPlugin": "exec.plugin",
    "Layout": "core.layout",
    "Model": "exec.model",
    "OperatorCall": "exec.plugin",
    "PackedBuffer": "core.buffer",
    "Profile": "core.qmath",
    "RefsimError": "core.errors",
    "Report": "bytediff",
    "TensorDesc": "core.tensor",
    "diff": "bytediff",
    "executors": "exec.factory",
    "inspector_comparator": "devtools.inspector",
    "load": "exec.model",
}

__all__ = [
    "LAYOUTS", "OPS", "PROFILES", "DeviceError", "Executor", "ExecutorInfo", "ExecutorPlugin", "Layout", "Model",
    "OperatorCall", "PackedBuffer", "Profile", "RefsimError", "Report", "TensorDesc", "diff", "executors",
    "inspector_comparator", "load",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'refsim' has no attribute {name!r}")
    value = getattr(import_module(f"refsim.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(_HOME))
