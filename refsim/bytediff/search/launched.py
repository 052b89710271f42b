"""Edits of the words that a kernel is launched with: sizes, windows, scales, zero points, flags, layouts.

Each is made from the type and the name of a word in the kernel's own row, so that no operator is known here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import combinations, permutations, product

import numpy as np

from refsim.bytediff.search.bench import Step, steps_of
from refsim.bytediff.search.device import DeviceEdit, bits, real
from refsim.core import qmath
from refsim.core.layout import DIM_NAMES, INT8_LAYOUTS, Layout
from refsim.core.push import FLOAT, HASHED, INT, PAIR, TENSOR, UINT, Field
from refsim.core.tensor import TensorDesc
from refsim.ops.base.epilogue import HAS_BIAS, RELU
from refsim.ops.base.registry import kernel_of
from refsim.ops.base.spec import Call, KernelSpec
from refsim.ops.base.traits import Family

Changes = Mapping[str, int]
Told = Iterator[tuple[str, str, Changes]]

ANOTHER_TENSORS = "another tensor's quantization"
_ZERO_POINT = re.compile("ZP$|ZERO")
#: What a word counts that is no size of a tensor -> the class of a wrong count: the first pattern that fits decides.
_COUNTS = (
    ("GROUP", "scale of another group"), ("LANES", "order of float sums"), ("K4|IC4|^K$", "reduction too short"),
)  # fmt: skip
#: So many words of a sum are often taken at once.
VECTORS = (2, 4, 8, 16)
_WINDOWS = (
    ("PADDING", "padding offset"),
    ("STRIDE|DILATION", "stride or dilation"),
    ("", "window of another size"),
)
#: Bits of a profile that a wrong kernel has otherwise, what they are replaced in, the class, and in words.
_NUMERICS = (
    (qmath.TIE_AWAY, 0, "tie rule", "halves rounded away from zero"),
    (qmath.TIE_UP, 0, "tie rule", "halves rounded up: floor(y + 0.5)"),
    (qmath.TRUNCATE, 0, "truncation", "fractions cut off"),
    (qmath.CLAMP_FIRST, 0, "clamp order", "clamped to [-128, 127] before the zero point, the sum wraps"),
    *((number << qmath.CONVERT_SHIFT, qmath.CONVERT_MASK << qmath.CONVERT_SHIFT, "conversion out of range",
       f"what is out of range, as by {name}") for name, number in qmath.CONVERT.items()),
)  # fmt: skip


def edits(steps: list[Step], previous: Call | None) -> Iterator[DeviceEdit]:
    """The edits of all dispatches together, and of each alone where several have the words that change."""
    rows = [kernel_of(step.launch.shader) for step in steps]
    for number, (step, op) in enumerate(zip(steps, rows, strict=True)):
        held = dict(zip(op.push.names, step.push, strict=True))
        for name, detail, changes in _pushed(op, step, held):
            if {**held, **changes} != held:
                yield from _where(steps, rows, number, DeviceEdit(name, detail, changes, only=number))
        held = dict(zip(op.spec.names, step.spec, strict=True))
        for name, detail, changes, more in _specialized(op, step):
            if {**held, **changes} != held:
                yield DeviceEdit(name, detail, more, changes, only=number)
    rounded = "last tile missing", "the grid rounded down along every axis"
    if len(steps) > 1:
        yield DeviceEdit(rounded[0], f"{rounded[1]}, in all dispatches", rounded=True)
    for number, step in enumerate(steps):
        where = f" in {step.launch.shader}" if len(steps) > 1 else ""
        yield DeviceEdit(rounded[0], rounded[1] + where, rounded=True, only=number)
        yield from _of_before(number, step, previous)


def _where(steps: list[Step], rows: list[KernelSpec], number: int, edit: DeviceEdit) -> Iterator[DeviceEdit]:
    """An edit of all dispatches that have the words, if these are the same and of no tensor; else of one."""
    tensors, name = tuple(f"{tensor}_" for tensor in _tensors(rows[number])), steps[number].launch.shader
    held = [dict(zip(op.push.names, step.push, strict=True)) for step, op in zip(steps, rows, strict=True)]
    right = {word: held[number][word] for word in edit.push}
    sharing = [at for at, words in enumerate(held) if right.keys() <= words.keys()]
    differ = any(not right.items() <= held[at].items() for at in sharing)
    if len(sharing) == 1 or differ or any(word.startswith(tensors) for word in edit.push):
        where = f" in {name}" if len(rows) > 1 else ""
        yield replace(edit, detail=edit.detail + where)
    else:
        if sharing[0] == number:
            yield replace(edit, only=None)
        if edit.name == "zero point not folded" and steps[number].call.op.epilogue is None:
            yield replace(edit, name="border padded with 0", detail=f"{edit.detail} in {name}")


def _pushed(op: KernelSpec, step: Step, held: Changes) -> Told:
    """(class, in words, changes) of push words."""
    fields = op.push.fields
    yield from _exchanged(fields, held)
    for each in fields:
        if each.name == "FLAGS":
            yield from _flags(each, held)
        elif each.type is INT or each.type is UINT:
            summed = step.call.op.family is not Family.WINDOWS  # these are copied there
            rows = (
                _zero_point(each.name, held)
                if _ZERO_POINT.search(each.name)
                else _count(each.name, held, summed)
            )
            yield from rows
        elif each.type is FLOAT:
            yield from _scale(each.name, held)
        elif each.type is PAIR:
            yield from _pair(each.name, held)
        elif each.type is TENSOR:
            yield from _tensor(each.name, held)
    yield from _of_tensors(op, step, held)


def _flags(each: Field, held: Changes) -> Told:
    name, old = each.name, held[each.name]
    for bit, mask, found, detail in _NUMERICS:
        yield found, detail, {name: old & ~mask | bit}
    yield (
        "fused multiply-add",
        "a*b+c rounded once, or twice where once is meant",
        {name: old ^ qmath.CONTRACT},
    )
    for bit, found, what in ((RELU, "relu dropped or added", "relu"), (HAS_BIAS, "bias left out", "bias")):
        if bit in each.bits.values():
            yield found, f"{what} left out" if old & bit else f"{what} applied", {name: old ^ bit}


def _zero_point(name: str, held: Changes) -> Told:
    old = held[name]
    yield "zero point not folded", f"{name} taken as 0", {name: 0}
    for what, value in (("one too large", old + 1), ("one too small", old - 1)):
        yield "zero point one off", f"{name} {what}", {name: value}
    yield "zero point sign", f"{name} negated", {name: -old}
    yield "zero point folded twice", f"{name} doubled", {name: 2 * old}
    for by in (128, -128):
        yield "unsigned lanes", f"{name} of unsigned bytes", {name: old + by}


def _scale(name: str, held: Changes) -> Told:
    value = real(held[name])
    with np.errstate(all="ignore"):
        for what, other in (("doubled", 2 * value), ("halved", value / 2), ("negated", -value)):
            yield "scale changed", f"{name} {what}", {name: int(bits(other))}
        found = "alpha ignored" if name == "ALPHA" else "scale changed"
        yield found, f"{name} taken as 1", {name: int(bits(1.0))}
        yield "scale changed", f"{name} applied twice", {name: int(bits(value * value))}
        yield ANOTHER_TENSORS, f"{name} taken as its inverse", {name: int(bits(1 / value))}


def _count(name: str, held: Changes, summed: bool = True) -> Told:
    old = held[name]
    found = next((found for pattern, found in _COUNTS if re.search(pattern, name)), "wrong count")
    others = {f"{name} is {n} instead of {old}": n for n in (old - 1, old + 1, old // 2, 2 * old, 1, 8, 16)}
    if found == "reduction too short" and not summed:
        found = "words along K exchanged"
    elif found == "reduction too short":
        others = {"the last word of channels left out of the sum": old - 1}
        others |= {f"words of the sum that fill no {size} left out": old // size * size for size in VECTORS}
        others |= {f"{name} is {old + 1} instead of {old}": old + 1}
    yield from ((found, what, {name: other}) for what, other in others.items() if other > 0)


def _pair(name: str, held: Changes) -> Told:
    h, w = f"{name}_H", f"{name}_W"
    a, b, what = held[h], held[w], name.lower()
    yield "H and W exchanged", f"{what} exchanged", {h: b, w: a}
    found = next(found for pattern, found in _WINDOWS if re.search(pattern, name))
    neutral = 0 if found == "padding offset" else 1
    yield found, f"{what} taken as {neutral}", {h: neutral, w: neutral}
    yield found, f"{what} of the rows taken as {neutral}", {h: neutral}
    yield found, f"{what} of the columns taken as {neutral}", {w: neutral}
    yield found, f"{what} of the rows used for both", {w: a}
    yield found, f"{what} of the columns used for both", {h: b}
    yield found, f"{what} applied twice", {h: 2 * a, w: 2 * b}
    yield found, f"{what} taken with the other sign", {h: -a, w: -b}
    for word, old in ((h, a), (w, b)):
        yield found, f"{word} one too large", {word: old + 1}
        yield found, f"{word} one too small", {word: old - 1}


def _tensor(name: str, held: Changes) -> Told:
    sizes = {dim: f"{name}_{dim}" for dim in DIM_NAMES}
    strides = {dim: f"{name}_{dim}_STRIDE" for dim in DIM_NAMES}
    of = "output written" if name == "OUT" else f"{name.lower()} read"
    for a, b in combinations(DIM_NAMES, 2):
        found = "H and W exchanged" if {a, b} == {"H", "W"} else "C and another dim exchanged"
        both = {strides[a]: held[strides[b]], strides[b]: held[strides[a]]}
        yield found, f"{of} with the strides of {a} and {b} exchanged", both
    yield "batch ignored", f"{of} at batch 0 alone", {strides["N"]: 0}
    for dim, size in sizes.items():
        found = "edge of the input" if name != "OUT" else "last tile missing"
        for by in (-1, 1):
            yield (
                found,
                f"{name} taken to have {held[size] + by} of {held[size]} along {dim}",
                {size: held[size] + by},
            )


def _exchanged(fields: Iterable[Field], held: Changes) -> Told:
    """Words of one type that are taken from each other."""
    pairs = [each.name for each in fields if each.type is PAIR]
    if pairs:
        every = {f"{name}_{a}": held[f"{name}_{b}"] for name in pairs for a, b in ("HW", "WH")}
        yield "H and W exchanged", f"{' and '.join(map(str.lower, pairs))} exchanged", every
    if {"PADDING", "DILATION"} <= set(pairs):
        both = {f"PADDING_{dim}": held[f"PADDING_{dim}"] * held[f"DILATION_{dim}"] for dim in "HW"}
        yield "padding offset", "padding multiplied by the dilation", both
    for a, b in combinations(pairs, 2):
        words = {f"{x}_{dim}": held[f"{y}_{dim}"] for x, y in ((a, b), (b, a)) for dim in "HW"}
        yield "stride or dilation", f"{a.lower()} and {b.lower()} exchanged", words
        for x, y in ((a, b), (b, a)):
            same = {f"{x}_{dim}": held[f"{y}_{dim}"] for dim in "HW"}
            yield "stride or dilation", f"{y.lower()} used as {x.lower()} as well", same
    scales = [each.name for each in fields if each.type is FLOAT and each.name.endswith("SCALE")]
    if scales and "INV" in held:
        by = real(held["INV"])
        at_once = {name: int(bits(real(held[name]) * by)) for name in scales} | {"INV": int(bits(1.0))}
        yield "order of the epilogue", "scales multiplied with each other first", at_once
    for name in (row.name for row in fields if row.name.endswith("_ZP") and {"INV", "ZP"} <= held.keys()):
        late = {name: 0, "ZP": held["ZP"] - held[name]}
        yield "order of the epilogue", f"{name} taken off behind the scale, in steps of the output", late
    groups = (
        [each.name for each in fields if each.type is INT and _ZERO_POINT.search(each.name)],
        [each.name for each in fields if each.type is FLOAT and each.name != "ALPHA"],
    )
    for names in groups:
        for to, source in permutations(names, 2):
            yield ANOTHER_TENSORS, f"{to} taken from {source}", {to: held[source]}
        for a, b in combinations(names, 2):
            yield ANOTHER_TENSORS, f"{a} and {b} exchanged", {a: held[b], b: held[a]}
    tensors = _quantized(held)
    for to, source in permutations(tensors, 2):
        both = {
            f"{to}_{what}": held[f"{source}_{what}"] for what in ("ZP", "SCALE") if f"{to}_{what}" in held
        }
        yield ANOTHER_TENSORS, f"{' and '.join(both)} taken from {source}", both
        yield "operands exchanged", f"the quantizations of {to} and {source} exchanged", {
            **both, **{f"{source}_{what}": held[f"{to}_{what}"] for what in ("ZP", "SCALE")}
        }  # fmt: skip


def _quantized(held: Changes) -> list[str]:
    """The tensors of which words have both a zero point and a scale."""
    names = [name.removesuffix("_ZP") for name in held if name.endswith("_ZP")]
    return [name for name in names if f"{name}_SCALE" in held]


def _tensors(op: KernelSpec) -> list[str]:
    return [each.name for each in op.push.fields if each.type is TENSOR]


def _of_tensors(op: KernelSpec, step: Step, held: Changes) -> Told:
    """A tensor that is addressed with the sizes or the strides of another one."""
    for name, other in permutations(_tensors(op), 2):
        of = "output written" if name == "OUT" else f"{name.lower()} read"
        whose = "the output" if other == "OUT" else other.lower()
        strides, edge = "another layout's strides", "edge of the input"
        for found, what, parts in (
            (strides, "sizes and strides", ("", "_STRIDE")), (strides, "strides", ("_STRIDE",)), (edge, "sizes", ("",))
        ):  # fmt: skip
            if found is strides or name != "OUT":
                words = {f"{name}_{d}{part}": held[f"{other}_{d}{part}"] for d in DIM_NAMES for part in parts}
                yield found, f"{of} with the {what} of {whose}", words


def _specialized(op: KernelSpec, step: Step) -> Iterator[tuple[str, str, Changes, Changes]]:
    """(class, in words, changes of specialization words, of push words)."""
    held = dict(zip(op.spec.names, step.spec, strict=True))
    hashes = {each.name: each.argument for each in op.spec.fields if each.type is HASHED}
    tensors = step.call.tensors
    for word, argument in hashes.items():
        desc = tensors.get(argument)
        if desc is None or not desc.is_int8:
            continue
        of = "output written" if argument == "out" else f"{argument} read"
        for row in INT8_LAYOUTS:
            own = _strides(op, argument, desc, row)
            if own:
                yield "another layout's strides", f"{of} as {row}", {word: row.hashed}, own
            yield "another layout's strides", f"{of} with the blocks of {row}", {word: row.hashed}, {}
        turned = row_of(held[word])
        yield "block transposed", f"{of} with blocks transposed", {word: turned}, {}
    for a, b in combinations(hashes, 2):
        yield (
            "another layout's strides",
            f"the layout words {a} and {b} exchanged",
            {a: held[b], b: held[a]},
            {},
        )
    for each in op.spec.fields:
        if each.type is UINT or each.type is INT:
            yield from ((name, what, changes, {}) for name, what, changes in _count(each.name, held))


def row_of(hashed: int) -> int:
    """A layout word with its inner and its outer dim exchanged, and how many elements a block has along them."""
    dims, extents = hashed >> 16 & 0xFF, hashed >> 24 & 0xFF
    return hashed & 0xFFFF | (dims >> 4 | dims << 4 & 0xF0) << 16 | (extents >> 4 | extents << 4 & 0xF0) << 24


def _strides(op: KernelSpec, argument: str, desc: TensorDesc, row: Layout) -> Changes:
    """The words of a tensor in another layout."""
    name = argument.upper()
    if name not in _tensors(op):
        return {}
    return dict(
        zip(
            next(f.names for f in op.push.fields if f.name == name),
            TensorDesc(desc.shape, row).meta,
            strict=True,
        )
    )


def _of_before(number: int, step: Step, previous: Call | None) -> Iterator[DeviceEdit]:
    """Words of a call that ran before."""
    op = kernel_of(step.launch.shader)
    held = dict(zip(op.push.names, step.push, strict=True))
    for before in () if previous is None else steps_of(previous):
        row = kernel_of(before.launch.shader).push
        theirs = dict(zip(row.names, before.push, strict=True))
        pairs = product(_quantized(held), _quantized(theirs))
        for to, source in sorted(pairs, key=lambda pair: pair[0] == pair[1]):
            both = {f"{to}_{what}": theirs[f"{source}_{what}"] for what in ("ZP", "SCALE")}
            detail = f"{' and '.join(both)} taken from {source} of the call before"
            yield DeviceEdit(ANOTHER_TENSORS, detail, both, only=number)
        stale = {name: theirs[name] for name in held if theirs.get(name, held[name]) != held[name]}
        sizes = tuple(f"{tensor}_" for tensor in _tensors(op))
        numbers = {name: value for name, value in stale.items() if not name.startswith(sizes)}
        for chosen in (stale, numbers, *({name: value} for name, value in stale.items())):
            if chosen:
                detail = f"{', '.join(chosen)} of the call before"
                yield DeviceEdit("stale constant", detail, chosen, only=number)
