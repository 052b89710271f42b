"""The file that says how kernels are called which are not ExecuTorch's: what it becomes, and what is wrong with it."""

from __future__ import annotations

import re
import shutil
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refsim.core.errors import FormatError, ParameterError, RefsimError
from refsim.core.rng import Rng
from refsim.formats import kernels
from refsim.formats.kernel_keys import KEYS
from refsim.ops.base.binding import bind
from refsim.ops.base.host import expression
from refsim.ops.base.host.order import ordered
from refsim.ops.base.host.row import Shader
from refsim.ops.base.host.weights import DEPTHWISE, MATRIX, WINDOW, add_offset
from refsim.ops.base.host.words import CallSite
from refsim.ops.base.module_call import Host, disagreements, dispatches, why_not
from refsim.ops.base.registry import OPS
from refsim.ops.base.spec import Call
from refsim.spirv.module import Module
from refsim.spirv.reflect import interface

ROOT = Path(__file__).parents[2]
RIGHT = ROOT / "tests" / "modules" / "own" / "right"
TEXT = (RIGHT / kernels.NAME).read_text()
POINTWISE, SUM = "q8ta_conv2d_pw", "q8ta_add"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copytree(RIGHT, tmp_path / "own")
    return tmp_path / "own"


#: 2 x 8 x 7 x 9 to 5 channels, relu, no bias
FIVE: dict[str, Any] = {"activation": "relu", "out_channels": 5, "bias": False}


def call_of(op: str, **changes: Any) -> Call:
    return bind(OPS[op].cases.example.changed(**changes)).call


def site(call: Call) -> CallSite:
    return CallSite(call, call, call.tensors, frozenset(), Shader("own"))


# --- rows ------------------------------------------------------------------------------------------------


def test_a_row_becomes_a_dispatch() -> None:
    folder, rows = kernels.rows_of(RIGHT)
    call = call_of(POINTWISE, **FIVE)
    declared = {"pointwise": interface(Module.parse((RIGHT / "pointwise.spv").read_bytes(), "pointwise"))}
    (step,) = dispatches(call, Host(available=declared, rows=rows))
    assert folder == str(RIGHT) and step.shader == "pointwise"
    push = np.frombuffer(step.push, "<i4")
    assert push[:13].tolist() == [9, 7, 2, 8, 5, *call.descs["x"].strides_whcn, *call.out.strides_whcn]
    assert push[13:18:2].view(np.float32)[0] == np.float32(0.02) and push[17] == 1
    assert step.global_size == (9, 14, 2) and step.local == (8, 4, 2) and step.grid == (2, 4, 1)
    assert [bind.what for bind in step.binds] == ["x", "weight", "weight_scales", "bias", "out"]
    weight = step.binds[1].words.view(np.int8).reshape(-1)[: 5 * 8].reshape(5, 8)  # type: ignore[union-attr]
    assert np.array_equal(weight, call.consts["weight"])
    assert not step.binds[3].words.any() and step.binds[3].count == 8  # type: ignore[union-attr]
    assert disagreements(step, declared["pointwise"]) == []


def test_a_block_of_plain_words() -> None:
    _, rows = kernels.rows_of(RIGHT)
    (step,) = dispatches(call_of(SUM), Host(rows={SUM: replace(rows[SUM], refuses=None)}))
    block = step.binds[0]
    assert block.storage == "uniform" and block.words is not None and block.count == 24
    assert block.words[:4].tolist() == [7, 3, 2, 2]
    assert block.words[16:24].view(np.float32)[[0, 2, 4]].tolist() == np.float32([0.02, 0.03, 1]).tolist()


def test_refsims_own_shader_is_launched_as_refsim_does(tmp_path: Path) -> None:
    shutil.copy(ROOT / "shaders" / "spirv" / f"{POINTWISE}.spv", tmp_path / "mine.spv")
    (tmp_path / kernels.NAME).write_text(f'[{POINTWISE}]\nmodule = "mine.spv"\nlaunch = "refsim"\n')
    _, rows = kernels.rows_of(tmp_path)
    call = call_of(POINTWISE, **FIVE)
    launch = call.dispatches()[0].launch
    (step,) = dispatches(call, Host(rows=rows))
    assert step.shader == "mine" and step.grid == launch.grid and step.local == launch.local
    assert list(step.spec_words.values()) == [*launch.local, *launch.tile, *launch.spec]
    push = np.frombuffer(step.push, "<u4")[: len(launch.push)]
    assert push.tolist() == [word & 0xFFFFFFFF for word in launch.push]
    assert [bind.what for bind in step.binds] == [*call.dispatches()[0].inputs, "out"]
    module = Module.parse((tmp_path / "mine.spv").read_bytes(), "mine")
    assert disagreements(step, interface(module)) == []


