"""refsim: a bit-exact reference simulator for the packed int8 (q8ta) kernels of ExecuTorch's Vulkan backend."""

from __future__ import annotations

from refsim.buffer import PackedBuffer
from refsim.errors import RefsimError
from refsim.executor import Executor
from refsim.layout import LAYOUTS, Layout, layout
from refsim.model import Model, load
from refsim.op import OPS
from refsim.qmath import PROFILES, Profile
from refsim.tensor import TensorDesc

__version__ = "0.1.0"

__all__ = [
    "LAYOUTS", "OPS", "PROFILES", "Executor", "Layout", "Model", "PackedBuffer", "Profile", "RefsimError",
    "TensorDesc", "layout", "load",
]  # fmt: skip
