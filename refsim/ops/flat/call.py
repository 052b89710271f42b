"""Calls as a runtime with flat storage makes them: an operator's flat meaning, and tensors without blocks."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from types import SimpleNamespace
from typing import Any

import numpy as np

from refsim.core.errors import ParameterError
from refsim.core.layout import FLAT as FLAT_INT8
from refsim.core.layout import WIDTH_PACKED
from refsim.core.tensor import TensorDesc
from refsim.ops.base.arg import Arrays, Kind
from refsim.ops.base.defect import Defect
from refsim.ops.base.spec import Call, Dispatch
from refsim.ops.base.target import Behaviour, Target
from refsim.ops.flat import elementwise, rows, sums
from refsim.ops.flat.base import SCALARS, FlatMeaning, FlatOp, inverse, real, requant

FLAT: dict[str, FlatOp] = {row.name: row for module in (elementwise, sums, rows) for row in module.ROWS}


#: What a call says of an argument that the runtime does not read, and refuses to be anything else.
_PLAIN: Mapping[str, Any] = {"activation": "none"}


@dataclass(frozen=True)
class FlatCall(Call):
    """A call with the flat meaning of its operator, whatever layouts its tensors have here."""

    def define(self, arrays: Arrays) -> np.ndarray:
        row = FLAT[self.op.serialized]
        given: dict[str, Any] = {}
        for (name, kind), arg in zip(row.takes, self.op.args, strict=False):
            if kind == "t":
                inside = arg.kind is Kind.INPUT
                value = flat_array(self, arrays[arg.name]) if inside else self.consts[arg.name]
                given |= {} if value is None else {name: value}
            elif kind != "-":
                given[name] = SCALARS.get(kind, tuple)(getattr(self.params, arg.name))
        with np.errstate(all="ignore"):
            found = row.run(self.target, (self.out.shape,), **given)[0].reshape(self.out.shape)
        return found if self.bounds is None else np.clip(found, *self.bounds)

    def inverse(self, scale: float) -> np.float32:
        return inverse(scale)

    def dispatches(self) -> list[Dispatch]:
        """None on flat tensors, for which refsim has no kernels."""
        return [] if is_laid_flat(self) else super().dispatches()

    @property
    def defects(self) -> tuple[Defect, ...]:
        """None: those that are known are of the packed kernels."""
        return ()


def meant_flat(call: Call) -> FlatCall:
    """The call with its flat meaning; KeyError if its operator has none."""
    assert FLAT[call.op.serialized]
    held = {field.name: getattr(call, field.name) for field in fields(Call)}
    return FlatCall(**held | {"target": Target(call.target.profile, runtime=Behaviour(flat=True))})


def laid_flat(call: Call) -> FlatCall:
    """The call as the runtime makes it: flat in its meaning and in its tensors."""
    descs = {name: flat_desc(desc, _quantizes(call)) for name, desc in call.descs.items()}
    return replace(meant_flat(call), descs=descs, out=flat_desc(call.out))


def is_laid_flat(call: Call) -> bool:
    """Whether its int8 tensors are flat."""
    return any(desc.layout == FLAT_INT8 for desc in call.tensors.values())


def packed_twin(call: Call) -> Call:
    """The same call on tensors in layouts that refsim's kernels know."""
    rows = dict(
        zip([*(arg.name for arg in call.op.of_kind(Kind.INPUT)), "out"], call.op.layouts[0], strict=True)
    )
    descs = {name: TensorDesc(desc.shape, rows[name]) for name, desc in call.descs.items()}
    return replace(call, descs=descs, out=TensorDesc(call.out.shape, rows["out"]))


def flat_desc(desc: TensorDesc, int8: bool = False) -> TensorDesc:
    """The same tensor in the order of NCHW; ``int8``: as bytes, whatever it was."""
    return (
        TensorDesc(desc.shape, FLAT_INT8)
        if int8 or desc.is_int8
        else TensorDesc(desc.shape, WIDTH_PACKED, desc.dtype)
    )


def _quantizes(call: Call) -> bool:
    """Whether kernels on packed tensors take the floats of an input that those on flat ones take as int8."""
    return call.op.upstream.if_quantized is not None


def flat_array(call: Call, array: np.ndarray) -> np.ndarray:
    """An input as flat kernels take it."""
    if not _quantizes(call) or array.dtype == np.int8:
        return array
    with np.errstate(all="ignore"):
        return requant(array, inverse(call.params.in_scale), call.params.in_zp)


def packed_array(call: Call, array: np.ndarray) -> np.ndarray:
    """An input as packed kernels take it: the way back."""
    back = _quantizes(call) and array.dtype == np.int8
    return real(array, call.params.in_zp, call.params.in_scale) if back else array


def refusal(call: Call) -> str | None:
    """Why a runtime with flat storage takes no call like this; None if it may."""
    if call.op.serialized not in FLAT:
        return "it has no meaning on flat tensors"
    for name, need in _PLAIN.items():
        got = getattr(call.params, name, need)
        if got != need:
            return f"{name} is {got}, the runtime takes {need} only"
    groups = getattr(call.params, "groups", 1)
    if groups != 1 and groups != call.out.shape[-3]:
        return f"it has {groups} groups, the runtime takes one"
    odd = next((name for name, desc in call.tensors.items() if desc.is_int8 and desc.numel % 4), None)
    if odd is not None:
        return f"the elements of {odd} fill no whole words"
    shapes = {desc.shape for desc in call.descs.values()}
    return None if len(shapes) == 1 else "its inputs have other shapes than each other"


def of_meaning(
    meaning: FlatMeaning, args: tuple[Any, ...], tensors: Mapping[int, Any], out: TensorDesc
) -> FlatCall | None:
    """The call of a node of a flat graph. ``args`` are its arguments, ``tensors`` those of the graph by value id.

    Scalars are as the runtime reads them, which may be a value that no call can be bound with. None if the graph
    computes a constant, or has a tensor that is no buffer.
    """
    params: dict[str, Any] = {}
    descs: dict[str, TensorDesc] = {}
    consts: dict[str, np.ndarray | None] = {arg.name: None for arg in meaning.op.of_kind(Kind.CONST)}
    for (name, kind), arg, given in zip(meaning.flat.takes, meaning.op.args, args, strict=False):
        if arg.kind is Kind.PARAM:
            params[arg.name] = given if kind == "-" else meaning.given[name]
        elif given is not None and arg.kind is Kind.CONST:
            consts[arg.name] = tensors[given.id].data
            if consts[arg.name] is None:
                return None
        elif given is not None:
            descs[arg.name] = tensors[given.id].desc
            if descs[arg.name] is None:
                return None
    made: Any = SimpleNamespace(**params)
    with suppress(ParameterError):
        made = meaning.op.make_params({name: value for name, value in params.items() if value is not None})
    return FlatCall(meaning.op, made, descs, consts, out, meaning.target)
