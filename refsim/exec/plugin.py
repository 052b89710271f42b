"""The executors of other packages: what one has to offer, and how it becomes an `Executor`. docs/executors.md walks
through it."""

from __future__ import annotations

import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol
from weakref import WeakKeyDictionary

import numpy as np

from refsim.core.buffer import PackedBuffer, guarded, same_shape
from refsim.core.counted import counted
from refsim.core.errors import DeviceError, MissingDependencyError, PluginError, RefsimError
from refsim.core.launch import Launch
from refsim.core.qmath import Profile
from refsim.core.tensor import TensorDesc
from refsim.exec.executor import OURS, YOURS, Executor, OwnSource, Source
from refsim.ops.base.prepared import Prepared
from refsim.ops.base.spec import Call


@dataclass(frozen=True)
class OperatorCall:
    """One call of an operator, without the data of its inputs.

    - ``op``: its name, as in the tables of refsim: ``q8ta_conv2d_pw``.
    - ``params``: scales, zero points, strides and so on by name. Pairs are (height, width).
    - ``inputs``, ``out``: shape (NCHW), layout and dtype of each tensor. Offsets, strides and padding follow from them.
    - ``constants``: weights, sums of weights, scales, bias by name, as the graph holds them; None for one that is not
      there. They are read-only.
    - ``profile``: the numerics that are asked for; `refsim.Profile` says what they mean.
    - ``kept``: an empty dict that lives as long as the call in a loaded model: for weights that were laid out once.
    - ``call``: the same as refsim has it, with kernels, push words and grids (``call.dispatches()``). It may change
      with every release.
    """

    op: str
    params: Mapping[str, Any]
    inputs: Mapping[str, TensorDesc]
    constants: Mapping[str, np.ndarray | None]
    out: TensorDesc
    profile: Profile
    call: Call = field(repr=False, compare=False)
    kept: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)

    def packed(self, values: np.ndarray, inputs: Mapping[str, PackedBuffer]) -> PackedBuffer:
        """The output buffer of these logical values (NCHW, of the output's dtype), with the padding that it must have.

        RawBufferError or ShapeError if the values have another dtype or shape.
        """
        same_shape(self.op, "the output", values.shape, self.out.shape)
        return self.call.stored(values, inputs)


class ExecutorPlugin(Protocol):
    """What the callable behind an entry point of the group ``refsim.executors`` returns for ``NAME:ARGUMENTS``.

    It lives in a process of its own: what it kills or leaves hanging there is one error of one call. Of an exception
    the caller sees type, text and place. DeviceError and MissingDependencyError pass unchanged.

    Two more attributes may be there:

    - ``refusal(call: OperatorCall) -> str | None``: why it cannot run a call. Such a call is not counted in `golden
      verify` and `sweep`, and runs on `cpu` in a model. Without this method all calls are taken.
    - ``upstream = True``: it runs ExecuTorch's own kernels, whose known defects are then no failures.
    """

    def run(
        self, call: OperatorCall, inputs: Mapping[str, PackedBuffer]
    ) -> PackedBuffer | np.ndarray | bytes:
        """The bytes of the output buffer, in the layout of ``call.out``.

        As `bytes`, as a uint8 array with one dim, or as what ``call.packed`` returns. A buffer may be rounded up to 16
        bytes, as a device allocates it. An input has ``raw`` (uint8) and ``words`` (int32), its memory; ``unpack()``
        gives the logical array (NCHW). No byte of an input may be changed.
        """
        ...


