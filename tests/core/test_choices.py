"""What errors say of names that are not there."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import refsim
import refsim_gpu
from refsim.core import choices

NAMES = ("cpu", "cpu:emulated", "gpu", "4W4C", "canonical")


def test_the_nearest_name_is_meant_in_any_case() -> None:
    assert [choices.nearest(name, NAMES) for name in ("cup", "4w4c", "Canonicle")] == [
        "cpu",
        "4W4C",
        "canonical",
    ]
    assert choices.nearest("bus", NAMES) is None and choices.meant("bus", NAMES) == ""
    assert (
        choices.need("cup", NAMES[:3], "or a file") == "cpu, cpu:emulated, gpu, or a file; did you mean cpu?"
    )


def test_of_numbered_names_the_nearest_number_is_meant() -> None:
    values = ("delegate0_v74", "delegate0_v76", "delegate0_v87", "delegate1_v75")
    assert choices.nearest("delegate0_v77", values) == "delegate0_v76"
    assert choices.nearest("delegate0_v75", values) == "delegate0_v74"
    assert choices.nearest("avx51", ("avx2", "avx512")) == "avx512"  # a letter is missing, not counted


def test_long_lists_are_cut_after_a_name_and_short_ones_are_not() -> None:
    many = [f"name{number}" for number in range(100)]
    text = choices.listed(many)
    assert text.startswith("name0, name1, ") and text.endswith(f", ... and {100 - text.count('name')} more")
    assert len(text) < choices.MOST_LISTED + 20 and choices.listed(many[:5]) == ", ".join(many[:5])
    assert choices.listed(["x" * 500]) == "x" * 500  # one name is no list
    assert choices.need("nam99", many).endswith("; did you mean name99?")  # of those that are not shown, too


def test_parts_are_cut_only_as_far_as_they_must() -> None:
    assert (
        choices.cut("short", 10) == "short"
        and choices.cut("a" * 50 + "b" * 50, 23) == "a" * 10 + "..." + "b" * 10
    )
    text = choices.need("nam7", [f"name{number}" for number in range(30)])
    shorter = choices.cut(text, 70)
    assert len(shorter) <= 70 and shorter.endswith("; did you mean name7?")
    shown = shorter.partition(", ...")[0].count("name")
    assert f", ... and {30 - shown} more;" in shorter  # also where the list was cut before
    held = choices.fitted(["a" * 20, "b" * 400, "c" * 100], 200)
    assert sum(map(len, held)) <= 200 and held[0] == "a" * 20 and held[2] == "c" * 100
    assert len(choices.fitted(["a" * 90] * 9, 10)) == 9  # something is left of each


def test_names_are_compared_in_one_place() -> None:
    """What counts as nearly right is the same for verbs, operators and layouts."""
    package = Path(refsim.__file__).parent
    found = [path.name for path in package.rglob("*.py") if "difflib" in path.read_text()]
    assert found == ["choices.py"]


def test_what_was_typed_is_not_what_was_meant() -> None:
    assert choices.nearest("q8ta_linear", ["q8ta_linear", "q8ta_add"]) is None
    assert choices.nearest("Q8TA_linear", ["q8ta_linear", "q8ta_add"]) == "q8ta_linear"


def test_a_cut_list_says_how_many_more_there_are_and_how_to_see_them() -> None:
    assert choices.first("abc", 3) == "a, b, c" and choices.first("abc", 2) == "a, b, ... and 1 more"
    assert choices.first(range(9), 1, choices.IN_JSON) == "0, ... and 8 more (--json lists all)"
    assert choices.cut(choices.first(["name"] * 90, 60), 60) == "name, " * 7 + "... and 83 more"


#: Files whose slices cut no list of a message: (file, text of the slice).
NO_LISTS = {
    ("choices.py", "held[:count]"),  # this is the one place
    ("_progress.py", "arguments[:1]"),  # the verb
    ("probe.py", "stamp[:3]"),  # a version
    ("apart.py", "names[:-1]"),  # all but the last, which stands behind `and`
    ("coverage.py", "names[:-1]"),
    ("wgpu_device.py", "said[:LAST_LINES]"),  # a compiler's first lines
    ("facts.py", "within.regions(ev)[::-1][:MOST_REGIONS]"),  # the narrowest of nested regions
}


def _cut(node: ast.AST) -> Iterator[str]:
    """The text of each slice ``[:N]`` that an expression goes through."""
    for part in getattr(node, "generators", ()):
        yield from _cut(part.iter)
    if isinstance(node, ast.Call):
        yield from (text for one in node.args for text in _cut(one))
    held = node.slice if isinstance(node, ast.Subscript) else None
    if isinstance(held, ast.Slice) and held.lower is None and held.upper is not None:
        yield ast.unparse(node)


def _cuts(function: ast.AST) -> Iterator[str]:
    """The lists that a function joins or says in part without saying how many more there are."""
    says_more = any(
        {"more", "say_rest"} & {getattr(n, "attr", ""), getattr(n, "id", "")} for n in ast.walk(function)
    )
    for node in ast.walk(function):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "join":
            yield from _cut(node)
        if isinstance(node, ast.For) and not says_more:
            told = {ast.unparse(n.func) for n in ast.walk(node) if isinstance(n, ast.Call)}
            strings = any(
                isinstance(n, ast.Yield) and isinstance(n.value, ast.JoinedStr) for n in ast.walk(node)
            )
            yield from _cut(node.iter) if strings or told & {"say", "print", "print_report"} else ()


def test_lists_of_messages_are_cut_in_one_place() -> None:
    found = set()
    for package in (refsim, refsim_gpu):
        for path in Path(package.__file__).parent.rglob("*.py"):
            tree = ast.parse(path.read_text())
            functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))
            found |= {(path.name, text) for function in functions for text in _cuts(function)}
            texts = (node.value for node in ast.walk(tree) if isinstance(node, ast.Constant))
            found |= {(path.name, text) for text in texts if text == ", ..." or text == " and so on"}
    assert found == NO_LISTS, "use choices.first or choices.more"
