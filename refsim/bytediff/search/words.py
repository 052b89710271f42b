"""An edit in words: its class by the names that it touches, what stands there instead, and where."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, replace
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Annotated

from refsim.bytediff.search.schema import ROOT, Copy, Entry, KernelEdit
from refsim.core.counted import counted

#: Longer texts are cut.
LONGEST = 90
SHADERS = ROOT / "shaders"


#: An edit, its file with the line, and the call through which it is made alone.
PlaceKey = tuple[str, str, str]


@dataclass(frozen=True)
class Place:
    """Where the right kernel has what a wrong one has otherwise: function, file and line, and the edit in words.

    ``called``: the call, with its line, through which the edit is made alone. ``shader`` is where refsim's own shader
    reads the same words, if one line alone does. ``others`` are edits that give the same bytes, those of the same class
    first, which are ``alike``.
    """

    function: Annotated[str, "The function, or the operator whose kernel it is."]
    file: Annotated[str, "Its file."]
    line: Annotated[int, "The line there."]
    edit: Annotated[str, "What stands there instead, in words."]
    called: Annotated[str, "The call with its line, where only what that call does is edited, or empty."] = ""
    shader: Annotated[str, "The line of refsim's own shader that reads the same words, or empty."] = ""
    others: Annotated[tuple[str, ...], "Other edits that give the same bytes."] = ()
    alike: tuple[Place, ...] = ()

    @property
    def key(self) -> PlaceKey:
        """What makes it this edit, whatever else gives the same bytes."""
        return self.edit, str(self), self.called

    def instead(self, other: Place) -> Place:
        """Another one of these, with this one among the others."""
        told = (f"{self.edit} ({self})", *self.others)
        return replace(other, others=tuple(text for text in told if text != f"{other.edit} ({other})"))

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"

    @property
    def told(self) -> str:
        """The edit, where it is, and how many others give the same bytes."""
        count = len(self.others)
        others = f"; or {counted(count, 'other edit')} with the same bytes" if count else ""
        called = f", for {self.called}" if self.called else ""
        shader = f"; {self.shader}" if self.shader else ""
        return f"{self.edit}, in {self.function}{called} ({self}{shader}{others})"


#: (kinds of edits, pattern of the function, pattern of the names that it touches, class): the first that fits decides.
_CLASSES: tuple[tuple[str, str, str, str], ...] = (
    ("joined", "", "", "one coordinate for another"),
    ("unsigned", "", "", "unsigned lanes"),
    ("relu bound", "", "", "relu bound"),
    ("subtracted", "", "", "zero point not folded"),
    ("one off", "", "", "zero point one off"),
    ("short", "", r"\b[WHC]\b", "last tile missing"),
    ("clamped", "", "", "clamp order"),
    ("scaled", "", "", "bias changed"),
    ("", "_finish|_relu", r"RELU|maximum|0\.0", "relu dropped or added"),
    ("fused", "", "", "fused multiply-add"),
    ("constant", "", r"\bnibble\(", "nibbles read wrong"),
    ("constant", "", r"^(acc|total|lanes)\b.* = ", "sums off by a constant"),
    ("kept", "", "", "sums not reset"),
    ("last turn", "", "KERNEL|IC4|K4|group4|k4|range", "sums begun anew"),
    ("total", "", "", "sums of 16 bits"),
    ("repeated", "", "", "lanes exchanged"),
    ("lanes", "", r"\b3\b", "byte order"),
    ("lanes", "", "", "lanes exchanged"),
    ("values arguments", "", r"\b[iok]?h, [iok]?w\b", "H and W exchanged"),
    ("operand", "block_idx", "N_STRIDE", "batch ignored"),
    ("operand", "dot4|add_lanes", "", "reduction too short"),
    ("name", "dot4", r"^[ab]\b", "products miscounted"),
    ("squared", "", "", "products miscounted"),
    ("name", "", r"^(q?a q?b|qa|qb)$", "operands exchanged"),
    ("name", "", r"(?i)^\w+_(zp|scale) \w+_\1$", "another tensor's quantization"),
    ("type", "", "half|float64", "another precision"),
    ("type", "", "16", "sums of 16 bits"),
    ("condition", "round_half", "TRUNCATE", "truncation"),
    ("condition", "round_half", "TIE", "tie rule"),
    ("call", "", "half_cast", "truncation"),
    ("call", "", "half_up|half_away", "tie rule"),
    ("tie", "", "", "tie rule"),
    ("call", "round_half", "", "truncation"),
    ("call", "", "trunc|floor|ceil", "truncation"),
    ("call", "to_int8|bounded", "clamp|bounded", "no clamp"),
    ("", "to_int8|bound|clamp", r"low|high|least|most|127|128|QMIN|QMAX|LEAST|MOST", "clamp bounds"),
    ("call", "", "bounded", "no clamp"),
    ("", "to_int32", "", "conversion out of range"),
    ("", "tree_sum", "", "order of float sums"),
    ("order folded", "", "", "order of the epilogue"),
    ("values name index", "", r"_HASH\b", "another layout's strides"),
    ("", "", "HAS_BIAS|bias|\\bb\\b", "bias changed"),
    ("", "", "ALPHA|alpha", "alpha ignored"),
    ("", "row_range|scaled|zero_point|_over", "", "range of rows"),
    ("", "nibble|halves_place|pairs_place", "", "nibbles read wrong"),
    ("", "", "wsum|sums", "channel constants misplaced"),
    ("name", "", r"\bw[0-3]\b", "weights of other channels"),
    ("constant operand", "", r"\bgroup\b", "group ignored"),
    ("operator", "", r"^(?!.*DILATION).*- push\[PADDING", "padding offset"),
    ("", "", "STRIDE_[HW]|DILATION", "stride or dilation"),
    ("", "", "PADDING", "padding offset"),
    ("compare condition", "", r"\b[io][hw]\b|\bhit\b", "edge of the input"),
    ("name", "", r"KERNEL_[HW]", "window of another size"),
    ("loop short", "", "KERNEL|IC4|K4|group4|k4|range", "reduction too short"),
    ("", "", r"\b(stage|k1|STAGE)\b", "words along K exchanged"),
    ("", "", "border", "border padded with 0"),
    ("", "", r"\w*_?zp|ZP|zero", "zero point not folded"),
    ("", "", r"\w*scales?|\w*SCALE|inv|INV|(?<!\+ )\bstep\b|factor", "scale changed"),
    ("", "splat", "", "border padded with 0"),
    ("", "lane|insert|dot4", "", "lanes exchanged"),
    ("values", "", r"\b[iko]?h\b.*\b[iko]?w\b", "H and W exchanged"),
    ("", "index|block|coord|_idx|inner|outer|_along|inside|intra|tile_word|word_number|position_place", "", "address"),
    ("", "", r"weight|all_o", "weights read at another stride"),
    ("", "", r"\bat\b|x_words|source|channel_step|k_step|word_idx|buf_idx", "address"),
    ("name arguments", "", r"\b[whcn]\b|\b[iko][whc]\b", "one coordinate for another"),
)  # fmt: skip
#: The same for edits that none of these fits.
_OTHERS: tuple[tuple[str, str, str, str], ...] = (
    ("", "tap_place", "", "edge of the input"),
    ("", "mul_add", "", "fused multiply-add"),
    ("", "flush", "", "another precision"),
    ("", "to_int8", "CLAMP_FIRST", "clamp order"),
    ("", "to_int8|wrap32", "", "conversion out of range"),
    ("compare condition", "out_word", "", "padding leaked"),
    ("constant", "out_word", "range", "only a part is written"),
    ("", "out_word", "", "constants of other channels"),
    ("", "", r"group4|GROUP|// group\b", "scale of another group"),
    ("compare condition", "", "_hash", "another layout's strides"),
    ("compare condition", "", r"\blanes\b", "padding leaked"),
    ("compare condition", "", r"\b(i|h|number|size|ROWS)\b", "only a part is written"),
    ("statement", "", r"\b(out|word)\b", "nothing written"),
    ("", "", r"\b(M|OUTPUTS|TABLE_ROWS|FLAGS)\b|push\[ROWS\]", "wrong count"),
    (
        "operand operator parentheses constant rounded index values short arguments name call sign", "kernel", "",
        "address",
    ),
)  # fmt: skip


def place_of(edit: KernelEdit, entry: Entry | None = None) -> Place:
    """Where an edit is, and what it is; with an entry only as that place of the kernel calls it."""
    function = edit.copy.function
    own = function.__name__
    module = function.__module__.rpartition(".")[2]
    what = module if own == "kernel" else own
    return Place(what, edit.copy.path, edit.line, text_of(edit), _called(edit, entry), _shader_line(edit))


#: The words that kernels and shaders read by the same names.
_WORDS = re.compile(r"push\[[^\]]+\]|\b[A-Z][A-Z0-9]*_[A-Z0-9_]+\b")


def _shader_line(edit: KernelEdit) -> str:
    """The line of the operator's shader that reads the words of the edited statement; "" if it is not one line."""
    if edit.copy.schema.host:
        return ""
    asked = set(_WORDS.findall(_statement(edit)))
    near = set(_WORDS.findall(edit.copy.schema.names.text(edit.old)))
    found = [
        (len(words), at) for at, words in _lines(Path(edit.copy.schema.kernel.path).stem) if asked <= words
    ]
    least = min(found, default=(0, ""))
    alone = [row for row in found if row[0] == least[0]]
    return least[1] if near and len(alone) == 1 else ""


