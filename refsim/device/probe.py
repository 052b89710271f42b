"""A probe that is a handful of programs: written for any ExecuTorch runtime, and read back as a numerics profile.

No program takes inputs. The first output of each is its stamp, numbers that only this program gives; so outputs of
another program, or of another version of refsim, are refused. An answer counts if every element of every output is
what that answer says. Anything else leaves the question open, and then there is no profile.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Annotated

import numpy as np

from refsim.core.buffer import PackedBuffer
from refsim.core.errors import FormatError
from refsim.core.layout import layout
from refsim.core.qmath import CANONICAL, CONVERT, Profile, known
from refsim.core.tensor import TensorDesc
from refsim.device import outputs
from refsim.device.calls import add_call, tensor
from refsim.formats.pte.edit import Described, single_delegate
from refsim.formats.vkgraph.edit import GraphEditor
from refsim.ops.base.arg import Kind
from refsim.ops.base.registry import OPS
from refsim.ops.base.spec import Call, OpSpec
from refsim.ops.base.target import Target
from refsim.ops.base.traits import Family

#: No answer predicts all elements; the program gave no outputs.
MIXED, MISSING = "mixed", "not run"
IEEE = "IEEE"
STAMP = 8


@dataclass(frozen=True)
class ProbeProgram:
    """One file: its name without the suffix, its bytes, the questions that it asks, and its stamp."""

    name: str
    data: bytes
    asks: tuple[Measurement, ...]
    stamp: np.ndarray

    @property
    def declared(self) -> list[Described]:
        return _declared(self.asks)


@dataclass(frozen=True)
class Answers:
    """All answers of one device.

    `MIXED` and `MISSING` leave a question open.
    """

    asks: tuple[Measurement, ...]
    by_question: Annotated[Mapping[str, str], "Question -> answer."]

    def __getitem__(self, name: str) -> str:
        return self.by_question[name]

    @property
    def remarks(self) -> Annotated[list[str], "What was answered, and what no profile has."]:
        rows = (
            ((FUSED, EXPRESSION), "fma() is {}, a * b + c {}"),
            ((INPUTS, RESULTS), "denormal inputs are {}, denormal results {}"),
        )
        found = [text.format(self[a], self[b]) for (a, b), text in rows if self._apart(a, b)]
        return [*found, *(["round() takes halves up"] if self[TIES] == "up" else [])]

    @property
    def unknown(self) -> Annotated[list[str], "The questions that stay open, and why."]:
        why = {MISSING: "its program gave no outputs", MIXED: "no answer predicts every element"}
        return [f"{ask.question}: {why[self[ask.name]]}" for ask in self.asks if self[ask.name] in why]

    def _apart(self, a: str, b: str) -> bool:
        return self[a] != self[b] and not {self[a], self[b]} & {MIXED, MISSING}

    def profile(self, name: str = "measured") -> Profile | None:
        """The known profile with these answers, else a new one called ``name``; None where a field is not decided."""
        undecided = any(self[ask.name] in (MIXED, MISSING) for ask in self.asks if ask.name != DIVISION)
        if undecided or self.remarks:
            return None
        fused, flushes = self[FUSED] == "fused", self[INPUTS] == "flushed"
        return known(Profile(name, fused, self[TIES], flushes, self[CONVERSION]))

    def rows(self) -> list[tuple[str, str, str]]:
        """(question, answer, what it decides) as text."""
        return [(ask.question, self[ask.name], ask.decides) for ask in self.asks]


# --- programs --------------------------------------------------------------------------------------------


@cache
def programs() -> tuple[ProbeProgram, ...]:
    """The programs of a probe; the same bytes every time."""
    return tuple(_program(name, asks) for name, asks in measurements().items())


def _program(name: str, asks: Sequence[Measurement]) -> ProbeProgram:
    recipe = hashlib.sha256(_written(asks, np.zeros(STAMP, np.float32))).digest()
    stamp = np.frombuffer(recipe, np.uint16)[:STAMP].astype(np.float32)
    return ProbeProgram(name, _written(asks, stamp), tuple(asks), stamp)


def _written(asks: Sequence[Measurement], stamp: np.ndarray) -> bytes:
    graph = GraphEditor()
    held = graph.prepack(graph.constant(stamp), graph.tensor("float32", stamp.shape))
    graph.output(graph.clone(held, graph.tensor("float32", stamp.shape)))
    for step in (step for ask in asks for step in ask.steps):
        graph.output(step.write(graph))
    return single_delegate(graph.blob(), [], _declared(asks))


def _declared(asks: Sequence[Measurement]) -> list[Described]:
    """Dtype and shape of each output: the stamp, then one for each step."""
    return [("float32", shape) for shape in ((STAMP,), *(step.shape for ask in asks for step in ask.steps))]


def files() -> dict[str, bytes]:
    """The content of a folder of programs, by name."""
    return {f"{program.name}.pte": program.data for program in programs()}


# --- outputs ---------------------------------------------------------------------------------------------


def read(folder: str | os.PathLike[str]) -> Answers:
    """The answers in the outputs of a folder: of NAME.pte those in NAME.npz, a folder NAME, or NAME-0.bin and so on.

    Questions of a program without outputs stay open. FormatError, ShapeError or LimitError for outputs that are not
    those of the program, or if there are none at all.
    """
    outputs.check_folder(folder)
    answers: dict[str, str] = {}
    for program in programs():
        found = outputs.each_beside(folder, program.name, program.declared)
        arrays = None if found is None else outputs.held(found)
        answers |= _answers(program, arrays, os.fspath(Path(folder) / program.name))
    if set(answers.values()) == {MISSING}:
        raise outputs.none_of(folder, [program.name for program in programs()])
    return Answers(tuple(ask for program in programs() for ask in program.asks), answers)


def _answers(program: ProbeProgram, arrays: Sequence[np.ndarray] | None, where: str) -> dict[str, str]:
    if arrays is None:
        return {ask.name: MISSING for ask in program.asks}
    stamp, *rest = arrays
    if not np.array_equal(_words(stamp), _words(program.stamp)):
        what = "not the outputs of this program: its first output is another"
        raise FormatError(
            where, what, got=_short(stamp), need=f"{_short(program.stamp)}; write the programs again"
        )
    held = iter(rest)
    return {ask.name: _verdict(ask, [next(held) for _ in ask.steps]) for ask in program.asks}


def _verdict(ask: Measurement, got: Sequence[np.ndarray]) -> str:
    """The answer that predicts every bit of every output; else how many quotients are off, and by how much at most."""
    expected: Mapping[str, np.ndarray] = ask.steps[0].expected
    for name in expected:
        pairs = zip(ask.steps, got, strict=True)
        if all(name in s.expected and np.array_equal(_words(s.expected[name]), _words(g)) for s, g in pairs):
            return name
    if ask.name == DIVISION:
        apart = np.abs(_words(expected[IEEE]).astype(np.int64) - _words(got[0]))
        if apart.max() <= MOST_ULPS:
            return f"{np.count_nonzero(apart)} of {apart.size} quotients differ, by at most {apart.max()} ulp"
    return MIXED


def _words(array: np.ndarray) -> np.ndarray:
    """The bits of floats; both zeros are the same."""
    words = np.ascontiguousarray(array, np.float32).reshape(-1).view(np.int32)
    return np.where(words == np.int32(-(2**31)), np.int32(0), words)


def _short(stamp: np.ndarray) -> str:
    return " ".join(f"{value:g}" for value in stamp[:3])


F32 = np.float32
SEED = 5
COUNT = 64
QUOTIENTS = 4096
TIES, CONVERSION, FUSED, EXPRESSION, INPUTS, RESULTS, DIVISION = (
    "ties", "conversion", "fma", "expression", "denormal inputs", "denormal results", "division",
)  # fmt: skip
#: The distance at which a float's last bit stands between 1 and 2.
STEP = 2.0**-23
#: Vulkan lets a division be so many units in the last place off; one beyond is no division.
MOST_ULPS = 3


@dataclass(frozen=True)
class MeasuredStep:
    """One operator on constants; ``expected`` is its output as floats, under each answer. ``write`` appends it."""

    write: Callable[[GraphEditor], int]
    shape: tuple[int, ...]
    expected: Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Measurement:
    """One question: its steps, the kernel that it is asked of, and what the answer decides."""

    name: str
    question: str
    decides: str
    steps: tuple[MeasuredStep, ...]


# --- steps -----------------------------------------------------------------------------------------------


def _op(family: Family, wanted: Callable[[OpSpec], bool] = lambda op: True) -> OpSpec:
    """The operator of a family that files hold."""
    return next(op for op in OPS.values() if op.family is family and op.upstream.exported and wanted(op))


def _quantized(call: Call, arrays: Mapping[str, np.ndarray], profiles: Mapping[str, Profile]) -> MeasuredStep:
    """An operator with an int8 output, handed out as exact floats. Each answer is what the operator means under it."""
    buffers = {name: PackedBuffer.pack(arrays[name], desc.layout) for name, desc in call.descs.items()}
    expected = {
        name: replace(call, target=Target(profile)).define(arrays).astype(F32)
        for name, profile in profiles.items()
    }

    def write(graph: GraphEditor) -> int:
        given = {
            name: graph.prepack(graph.constant(buffer.unpack()), tensor(graph, buffer.desc))
            for name, buffer in buffers.items()
        }
        out = tensor(graph, call.out)
        add_call(graph, call, given, out)
        back = _op(Family.DEQUANTIZE)
        params = back.make_params({"scale": 1.0, "zp": 0})
        floats = back.bind(params, {"x": call.out}, {}, _plain(call.out.shape).layout)
        result = tensor(graph, floats.out)
        add_call(graph, floats, {"x": out}, result)
        return result

    return MeasuredStep(write, call.out.shape, expected)


def _plain(shape: tuple[int, ...]) -> TensorDesc:
    return TensorDesc(shape, layout("W"), "float32")


def _float(
    name: str, a: np.ndarray, b: np.ndarray, expected: Mapping[str, np.ndarray], *more: object
) -> MeasuredStep:
    """A float operator of ATen on two tensors."""

    def write(graph: GraphEditor) -> int:
        given = [graph.prepack(graph.constant(x), graph.tensor("float32", x.shape)) for x in (a, b)]
        out = graph.tensor("float32", a.shape)
        return graph.call(f"aten.{name}.Tensor", *given, *map(graph.literal, more), out)

    return MeasuredStep(
        write, a.shape, {answer: np.asarray(value, F32) for answer, value in expected.items()}
    )


def _profiles(field: str, answers: Mapping[str, object]) -> dict[str, Profile]:
    return {name: replace(CANONICAL, name=name, **{field: value}) for name, value in answers.items()}  # type: ignore[arg-type]


# --- questions -------------------------------------------------------------------------------------------


def _quantize(x: np.ndarray, zp: int, profiles: Mapping[str, Profile]) -> MeasuredStep:
    op = _op(Family.QUANTIZE)
    x = x.reshape(1, 1, -1, 8).astype(F32)
    call = op.bind(op.make_params({"scale": 1.0, "zp": zp}), {"x": _plain(x.shape)}, {}, "4W")
    return _quantized(call, {"x": x}, profiles)


def _ties() -> MeasuredStep:
    """Every half that int8 holds, both neighbours of each, and whole numbers."""
    halves = np.arange(-128, 128, dtype=F32) + F32(0.5)
    near = [np.nextafter(halves, F32(side * np.inf)) for side in (-1, 1)]
    x = np.concatenate([halves, *near, np.floor(halves)])
    step = _quantize(x, 0, _profiles("tie", {"even": "even", "away": "away"}))
    up = np.clip(np.floor(x.astype(np.float64) + 0.5), -128, 127).astype(F32).reshape(step.shape)
    return replace(step, expected={**step.expected, "up": up})


def _conversions() -> Iterable[MeasuredStep]:
    """Floats beyond int32, and some within; the zero point shows whether it is added to an int32, which may wrap."""
    beyond = [2.0**31, 3e9, 1e20, np.inf, -3e9, -1e20, -np.inf, np.nan]
    x = np.array([*beyond, -300.0, -128.0, -1.0, 0.0, 1.0, 127.0, 300.0, 2.0**30], F32)
    return [_quantize(x, zp, _profiles("convert", {name: name for name in CONVERT})) for zp in (0, 1, -1)]


def _fused(bits: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Odd int8 factors, floats in [1, 2), and the rounded product; the product's error is never 0.

    The error is a whole number of `STEP`, at most 64 of them.
    """
    factors, scales = np.zeros(0, np.int8), np.zeros(0, F32)
    while len(factors) < COUNT:
        a = (bits.integers(1, 64, COUNT) * 2 + 1).astype(np.int8)
        b = (1 + bits.integers(1, 1 << 23, COUNT) * STEP).astype(F32)
        inexact = a.astype(np.float64) * b != a.astype(F32) * b
        factors, scales = np.append(factors, a[inexact]), np.append(scales, b[inexact])
    factors, scales = factors[:COUNT], scales[:COUNT].astype(F32)
    return factors, scales, factors.astype(F32) * scales


