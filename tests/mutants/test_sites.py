"""What is changed in a source, and what is left alone."""

from __future__ import annotations

import pytest

from mutants.generated import glsl_sites, python_sites
from mutants.generated.change import KINDS, Change

KERNEL = """
STRIDE_H, STRIDE_W = 0, 1

def kernel(push, x, out):
    zp = push[0]
    for h in range(3):
        w = h + 1
        if h < 2 and w > 0:
            out[h] = x[w * STRIDE_H + h // 4] - zp
        out[w] += min(h, 127)
    if zp > 8:
        raise ValueError(zp + 1)

def define(x):
    return x + 1
"""


SHADER = """#version 450
// w + h is not code
int lane(int w, int h) { return w >> 8 * h; }
void main() {
    int acc = 0;
    if (acc < 4 && acc != 7) acc = lane(acc, 2);
    barrier();
    acc -= 1;
}
"""


def in_python() -> list[Change]:
    return list(python_sites.changes("kernel.py", KERNEL, lambda name: name == "kernel"))


def in_shader() -> list[Change]:
    return list(glsl_sites.changes("shader.comp", SHADER))


def said(changes: list[Change]) -> set[tuple[str, str, str]]:
    return {(change.kind, change.original.strip(), change.replacement.strip()) for change in changes}


@pytest.mark.parametrize(
    ("call", "exchanged"),
    [
        ("min(h, 127)", set()), ("np.maximum(w, h)", set()), ("dot4(h, w)", set()), ("lane(h, w)", {("h, w", "w, h")}),
        ("mul_add(h, w, x)", {("w, x", "x, w")}), ("fn.fma(h, w, x)", {("w, x", "x, w")}),
        ("min(h, w, x)", {("w, x", "x, w")}),
    ],
)  # fmt: skip
def test_arguments_that_commute_are_not_exchanged(call: str, exchanged: set[tuple[str, str]]) -> None:
    python = f"def kernel(h, w, x):\n    return {call}\n"
    made = python_sites.changes("kernel.py", python, lambda name: True)
    assert {row[1:] for row in said(list(made)) if row[0] == "arguments"} == exchanged
    if "." not in call:
        made = glsl_sites.changes("shader.comp", f"void main() {{\n    int found = {call};\n}}\n")
        assert {row[1:] for row in said(list(made)) if row[0] == "arguments"} == exchanged


@pytest.mark.parametrize(
    ("file", "nan", "drawn"),
    [("kernel.py", "", False), ("kernel.py", "NAN", True), ("prepack.py", "NAN", False)],
)
def test_the_least_of_a_number_and_of_nan_is_either_of_them(file: str, nan: str, drawn: bool) -> None:
    found = said(list(python_sites.changes(file, f"{KERNEL}\n{nan or 0}\n", lambda name: name == "kernel")))
    assert ("type", "min", "max") in found
    assert (("arguments", "h, 127", "127, h") in found) == drawn


def test_python_is_changed_by_its_syntax() -> None:
    found = said(in_python())
    for row in (
        ("operator", "-", "+"), ("operator", "//", "%"), ("operator", "+=", "-="), ("compare", "<", "<="),
        ("constant", "127", "128"), ("constant", "127", "(-127)"), ("constant", "4", "0"), ("index", "w", "h"),
        ("index", "STRIDE_H", "STRIDE_W"), ("type", "min", "max"),
        ("condition", "h < 2 and w > 0", "(h < 2)"), ("removed", "out[w] += min(h, 127)", "pass"),
    ):  # fmt: skip
        assert row in found, row


def test_meanings_and_refusals_are_left_alone() -> None:
    lines = {change.line for change in in_python()}
    assert lines and max(lines) < KERNEL.splitlines().index("    if zp > 8:") + 1


def test_the_sign_of_a_divisor_stays_where_only_a_rest_of_nothing_counts() -> None:
    source = "def kernel(x, n):\n    return x % 4 == 0, n % 6, x // 8, 9 % 5 == 1\n"
    found = said(list(python_sites.changes("kernel.py", source, lambda name: True)))
    negated = {original for kind, original, replacement in found if replacement == f"(-{original})"}
    assert negated == {"6", "8", "9", "5"}
    assert ("constant", "4", "8") in found


def test_an_open_length_stays_open() -> None:
    """numpy takes any negative length of `reshape` for the one that is left open."""
    source = "def kernel(x):\n    return x.reshape(-1, 4), x.reshape(-1) - x[-1]\n"
    changes = list(python_sites.changes("kernel.py", source, lambda name: True))
    assert [change.begin for change in changes if change.replacement == "2" and change.original == "1"] == [
        source.index("[-1]") + 2
    ]
    assert ("constant", "1", "0") in said(changes)


def test_shaders_are_changed_by_their_tokens() -> None:
    found = said(in_shader())
    for row in (
        ("operator", ">>", "<<"), ("operator", "-=", "+="), ("compare", "<", "<="), ("condition", "&&", "||"),
        ("constant", "8", "16"), ("index", "w", "h"), ("arguments", "acc, 2", "2, acc"), ("barrier", "barrier();", ";"),
        ("condition", "(acc < 4 && acc != 7)", "(false)"), ("removed", "acc -= 1;", ";"), ("type", "int", "uint"),
    ):  # fmt: skip
        assert row in found, row
    assert all(change.line > 2 for change in in_shader())


def test_what_computes_nothing_is_not_changed() -> None:
    source = """
def kernel(flags, rows):
    if flags & CLAMP_FIRST:
        rows = rows + 1
    def cycles(n):
        return n * 7
    def ahead(i):
        return i + 9
    rows.prefetch(rows + 2)
    rows = (flags | 1 << 4) + ahead(rows + 3)
    return rows
"""
    found = said(list(python_sites.changes("kernel.py", source, lambda name: True)))
    told = {row[1] for row in found}
    assert not {"7", "9", "2", "3"} & told, found
    assert ("operator", "|", "&") in found and ("operator", "|", "^") not in found, found


def test_statements_are_exchanged_only_if_one_uses_what_the_other_sets() -> None:
    """Two attributes of one object are as good as two names."""
    source = """
def kernel(self, a, b):
    self.rows = a
    self.columns = b
    self.size = self.rows * self.columns
    self.words[0] = a
    self.words[1] = self.words[0]
"""
    changes = python_sites.changes("kernel.py", source, lambda name: True)
    lines = {change.line for change in changes if change.kind == "order"}
    assert lines == {4, 6}, lines


@pytest.mark.parametrize("change", [*in_python(), *in_shader()], ids=str)
def test_a_change_is_its_edit(change: Change) -> None:
    assert change.kind in KINDS
    assert change.source.count(change.edit.anchor) == 1
    assert change.source.replace(change.edit.anchor, change.edit.replacement) == change.changed


def test_ids_are_unique_and_hold_while_the_lines_do() -> None:
    changes = in_python()
    assert len({change.id for change in changes}) == len(changes)
    moved = python_sites.changes("kernel.py", "# a line more\n" + KERNEL, lambda name: name == "kernel")
    assert {change.id for change in moved} >= {
        change.id for change in changes if change.edit.anchor.count("\n") == 1
    }