def test_calls_that_the_kernel_does_not_take() -> None:
    _, rows = kernels.rows_of(RIGHT)
    seen = set()
    for seed in range(60):
        for op in (POINTWISE, SUM):
            call = bind(OPS[op].sample(Rng(seed))).call
            reason = why_not(call, Host(rows=rows))
            legal = {name: rows[op].own.layouts.get(name, ()) for name in call.tensors}  # type: ignore[union-attr]
            fits = all(str(desc.layout) in legal[name] for name, desc in call.tensors.items())
            fits = fits and getattr(call.params, "groups", 1) == 1
            assert (reason is None) is fits
            found = re.search(r"\w+ is in|groups == 1", reason or "")
            seen.add(found[0] if found else reason)
    assert seen == {None, "groups == 1", "out is in", "a is in"} | (seen & {"b is in"})


def test_a_folder_without_the_file_has_no_rows(tmp_path: Path, folder: Path) -> None:
    assert kernels.rows_of(tmp_path) == (str(tmp_path), {})
    (folder / kernels.NAME).rename(folder / "other.toml")
    assert kernels.rows_of(folder)[1] == {}
    inside, rows = kernels.rows_of(folder / "other.toml")
    assert inside == str(folder) and set(rows) == {POINTWISE, SUM}


# --- what is wrong with a file -----------------------------------------------------------------------------

