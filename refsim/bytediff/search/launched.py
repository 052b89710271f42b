"""Edits of the words that a kernel is launched with: windows, scales, zero points, counts, layouts.

Words of one kind are taken for other numbers, taken from each other, or exchanged. Their kind is told by the type and
the name of a word in the kernel's own row, so that no operator is known here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, combinations, permutations, product
from typing import Any

from refsim.bytediff.search.bench import Step, steps_of
from refsim.bytediff.search.device import INTEGERS, REALS, DeviceEdit, first_fit, of_reals
from refsim.core.launch import Launch, Triple
from refsim.core.layout import INT8_LAYOUTS
from refsim.core.push import FLOAT, HASHED, INT, PAIR, TENSOR, UINT, FieldType
from refsim.core.tensor import TensorDesc
from refsim.ops.base.spec import Call

Changes = Mapping[str, int]
Told = Iterator[tuple[str, str, Changes]]
#: The names of words that are wrong together; those of one kind, by what they are called.
Words = Sequence[str]
Kind = Mapping[str, Words]
#: (class, in words) of an edit; of numbers also what is taken for one.
Said = Sequence[tuple[str, str]]
Rows = Sequence[tuple[str, str, Callable[[Any], Any]]]

ANOTHER_TENSORS, _LAYOUT = "another tensor's quantization", "another layout's strides"
_TURNED, _WINDOW, _TILE = "H and W exchanged", "stride or dilation", "last tile missing"
_UNFOLDED, _EPILOGUE = "zero point not folded", "order of the epilogue"
#: How many lanes may share a float sum.
_LANES = (1, 2, 4, 8, 16, 32, 64)
_EXCHANGED = "{0} and {1} exchanged"


def _rows(found: str, others: Mapping[str, Callable[[Any], Any]]) -> Rows:
    return [(found, f"{{0}} {what}", other) for what, other in others.items()]


#: What a zero point is taken for.
_ZERO_POINTS = [
    (_UNFOLDED, "{0} taken as 0", lambda zp: 0),
    *_rows("zero point one off", {what: INTEGERS[what] for what in ("one too large", "one too small")}),
    *_rows("zero point sign", {"negated": INTEGERS["negated"]}),
    *_rows("zero point folded twice", {"doubled": INTEGERS["doubled"]}),
    *(("unsigned lanes", "{0} of unsigned bytes", lambda zp, by=by: zp + by) for by in (128, -128)),
]
#: What a float is taken for.
_REALS = [
    (ANOTHER_TENSORS if "inverse" in what else "scale changed", f"{{0}} {what}", partial(of_reals, other))
    for what, other in REALS.items()
]
_SIZES = {
    "halved": lambda size: size // 2 or size,
    **{what: INTEGERS[what] for what in INTEGERS if what != "negated"},
}
#: What counts the words of a sum, or of a group of it -> what it is taken for.
_COUNTS = (
    ("GROUP", _rows("scale of another group", _SIZES)), ("K4|IC4|^K$", _rows("reduction too short", _SIZES)), ("", ()),
)  # fmt: skip
#: Two words for the rows and the columns of a window -> what they are taken for; at first the number without effect.
_WINDOWS = (
    ("PADDING", _rows("padding offset", {"taken as 0": lambda size: 0, **INTEGERS})),
    ("STRIDE|DILATION", _rows(_WINDOW, {"taken as 1": lambda size: 1, **INTEGERS})),
    ("", _rows("window of another size", {"taken as 1": lambda size: 1, **INTEGERS})),
)


def _edited(held: Changes, kind: Kind, others: Rows = (), taken: Said = (), exchanged: Said = ()) -> Told:
    """Words of one kind, by what these are called: with other numbers, {0} taken from {1}, or both exchanged."""
    for (found, said), (to, source) in product(taken, permutations(kind, 2)):
        yield found, said.format(to, source), _taken(kind[to], kind[source], held)
    for (found, said), (a, b) in product(exchanged, combinations(kind, 2)):
        yield found, said.format(a, b), _taken([*kind[a], *kind[b]], [*kind[b], *kind[a]], held)
    for (called, words), (found, said, other) in product(kind.items(), others):
        changes = {word: int(other(held[word])) for word in words}
        yield found, said.format(called), changes


def _taken(own: Words, others: Words, held: Changes) -> Changes:
    """Words that are what others are."""
    return {word: held[other] for word, other in zip(own, others, strict=True)}


def edits(steps: list[Step], previous: Call | None) -> Iterator[DeviceEdit]:
    """The edits of all dispatches together, and of each alone where several have the words that change."""
    for number, step in enumerate(steps):
        for name, detail, changes in _pushed(step):
            if {**step.pushed, **changes} != step.pushed:
                yield from _where(steps, number, DeviceEdit(name, detail, changes, only=number))
        for name, detail, changes, more in _specialized(step):
            if {**step.specialized, **changes} != step.specialized:
                yield DeviceEdit(name, detail, more, changes, only=number)
    for number, step in enumerate(steps):
        said = f"the grid rounded down along every axis{_in(steps, number)}"
        yield DeviceEdit(_TILE, said, only=number, reached=_whole_groups(step.launch))
        for before in () if previous is None else steps_of(previous):
            for name, detail, changes in _of_before(step, before):
                yield DeviceEdit(name, f"{detail} of the call before", changes, only=number)


def _in(steps: list[Step], number: int) -> str:
    """Which one of several dispatches it is."""
    return f" in {steps[number].launch.shader}" if len(steps) > 1 else ""


def _whole_groups(launch: Launch) -> Triple:
    """The work items of whole workgroups, (z, y, x), one workgroup at least along each axis."""
    sizes = zip(launch.global_size, launch.local, launch.tile, launch.reached, strict=True)
    x, y, z = (min(max(1, size // (local * tile)) * local * tile, most) for size, local, tile, most in sizes)
    return z, y, x


def _where(steps: list[Step], number: int, edit: DeviceEdit) -> Iterator[DeviceEdit]:
    """An edit of all dispatches that have the words, if these are the same there; else of one."""
    right = {word: steps[number].pushed[word] for word in edit.push}
    sharing = [at for at, step in enumerate(steps) if right.keys() <= step.pushed.keys()]
    differ = any(not right.items() <= steps[at].pushed.items() for at in sharing)
    alone = replace(edit, detail=edit.detail + _in(steps, number))
    if len(sharing) == 1 or differ:
        yield alone
    else:
        if sharing[0] == number:
            yield replace(edit, only=None)
        if edit.name == _UNFOLDED and steps[number].call.op.epilogue is None:
            yield replace(alone, name="border padded with 0")


# --- push words ---------------------------------------------------------------------------------------------


def _fields(step: Step, kind: FieldType) -> dict[str, Words]:
    """The fields of a type: name -> the names of its words."""
    return {each.name: each.names for each in step.kernel.push.fields if each.type is kind}


def _sizes(step: Step) -> set[str]:
    """The words that are sizes and strides of tensors."""
    return set(chain.from_iterable(_fields(step, TENSOR).values()))


def _quantized(held: Changes) -> Kind:
    """The tensors that have both a zero point and a scale among the words, with the names of these."""
    tensors = [name.removesuffix("_ZP") for name in held if name.endswith("_ZP")]
    return {name: (f"{name}_ZP", f"{name}_SCALE") for name in tensors if f"{name}_SCALE" in held}


def _pushed(step: Step) -> Told:
    """(class, in words, changes) of push words."""
    held, pairs = step.pushed, _fields(step, PAIR)
    rows, columns = ([f"{name}_{dim}" for name in pairs] for dim in "HW")
    every = f"{' and '.join(pairs).lower()} exchanged"
    yield from _edited(held, {"H": rows, "W": columns}, exchanged=[(_TURNED, every)])
    yield from _together(step)
    lower = {name.lower(): words for name, words in pairs.items()}
    yield from _edited(held, lower, (), [(_WINDOW, "{1} used as {0} as well")], [(_WINDOW, _EXCHANGED)])
    for name, (h, w) in pairs.items():
        what, numbers = name.lower(), first_fit(_WINDOWS, name)
        used, turned = (numbers[0][0], what + " of the {1} used for both"), (_TURNED, f"{what} exchanged")
        yield from _edited(held, {"columns": (w,), "rows": (h,)}, (), [used], [turned])
        parts = {what: (h, w), f"{what} of the rows": (h,), f"{what} of the columns": (w,)}
        yield from _edited(held, parts, numbers)
    one, both = [(ANOTHER_TENSORS, "{0} taken from {1}")], [(ANOTHER_TENSORS, _EXCHANGED)]
    zero_points = {name: words for name, words in _fields(step, INT).items() if re.search("ZP$|ZERO", name)}
    yield from _edited(held, zero_points, _ZERO_POINTS, one, both)
    for name, words in {**_fields(step, INT), **_fields(step, UINT)}.items():
        yield from _edited(held, {name: words}, first_fit(_COUNTS, name))
    scales = _fields(step, FLOAT)
    alpha = {name: scales.pop(name) for name in ("ALPHA",) if name in scales}
    yield from _edited(
        held, alpha, [("alpha ignored", *row[1:]) if "as 1" in row[1] else row for row in _REALS]
    )
    yield from _edited(held, scales, _REALS, one, both)
    of_tensors = [(ANOTHER_TENSORS, "{0}_ZP and {0}_SCALE taken from {1}")]
    quantizations = [("operands exchanged", "the quantizations of {0} and {1} exchanged")]
    yield from _edited(held, _quantized(held), (), of_tensors, quantizations)


def _together(step: Step) -> Told:
    """Words that are wrong because of others."""
    held = step.pushed
    if {"PADDING", "DILATION"} <= _fields(step, PAIR).keys():
        both = {f"PADDING_{dim}": held[f"PADDING_{dim}"] * held[f"DILATION_{dim}"] for dim in "HW"}
        yield "padding offset", "padding multiplied by the dilation", both
    if "INV" in held:
        by = held["INV"]
        scales = [name for name in _fields(step, FLOAT) if name.endswith("SCALE")]
        at_once = {name: int(of_reals(lambda scale, by: scale * by, held[name], by)) for name in scales}
        if scales:
            at_once["INV"] = int(of_reals(REALS["taken as 1"], by))
            yield _EPILOGUE, "scales multiplied with each other first", at_once
        for name in (name for name in held if name.endswith("_ZP") and "ZP" in held):
            late = {name: 0, "ZP": held["ZP"] - held[name]}
            yield _EPILOGUE, f"{name} taken off behind the scale, in steps of the output", late


# --- specialization words, and words of the call before -------------------------------------------------------


def _specialized(step: Step) -> Iterator[tuple[str, str, Changes, Changes]]:
    """(class, in words, changes of specialization words, of push words)."""
    held, fields = step.specialized, step.kernel.spec.fields
    hashes = {each.name: each.argument for each in fields if each.type is HASHED}
    for word, argument in hashes.items():
        desc = step.call.tensors.get(argument)
        if desc is None or not desc.is_int8:
            continue
        of = "output written" if argument == "out" else f"{argument} read"
        own = _fields(step, TENSOR).get(argument.upper())
        for row in INT8_LAYOUTS:
            if own:
                meta = dict(zip(own, TensorDesc(desc.shape, row).meta, strict=True))
                yield _LAYOUT, f"{of} as {row}", {word: row.hashed}, meta
        yield "block transposed", f"{of} with blocks transposed", {word: _transposed(held[word])}, {}
    for other in _LANES if "LANES" in held else ():
        said = f"LANES is {other} instead of {held['LANES']}"
        yield "order of float sums", said, {"LANES": other}, {}


def _transposed(hashed: int) -> int:
    """A layout word with its inner and its outer dim exchanged, and how many elements a block has along them."""
    dims, extents = hashed >> 16 & 0xFF, hashed >> 24 & 0xFF
    return hashed & 0xFFFF | (dims >> 4 | dims << 4 & 0xF0) << 16 | (extents >> 4 | extents << 4 & 0xF0) << 24


def _of_before(step: Step, before: Step) -> Told:
    """Push words that are those of a dispatch of the call before."""
    held, theirs = step.pushed, before.pushed
    own, others = _quantized(held), _quantized(theirs)
    for to, source in sorted(product(own, others), key=lambda pair: pair[0] == pair[1]):
        said = f"{' and '.join(own[to])} taken from {source}"
        yield ANOTHER_TENSORS, said, _taken(own[to], others[source], theirs)
    stale = {name: theirs[name] for name in held if theirs.get(name, held[name]) != held[name]}
    numbers = {name: value for name, value in stale.items() if name not in _sizes(step)}
    for chosen in (stale, numbers, *({name: value} for name, value in stale.items())):
        if chosen:
            yield "stale constant", ", ".join(chosen), chosen
