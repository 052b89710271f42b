"""What is changed, and what may show it: for each part of the sources its files, functions, executor and subjects."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from mutants.generated import glsl_sites, python_sites
from mutants.generated.change import Change
from mutants.tree import CHECKOUT
from refsim.golden import rules
from refsim.ops.base.binding import bind
from refsim.ops.base.registry import OPS

#: Bundled models: they run the plan, the passes over a graph, and the host's part of a run.
MODELS = ("mixed_ops", "linear_head_gemv", "refine_seg", "linear_head", "mobilenet_v2_035_96")


@dataclass(frozen=True)
class Condition:
    """How cases run, as `refsim golden verify` says it: an executor, its threads, a profile, an instruction set.

    ``route``: the native route that every operator takes; cases that cannot take it are left out.
    """

    executor: str
    threads: int = 1
    profile: str = ""
    isa: str = ""
    route: str = ""


@dataclass(frozen=True)
class Area:
    """A part of the sources. ``share``: how many of a hundred mutants are of it.

    ``skipped`` are functions (and files) that do not compute: meanings, cases, reasons, costs.
    ``tests`` are the tests that are run where no case shows a change; before them some cases under the conditions
    ``also``. ``chains``: the executors on which the chains of the corpus are run.
    """

    name: str
    executor: str
    share: int
    patterns: tuple[str, ...]
    skipped: str
    tests: tuple[str, ...]
    tables: str = r"$^"
    also: tuple[Condition, ...] = ()
    chains: tuple[str, ...] = ()

    def files(self) -> Iterator[Path]:
        for pattern in self.patterns:
            for path in sorted(CHECKOUT.glob(pattern)):
                if path.name != "__init__.py" and "push" not in path.parts:
                    yield path

    def wanted(self, name: str) -> bool:
        """Whether a function, or a table at module level, is changed."""
        if name.isupper():
            return re.match(self.tables, name) is not None
        return re.match(self.skipped, name) is None


#: Meanings, and what makes cases: the reference itself is not a kernel.
_MEANING = (
    r"_?(groups_of|sparse|one_sign|hard|many|twins|common_window|row_constants|define|sample|golden|cases|case|random"
    r"|constants|data|values|check|refuse|describe|accumulate|windows|source|dequantized|products?$|requantized|beyond"
    r"|per_channel$|weights$|style$|step$)"
)
_CORE = tuple(f"refsim/core/{name}.py" for name in ("index", "lanes", "qmath", "launch", "push"))
_TEXTS = (
    r".*why_not|_?slower|_?shares|_?cost|cycles|_?check|_?find$|as_dict|rows$|_row$|text|makespan|ratio|total"
    r"|__str__|name"
)

AREAS = {
    area.name: area
    for area in (
        Area(
            "emulated",
            "cpu:emulated",
            30,
            ("refsim/ops/*.py", "refsim/ops/base/*.py", *_CORE, "refsim/exec/emulated.py"),
            _MEANING + r"|.*_cases|pairs$|out_shape|shape_for|out_size|__post_init__|__str__|logical_",
            (
                "tests/core not cache and not escape and not table and not damage",
                "tests/ops not test_example",
            ),
            r"PUSH|SPEC|WINDOW",
            also=(
                Condition("gpu:0"),
                Condition("cpu"),
                *(Condition("cpu:emulated", profile=name) for name in ("lavapipe", "nvidia")),
            ),
        ),
        Area(
            "native",
            "cpu",
            35,
            ("refsim/exec/cpu/**/*.py",),
            _TEXTS,
            (
                "tests/exec/test_recorded_outputs.py",
                "tests/exec/cpu not several_processes and not another_cache",
            ),
            also=(
                Condition("cpu", threads=3),
                Condition("cpu", threads=4, isa="avx2"),
                *(Condition("cpu", isa=name) for name in ("avx512", "avx2", "portable")),
                *(Condition("cpu", profile=name) for name in ("lavapipe", "nvidia")),
            ),
            chains=("cpu",),
        ),
        Area(
            "graph",
            "cpu",
            5,
            ("refsim/graph/*.py", "refsim/core/lifetimes.py"),
            r"__str__|_?check|_?where|describe",
            (
                "tests/graph",
                "tests/check",
                "tests/exec/test_recorded_outputs.py",
                "tests/exec/test_models.py",
            ),
            chains=("cpu", "cpu:emulated"),
        ),
        Area(
            "shaders",
            "gpu:0",
            30,
            ("shaders/*.comp", "shaders/include/*.glsl"),
            r"$^",
            (
                "tests/gpu/test_dot.py",
                "tests/gpu/test_reads.py",
                "tests/gpu/test_shaders.py not binaries",
                "tests/gpu/test_float_kernels.py",
                "tests/gpu/test_executor.py",
            ),
        ),
    )
}

#: Files of an area that hold no computation, that another area changes, or that need a compiler which is not required.
SKIPPED = re.compile(
    r"refsim/ops/base/(case|case_rule|styles|conv_cases|route_cases|binding|registry|param_types|traits|defect|meaning)\.py"
    r"|refsim/ops/base/(arg|padding|prepared|spec|target)\.py"
    r"|refsim/ops/__main__\.py"
    r"|refsim/ops/base/module_\w+\.py"
    r"|refsim/exec/cpu/(compiled|isa|stopwatch|step)\.py"
    r"|shaders/include/coop\w*\.glsl"
)


def changes(area: Area) -> Iterator[Change]:
    """Every change of an area, in the order of the files."""
    for path in area.files():
        file = str(path.relative_to(CHECKOUT))
        if SKIPPED.fullmatch(file):
            continue
        source = path.read_text()
        if path.suffix == ".py":
            found = python_sites.changes(file, source, area.wanted)
            # what no operator reaches is part of no kernel
            yield from (change for change in found if area.name != "emulated" or subjects(change, area))
        else:
            yield from glsl_sites.changes(file, source)


# --- which operators reach a function --------------------------------------------------------------------


def subjects(change: Change, area: Area) -> tuple[str, ...]:
    """The operators whose cases may show a change, those of the file itself first."""
    if area.name == "graph":
        return ()
    if area.name == "shaders":
        return tuple(
            op for op, shaders in _kernels().items() if any(_includes(s, change.file) for s in shaders)
        )
    if area.name == "native":
        return tuple(_native(change.file))
    stem = Path(change.file).stem
    if change.file == f"refsim/ops/{stem}.py":
        if change.scope not in _reached(stem):
            return ()
        own = [op for op, kernels in _kernels().items() if stem in kernels]
        return tuple(dict.fromkeys((*([stem] if stem in OPS else []), *own)))
    return tuple(op for op in OPS if change.scope in _reached(op))


@cache
def _kernels() -> dict[str, frozenset[str]]:
    """Operator -> the shaders that its cases dispatch."""
    found = {}
    for op, rule in rules.RULES.items():
        some = [rules.case(op, n) for n in {0, rule.count // 2, *rules.TELLING[op][:2]}]
        found[op] = frozenset(step.launch.shader for case in some for step in bind(case).call.dispatches())
    return found


@cache
def _includes(shader: str, file: str) -> bool:
    """Whether a shader is this file, or includes it."""
    waiting, seen = [CHECKOUT / "shaders" / f"{shader}.comp"], set()
    while waiting:
        path = waiting.pop()
        if path in seen or not path.is_file():
            continue
        seen.add(path)
        for name in re.findall(r'#include "([^"]+)"', path.read_text()):
            waiting += [path.parent / name, CHECKOUT / "shaders" / name]
    return CHECKOUT / file in {path.resolve() for path in seen}


@cache
def _functions() -> dict[str, frozenset[str]]:
    """Function of refsim/core or refsim/ops/base -> the names that it uses; of one name all together."""
    found: dict[str, set[str]] = {}
    for folder in ("refsim/core", "refsim/ops/base"):
        for path in sorted((CHECKOUT / folder).glob("*.py")):
            if SKIPPED.fullmatch(str(path.relative_to(CHECKOUT))):
                continue
            for name, used in _defined(ast.parse(path.read_text())).items():
                found.setdefault(name, set()).update(used)
    return {name: frozenset(used) for name, used in found.items()}


def _used(node: ast.AST) -> Iterator[str]:
    for child in ast.walk(node):
        if isinstance(child, ast.Name):
            yield child.id
        elif isinstance(child, ast.Attribute):
            yield child.attr


@cache
def _reached(op: str) -> frozenset[str]:
    """Names of functions that an operator's module may reach: too many rather than too few."""
    found: set[str] = set()
    for name in _kernels()[op] | {op}:
        path = CHECKOUT / "refsim/ops" / f"{name}.py"
        if not path.is_file():
            continue
        tree = ast.parse(path.read_text())
        own = _defined(tree)
        waiting, seen = set(_executed(tree)), set[str]()
        while waiting:
            used = waiting.pop()
            if used not in seen:
                seen.add(used)
                waiting |= (own.get(used, set()) | set(_functions().get(used, ()))) - seen
        found |= seen
    return frozenset(found)


