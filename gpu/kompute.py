"""One opened device, with the checks that Kompute leaves out.

Kompute 0.9 ignores most Vulkan results. It aborts the process when there is no driver, crashes when an
allocation fails, runs kernels whose bindings or push constants are missing, and returns normally from a
dispatch on a lost device. So this module checks sizes before a call.

The ``kp`` that `refsim_gpu.build_kp` builds has a submodule of refsim's own (kp_layer/), which is needed: devices with
features, barriers between dispatches, recordings that report what Vulkan says.
"""

from __future__ import annotations

import hashlib
import weakref
from collections import Counter
from collections.abc import Sequence
from math import prod
from types import ModuleType
from typing import Any

import numpy as np

from refsim.core.counted import counted, numbered
from refsim.core.errors import DeviceError, LimitError, MissingDependencyError, ParameterError, RawBufferError
from refsim.core.extras import GPU_FIX, NO_KP
from refsim.core.launch import Triple
from refsim_gpu import spirv, vulkan

TENSOR_DTYPES = {np.dtype(kind).str: np.dtype(kind) for kind in (np.float32, np.int32, np.uint32, np.float64)}
MAX_TENSOR_BYTES = (1 << 32) - 4  # Kompute counts a tensor's bytes in 32 bits
#: Extensions and structures of features (type, flags), by what `vulkan.DeviceInfo` calls them.
EXTENSIONS = {
    "integer_dot_product": ["VK_KHR_shader_integer_dot_product"],
    "float_modes": [vulkan.FLOAT_CONTROLS_EXTENSION],
    "int8_matrices": [vulkan.MATRIX_EXTENSION, "VK_KHR_vulkan_memory_model", "VK_KHR_shader_float16_int8"],
}
MOST_PIPELINES = 1024
LAYER_VERSION = 3  # of kp_layer/module.hpp
FEATURES: dict[str, list[tuple[int, list[int]]]] = {
    "float_modes": [],
    "integer_dot_product": [(vulkan.DOT_FEATURES[0], [1])],
    "int8_matrices": [
        (vulkan.MATRIX_FEATURES[0], [1, 0]),
        (vulkan.MODEL_FEATURES[0], [1, 0, 0]),
        (vulkan.INT8_FEATURES[0], [0, 1]),
    ],
}


def import_kp() -> ModuleType:
    """The ``kp`` module; raises MissingDependencyError with the command that builds it."""
    try:
        import kp
    except ImportError as error:
        raise MissingDependencyError("kp", NO_KP, got=error, need=GPU_FIX) from error
    return kp  # type: ignore[no-any-return]


def layer_of(kp: ModuleType) -> ModuleType:
    """What refsim's build adds to ``kp``; MissingDependencyError if it lacks or is another version."""
    layer = getattr(kp, "refsim", None)
    version = getattr(layer, "VERSION", None)
    if layer is None or version != LAYER_VERSION:
        got = "none" if version is None else f"version {version}"
        raise MissingDependencyError("kp", "not built with refsim's layer", got=got, need=GPU_FIX)
    return layer  # type: ignore[no-any-return]


def find_device(index: int) -> vulkan.DeviceInfo:
    found = vulkan.devices()
    if not found:
        raise DeviceError(
            "vulkan", "no driver offers a device", got="0 devices", need="apt-get install mesa-vulkan-drivers"
        )
    if not 0 <= index < len(found):
        raise DeviceError("vulkan", "no such device", got=index, need=numbered(len(found), "device"))
    return found[index]


