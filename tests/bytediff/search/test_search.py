"""Wrong kernels, written by hand and apart from the search: it names the line that they have otherwise."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from refsim.bytediff import diff, search
from refsim.bytediff.search import run
from refsim.bytediff.search.bench import Bench
from refsim.bytediff.search.schema import ROOT, schema_of
from refsim.bytediff.search.words import place_of
from refsim.core import lanes, qmath
from refsim.core.buffer import PackedBuffer
from refsim.core.errors import ParameterError
from refsim.core.jit import ready
from refsim.core.rng import Rng
from refsim.ops import (
    linear_q4gsw,
    q8ta_add,
    q8ta_clone,
    q8ta_conv2d_dw,
    q8ta_conv2d_pw,
    q8ta_im2col,
    q8ta_relu,
)
from refsim.ops.base import epilogue
from refsim.ops.base.binding import BoundCase, bind
from refsim.ops.base.registry import OPS, kernel_of

pytestmark = pytest.mark.long_search

#: (operator, module and function of the edit, text there, text of the wrong kernel).
WRONG: tuple[tuple[str, Any, str, str, str], ...] = (
    ("q8ta_conv2d_dw", q8ta_conv2d_dw, "kernel", "(ih < push[X + H])", "(ih <= push[X + H])"),
    ("q8ta_conv2d_dw", q8ta_conv2d_dw, "kernel", "j * push[DILATION_W]", "j * push[DILATION_H]"),
    ("q8ta_conv2d_pw", q8ta_conv2d_pw, "kernel", "range(push[IC4])", "range(push[IC4] - 1)"),
    ("q8ta_conv2d_pw", epilogue, "int_real", "acc - np.int64(in_zp) * wsum", "acc"),
    ("q8ta_conv2d_im2col", q8ta_im2col, "kernel", "splat(push[IN_ZP])", "0"),
    ("q8ta_linear", epilogue, "out_word", "acc[k], sums[oc + k]", "acc[k], sums[oc + k + 1]"),
    ("q8ta_linear", lanes, "add_dot4", "dot4(word, w0), acc[1]", "dot4(word, w1), acc[1]"),
    ("q8ta_add", q8ta_add, "_sum", "qb - b_zp", "qb - a_zp"),
    ("q8ta_relu", q8ta_relu, "_relu", "np.float32(0.0))", "np.float32(-1e30))"),
    ("q8ta_quantize", qmath, "round_half", "return np.rint(y)", "return np.floor(y + np.float32(0.5))"),
    ("q8ta_clone", q8ta_clone, "kernel", "lane(x_words[at // 4], at % 4)", "lane(x_words[at // 4], 3 - at % 4)"),
    ("linear_q4gsw", linear_q4gsw, "kernel", "k4 // push[GROUP4]", "k4 // push[GROUP4] + 1"),
)  # fmt: skip

#: Of a case, so that a test takes a second.
MOST_ELEMENTS = 500


def wrong(bound: BoundCase, edited: Callable[[Any], Any]) -> PackedBuffer:
    """What the emulated kernels write if `edited` makes them again; compiled by Numba, as always."""
    bench = Bench(bound.call, {key: buffer.words for key, buffer in bound.inputs.items()})
    buffers = dict(bench.arrays)
    for step in bench.steps:
        out = PackedBuffer(step.launch.out)
        x, y, z = step.launch.reached
        spec, push = np.array(step.spec, np.int64), np.array(step.push, np.int32)
        inputs = [np.append(buffers[key], np.zeros(1 << 12, np.int32)) for key in step.inputs]
        edited(kernel_of(step.launch.shader).run)((z, y, x), spec, push, *inputs, out.words)
        buffers[step.output] = out.words
    return out


def _edited(kernel: Any, module: Any, name: str, right: str, edited: str) -> Any:
    """The kernel, and every function of its call tree that leads to the edited one, made again from their source."""
    made: dict[Any, Any] = {}

    def again(function: Any) -> Any:
        if function in made:
            return made[function]
        made[function] = function
        source = textwrap.dedent(inspect.getsource(function))
        here = function.__name__ == name and function.__module__ == module.__name__
        assert not here or source.count(right) == 1, source
        space = dict(function.__globals__)
        names = {node.id for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Name)}
        changed = here
        for key in names & space.keys():
            if inspect.isfunction(space[key]) and space[key].__module__.startswith("refsim."):
                own = again(space[key])
                changed, space[key] = changed or own is not space[key], own
            elif inspect.ismodule(space[key]) and space[key].__name__.startswith("refsim."):
                inner = {
                    k: again(v)
                    for k, v in vars(space[key]).items()
                    if inspect.isfunction(v) and f"{key}.{k}(" in source
                }
                if any(v is not getattr(space[key], k) for k, v in inner.items()):
                    changed = True
                    for k, v in inner.items():
                        source = source.replace(f"{key}.{k}(", f"{key}_{k}(")
                        space[f"{key}_{k}"] = v
        if changed:
            body = (
                source[source.index("def ") :].replace(right, edited)
                if here
                else source[source.index("def ") :]
            )
            exec(compile("from __future__ import annotations\n" + body, "<wrong>", "exec"), space)
            made[function] = ready().njit(space[function.__name__], error_model="numpy")
        return made[function]

    found = again(kernel.py_func)
    return kernel if found is kernel.py_func else found


@pytest.mark.parametrize(
    ("op", "module", "name", "right", "edited"), WRONG, ids=[f"{row[0]}: {row[4]}" for row in WRONG]
)
def test_the_line_of_a_wrong_kernel_is_named(
    op: str, module: Any, name: str, right: str, edited: str
) -> None:
    kernel = cache(lambda right_kernel: _edited(right_kernel, module, name, right, edited))
    for seed in range(40):
        bound = bind(OPS[op].sample(Rng(seed)))
        if not 32 <= bound.call.out.numel <= MOST_ELEMENTS:
            continue
        report = diff(bound.call.expected(bound.inputs), wrong(bound, kernel), call=bound)
        if report.differing > 24:
            break
    assert report.differing > 24
    place = report.causes[0].place
    assert place is not None and report.causes[0].exact, str(report)
    function = getattr(module, name)
    lines, first = inspect.getsourcelines(getattr(function, "py_func", function))
    held = {line for line, text in enumerate(lines, first) if right.removeprefix("return ")[:8] in text}
    told = {(place.file, place.line)} | {_parsed(other) for other in place.others}
    file = f"{module.__name__.rpartition('.')[2]}.py"
    assert any(at.endswith(file) and line in held for at, line in told), str(report)


@pytest.mark.parametrize(
    ("variable", "places"), [("0", None), ("", 0)], ids=["the environment", "places of the kernel"]
)
def test_a_search_ends(variable: str, places: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    op, module, name, right, edited = next(row for row in WRONG if row[0] == "q8ta_relu")
    bound = bind(OPS[op].sample(Rng(3)))
    actual = wrong(bound, cache(lambda kernel: _edited(kernel, module, name, right, edited)))
    expected = bound.call.expected(bound.inputs)
    assert any(cause.place for cause in diff(expected, actual, call=bound).causes)
    monkeypatch.setenv(search.VARIABLE, variable)
    if places is not None:
        monkeypatch.setattr(run, "PLACES_PER_SECOND", places)
    assert not any(cause.place for cause in diff(expected, actual, call=bound).causes)


SHADER_LINES = {
    ("q8ta_conv2d_dw", "(ih < push[X + H])"): ("include/conv.glsl", "uint(h) < uint(push[X + H])"),
    ("q8ta_conv2d_dw", "j * push[DILATION_W]"): ("q8ta_conv2d_dw.comp", "j * push[DILATION_W]"),
    ("q8ta_conv2d_im2col", "splat(push[IN_ZP])"): ("q8ta_im2col.comp", ": splat(push[IN_ZP])"),
}


def test_the_shader_s_line_is_told_where_one_line_alone_reads_the_same_words() -> None:
    told = {}
    for op in ("q8ta_conv2d_dw", "q8ta_im2col"):
        for edit in schema_of(op).edits:
            place = place_of(edit)
            if place.shader:
                told[op, place.file, place.line] = place.shader
    shaders = ROOT / "shaders"
    for at in told.values():
        file, _, line = at.rpartition(":")
        assert (ROOT / file).is_relative_to(shaders) and (ROOT / file).read_text().splitlines()[int(line) - 1]
    for (op, right), (file, text) in SHADER_LINES.items():
        module = next(row[1] for row in WRONG if row[0] == op and right in row[3])
        source = Path(inspect.getfile(module))
        (line,) = (n for n, row in enumerate(source.read_text().splitlines(), 1) if right in row)
        kernel = source.stem
        found_file, _, found_line = told[kernel, str(source.relative_to(ROOT)), line].rpartition(":")
        assert found_file == f"shaders/{file}"
        assert text in (shaders / file).read_text().splitlines()[int(found_line) - 1]


def test_no_time_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for text in ("soon", "-1", "nan"):
        monkeypatch.setenv(search.VARIABLE, text)
        with pytest.raises(ParameterError, match="REFSIM_SEARCH: is no time"):
            search.allowed()


def _parsed(other: str) -> tuple[str, int]:
    file, _, line = other.rpartition("(")[2].rstrip(")").rpartition(":")
    return file, int(line)