_CONTRACT = {"separate": False, "fused": True}


def _window(op: OpSpec, x_channels: int, bits: np.random.Generator) -> MeasuredStep:
    """A convolution of one tap whose bias is the rounded product, negated: 0 is left, or the product's error."""
    factors, scales, product = _fused(bits)
    spatial = x_channels == COUNT  # each channel alone
    weight = (
        factors.reshape(1, 1, -1)
        if spatial
        else np.pad(factors.reshape(-1, 1), ((0, 0), (0, x_channels - 1)))
    )
    sums = factors.astype(np.int32)
    params = {
        "in_scale": 1.0, "in_zp": 0, "out_scale": STEP, "out_zp": 0, "kernel_size": (1, 1), "stride": (1, 1),
        "padding": (0, 0), "dilation": (1, 1), "groups": COUNT if spatial else 1, "activation": "none",
    }  # fmt: skip
    consts = {"weight": weight, "weight_sums": sums, "weight_scales": scales, "bias": -product}
    x = np.zeros((1, x_channels, 1, 4), np.int8)
    x[:, :: 1 if spatial else x_channels] = 1
    call = op.bind(op.make_params(params), {"x": TensorDesc(x.shape, layout("4W4C"))}, consts, "4W4C")
    return _quantized(call, {"x": x}, _profiles("contract", _CONTRACT))


