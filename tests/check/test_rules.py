"""Each rule on a small file that shows it, and on the file's sound twin."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from check.broken import BROKEN, Broken, embedding, q4gsw
from check.small_files import (
    BUFFER,
    FLAT,
    INT8_4H4W,
    INT8_4W4C,
    TEXTURE,
    C,
    Graph,
    T,
    W,
    call,
    const,
    float_conv,
    outside,
    program,
)

from refsim.check.finding import Finding, Level
from refsim.check.rules import refusals, rules, scalars
from refsim.check.rules.requirements import breaks
from refsim.check.run import check_bytes, summary
from refsim.check.runtime import releases, runtime
from refsim.check.subject import blob_method
from refsim.check.words import WORDS
from refsim.core.errors import FormatError, ParameterError
from refsim.formats.pte import schema as pte
from refsim.formats.vkgraph.read import read_blob

IMAGE = T((1, 8, 6, 6))
INDICES = T((2, 5), "int32", layout=W)
INT8 = T((1, 8, 6, 6), "int8", BUFFER, INT8_4W4C)
RELU, CLONE, ADD = "aten.relu.default", "aten.clone.default", "aten.add.Tensor"
QUANTIZE, DEQUANTIZE = (
    f"quantized_decomposed.{name}_per_tensor.default" for name in ("quantize", "dequantize")
)
POINTWISE = "q8ta_conv2d_pw"
TO_DIM_ORDER = "dim_order_ops._to_dim_order_copy.default"


def like(tensor: T, **changes: object) -> T:
    return tensor.but(**changes)


def relu(x: T = IMAGE, out: T | None = None) -> Graph:
    return Graph().call(RELU, x, like(x) if out is None else out)


def chain(*objects: int, x: T = IMAGE, keep: bool = False) -> Graph:
    """Relu by relu through these memory objects; ``keep``: the last operator adds the first value."""
    graph, values = Graph(), [like(x, obj=number) for number in objects]
    for source, target in pairwise(values[:-1]):
        graph.call(RELU, source, target)
    return graph.call(ADD, values[-2], values[0] if keep else like(values[-2], obj=-1), 1, values[-1])


def alias() -> Graph:
    """A packed value, and all its words under another name, read behind it."""
    graph, x, packed = Graph(), IMAGE, like(INT8, obj=3)
    words = T((96,), "int32", BUFFER, W, obj=3)
    graph.call("aten.full.default", [128], 0, None, None, None, None, words)
    graph.call(QUANTIZE, x, 0.1, 0, -128, 127, None, packed)
    graph.call(CLONE, words, None, like(words, obj=-1))
    return graph.call(DEQUANTIZE, packed, 0.1, 0, -128, 127, None, None, like(x))


def prepacked(obj: int) -> Graph:
    """A prepacked constant, and a tensor that is in memory object 3."""
    graph, packed = Graph(), like(INT8, obj=obj)
    graph.call("et_vk.prepack.default", const(1, 8, 6, 6, dtype="int8"), packed)
    return graph.call(CLONE, T((96,), "int32", BUFFER, W, obj=3), None, T((96,), "int32", BUFFER, W))


def unordered() -> Graph:
    first, second, third = IMAGE, like(IMAGE), like(IMAGE)
    graph = Graph().call(RELU, second, third).call(RELU, first, second)
    graph.inputs = [graph.tensor(first)]
    return graph


def with_border(graph: Graph, inputs: list[T] | None = None, outputs: list[T] | None = None) -> Graph:
    graph.inputs = None if inputs is None else [graph.tensor(t) for t in inputs]
    graph.outputs = None if outputs is None else [graph.tensor(t) for t in outputs]
    return graph


def constant_output() -> Graph:
    out, constant = like(IMAGE), const(4)
    return with_border(relu(IMAGE, out), outputs=[out, constant])


def passing(graph: Graph, at: int, **changes: object) -> bytes:
    """A program whose tensor number ``at`` at the delegate's border is another."""
    tensors = [outside(graph.values[i]) for side in graph.border() for i in side]
    if "sizes" in changes:
        changes["dim_order"] = tuple(range(len(changes["sizes"])))  # type: ignore[arg-type]
    tensors[at] = replace(tensors[at], **changes)  # type: ignore[arg-type]
    return program(graph, passed=tensors)