@cache
def _lines(op: str) -> tuple[tuple[str, frozenset[str]], ...]:
    """Each line of an operator's shader, and of the files that it includes, with the words that it reads."""
    left, found, seen = [SHADERS / f"{op}.comp"], list[tuple[str, frozenset[str]]](), set[Path]()
    while left:
        path = left.pop(0)
        if path in seen or not path.is_file():  # an installed package has no sources of shaders
            continue
        seen.add(path)
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if included := re.match(r'\s*#include "(.*)"', line):
                left += [path.parent / included[1], SHADERS / "include" / included[1]]
            elif not line.startswith(("const", "layout")) and (
                words := _WORDS.findall(line.partition("//")[0])
            ):
                found.append((f"{path.relative_to(SHADERS.parent)}:{number}", frozenset(words)))
    return tuple(found)


def _called(edit: KernelEdit, entry: Entry | None) -> str:
    """A call of the kernel, with its line."""
    if entry is None:
        return ""
    return f"{_cut(entry.text)} ({edit.copy.schema.kernel.path}:{entry.line})"


@cache
def class_of(edit: KernelEdit) -> str:
    """The class of an edit, by the names that it touches: those that change, else those beside them."""
    old, new = (edit.copy.schema.names.text(node) for node in (edit.old, edit.made.new))
    before, after = (set(re.findall(r"\w+(?:\.\w+)?", text)) for text in (old, new))
    texts = (" ".join(sorted(before ^ after)), f"{old} {new}", _statement(edit))
    likely = ((row, touched) for touched in texts for row in _CLASSES)
    others = ((row, touched) for row in _OTHERS for touched in texts)
    found = (row[-1] for row, touched in chain(likely, others) if _fits(row, edit, touched))
    return next(found, "another operation")