def _expressions(bits: np.random.Generator) -> Iterable[MeasuredStep]:
    """a*b+c as kernels write it: a sum of two quantized tensors, a depthwise convolution, and ATen's own sum."""
    add = _op(Family.ELEMENTWISE, lambda op: len(op.of_kind(Kind.INPUT)) == 2)
    a = np.array([*range(-127, 0), *range(1, 128)], np.int8)
    _, scales, _ = _fused(bits)
    scale = scales[0]
    a = a[a.astype(np.float64) * scale != a.astype(F32) * scale]
    a = a[: len(a) // 4 * 4].reshape(1, 4, 1, -1)
    params = {"a_scale": float(scale), "b_scale": float(scale), "out_scale": STEP, "alpha": 1.0}
    zeros = dict.fromkeys(("a_zp", "b_zp", "out_zp"), 0)
    desc = TensorDesc(a.shape, layout("4C"))
    call = add.bind(add.make_params(params | zeros), {"a": desc, "b": desc}, {}, "4C")
    yield _quantized(call, {"a": a, "b": -a}, _profiles("contract", _CONTRACT))
    yield _window(_op(Family.DEPTHWISE), COUNT, bits)
    factors, scales, _ = _fused(bits)
    alpha = factors[0]
    inexact = alpha * scales.astype(np.float64) != F32(alpha) * scales
    scales = scales[inexact]
    product = F32(alpha) * scales
    error = alpha * scales.astype(np.float64) - product
    yield _float("add", -product, scales, {"separate": 0 * error, "fused": error}, float(alpha))


def _bits(words: np.ndarray) -> np.ndarray:
    return words.astype(np.int32).view(F32)


def _denormals(bits: np.random.Generator) -> tuple[Iterable[MeasuredStep], Iterable[MeasuredStep]]:
    """Denormal operands, and denormal results of normal operands. Below 2^24 a float's bits count steps of 2^-149."""
    least = 1 << 23  # the bits of the smallest normal float
    small = bits.integers(1, least, COUNT)
    zeros, low = np.zeros(COUNT), np.full(COUNT, least)
    large, half = np.full(COUNT, 2.0**40, F32), np.full(COUNT, 0.5, F32)
    product = np.ldexp(small.astype(np.float64), 40 - 149)
    normal = 2 * bits.integers(least // 2 + 1, least, COUNT)
    inputs = (
        _float("mul", _bits(small), large, {"kept": product, "flushed": zeros}),
        _float("add", _bits(small), _bits(low), {"kept": _bits(small + least), "flushed": _bits(low)}, 1.0),
    )
    results = (
        _float("mul", _bits(normal), half, {"kept": _bits(normal // 2), "flushed": zeros}),
        _float("add", _bits(normal), -_bits(low), {"kept": _bits(normal - least), "flushed": zeros}, 1.0),
    )
    return inputs, results


def _quotients(bits: np.random.Generator) -> MeasuredStep:
    a, b = (
        np.ldexp(1 + bits.integers(0, 1 << 23, QUOTIENTS) * STEP, bits.integers(-30, 30, QUOTIENTS)).astype(
            F32
        )
        for _ in range(2)
    )
    return _float("div", a, b, {"IEEE": a / b})


def measurements() -> dict[str, Sequence[Measurement]]:
    """The questions of each program by its name, in the order of their outputs. They are the same every time."""
    bits = np.random.default_rng(SEED)
    fma = _window(_op(Family.CONVOLUTION, lambda op: op.one_tap), 4, bits)
    expressions = tuple(_expressions(bits))
    inputs, results = _denormals(bits)
    return {
        "ties": (Measurement(TIES, "halves in round()", "tie", (_ties(),)),),
        "conversion": (
            Measurement(CONVERSION, "float to int out of range", "convert", tuple(_conversions())),
        ),
        "sums": (
            Measurement(FUSED, "fma(a, b, c)", "contract", (fma,)),
            Measurement(EXPRESSION, "a * b + c", "contract", expressions),
        ),
        "denormals": (
            Measurement(INPUTS, "denormal inputs", "flush_denormals", tuple(inputs)),
            Measurement(RESULTS, "denormal results", "flush_denormals", tuple(results)),
        ),
        "division": (Measurement(DIVISION, "division", "nothing", (_quotients(bits),)),),
    }