class PluginExecutor(Executor):
    """An executor out of an `ExecutorPlugin`. ``label`` names it and its distribution in errors.

    PluginError for whatever it does that the interface does not allow.
    """

    foreign = True

    def __init__(self, plugin: ExecutorPlugin, name: str, label: str = "") -> None:
        self.plugin, self.name = plugin, name
        self.label = label or f"executor {name}"
        self._kept: WeakKeyDictionary[Prepared, dict[str, Any]] = WeakKeyDictionary()
        if not callable(getattr(plugin, "run", None)):
            raise PluginError(
                self.label,
                "what was opened has no method run",
                got=type(plugin).__name__,
                need="run(call, inputs)",
            )

    @cached_property
    def ours(self) -> Executor:
        """What computes the calls that the plugin refuses."""
        from refsim.exec.cpu import NativeExecutor

        return NativeExecutor()

    def source(self, call: Call) -> Source:
        why = self.refusal(call)
        if why is not None:
            return Source(OURS, self.ours.source(call).kernels, why)
        return (Source if getattr(self.plugin, "upstream", False) else OwnSource)(YOURS, (self.name,))

    def refusal(self, call: Call) -> str | None:
        return self._refused(_described(call, {}))

    def run(self, launch: Launch, inputs: Sequence[np.ndarray]) -> PackedBuffer:
        return self.ours.run(launch, inputs)

    def run_prepared(self, prepared: Prepared, inputs: Mapping[str, PackedBuffer]) -> PackedBuffer:
        call = _described(prepared.call, self._kept.setdefault(prepared, {}))
        if self._refused(call) is not None:
            return self.ours.run_prepared(prepared, inputs)
        before = {name: buffer.raw.copy() for name, buffer in inputs.items()}
        with guarded(f"{self.label}: {call.op}: an input", *inputs.values()):
            found = calling(self.label, call.op, self.plugin.run, call, inputs)
        for name, raw in before.items():
            if not np.array_equal(raw, inputs[name].raw):
                raise PluginError(self.label, f"{call.op}: input {name} was written to")
        return self._buffer(call, found)

    def _refused(self, call: OperatorCall) -> str | None:
        ask = getattr(self.plugin, "refusal", None)
        if ask is None:
            return None
        why = calling(self.label, f"refusal of {call.op}", ask, call)
        if why is not None and not isinstance(why, str):
            raise PluginError(self.label, f"refusal of {call.op}", got=type(why).__name__, need="str or None")
        return why

    def _buffer(self, call: OperatorCall, found: object) -> PackedBuffer:
        need = f"{counted(call.out.nbytes, 'byte')}, as bytes, a uint8 array or call.packed(...)"
        where = f"{call.op}: run returned something else than the buffer of {call.out}"
        if isinstance(found, PackedBuffer):
            if found.desc != call.out:
                raise PluginError(self.label, where, got=found.desc, need=need)
            found.check_guards(f"{self.label}: {call.op}")
            return found
        if isinstance(found, np.ndarray) and (found.dtype != np.uint8 or found.ndim != 1):
            raise PluginError(self.label, where, got=f"{found.dtype} array of {list(found.shape)}", need=need)
        if not isinstance(found, np.ndarray | bytes | bytearray | memoryview):
            raise PluginError(self.label, where, got=type(found).__name__, need=need)
        out = call.out
        try:
            return PackedBuffer.from_raw(found, out.shape, out.layout, out.dtype)  # type: ignore[arg-type]
        except RefsimError as error:
            raise PluginError(self.label, where, got=error.got, need=need) from error


def _described(call: Call, kept: dict[str, Any]) -> OperatorCall:
    """A call in the words of the interface."""
    constants = {name: None if value is None else _read_only(value) for name, value in call.consts.items()}
    params = {row.name: getattr(call.params, row.name) for row in fields(call.params)}
    return OperatorCall(
        call.op.name, params, call.descs, constants, call.out, call.target.profile, call, kept
    )  # fmt: skip


def _read_only(value: np.ndarray) -> np.ndarray:
    view = value.view()
    view.flags.writeable = False
    return view


def calling(label: str, what: str, function: Any, *arguments: object) -> Any:
    """What a function of another package returns; PluginError for whatever it raises, with the place where."""
    try:
        return function(*arguments)
    except (DeviceError, MissingDependencyError):
        raise
    except Exception as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{Path(frame.filename).name}:{frame.lineno}"
        raise PluginError(
            label, f"{what} failed", got=f"{type(error).__name__}: {error} ({place})"
        ) from error