def keyed() -> Graph:
    weight = T((8, 64), constant=True, key="k")
    return Graph().call("aten.linear.default", T((6, 64), layout=W), weight, None, T((6, 8), layout=W))


def broadcast(shape: tuple[int, ...], alpha: float = 1.0) -> bytes:
    other = like(INT8, dims=shape)
    return call("et_vk.q8ta_add.default", INT8, other, 0.1, 0, 0.1, 0, 0.1, 0, alpha, like(INT8))


def cast(given: str, wanted: str, storage: int = BUFFER, name: str = "aten._to_copy.default") -> bytes:
    x = T((6, 64), given, storage, W)
    return call(name, x, *[None] * 6, like(x, dtype=wanted))


def linear(n: int, k: int, weight: T | None = None, layout: int = INT8_4H4W) -> bytes:
    x, out = T((6, k), "int8", BUFFER, layout), T((6, n), "int8", BUFFER, layout)
    weight = const(n, k, dtype="int8") if weight is None else weight
    sums, scales = const(n, dtype="int32"), const(n)
    return call("et_vk.q8ta_linear.default", x, 0.1, 0, weight, sums, scales, 0.1, 0, None, "none", out)


def float_head(*rows: int) -> bytes:
    x, out = T((*rows, 64), layout=W), T((*rows, 8), layout=W)
    sums, scales = const(8, dtype="int32"), const(8)
    return call(
        "et_vk.linear_q8ta_q8csw.default", x, 0.1, 0, const(8, 64, dtype="int8"), sums, scales, None, out
    )