MISTAKES = {
    "operator": (
        "[q8ta_add]",
        "[q8ta_ad]",
        r"refsim.toml:17: q8ta_ad: no such operator; .*need .*; did you mean q8ta_add\?",
    ),
    "key": (
        "takes =",
        "take =",
        r"refsim.toml:6: q8ta_conv2d_pw.take: unknown key; got 'take', need .*; did you mean takes\?",
    ),
    "missing key": ('module = "sum.spv"', "", "q8ta_add: a key is missing; .*need module"),
    "file": ("sum.spv", "sums.spv", "q8ta_add.module: no such file; got 'sums.spv'"),
    "elsewhere": ("sum.spv", "../sum.spv", "not a module's file name"),
    "push word": (
        '"in_zp",',
        '"in_zpp",',
        r":9: q8ta_conv2d_pw.push: 'in_zpp': unknown word; .*did you mean in_zp\?",
    ),
    "stride": ('"a.stride_w"', '"a.stride"', r"unknown word; got a.stride, .*mean a.stride_\w\?"),
    "tensor": ('"a.stride_w"', '"aa.stride_w"', r"unknown word; got aa.stride_w, .*mean a.stride_w\?"),
    "binding": (
        '["x", "weight",',
        '["x", "weights",',
        r"q8ta_conv2d_pw.bindings: .*unknown binding; .*did you mean weight\?",
    ),
    "output": ('"bias", "out"]', '"bias"]', "the output; got bound 0 times, need out once"),
    "packing": ("o i/4 i%4", "o i/4 i%8", r"axis i; got i%8 i/4, need i, or i/4 and i%4"),
    "axis": ("o i/4 i%4", "o k", "unknown axis; got k"),
    "constant": (
        "{ weight = ",
        "{ wight = ",
        r"nothing that is packed; got 'wight', need weight.*; did you mean weight\?",
    ),
    "layout": ('x = ["4W4C"]', 'x = ["4W5C"]', "memory layout: unknown; got '4W5C'"),
    "other layout": ('x = ["4W4C"]', 'x = ["4C"]', "the operator never has it for x; got '4C', need 4W4C"),
    "comparison": ("groups == 1", "groups", "no comparison; need one such as n == 1"),
    "quotient": (
        '"x.c", "c"',
        '"x.c / 4", "c"',
        r"a quotient of whole numbers; got /, need // or ceil\(a / b\)",
    ),
    "call": ('"x.c", "c"', '"open(1)", "c"', r"not allowed in a word; got open\(1\)"),
    "attribute": ('"x.c", "c"', '"x.__class__", "c"', "unknown word; got x.__class__"),
    "three": ('["w", "n * h", "ceil(c / 4)"]', '["w", "n * h"]', "q8ta_conv2d_pw.global: wrong value"),
    "both": ("global = [", 'groups = ["1", "1", "1"]\nglobal = [', "how much is dispatched; got both"),
    "rule": ('["w", "n * h", "ceil(c / 4)"]', '"block:out"', "q8ta_conv2d_pw.global: .*unknown global size"),
    "no toml": ("[q8ta_add]", "[q8ta_add", "not TOML; got .*line 17"),
    "kind": ('module = "sum.spv"', "module = 3", "q8ta_add.module: wrong value; got 3, need a file name"),
    "rounding": ('module = "sum.spv"', 'module = "sum.spv"\nrounding = "fma"', "need one of `canonical`"),
    "launch": (
        'module = "sum.spv"',
        'module = "sum.spv"\nlaunch = "refsim"',
        "q8ta_add.bindings: said by launch",
    ),
    "image": ('module = "sum.spv"', 'module = "sum.spv"\nimages = ["c"]', "no such binding; got 'c'"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_named_with_its_line(folder: Path, name: str) -> None:
    right, wrong, message = MISTAKES[name]
    assert right in TEXT
    (folder / kernels.NAME).write_text(TEXT.replace(right, wrong, 1))
    with pytest.raises(FormatError, match=message):
        kernels.rows_of(folder)


@settings(max_examples=200)
@given(data=st.data())
def test_a_damaged_file_is_refused_or_read(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.getbasetemp() / "damaged"
    if not folder.exists():
        shutil.copytree(RIGHT, folder)
    raw = bytearray(TEXT.encode())
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(raw) - 1))
        piece = data.draw(
            st.sampled_from([b"", b"[", b"]", b'"', b"= 1", b"{}", b"\xff", b"\0", b"9" * 40, b"("])
        )
        raw[at : at + data.draw(st.integers(0, 3))] = piece
    (folder / kernels.NAME).write_bytes(raw)
    try:
        kernels.rows_of(folder)
    except RefsimError as error:
        assert kernels.NAME in str(error)


def test_what_is_too_large_or_nested_is_refused(folder: Path) -> None:
    file = folder / kernels.NAME
    for text in ("#" * (kernels.MAX_BYTES + 1), "x = " + "[" * 100_000, "", f"{TEXT}\n{'[a' + '.a' * 5000}]"):
        file.write_text(text)
        with pytest.raises(RefsimError):
            kernels.rows_of(folder)
    file.unlink()
    file.mkdir()
    with pytest.raises(FormatError, match="got a folder"):
        kernels.rows_of(folder)


# --- a module that declares something else -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [
        ('"out_zp", "activation"', '"out_zp"', "declares 72 push bytes; the host pushes 68"),
        ('"out_zp", "activation"', '"out_zp", "activation", 0', "declares 72 push bytes, and gets 76"),
        ('"weight_scales", "bias", "out"', '"bias", "out"', "declares binding 4; the host binds 0 to 3"),
        (', "weight",', ', { uniform = ["w"] },', "is a storage buffer; the host binds a uniform block"),
    ],
)
def test_both_sides_of_a_disagreement_are_shown(folder: Path, right: str, wrong: str, message: str) -> None:
    text = TEXT.replace('weights = { weight = "o i/4 i%4" }\n', "")
    assert right in text
    (folder / kernels.NAME).write_text(text.replace(right, wrong, 1))
    _, rows = kernels.rows_of(folder)
    declared = interface(Module.parse((RIGHT / "pointwise.spv").read_bytes(), "pointwise"))
    (step,) = dispatches(call_of(POINTWISE, **FIVE), Host(rows=rows))
    assert message in "; ".join(disagreements(step, declared))


# --- words -----------------------------------------------------------------------------------------------