class Device:
    """A Kompute manager on one device, with guarded uploads and dispatches."""

    def __init__(self, index: int = 0) -> None:
        self.info = find_device(index)
        self.kp = import_kp()
        self.layer = layer_of(self.kp)
        has = [name for name in EXTENSIONS if getattr(self.info, name)]
        extensions = [extension for name in has for extension in EXTENSIONS[name]]
        self._live: Counter[str] = Counter()
        #: Recordings, kernels and algorithms, tensors and memories: they are freed in this order.
        self._made: list[weakref.WeakSet[Any]] = [weakref.WeakSet() for _ in range(3)]
        self._pipelines: dict[tuple[bytes, int, tuple[int, ...], int], Any] = {}
        wanted = [row for name in has for row in FEATURES[name]]
        self.context = self.kp_call("device", self.layer.Context, index, extensions, wanted)
        self.manager = self.context.manager()

    def close(self) -> None:
        """Free the device. Arrays from ``Tensor.data()`` dangle afterwards: copy them first."""
        for made in self._made:  # what is freed holds the handle of the device, which goes last
            for one in list(made):
                one.destroy()
        for pipeline in self._pipelines.values():
            pipeline.destroy()
        self._pipelines.clear()
        self.manager.destroy()

    def __enter__(self) -> Device:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def tensor(self, array: np.ndarray, *, host: bool = False) -> Any:
        """A tensor holding a flat copy of ``array``; ``host`` keeps it host-visible, without staging.

        Raises RawBufferError for a dtype that Kompute lacks or an empty array, LimitError for one larger than
        a buffer may be, DeviceError for one that does not fit beside the tensors alive.
        """
        dtype = TENSOR_DTYPES.get(array.dtype.str)
        if dtype is None:
            raise RawBufferError(
                "tensor", "dtype has no Kompute tensor", got=array.dtype, need=", ".join(TENSOR_DTYPES)
            )
        if array.size == 0:
            raise RawBufferError("tensor", "empty", got="0 bytes", need="at least one element")
        allowed = min(MAX_TENSOR_BYTES, int(self.info.limits["maxStorageBufferRange"]))  # type: ignore[arg-type]
        if array.nbytes > allowed:
            raise LimitError(
                "tensor",
                "larger than a buffer may be",
                got=counted(array.nbytes, "byte"),
                need=f"<= {allowed}",
            )
        needed = self._reserved({"device": 0 if host else array.nbytes, "host": array.nbytes})
        # Kompute compares dtypes by identity: an unpickled array has a uint32 that is not the uint32
        plain = np.ascontiguousarray(array).view(dtype)
        kind = self.kp.TensorTypes.host if host else self.kp.TensorTypes.device
        tensor = self.kp_call("tensor", self.manager.tensor_t, plain, kind)
        if not tensor.is_init():
            raise DeviceError(
                "tensor", "allocation failed", got=counted(array.nbytes, "byte"), need="free device memory"
            )
        self._live.update(needed)
        self._made[2].add(tensor)
        weakref.finalize(tensor, self._live.subtract, needed)
        return tensor

    def _reserved(self, needed: dict[str, int]) -> dict[str, int]:
        """Bytes that something takes of each heap; raises DeviceError if it would not fit.

        Kompute maps an allocation without checking it, and crashes if it failed. This counts the tensors and memories
        that Python still holds, but not tensors that an algorithm keeps alive, or the memory of other processes.
        """
        heaps = {"device": self.info.device_local_bytes, "host": self.info.host_bytes}
        if not self.info.host_bytes:  # staging buffers lie in the one heap there is
            needed = {"device": sum(needed.values())}
        for heap, bytes_needed in needed.items():
            free = heaps[heap] - self._live[heap]
            if bytes_needed > free:
                raise DeviceError(
                    "tensor", f"out of {heap} memory", got=counted(bytes_needed, "byte"), need=f"<= {free}"
                )
        return needed

    def memory(self, nbytes: int, use: str = "ON_DEVICE") -> Any:
        """A buffer of the layer's, of whose parts dispatches and copies are recorded.

        ``use``: for kernels alone, or for data that the host writes (``HOST_WRITES``) or reads (``HOST_READS``), whose
        words it sees. DeviceError if it does not fit.
        """
        needed = self._reserved({"device" if use == "ON_DEVICE" else "host": nbytes})
        memory = self.kp_call("memory", self.layer.Memory, self.context, nbytes, getattr(self.layer, use))
        self._live.update(needed)
        self._made[2].add(memory)
        weakref.finalize(memory, self._live.subtract, needed)
        return memory

    def algorithm(
        self,
        code: bytes,
        tensors: Sequence[Any],
        grid: tuple[int, int, int],
        spec: Sequence[int] = (),
        push: Sequence[int] = (),
        *,
        local: tuple[int, int, int] = (1, 1, 1),
        where: str = "shader",
    ) -> Any:
        """A pipeline bound to ``tensors`` (binding 0 onwards of set 0).

        The latest `MOST_PIPELINES` pipelines are kept for other tensors and push words.

        ``spec`` and ``push`` are 32-bit words: specialization constants 0 onwards, the push constant block. Raises
        LimitError for a grid or push block over the device's limits, DeviceError if the driver refuses the module.
        ``local`` is the workgroup size that the module declares or ``spec`` sets. A driver may accept one over the
        limits and then dispatch nothing.
        """
        spirv.check(code, where)
        self.check(grid, local, len(push), where)
        if not tensors:
            raise ParameterError(where, "no tensor bound", got=0, need=">= 1")  # Kompute would build nothing
        pipeline = self.pipeline(code, len(tensors), words(spec).tolist(), len(push), where)
        algorithm = self.kp_call(
            where, self.layer.Kernel, pipeline, list(tensors), grid, words(push).tolist()
        )
        if not algorithm.is_init():
            raise DeviceError(
                where, "no pipeline was made", got="an uninitialized algorithm", need="a pipeline"
            )
        self._made[1].add(algorithm)
        return algorithm

    def check(self, grid: Triple, local: Triple, push_words: int, where: str) -> None:
        """LimitError for a dispatch over the device's limits."""
        limits = self.info.limits
        most = limits["maxComputeWorkGroupCount"]
        assert isinstance(most, tuple)
        if not all(1 <= size <= limit for size, limit in zip(grid, most, strict=True)):
            raise LimitError(where, "grid outside the device's limits", got=grid, need=f"1 to {most}")
        sides = limits["maxComputeWorkGroupSize"]
        assert isinstance(sides, tuple)
        invocations = limits["maxComputeWorkGroupInvocations"]
        if not all(1 <= size <= limit for size, limit in zip(local, sides, strict=True)) or (
            prod(local) > int(invocations)  # type: ignore[arg-type]
        ):
            need = f"1 to {sides}, {invocations} in all"
            raise LimitError(where, "workgroup outside the device's limits", got=local, need=need)
        if 4 * push_words > int(limits["maxPushConstantsSize"]):  # type: ignore[arg-type]
            raise LimitError(
                where, "too many push bytes", got=4 * push_words, need=f"<= {limits['maxPushConstantsSize']}"
            )

    def pipeline(self, code: bytes, tensors: int, spec: Sequence[int], push: int, where: str) -> Any:
        """What the driver compiles of a shader, which takes it longer than most shaders run."""
        key = hashlib.blake2b(code).digest(), tensors, tuple(spec), push
        if key in self._pipelines:
            self._pipelines[key] = self._pipelines.pop(key)  # the latest
        else:
            while len(self._pipelines) >= MOST_PIPELINES:
                del self._pipelines[next(iter(self._pipelines))]  # goes when the last kernel of it goes
            self._pipelines[key] = self.kp_call(
                where, self.layer.Pipeline, self.context, code, spec, tensors, push
            )
        return self._pipelines[key]

    def sequence(self, timestamps: int = 0) -> Any:
        """A command buffer. Record into it once and evaluate it as often as needed; never record again.

        It may also be submitted, and waited for later.

        Kompute does not create its command buffers so that they may be reset. ``eval(op)`` on a used one is therefore
        invalid in Vulkan, although drivers accept it. ``timestamps`` must be at least the number of recorded
        operations; one operation more crashes.
        """
        recording = self.kp_call("sequence", self.layer.Recording, self.context, timestamps)
        self._made[0].add(recording)
        return recording

    def dispatch(self, algorithm: Any, push: Sequence[int] = ()) -> Any:
        """A dispatch behind all that was recorded before it; ``push``: with other push words than the algorithm's."""
        return self.layer.Dispatch(algorithm, True, words(push).tolist())

    def run(self, sequence: Any, *, where: str = "dispatch") -> None:
        """Evaluate a sequence that ``recorded`` made; raises DeviceError if the device was lost."""
        self.kp_call(where, sequence.eval)

    def recorded(self, *operations: Any, timestamps: bool = False) -> Any:
        """A sequence of ``operations``, which ``run`` evaluates.

        With ``timestamps``, ``get_timestamps()`` gives the ticks before the first operation and after each;
        ``info.timestamp_ns`` is a tick's length.
        """
        sequence = self.sequence(len(operations) if timestamps else 0)
        for operation in operations:
            self.kp_call("recording", sequence.record, operation)
        return sequence

    def once(
        self,
        name: str,
        inputs: Sequence[np.ndarray],
        output: np.ndarray,
        grid: tuple[int, int, int],
        spec: Sequence[int] = (),
        push: Sequence[int] = (),
    ) -> np.ndarray:
        """Upload ``inputs`` and ``output``, dispatch shader ``name``, return what ``output`` then holds.

        The output's binding follows the inputs'. For probes and tests; an executor keeps its pipelines.
        """
        tensors = [self.tensor(array) for array in (*inputs, output)]
        algorithm = self.algorithm(spirv.load(name), tensors, grid, spec, push, where=name)
        # apart: Kompute orders uploads before what reads them, not before what writes
        self.run(self.recorded(self.kp.OpTensorSyncDevice(tensors)), where=name)
        self.run(
            self.recorded(self.dispatch(algorithm), self.kp.OpTensorSyncLocal([tensors[-1]])), where=name
        )
        return np.array(tensors[-1].data()).reshape(output.shape)

    def kp_call(self, where: str, call: Any, *arguments: Any) -> Any:
        """``call(*arguments)``, with Kompute's RuntimeError (it raises no other) turned into a DeviceError."""
        try:
            return call(*arguments)
        except RuntimeError as error:
            raise DeviceError(where, "Kompute failed", got=error, need="success") from error


def words(values: Sequence[int]) -> np.ndarray:
    """32-bit words in the form that Kompute passes on bit for bit; it would turn a list into floats."""
    return np.array([int(value) & 0xFFFFFFFF for value in values], np.uint32)