def conv(
    batch: int = 1, kernel: int = 1, channels: int = 8, groups: int = 1, name: str = "q8ta_conv2d"
) -> bytes:
    x = T((batch, channels, 6, 6), "int8", BUFFER, INT8_4W4C)
    weight = const(8, kernel * kernel * channels // groups, dtype="int8")
    pairs = ([1, 1], [kernel // 2] * 2, [1, 1])
    sums, scales = const(8, dtype="int32"), const(8)
    return call(
        f"et_vk.{name}.default", x, 0.1, 0, weight, sums, scales, 0.1, 0, None, [kernel] * 2, *pairs, groups, "none",
        like(x, dims=(batch, 8, 6, 6)),
    )  # fmt: skip


def dynamic(graph: Graph) -> bytes:
    return passing(graph, 0, shape_dynamism=1)


def _file(name: str) -> bytes:
    return (Path(__file__).parents[1] / "data" / "dynamic" / f"{name}.pte").read_bytes()


#: Rule, a file that shows it, its sound twin (None where there is no such thing).
SOUND, SOUND_PROGRAM = relu().blob(), program(relu())
EXAMPLES: tuple[tuple[str, bytes, bytes | None], ...] = (
    ("missing-operator", call("aten.erf.default", IMAGE, like(IMAGE)), SOUND),
    ("claimed-operator", call("aten.logical_not.default", IMAGE, like(IMAGE)), SOUND),
    ("missing-kernel", program(kernels=["aten::svd.U"]), program(kernels=["aten::mean.out"])),
    (
        "kernel-library",
        program(kernels=["quantized_decomposed::embedding_4bit.dtype_out"]),
        program(kernels=["aten::embedding.out"]),
    ),
    ("kernel-library", program(kernels=["aten::linear.out"]), program(kernels=["aten::addmm.out"])),
    ("other-backend", program(relu(), backend="XnnpackBackend"), SOUND_PROGRAM),
    (
        "missing-shader",
        call(CLONE, like(INT8, layout=INT8_4H4W), None, like(INT8, storage=TEXTURE, layout=W)),
        call(CLONE, IMAGE, None, like(IMAGE, storage=BUFFER, layout=W)),
    ),
    ("missing-shader", relu(like(IMAGE, dtype="int32")).blob(), relu(like(IMAGE, dtype="float16")).blob()),
    (
        "missing-shader",
        call("aten.mean.dim", like(IMAGE, dtype="int32"), [2, 3], True, None, T((1, 8, 1, 1), "int32")),
        call("aten.mean.dim", IMAGE, [2, 3], True, None, T((1, 8, 1, 1))),
    ),
    # float to bool, in a buffer, in a texture, and by the operator that knows the order of dims
    ("missing-shader", cast("float32", "bool"), cast("float32", "int32")),
    ("missing-shader", cast("int32", "bool", TEXTURE), cast("bool", "int32", TEXTURE)),
    (
        "missing-shader",
        cast("float16", "bool", name=TO_DIM_ORDER),
        cast("float16", "float32", name=TO_DIM_ORDER),
    ),
    ("missing-shader", cast("int8", "float32"), cast("bool", "bool", TEXTURE)),
    ("missing-shader", cast("float64", "float32"), cast("float32", "float16")),
    ("packed-border", call(QUANTIZE, IMAGE, 0.1, 0, -128, 127, None, INT8), SOUND),
    ("packed-border", call(DEQUANTIZE, INT8, 0.1, 0, -128, 127, None, None, IMAGE), SOUND),
    ("border-arguments", program(relu(), drop=1), SOUND_PROGRAM),
    ("border-dtype", passing(relu(), 0, scalar_type=1), passing(relu(), 0, scalar_type=7)),
    ("border-dtype", passing(relu(), 1, scalar_type=3), passing(relu(), 1, scalar_type=5)),
    ("border-shader", relu(like(IMAGE, staged="int32")).blob(), relu(like(IMAGE, staged="float32")).blob()),
    (
        "border-shader",
        relu(like(IMAGE, storage=BUFFER, dtype="float16", staged="int32")).blob(),
        relu(like(IMAGE, storage=BUFFER, dtype="float16", staged="float32")).blob(),
    ),
    ("input-size", passing(relu(), 0, sizes=(1, 8, 6)), passing(relu(), 0, sizes=(1, 8, 5, 6))),
    ("input-size", passing(relu(), 0, sizes=(1, 8, 7, 6)), SOUND_PROGRAM),
    ("output-size", passing(relu(), 1, sizes=(1, 8, 6, 5)), SOUND_PROGRAM),
    ("constant-input", with_border(relu(), [IMAGE, const(4)]).blob(), SOUND),
    ("constant-output", constant_output().blob(), SOUND),
    ("memory-shared", chain(0, 1, 0, 2, keep=True).blob(), chain(0, 1, 2, 1, keep=True).blob()),
    ("memory-shared", chain(0, 1, 1, 0).blob(), chain(0, 1, 0, 1).blob()),
    ("memory-alias", alias().blob(), SOUND),
    ("memory-prepacked", prepacked(3).blob(), prepacked(-1).blob()),
    ("memory-object", relu(IMAGE, like(IMAGE, obj=2**30)).blob(), relu(IMAGE, like(IMAGE, obj=1)).blob()),
    ("unwritten-value", unordered().blob(), SOUND),
    ("unwritten-value", with_border(relu(), [IMAGE], [like(IMAGE)]).blob(), SOUND),
    ("constant-absent", program(keyed()), program(keyed(), data={"k": bytes(2048)})),
    ("constant-absent", keyed().blob(), None),
    ("constant-short", program(keyed(), data={"k": bytes(2047)}), program(keyed(), data={"k": bytes(2048)})),
    ("constant-segment", program(relu(), segment=False), SOUND_PROGRAM),
    ("tensor-dtype", relu(like(IMAGE, dtype="unset")).blob(), SOUND),
    ("tensor-layout", relu(like(IMAGE, layout=7)).blob(), SOUND),
    ("packed-dtype", relu(like(IMAGE, layout=INT8_4W4C)).blob(), SOUND),
    ("packed-texture", relu(like(INT8, storage=TEXTURE)).blob(), relu(INT8).blob()),
    ("texture-rank", relu(T((1, 2, 3, 4, 5))).blob(), relu(T((1, 2, 3, 4, 5), storage=BUFFER)).blob()),
    ("texture-extent", relu(T((1, 4, 2, 16385))).blob(), relu(T((1, 4, 2, 16384))).blob()),
    ("texture-extent", relu(T((1, 4 * 2049, 2, 2))).blob(), relu(T((1, 4 * 2048, 2, 2))).blob()),
    ("texture-extent", relu(T((513, 16, 2, 2))).blob(), relu(T((512, 16, 2, 2))).blob()),
    ("texture-device", relu(T((1, 4, 2, 2049))).blob(), relu(T((1, 4, 2, 2049), layout=W)).blob()),
    ("weight-texture", linear(8, 65540), linear(8, 65536)),
    ("weight-texture", linear(65537, 4), linear(65536, 4)),
    ("weight-texture", conv(channels=65540), conv(channels=65536)),
    ("weight-texture", conv(kernel=3, channels=21848), conv(kernel=3, channels=21844)),
    (
        "fixed-operator",
        dynamic(Graph().call("et_vk.grid_priors.default", IMAGE, 8, 0.5, T((30, 2)))),
        dynamic(Graph().call("aten.flip.default", IMAGE, [2], like(IMAGE))),
    ),
    ("unresized-output", _file("clone_branch"), _file("fcn_add")),
    ("unresized-output", _file("batch_conv"), _file("im2col")),
    ("resize-stops", _file("perm_neg"), _file("arange_pos")),
    ("bound-by-elements", _file("fcn_add"), _file("tok_emb")),
    ("unchecked-dim", _file("lin_rows"), _file("tok_emb")),
    ("dynamic-input", dynamic(relu()), SOUND_PROGRAM),
    ("operator-layout", linear(8, 16, layout=INT8_4W4C), linear(8, 16)),
    ("operator-constant", linear(8, 16, weight=T((8, 16), "int8")), linear(8, 16)),
    ("known-defect", broadcast((1, 8, 6, 1)), broadcast((1, 8, 6, 6))),
    ("known-defect", broadcast((1, 8, 6, 6), alpha=0.5), broadcast((1, 8, 6, 6))),
    ("known-defect", conv(batch=2), conv()),
    ("known-defect", conv(groups=2, name=POINTWISE), conv(name=POINTWISE)),
    ("known-defect", conv(batch=2, kernel=3, groups=2), conv(kernel=3, groups=2)),
    ("known-defect", float_head(2, 3), float_head(1, 6)),
    # float convolutions in groups; aten/test_mixed_groups.py has all that are wrong
    ("known-defect", float_conv((8, 4, 1, 1)), float_conv((8, 8, 1, 1), groups=1)),
    (
        "known-defect",
        float_conv((8, 4, 3, 3), transposed=True),
        float_conv((8, 8, 3, 3), groups=1, transposed=True),
    ),
    (
        "known-defect",
        call("et_vk.linear_q4gsw.default", *q4gsw(T((2, 6, 64), layout=W), 8, 64)),
        call("et_vk.linear_q4gsw.default", *q4gsw(T((6, 64), layout=W), 8, 64)),
    ),
    (
        "known-defect",
        call("et_vk.embedding_q4gsw.default", *embedding(INDICES)),
        call("et_vk.embedding_q4gsw.default", *embedding(like(INDICES, storage=BUFFER))),
    ),
)


def found(rule: str, data: bytes) -> list[Finding]:
    return [finding for finding in check_bytes(data, "small.pte") if finding.rule == rule]


@pytest.mark.parametrize(("rule", "bad", "good"), EXAMPLES, ids=[name for name, *_ in EXAMPLES])
def test_a_rule_finds_what_it_is_for(rule: str, bad: bytes, good: bytes | None) -> None:
    findings = found(rule, bad)
    assert findings
    for finding in findings:
        assert all(text and not set("{}") & set(text) for text in (finding.what, finding.why, finding.fix))
    if good is not None:
        assert not found(rule, good)


def test_every_rule_has_an_example() -> None:
    shown = {name for name, *_ in EXAMPLES} | {row.rule for row in BROKEN}
    shown |= {rule.name for rule in (*refusals.RULES, *scalars.RULES)}  # the tests of webgpu
    shown |= {row["rule"] for row in runtime("webgpu").requirements}
    assert {rule.name for release in releases() for rule in rules(runtime(release))} == shown


def test_a_name_has_one_level() -> None:
    levels: dict[str, set[Level]] = {}
    for rule in rules(runtime()):
        levels.setdefault(rule.name, set()).add(rule.level)
    assert all(len(found) == 1 for found in levels.values())


def test_places_say_where() -> None:
    (kernel,) = found("missing-kernel", program(relu(), kernels=["aten::mean.out", "aten::svd.U"]))
    assert (str(kernel.place), kernel.place.operator) == ("instruction 2", "aten::svd.U")
    (shared,) = found("memory-shared", program(relu(), chain(0, 1, 0, 2, keep=True)))
    assert str(shared.place) == "delegate 1, value 2" and shared.place.method == "forward"
    assert shared.what == "node 1 writes into memory object 0 while value 0 in it is still needed by node 2"
    (segment,) = found("constant-segment", program(relu(), segment=False))
    assert str(segment.place) == "program"


def test_errors_come_first() -> None:
    data = program(chain(0, 1, 0, 2, keep=True), relu(T((1, 4, 2, 2049))), kernels=["aten::svd.U"])
    levels = [finding.level for finding in check_bytes(data)]
    assert levels == [Level.ERROR, Level.WARNING, Level.NOTE, Level.NOTE]
    assert summary(check_bytes(data)) == "1 error, 1 warning, 2 notes"


def test_storage_that_a_file_leaves_open_is_what_the_compile_spec_says() -> None:
    """A relu of int32 has no shader anywhere; the shader's name says where its tensors would lie."""
    graph = relu(T((6, 64), "int32", storage=255, layout=255))
    assert "clamp_int32_texture3d" in found("missing-shader", program(graph))[0].what
    made = pte.CompileSpec("storage_type_override", memoryview(bytes(4)))
    assert "clamp_int32_buffer" in found("missing-shader", program(graph, specs=(made,)))[0].what


def test_bad_input_is_refused() -> None:
    for data in (b"", b"nonsense", bytes(64)):
        with pytest.raises(FormatError, match=r"neither a \.pte file nor a delegate blob"):
            check_bytes(data)
    with pytest.raises(ParameterError, match=r"runtime: unknown; got '0\.1', need 2026-08"):
        check_bytes(relu().blob(), release="0.1")


def test_a_flat_texture_has_two_sides() -> None:
    assert not found("texture-extent", relu(T((64, 64), storage=FLAT, layout=C)).blob())


# --- rows of a runtime's description ---


@pytest.mark.parametrize("row", BROKEN, ids=lambda row: f"{row.rule}-{row.operator}")
def test_a_broken_requirement_is_found_and_its_twins_are_not(row: Broken) -> None:
    found = next(f for f in check_bytes(call(row.operator, *row.bad)) if f.rule == row.rule)
    assert (found.place.operator, found.place.delegate, found.place.node) == (row.operator, 0, 0)
    assert all(text and not set("{}") & set(text) for text in (found.what, found.why, found.fix))
    for args in row.twins:
        twin = check_bytes(call(row.operator, *args))
        assert row.rule not in {f.rule for f in twin}
        assert not [f for f in twin if f.level is Level.ERROR and f.rule != "packed-border"]


@pytest.mark.parametrize("release", releases())
def test_every_row_is_broken_by_some_file(release: str) -> None:
    calls = [
        one
        for broken in BROKEN
        for delegate in blob_method(read_blob(call(broken.operator, *broken.bad))).delegates
        for one in delegate.calls
    ]
    rows = runtime(release).requirements
    whole = [
        row for row in rows if not any(one.name in row["operators"] and breaks(one, row) for one in calls)
    ]
    assert not [(row["rule"], row["what"]) for row in whole]


def test_rows_use_words_that_there_are() -> None:
    def words(condition: dict) -> set[str]:
        ((name, inner),) = condition.items()
        return words(inner) if name == "not" else {name}

    for release in releases():
        rows = runtime(release).requirements
        shaders = [row for found in runtime(release).shader_of.values() for row in found]
        used = {
            w
            for row in (*rows, *shaders, *runtime(release).refusals)
            for key in ("when", "need")
            for c in row.get(key, ())
            for w in words(c)
        }
        assert used <= set(WORDS)