def _fits(row: tuple[str, str, str, str], edit: KernelEdit, touched: str) -> bool:
    """Whether an edit that touches these names is of a row."""
    kinds, where, names, _ = row
    return (
        edit.made.kind.startswith(tuple(kinds.split() or [""]))
        and re.search(where, edit.copy.function.__name__) is not None
        and re.search(names, touched) is not None
    )


def _statement(edit: KernelEdit) -> str:
    """The first line of the innermost statement that an edit is in."""
    found = _statements(edit.copy).get(edit.old)
    return "" if found is None else edit.copy.schema.names.text(found).partition("\n")[0]


@cache
def _statements(copy: Copy) -> dict[ast.AST, ast.stmt]:
    """Of each node of a function the innermost statement."""
    found: dict[ast.AST, ast.stmt] = {}
    for node in ast.walk(copy.tree):  # outer ones first
        if isinstance(node, ast.stmt) and not isinstance(node, ast.FunctionDef):
            found.update(dict.fromkeys(ast.walk(node), node))
    return found


@cache
def text_of(edit: KernelEdit) -> str:
    """What stands there instead."""
    names, old, new = edit.copy.schema.names, edit.old, edit.made.new
    if edit.made.words:
        return f"{edit.made.words} in {_cut(names.text(old))}"
    if new is None:
        return f"without {_cut(names.text(old))}"
    if isinstance(old, ast.BinOp) and edit.made.kind == "operand" and new in (old.left, old.right):
        sign = names.text(ast.BinOp(ast.Name("", ast.Load()), old.op, ast.Name("", ast.Load()))).strip()
        kept, gone = (old.left, old.right) if new is old.left else (old.right, old.left)
        cut = f"{sign} {names.text(gone)}" if new is old.left else f"{names.text(gone)} {sign}"
        return f"{_cut(names.text(kept))} without {_cut(cut)}"
    return f"{_cut(names.text(new))} for {_cut(names.text(old))}"


def _cut(text: str) -> str:
    text = text.replace("edit_", "")
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 4]} ..."
