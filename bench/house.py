"""How heavy the house is: lines of each room against its budget, long functions, names used twice, import circles.

python -m bench.house [--root CHECKOUT]

A line counts as code if something other than a comment or a docstring stands in it. Budgets count every line of a
Python file. tests/test_house.py reads imports by the functions below.
"""

from __future__ import annotations

import argparse
import ast
import io
import tokenize
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from refsim.cli.kit.text import print_table

ROOT = Path(__file__).parents[1]
#: Lines that a room may have; modules and sweep have one budget for both.
BUDGETS = {
    "refsim/core": 2300,
    "refsim/spirv": 2000,
    "refsim/ops": 7500,
    "refsim/aten": 2200,
    "refsim/formats": 3800,
    "refsim/graph": 1100,
    "refsim/exec": 9500,
    "refsim/check": 1500,
    "refsim/partition": 4800,
    "refsim/bytediff": 4000,
    "refsim/device": 2500,
    "refsim/golden": 2700,
    "refsim/modules": None,
    "refsim/sweep": 1500,
    "refsim/cli": 5000,
    "refsim/devtools": 1200,
    "gpu": 5500,
    "bench": 5000,
    "tests": 40000,
}
#: Functions with more lines are listed.
LONG = 80
COLUMNS = ("room", "budget", "lines", "code", "mean", "longest", f"functions > {LONG}")
NOT_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}


class Import(NamedTuple):
    """One name that a module imports; ``late`` inside a function or by `import_module`."""

    module: str
    line: int
    name: str
    late: bool


def modules(root: Path, package: str) -> dict[str, Path]:
    """Every module of a package by its dotted name."""
    found = {}
    for path in sorted(root.rglob("*.py")):
        parts = (package, *path.relative_to(root).with_suffix("").parts)
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(name: str, path: Path, known: Mapping[str, Path]) -> Iterator[Import]:
    """All imports of a module, those inside functions, under TYPE_CHECKING and by `import_module` too."""
    tree = ast.parse(path.read_text())
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    late = {id(node) for function in functions for node in ast.walk(function)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(name, node.lineno, alias.name, id(node) in late)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}:{node.lineno}: a relative import hides where it points"
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                yield Import(name, node.lineno, full if full in known else str(node.module), id(node) in late)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            for imported in by_name(node, tree):
                if imported in known:
                    yield Import(name, node.lineno, imported, True)


def by_name(call: ast.Call, tree: ast.Module) -> set[str]:
    """What a call of `import_module` may import: each string of its file, behind the prefix of an f-string."""
    first = call.args[0].values[0] if isinstance(call.args[0], ast.JoinedStr) else None
    prefix = str(first.value) if isinstance(first, ast.Constant) else ""
    constants = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)]
    return {prefix + value for value in constants if isinstance(value, str)}


def every_import(packages: Mapping[str, Path]) -> list[Import]:
    """All imports of some packages, each given by its name and folder."""
    known = {
        name: path for package, root in packages.items() for name, path in modules(root, package).items()
    }
    return [found for name, path in known.items() for found in imports(name, path, known)]


def circles(found: Iterable[Import]) -> list[set[str]]:
    """Each group of modules of which every one imports, over others, every other."""
    arrows: dict[str, set[str]] = defaultdict(set)
    for arrow in found:
        if arrow.name != arrow.module:
            arrows[arrow.module].add(arrow.name)
    reached = {name: _reached(name, arrows) for name in list(arrows)}
    groups = {frozenset(n for n in names if name in reached.get(n, ())) for name, names in reached.items()}
    return sorted((set(group) for group in groups if group), key=sorted)


def _reached(name: str, arrows: Mapping[str, set[str]]) -> set[str]:
    found: set[str] = set()
    waiting = [name]
    while waiting:
        new = arrows.get(waiting.pop(), set()) - found
        found |= new
        waiting += new
    return found


def code_lines(text: str) -> list[str]:
    """The lines of a file in which code stands."""
    tree = ast.parse(text)
    spoken: set[int] = set()
    for node in ast.walk(tree):
        owns = isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        if owns and ast.get_docstring(node, clean=False) is not None:
            spoken.update(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    kept: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in NOT_CODE:
            kept.update(range(token.start[0], token.end[0] + 1))
    lines = text.splitlines()
    return [lines[number - 1] for number in sorted(kept - spoken)]


def long_functions(root: Path, files: Iterable[Path]) -> Iterator[str]:
    """``path:line name (lines)`` of each function that is too long."""
    for path in files:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or 0) - node.lineno + 1
                if length > LONG:
                    yield f"{path.relative_to(root)}:{node.lineno} {node.name} ({length})"


def class_names(files: Iterable[Path]) -> dict[str, list[Path]]:
    """Each class name that stands in several files, and these."""
    found: dict[str, set[Path]] = defaultdict(set)
    for path in files:
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef):
                found[node.name].add(path)
    return {name: sorted(paths) for name, paths in sorted(found.items()) if len(paths) > 1}


def row(root: Path, name: str, folders: Iterable[str], budget: int | None) -> tuple[object, ...]:
    """The cells of one room, or of several together."""
    files = [path for folder in folders for path in sorted((root / folder).rglob("*.py"))]
    texts = [path.read_text() for path in files]
    code = [line for text in texts for line in code_lines(text)]
    lines = sum(len(text.splitlines()) for text in texts)
    long = sum(1 for _ in long_functions(root, files))
    mean = sum(map(len, code)) / max(1, len(code))
    return (name, budget or "", lines, len(code), f"{mean:.1f}", max(map(len, code), default=0), long)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.house", description=__doc__)
    parser.add_argument("--root", type=Path, default=ROOT, help="the checkout to measure")
    root = parser.parse_args().root.resolve()
    inside = [name for name in BUDGETS if name.startswith("refsim/")]
    rows = [row(root, name, [name], budget) for name, budget in BUDGETS.items()]
    total = sum(BUDGETS[name] or 0 for name in inside)
    print_table(COLUMNS, [*rows, row(root, "refsim", ["refsim"], total)])
    files = sorted((root / "refsim").rglob("*.py"))
    print("\nfunctions over", LONG, "lines")
    for line in long_functions(
        root, [path for top in BUDGETS for path in sorted((root / top).rglob("*.py"))]
    ):
        print(" ", line)
    repeated = class_names(files)
    print("\nclass names that stand in several modules:", len(repeated))
    for name, paths in repeated.items():
        print(f"  {name} {len(paths)}:", *(path.relative_to(root / "refsim") for path in paths))
    found = circles(every_import({"refsim": root / "refsim", "refsim_gpu": root / "gpu"}))
    print("\nimport circles:", len(found))
    for group in found:
        print(" ", *sorted(group))


if __name__ == "__main__":
    main()