def test_words_of_a_call() -> None:
    call = call_of("q8ta_conv2d_dw")
    at, p = site(call), call.params
    w, h, c, n = call.out.sizes_whcn
    values = {
        "w": w, "out.h": h, "ceil(c / 4) * 4": 4 * -(-c // 4), "n - 1": n - 1, "-3": 2**32 - 3, "min(w, h, 2)": 2,
        "kernel_size.h": p.kernel_size[0], "dilation.w": p.dilation[1], "x.numel": call.descs["x"].numel,
        "layout:x": call.descs["x"].hashed, "local.y": 7, "(w + 3) // 4 % 2": (w + 3) // 4 % 2, "0x10": 16,
        "apply_bias": int(call.consts["bias"] is not None),
    }  # fmt: skip
    for word, value in values.items():
        assert expression.word(at, word, (5, 7, 9)) == value % 2**32, word
    product = np.float32(p.in_scale) * (np.float32(1) / np.float32(p.out_scale))
    assert expression.word(at, "in_scale * inv_out_scale") == int(product.view(np.uint32))
    assert expression.holds(at, "1 <= n < 100") and not expression.holds(at, "n == 77")


@pytest.mark.parametrize(
    "word",
    ["w // 0", "ceil(w / 0)", "2.5 % 2", "1 << 40", "10000000000 * 1", "w if h else c", "[w]", "'w'", "w.real",
     "(" * 150, "w\0", "f(", "x", "in_scale // 2", "__import__('os')", "__class__", "min()",
     "1" * 300, "lambda: 1", "ceil(w)"],
)  # fmt: skip
def test_what_is_no_word(word: str) -> None:
    with pytest.raises(ParameterError):
        expression.word(site(call_of(SUM)), word)


@given(st.text("whcn.x()*/+-%, 0123456789minaxcel_\"'[]{}", max_size=60))
@settings(max_examples=300)
def test_any_text_is_a_word_or_refused(text: str) -> None:
    with suppress(ParameterError):
        assert 0 <= expression.word(site(call_of(SUM)), text) < 1 << 32


def test_a_comparison_with_one_sign_is_told_of_two() -> None:
    with pytest.raises(ParameterError, match="or a comparison such as"):
        expression.word(site(call_of(SUM)), "groups = 1")


def test_sizes_that_are_products_have_known_writers() -> None:
    w, h, c, n = range(4)
    products = {
        "w": [(w, 1)],
        "n * ceil(c / 4) * 2": [(n, 1), (c, 4)],
        "h*(n*w)": [(h, 1), (n, 1), (w, 1)],
        "1": [],
        "w + 1": None,
        "ceil(w / 2)": None,
        "ceil(x.c / 4)": None,
    }
    assert {text: expression.factors(text) for text in products} == products


# --- packings --------------------------------------------------------------------------------------------


@given(st.integers(1, 9), st.integers(1, 3), st.integers(1, 3), st.integers(1, 9), st.integers(0, 2**31))
@settings(max_examples=50)
def test_upstreams_packings_as_orders(o: int, h: int, w: int, i: int, seed: int) -> None:
    rng = Rng(seed)
    weight, sizes = rng.ints(-128, 127, (o, h * w * i)).astype(np.int8), (o, h, w, i)
    same = ordered("h i/4 | o/4 w o%4 i%4", WINDOW).texels(weight, sizes)
    assert np.array_equal(same, WINDOW.texels(weight, sizes))
    plain = ordered("o i h w", WINDOW).texels(weight, sizes).view(np.int8).reshape(-1)[: weight.size]
    assert np.array_equal(plain.reshape(o, i, h, w), weight.reshape(o, h, w, i).transpose(0, 3, 1, 2))
    raised = ordered("o i h w", WINDOW, offset=True).texels(weight, sizes)
    assert np.array_equal(raised, add_offset(ordered("o i h w", WINDOW).texels(weight, sizes)))
    matrix = weight[:, : 4 * (h * w * i // 4)]
    if matrix.size:
        assert np.array_equal(
            ordered("i/4 | o/4 o%4 i%4", MATRIX).texels(matrix, (matrix.shape[1], o)),
            MATRIX.texels(matrix, (matrix.shape[1], o)),
        )
    deep = rng.ints(-128, 127, (h, w, o)).astype(np.int8)
    assert np.array_equal(
        ordered("h w/4 | o/4 w%4 o%4", DEPTHWISE).texels(deep, (h, w, o)), DEPTHWISE.texels(deep, (h, w, o))
    )


def test_every_key_is_explained() -> None:
    page = (ROOT / "docs" / "own-kernels.md").read_text()
    for name in KEYS:
        assert re.search(rf"^\| `{name}` \|", page, re.M), name