#: What an operator is run by: not its meaning, what it says of upstream's defects, nor what makes its cases.
_EXECUTED = (
    "kernel", "launch", "expand", "prepack", "padding", "affine", "input_layout", "push", "spec", "variants",
)  # fmt: skip


def _executed(tree: ast.Module) -> Iterator[str]:
    """The names that an operator's file gives for what runs it: to `OpSpec`, or to what makes one for its family."""
    for node in tree.body:
        if not isinstance(node, ast.Assign) or ast.unparse(node.targets[0]) != "OP":
            continue
        if isinstance(node.value, ast.Call):
            yield from _used(node.value.func)
            for keyword in node.value.keywords:
                if keyword.arg in _EXECUTED:
                    yield from _used(keyword.value)


def _defined(tree: ast.Module) -> dict[str, set[str]]:
    """Function, class or table of a file -> the names that it uses; of one name all together."""
    found: dict[str, set[str]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.setdefault(node.name, set()).update(_used(node))
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                for name in _used(target):
                    found.setdefault(name, set()).update(_used(node))
    return found


# --- which operators take native kernels of a file -------------------------------------------------------

#: Part of a path below refsim/exec/cpu -> which operators may come there: by families, as routes.py chooses.
_ROUTES: tuple[tuple[str, Callable[[str], bool]], ...] = (
    ("winograd/", lambda family: family in ("CONVOLUTION",)),
    ("amx/", lambda family: family in ("CONVOLUTION", "LINEAR", "FLOAT_LINEAR")),
    ("gemm/", lambda family: family in ("CONVOLUTION", "LINEAR", "FLOAT_LINEAR")),
    ("depthwise/", lambda family: family == "DEPTHWISE"),
    (
        "groups/",
        lambda family: family in ("GROUP_LINEAR", "ROW_RANGE", "WEIGHT_ONLY", "LOOKUP", "FLOAT_LINEAR"),
    ),
    ("quantize/", lambda family: family.startswith(("QUANTIZE", "DEQUANTIZE")) or family == "FLOAT_LINEAR"),
    ("elementwise/", lambda family: family in ("ELEMENTWISE", "SHUFFLE", "RELAYOUT")),
    ("relayout/", lambda family: family in ("RELAYOUT", "STAGE_IN", "STAGE_OUT", "QUANTIZE", "DEQUANTIZE")),
    ("pool/", lambda family: False),
    ("dot.py", lambda family: family in ("CONVOLUTION", "LINEAR", "FLOAT_LINEAR", "GROUP_LINEAR")),
    ("conv_problem.py", lambda family: family in ("CONVOLUTION", "LINEAR", "FLOAT_LINEAR", "DEPTHWISE")),
)


@cache
def _native(file: str) -> tuple[str, ...]:
    """Operators that may run a native file. Where no row names it, all may: the first that shows a change ends it."""
    part = file.removeprefix("refsim/exec/cpu/")
    chosen = next((takes for prefix, takes in _ROUTES if part.startswith(prefix)), lambda family: True)
    return tuple(name for name, op in OPS.items() if chosen(op.family.name))


#: Part of a path below refsim/exec/cpu -> native routes that run it, and that no processor may take by itself here.
_FORCED: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("amx/", ("amx_emulated",)),
    ("winograd/", ("winograd4", "winograd2")),
    ("gemm/", ("gemm", "gemm8", "gemv")),
    ("dot.py", ("gemm", "gemm8", "gemv")),
    ("elementwise/lut", ("lut",)),
    ("elementwise/fma", ("fma",)),
    ("elementwise/", ("lut", "fma", "linear", "via_nhwc")),
    ("relayout/repack", ("repack",)),
    ("relayout/transpose", ("transpose",)),
    ("relayout/", ("repack", "transpose")),
    ("quantize/", ("contiguous", "strided", "via_4c")),
)


def conditions(change: Change, area: Area) -> tuple[Condition, ...]:
    """The conditions under which some cases of a change run once more, first those on the routes that run its file."""
    part = change.file.removeprefix("refsim/exec/cpu/") if area.name == "native" else ""
    routes = next((routes for prefix, routes in _FORCED if part.startswith(prefix)), ())
    return (*(Condition("cpu", route=route) for route in routes), *area.also)
