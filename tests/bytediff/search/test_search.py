"""Wrong kernels, written by hand and apart from the search: it names the line that they have otherwise."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from refsim.bytediff import Report, diff, search
from refsim.bytediff.search import run
from refsim.bytediff.search.bench import Bench, Out, ReadWords
from refsim.bytediff.search.schema import ROOT, schema_of
from refsim.bytediff.search.words import place_of
from refsim.core import lanes, qmath
from refsim.core.buffer import PackedBuffer
from refsim.core.errors import ParameterError
from refsim.core.rng import Rng
from refsim.ops import (
    linear_q4gsw,
    q8ta_add,
    q8ta_clone,
    q8ta_conv2d_dw,
    q8ta_conv2d_pw,
    q8ta_im2col,
    q8ta_linear,
    q8ta_relu,
)
from refsim.ops.base import epilogue
from refsim.ops.base.binding import BoundCase, bind
from refsim.ops.base.registry import OPS, kernel_of

pytestmark = pytest.mark.long_search

#: Class of the edit, operator, module and function of the edit, text there, text of the wrong kernel.
WRONG: tuple[tuple[str, str, Any, str, str, str], ...] = (
    ("edge of the input", "q8ta_conv2d_dw", q8ta_conv2d_dw, "kernel", "(ih < push[X + H])", "(ih <= push[X + H])"),
    ("stride or dilation", "q8ta_conv2d_dw", q8ta_conv2d_dw, "kernel", "j * push[DILATION_W]",
     "j * push[DILATION_H]"),
    ("edge of the input", "q8ta_conv2d_dw", q8ta_conv2d_dw, "kernel", "(iw < push[X + W])", "(iw < push[X + W] - 1)"),
    ("reduction too short", "q8ta_conv2d_pw", q8ta_conv2d_pw, "kernel", "range(push[IC4])", "range(push[IC4] - 1)"),
    ("reduction too short", "q8ta_linear", q8ta_linear, "kernel", "range(push[K4])", "range(push[K4] // 2 * 2)"),
    ("zero point not folded", "q8ta_conv2d_pw", epilogue, "int_real", "acc - np.int64(in_zp) * wsum", "acc"),
    ("border padded with 0", "q8ta_conv2d_im2col", q8ta_im2col, "kernel", "splat(push[IN_ZP])", "0"),
    ("channel constants misplaced", "q8ta_linear", epilogue, "out_word", "sums[oc + k]", "sums[oc + k + 1]"),
    ("lanes exchanged", "q8ta_linear", lanes, "dot4", "lane(a, 0) * lane(b, 0)", "lane(a, 1) * lane(b, 0)"),
    ("weights of other channels", "q8ta_linear", lanes, "add_dot4", "dot4(word, w0), acc[1]",
     "dot4(word, w1), acc[1]"),
    ("another tensor's quantization", "q8ta_add", q8ta_add, "_sum", "qb - b_zp", "qb - a_zp"),
    ("order of the epilogue", "q8ta_add", q8ta_add, "_sum", "f32(qb - b_zp) * b_scale",
     "f32(qb) * b_scale - f32(b_zp) * b_scale"),
    ("no clamp", "q8ta_add", qmath, "to_int8", "clamp(whole + zp, QMIN, QMAX)", "whole + zp"),
    ("no clamp", "q8ta_relu", qmath, "to_int8", "clamp(whole + zp, QMIN, QMAX)", "whole + zp"),
    ("no clamp", "q8ta_quantize", qmath, "to_int8", "clamp(whole + zp, QMIN, QMAX)", "whole + zp"),
    ("relu dropped or added", "q8ta_relu", q8ta_relu, "_relu", "np.float32(0.0))", "np.float32(-1e30))"),
    ("relu bound", "q8ta_relu", q8ta_relu, "_relu", "np.float32(0.0))", "-f32(in_zp) * in_scale)"),
    ("order of the epilogue", "q8ta_linear", epilogue, "_scaled", "mul_add(t, scale, bias, flags)",
     "(t + bias) * scale"),
    ("bias changed", "q8ta_linear", epilogue, "int_real", "weight_scale * in_scale, bias, flags)",
     "weight_scale * in_scale, bias * in_scale, flags)"),
    ("tie rule", "q8ta_quantize", qmath, "round_half", "return np.rint(y)", "return np.floor(y + np.float32(0.5))"),
    ("byte order", "q8ta_clone", q8ta_clone, "kernel", "lane(x_words[at // 4], at % 4)",
     "lane(x_words[at // 4], 3 - at % 4)"),
    ("scale of another group", "linear_q4gsw", linear_q4gsw, "kernel", "k4 // push[GROUP4]", "0"),
    ("sums of 16 bits", "q8ta_linear", epilogue, "out_word", "total, wsum, weight_scale = acc[k]",
     "total, wsum, weight_scale = min(max(acc[k], -32768), 32767)"),
    ("order of float sums", "linear_q4gsw", linear_q4gsw, "kernel", "lanes, columns, bits = spec[LANES]",
     "lanes, columns, bits = 1"),
)  # fmt: skip

#: Of a case, so that a test takes a second; so many cases are tried until one shows enough.
MOST_ELEMENTS, CASES, ENOUGH = 500, 60, 24


def wrong(bound: BoundCase, edited: Callable[[Any], Any]) -> PackedBuffer:
    """What the emulated kernels write if `edited` makes them again; as plain Python."""
    bench = Bench(bound.call, {key: buffer.words for key, buffer in bound.inputs.items()})
    held = dict(bench.words)
    found = PackedBuffer(bound.call.out)
    for step in bench.steps:
        out = Out()
        out.size = step.launch.out.words
        with np.errstate(all="ignore"):
            kernel = edited(kernel_of(step.launch.shader).run)
            kernel(step.launch.reached[::-1], step.spec, step.push, *(held[key] for key in step.inputs), out)
        words = np.zeros(out.size, np.int64)
        for at, value in out.items():
            words[at] = int(value) & 0xFFFFFFFF
        held[step.output] = ReadWords.of(words.astype(np.uint32).view(np.int32))
        found.words[:] = held[step.output][: found.words.size] if step is bench.steps[-1] else 0
    return found


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
                functions = {k: v for k, v in vars(space[key]).items() if inspect.isfunction(v)}
                inner = {k: again(v) for k, v in functions.items() if f"{key}.{k}(" in source}
                changed |= any(inner[k] is not functions[k] for k in inner)
                space[key] = SimpleNamespace(**{**vars(space[key]), **inner})
        if changed:
            source = source[source.index("def ") :]
            source = source.replace(right, edited) if here else source
            exec(compile("from __future__ import annotations\n" + source, "<wrong>", "exec"), space)
            made[function] = space[function.__name__]
        return made[function]

    return again(kernel.py_func)


@pytest.mark.parametrize(
    ("found", "op", "module", "name", "right", "edited"), WRONG, ids=[f"{row[1]}: {row[5]}" for row in WRONG]
)
def test_the_class_and_the_line_of_a_wrong_kernel_are_named_first(
    found: str, op: str, module: Any, name: str, right: str, edited: str
) -> None:
    kernel = cache(lambda right_kernel: _edited(right_kernel, module, name, right, edited))
    report = max(_reports(op, kernel), key=lambda report: (_counted(report), report.differing))
    report = diff(report.evidence.expected, report.evidence.actual, call=report.evidence.bound)
    first = report.causes[0]
    assert (first.name, first.exact) == (found, True), str(report)
    place = first.place
    if place is None:
        return
    function = getattr(module, name)
    lines, line = inspect.getsourcelines(getattr(function, "py_func", function))
    told = {(place.file, place.line)} | {_parsed(other) for other in place.others}
    file = f"{module.__name__.rpartition('.')[2]}.py"
    assert any(at.endswith(file) and line <= number < line + len(lines) for at, number in told), str(report)


def _counted(report: Report) -> int:
    """How many elements differ and how many values there are, each up to what is enough."""
    return min(report.differing, ENOUGH) + min(len(np.unique(report.evidence.got)), ENOUGH)


def _reports(op: str, kernel: Callable[[Any], Any]) -> Iterator[Report]:
    """What differs in cases of an operator, until a case shows enough."""
    for seed in range(CASES):
        bound = bind(OPS[op].sample(Rng(seed)))
        if 32 <= bound.call.out.numel <= MOST_ELEMENTS:
            report = diff(bound.call.expected(bound.inputs), wrong(bound, kernel), call=bound, explain=False)
            yield report
            if _counted(report) == 2 * ENOUGH:
                return


@pytest.mark.parametrize(
    ("variable", "places"), [("0", None), ("", 0)], ids=["the environment", "places of the kernel"]
)
def test_a_search_ends(variable: str, places: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    _, op, module, name, right, edited = next(row for row in WRONG if row[1] == "q8ta_relu")
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
        module = next(row[2] for row in WRONG if row[1] == op and right in row[4])
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
