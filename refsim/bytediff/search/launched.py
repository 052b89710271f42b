"""Edits of the words that a kernel is launched with: sizes, windows, scales, zero points, flags, layouts.

Each is made from the type and the name of a word in the kernel's own row, so that no operator is known here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import combinations, filterfalse, permutations, product

from refsim.bytediff.search.bench import Step, steps_of
from refsim.bytediff.search.device import INTEGERS, REALS, DeviceEdit, as_real, bits, first_fit, real
from refsim.core import qmath
from refsim.core.layout import DIM_NAMES, INT8_LAYOUTS
from refsim.core.push import FLOAT, HASHED, INT, PAIR, TENSOR, UINT, Field, FieldType
from refsim.core.tensor import TensorDesc
from refsim.ops.base.epilogue import HAS_BIAS, RELU
from refsim.ops.base.spec import Call

Changes = Mapping[str, int]
Told = Iterator[tuple[str, str, Changes]]

ANOTHER_TENSORS = "another tensor's quantization"
_LAYOUT, _TURNED, _EPILOGUE = "another layout's strides", "H and W exchanged", "order of the epilogue"
_UNFOLDED, _TILE, _WINDOW, _SHORT = (
    "zero point not folded",
    "last tile missing",
    "stride or dilation",
    "reduction too short",
)
_ZERO_POINT = re.compile("ZP$|ZERO")
#: The family and what a word counts that is no size of a tensor -> the class of a wrong count: the first pattern that
#: fits decides.
_COUNTS = (
    (" GROUP", "scale of another group"), (" LANES", "order of float sums"),
    ("WINDOWS (K4|IC4|K$)", "words along K exchanged"), (" (K4|IC4|K$)", _SHORT), ("", "wrong count"),
)  # fmt: skip
#: So many words of a sum are often taken at once.
VECTORS = (2, 4, 8, 16)
#: Two words for the rows and the columns of a window -> the class of wrong ones, and what they are without effect.
_WINDOWS = (
    ("PADDING", ("padding offset", 0)),
    ("STRIDE|DILATION", (_WINDOW, 1)),
    ("", ("window of another size", 1)),
)
#: The class of a zero point, and of a scale, that is taken for another number.
_ZERO_POINTS = {
    "one too large": "zero point one off", "one too small": "zero point one off", "negated": "zero point sign",
    "doubled": "zero point folded twice",
}  # fmt: skip
_SCALES = {"taken as its inverse": ANOTHER_TENSORS}
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
    for number, step in enumerate(steps):
        for name, detail, changes in _pushed(step):
            if {**step.pushed, **changes} != step.pushed:
                yield from _where(steps, number, DeviceEdit(name, detail, changes, only=number))
        for name, detail, changes, more in _specialized(step):
            if {**step.specialized, **changes} != step.specialized:
                yield DeviceEdit(name, detail, more, changes, only=number)
    rounded = "the grid rounded down along every axis"
    if len(steps) > 1:
        yield DeviceEdit(_TILE, f"{rounded}, in all dispatches", rounded=True)
    for number, step in enumerate(steps):
        yield DeviceEdit(_TILE, rounded + _in(steps, number), rounded=True, only=number)
        for before in () if previous is None else steps_of(previous):
            for name, detail, changes in _of_before(step, before):
                yield DeviceEdit(name, f"{detail} of the call before", changes, only=number)


def _in(steps: list[Step], number: int) -> str:
    """Which one of several dispatches it is."""
    return f" in {steps[number].launch.shader}" if len(steps) > 1 else ""


def _where(steps: list[Step], number: int, edit: DeviceEdit) -> Iterator[DeviceEdit]:
    """An edit of all dispatches that have the words, if these are the same and of no tensor; else of one."""
    right = {word: steps[number].pushed[word] for word in edit.push}
    sharing = [at for at, step in enumerate(steps) if right.keys() <= step.pushed.keys()]
    differ = any(not right.items() <= steps[at].pushed.items() for at in sharing)
    alone = replace(edit, detail=edit.detail + _in(steps, number))
    if len(sharing) == 1 or differ or any(map(_of_tensor(steps[number]), edit.push)):
        yield alone
    else:
        if sharing[0] == number:
            yield replace(edit, only=None)
        if edit.name == _UNFOLDED and steps[number].call.op.epilogue is None:
            yield replace(alone, name="border padded with 0")


# --- push words ---------------------------------------------------------------------------------------------


def _fields(step: Step, kind: FieldType) -> dict[str, tuple[str, ...]]:
    """The fields of a type: name -> the names of its words."""
    return {each.name: each.names for each in step.kernel.push.fields if each.type is kind}


def _of_tensor(step: Step) -> Callable[[str], bool]:
    """Whether a word is a size or a stride."""
    tensors = tuple(f"{tensor}_" for tensor in _fields(step, TENSOR))
    return lambda word: word.startswith(tensors)


def _pushed(step: Step) -> Told:
    """(class, in words, changes) of push words."""
    yield from _together(step)
    yield from _of_each_other(step)
    for each in step.kernel.push.fields:
        if each.type in (INT, UINT):
            yield from _integer(each, step)
        elif each.type in _OF_TYPE:
            yield from _OF_TYPE[each.type](each.name, step.pushed)


def _integer(each: Field, step: Step) -> Told:
    name, old = each.name, step.pushed[each.name]
    if name == "FLAGS":
        yield from _flags(each, old)
    elif _ZERO_POINT.search(name):
        yield _UNFOLDED, f"{name} taken as 0", {name: 0}
        for what, other in INTEGERS.items():
            yield _ZERO_POINTS[what], f"{name} {what}", {name: other(old)}
        for by in (128, -128):
            yield "unsigned lanes", f"{name} of unsigned bytes", {name: old + by}
    else:
        yield from _count(step, name, old)


def _flags(each: Field, old: int) -> Told:
    for bit, mask, found, detail in _NUMERICS:
        yield found, detail, {each.name: old & ~mask | bit}
    twice = "a*b+c rounded once, or twice where once is meant"
    yield "fused multiply-add", twice, {each.name: old ^ qmath.CONTRACT}
    for bit, found, what in ((RELU, "relu dropped or added", "relu"), (HAS_BIAS, "bias left out", "bias")):
        if bit in each.bits.values():
            yield found, f"{what} left out" if old & bit else f"{what} applied", {each.name: old ^ bit}


def _count(step: Step, name: str, old: int) -> Told:
    found = first_fit(_COUNTS, f"{step.call.op.family.name} {name}")
    others = {f"{name} is {n} instead of {old}": n for n in (old - 1, old + 1, old // 2, 2 * old, 1, 8, 16)}
    if found == _SHORT:
        others = {"the last word of channels left out of the sum": old - 1}
        others |= {f"words of the sum that fill no {size} left out": old // size * size for size in VECTORS}
        others |= {f"{name} is {old + 1} instead of {old}": old + 1}
    yield from ((found, what, {name: other}) for what, other in others.items() if other > 0)


def _real(name: str, held: Changes) -> Told:
    for what, other in REALS.items():
        ignored = name == "ALPHA" and what == "taken as 1"
        found = "alpha ignored" if ignored else _SCALES.get(what, "scale changed")
        yield found, f"{name} {what}", {name: int(as_real(held[name], other))}


def _pair(name: str, held: Changes) -> Told:
    h, w = f"{name}_H", f"{name}_W"
    what, (found, neutral) = name.lower(), first_fit(_WINDOWS, name)
    yield _TURNED, f"{what} exchanged", {h: held[w], w: held[h]}
    yield found, f"{what} of the rows used for both", {w: held[h]}
    yield found, f"{what} of the columns used for both", {h: held[w]}
    for said, other in {f"taken as {neutral}": lambda number: neutral, **INTEGERS}.items():
        for words, whose in (((h, w), ""), ((h,), " of the rows"), ((w,), " of the columns")):
            yield found, f"{what}{whose} {said}", {word: other(held[word]) for word in words}


def _tensor(name: str, held: Changes) -> Told:
    of, edge = _addressed(name)
    for a, b in combinations(DIM_NAMES, 2):
        found = _TURNED if {a, b} == {"H", "W"} else "C and another dim exchanged"
        one, other = f"{name}_{a}_STRIDE", f"{name}_{b}_STRIDE"
        yield found, f"{of} with the strides of {a} and {b} exchanged", {one: held[other], other: held[one]}
    yield "batch ignored", f"{of} at batch 0 alone", {f"{name}_N_STRIDE": 0}
    for dim, by in product(DIM_NAMES, (-1, 1)):
        size = held[f"{name}_{dim}"]
        yield edge, f"{name} taken to have {size + by} of {size} along {dim}", {f"{name}_{dim}": size + by}


_OF_TYPE: dict[FieldType, Callable[[str, Changes], Told]] = {FLOAT: _real, PAIR: _pair, TENSOR: _tensor}


def _addressed(name: str) -> tuple[str, str]:
    """What is done with a tensor, and the class of a wrong size."""
    return ("output written", _TILE) if name == "OUT" else (f"{name.lower()} read", "edge of the input")


def _of_each_other(step: Step) -> Told:
    """Words that are taken from others of their kind, or exchanged with these."""
    pairs = {name.lower(): words for name, words in _fields(step, PAIR).items()}
    reals = {name: words for name, words in _fields(step, FLOAT).items() if name != "ALPHA"}
    zero_points = {name: words for name, words in _fields(step, INT).items() if _ZERO_POINT.search(name)}
    one, both = "{0} taken from {1}", "{0} and {1} exchanged"
    for kind, taken, said, exchanged, said_of_both in (
        (pairs, _WINDOW, "{1} used as {0} as well", _WINDOW, both),
        (zero_points, ANOTHER_TENSORS, one, ANOTHER_TENSORS, both),
        (reals, ANOTHER_TENSORS, one, ANOTHER_TENSORS, both),
        (_quantized(step.pushed), ANOTHER_TENSORS, "{0}_ZP and {0}_SCALE taken from {1}",
         "operands exchanged", "the quantizations of {0} and {1} exchanged"),
    ):  # fmt: skip
        for to, source in permutations(kind, 2):
            yield taken, said.format(to, source), _taken(kind[to], kind[source], step.pushed)
        for a, b in combinations(kind, 2):
            words = _taken(kind[a] + kind[b], kind[b] + kind[a], step.pushed)
            yield exchanged, said_of_both.format(a, b), words
    sizes, strides = DIM_NAMES, [f"{dim}_STRIDE" for dim in DIM_NAMES]
    for name, other in permutations(_fields(step, TENSOR), 2):
        (of, edge), whose = _addressed(name), "the output" if other == "OUT" else other.lower()
        for found, what, parts in (
            (_LAYOUT, "sizes and strides", [*sizes, *strides]), (_LAYOUT, "strides", strides), (edge, "sizes", sizes)
        ):  # fmt: skip
            own, others = ([f"{tensor}_{part}" for part in parts] for tensor in (name, other))
            yield found, f"{of} with the {what} of {whose}", _taken(own, others, step.pushed)


def _taken(own: Iterable[str], others: Iterable[str], held: Changes) -> Changes:
    """Words that hold what others do."""
    return {word: held[other] for word, other in zip(own, others, strict=True)}


def _quantized(held: Changes) -> dict[str, tuple[str, ...]]:
    """The tensors that have both a zero point and a scale among the words, with the names of these."""
    tensors = [name.removesuffix("_ZP") for name in held if name.endswith("_ZP")]
    return {name: (f"{name}_ZP", f"{name}_SCALE") for name in tensors if f"{name}_SCALE" in held}


def _together(step: Step) -> Told:
    """Words that are wrong together: dims exchanged, factors multiplied, an offset taken off elsewhere."""
    held, pairs = step.pushed, _fields(step, PAIR)
    if pairs:
        every = {f"{name}_{a}": held[f"{name}_{b}"] for name in pairs for a, b in ("HW", "WH")}
        yield _TURNED, f"{' and '.join(map(str.lower, pairs))} exchanged", every
    if {"PADDING", "DILATION"} <= pairs.keys():
        both = {f"PADDING_{dim}": held[f"PADDING_{dim}"] * held[f"DILATION_{dim}"] for dim in "HW"}
        yield "padding offset", "padding multiplied by the dilation", both
    scales = [name for name in _fields(step, FLOAT) if name.endswith("SCALE")]
    if scales and "INV" in held:
        by = real(held["INV"])
        at_once = {name: int(as_real(held[name], lambda scale: scale * by)) for name in scales}
        yield _EPILOGUE, "scales multiplied with each other first", {**at_once, "INV": int(bits(1.0))}
    for name in (
        row.name
        for row in step.kernel.push.fields
        if row.name.endswith("_ZP") and {"INV", "ZP"} <= held.keys()
    ):
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
        of, _ = _addressed(argument.upper())
        own = _fields(step, TENSOR).get(argument.upper(), ())
        for row in INT8_LAYOUTS:
            if own:
                words = dict(zip(own, TensorDesc(desc.shape, row).meta, strict=True))
                yield _LAYOUT, f"{of} as {row}", {word: row.hashed}, words
            yield _LAYOUT, f"{of} with the blocks of {row}", {word: row.hashed}, {}
        yield "block transposed", f"{of} with blocks transposed", {word: _transposed(held[word])}, {}
    for a, b in combinations(hashes, 2):
        yield _LAYOUT, f"the layout words {a} and {b} exchanged", _taken((a, b), (b, a), held), {}
    for each in fields:
        if each.type in (UINT, INT):
            yield from (
                (name, what, changes, {}) for name, what, changes in _count(step, each.name, held[each.name])
            )


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
    numbers = {name: stale[name] for name in filterfalse(_of_tensor(step), stale)}
    for chosen in (stale, numbers, *({name: value} for name, value in stale.items())):
        if chosen:
            yield "stale constant", ", ".join(chosen), chosen
