"""Each rule on a small file that shows it, and on the file's sound twin."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from check.broken import PAIRS, embedding, q4gsw
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
from refsim.check.run import check_bytes, summary
from refsim.check.runtime import releases, runtime
from refsim.core.errors import FormatError, ParameterError
from refsim.formats.pte import schema as pte

IMAGE = T((1, 8, 6, 6))
INDICES = T((2, 5), "int32", layout=W)
INT8 = T((1, 8, 6, 6), "int8", BUFFER, INT8_4W4C)
RELU, CLONE, QUANTIZE = (
    "aten.relu.default",
    "aten.clone.default",
    "quantized_decomposed.quantize_per_tensor.default",
)
ADD = "aten.add.Tensor"
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
    return graph.call(
        "quantized_decomposed.dequantize_per_tensor.default", packed, 0.1, 0, -128, 127, None, None, like(x)
    )


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


def keyed(key: str = "k") -> Graph:
    return Graph().call(
        "aten.linear.default",
        T((6, 64), layout=W),
        T((8, 64), constant=True, key=key),
        None,
        T((6, 8), layout=W),
    )


def broadcast(shape: tuple[int, ...], alpha: float = 1.0) -> bytes:
    other = like(INT8, dims=shape)
    return call("et_vk.q8ta_add.default", INT8, other, 0.1, 0, 0.1, 0, 0.1, 0, alpha, like(INT8))


def cast(given: str, wanted: str, storage: int = BUFFER, name: str = "aten._to_copy.default") -> bytes:
    x = T((6, 64), given, storage, W)
    return call(name, x, *[None] * 6, like(x, dtype=wanted))


def linear(n: int, k: int, weight: T | None = None, layout: int = INT8_4H4W) -> bytes:
    x, out = T((6, k), "int8", BUFFER, layout), T((6, n), "int8", BUFFER, layout)
    weight = const(n, k, dtype="int8") if weight is None else weight
    return call(
        "et_vk.q8ta_linear.default",
        x,
        0.1,
        0,
        weight,
        const(n, dtype="int32"),
        const(n),
        0.1,
        0,
        None,
        "none",
        out,
    )


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
    weight, pairs = (
        const(8, kernel * kernel * channels // groups, dtype="int8"),
        ([1, 1], [kernel // 2] * 2, [1, 1]),
    )
    sums, scales = const(8, dtype="int32"), const(8)
    return call(
        f"et_vk.{name}.default", x, 0.1, 0, weight, sums, scales, 0.1, 0, None, [kernel] * 2, *pairs, groups, "none",
        like(x, dims=(batch, 8, 6, 6)),
    )  # fmt: skip


def dynamic(graph: Graph) -> bytes:
    return passing(graph, 0, shape_dynamism=1)


DYNAMIC = Path(__file__).parents[1] / "data" / "dynamic"
Make = Callable[[], bytes]
#: Rule, a file that shows it, its sound twin (None where there is no such thing).
EXAMPLES: tuple[tuple[str, Make, Make | None], ...] = (
    ("missing-operator", lambda: call("aten.erf.default", IMAGE, like(IMAGE)), lambda: relu().blob()),
    ("claimed-operator", lambda: call("aten.logical_not.default", IMAGE, like(IMAGE)), lambda: relu().blob()),
    ("missing-kernel", lambda: program(kernels=["aten::svd.U"]), lambda: program(kernels=["aten::mean.out"])),
    (
        "kernel-library",
        lambda: program(kernels=["quantized_decomposed::embedding_4bit.dtype_out"]),
        lambda: program(kernels=["aten::embedding.out"]),
    ),
    (
        "kernel-library",
        lambda: program(kernels=["aten::linear.out"]),
        lambda: program(kernels=["aten::addmm.out"]),
    ),
    ("other-backend", lambda: program(relu(), backend="XnnpackBackend"), lambda: program(relu())),
    (
        "missing-shader",
        lambda: call(CLONE, like(INT8, layout=INT8_4H4W), None, T((1, 8, 6, 6), "int8", TEXTURE, W)),
        lambda: call(CLONE, IMAGE, None, T((1, 8, 6, 6), storage=BUFFER, layout=W)),
    ),
    (
        "missing-shader",
        lambda: relu(like(IMAGE, dtype="int32")).blob(),
        lambda: relu(like(IMAGE, dtype="float16")).blob(),
    ),
    (
        "missing-shader",
        lambda: call(
            "aten.mean.dim", like(IMAGE, dtype="int32"), [2, 3], True, None, T((1, 8, 1, 1), "int32")
        ),
        lambda: call("aten.mean.dim", IMAGE, [2, 3], True, None, T((1, 8, 1, 1))),
    ),
    # float to bool, in a buffer, in a texture, and by the operator that knows the order of dims
    ("missing-shader", lambda: cast("float32", "bool"), lambda: cast("float32", "int32")),
    ("missing-shader", lambda: cast("int32", "bool", TEXTURE), lambda: cast("bool", "int32", TEXTURE)),
    (
        "missing-shader",
        lambda: cast("float16", "bool", name=TO_DIM_ORDER),
        lambda: cast("float16", "float32", name=TO_DIM_ORDER),
    ),
    ("missing-shader", lambda: cast("int8", "float32"), lambda: cast("bool", "bool", TEXTURE)),
    ("missing-shader", lambda: cast("float64", "float32"), lambda: cast("float32", "float16")),
    ("packed-border", lambda: call(QUANTIZE, IMAGE, 0.1, 0, -128, 127, None, INT8), lambda: relu().blob()),
    (
        "packed-border",
        lambda: call(
            "quantized_decomposed.dequantize_per_tensor.default", INT8, 0.1, 0, -128, 127, None, None, IMAGE
        ),
        lambda: relu().blob(),
    ),
    ("border-arguments", lambda: program(relu(), drop=1), lambda: program(relu())),
    ("border-dtype", lambda: passing(relu(), 0, scalar_type=1), lambda: passing(relu(), 0, scalar_type=7)),
    ("border-dtype", lambda: passing(relu(), 1, scalar_type=3), lambda: passing(relu(), 1, scalar_type=5)),
    (
        "border-shader",
        lambda: relu(like(IMAGE, staged="int32")).blob(),
        lambda: relu(like(IMAGE, staged="float32")).blob(),
    ),
    (
        "border-shader",
        lambda: relu(like(IMAGE, storage=BUFFER, dtype="float16", staged="int32")).blob(),
        lambda: relu(like(IMAGE, storage=BUFFER, dtype="float16", staged="float32")).blob(),
    ),
    (
        "input-size",
        lambda: passing(relu(), 0, sizes=(1, 8, 6)),
        lambda: passing(relu(), 0, sizes=(1, 8, 5, 6)),
    ),
    ("input-size", lambda: passing(relu(), 0, sizes=(1, 8, 7, 6)), lambda: program(relu())),
    ("output-size", lambda: passing(relu(), 1, sizes=(1, 8, 6, 5)), lambda: program(relu())),
    (
        "constant-input",
        lambda: with_border(relu(), [IMAGE, const(4)]).blob(),
        lambda: relu().blob(),
    ),
    ("constant-output", lambda: constant_output().blob(), lambda: relu().blob()),
    (
        "memory-shared",
        lambda: chain(0, 1, 0, 2, keep=True).blob(),
        lambda: chain(0, 1, 2, 1, keep=True).blob(),
    ),
    ("memory-shared", lambda: chain(0, 1, 1, 0).blob(), lambda: chain(0, 1, 0, 1).blob()),
    ("memory-alias", lambda: alias().blob(), lambda: relu().blob()),
    ("memory-prepacked", lambda: prepacked(3).blob(), lambda: prepacked(-1).blob()),
    (
        "memory-object",
        lambda: relu(IMAGE, like(IMAGE, obj=2**30)).blob(),
        lambda: relu(IMAGE, like(IMAGE, obj=1)).blob(),
    ),
    ("unwritten-value", lambda: unordered().blob(), lambda: relu().blob()),
    (
        "unwritten-value",
        lambda: with_border(relu(), [IMAGE], [like(IMAGE)]).blob(),
        lambda: relu().blob(),
    ),
    ("constant-absent", lambda: program(keyed()), lambda: program(keyed(), data={"k": bytes(2048)})),
    ("constant-absent", lambda: keyed().blob(), None),
    (
        "constant-short",
        lambda: program(keyed(), data={"k": bytes(2047)}),
        lambda: program(keyed(), data={"k": bytes(2048)}),
    ),
    ("constant-segment", lambda: program(relu(), segment=False), lambda: program(relu())),
    ("tensor-dtype", lambda: relu(like(IMAGE, dtype="unset")).blob(), lambda: relu().blob()),
    ("tensor-layout", lambda: relu(like(IMAGE, layout=7)).blob(), lambda: relu().blob()),
    ("packed-dtype", lambda: relu(like(IMAGE, layout=INT8_4W4C)).blob(), lambda: relu().blob()),
    ("packed-texture", lambda: relu(like(INT8, storage=TEXTURE)).blob(), lambda: relu(INT8).blob()),
    (
        "texture-rank",
        lambda: relu(T((1, 2, 3, 4, 5))).blob(),
        lambda: relu(T((1, 2, 3, 4, 5), storage=BUFFER)).blob(),
    ),
    ("texture-extent", lambda: relu(T((1, 4, 2, 16385))).blob(), lambda: relu(T((1, 4, 2, 16384))).blob()),
    (
        "texture-extent",
        lambda: relu(T((1, 4 * 2049, 2, 2))).blob(),
        lambda: relu(T((1, 4 * 2048, 2, 2))).blob(),
    ),
    ("texture-extent", lambda: relu(T((513, 16, 2, 2))).blob(), lambda: relu(T((512, 16, 2, 2))).blob()),
    (
        "texture-device",
        lambda: relu(T((1, 4, 2, 2049))).blob(),
        lambda: relu(T((1, 4, 2, 2049), layout=W)).blob(),
    ),
    ("weight-texture", lambda: linear(8, 65540), lambda: linear(8, 65536)),
    ("weight-texture", lambda: linear(65537, 4), lambda: linear(65536, 4)),
    ("weight-texture", lambda: conv(channels=65540), lambda: conv(channels=65536)),
    ("weight-texture", lambda: conv(kernel=3, channels=21848), lambda: conv(kernel=3, channels=21844)),
    (
        "fixed-operator",
        lambda: dynamic(Graph().call("et_vk.grid_priors.default", IMAGE, 8, 0.5, T((30, 2)))),
        lambda: dynamic(Graph().call("aten.flip.default", IMAGE, [2], like(IMAGE))),
    ),
    (
        "unresized-output",
        lambda: (DYNAMIC / "clone_branch.pte").read_bytes(),
        lambda: (DYNAMIC / "fcn_add.pte").read_bytes(),
    ),
    (
        "unresized-output",
        lambda: (DYNAMIC / "batch_conv.pte").read_bytes(),
        lambda: (DYNAMIC / "im2col.pte").read_bytes(),
    ),
    (
        "resize-stops",
        lambda: (DYNAMIC / "perm_neg.pte").read_bytes(),
        lambda: (DYNAMIC / "arange_pos.pte").read_bytes(),
    ),
    (
        "bound-by-elements",
        lambda: (DYNAMIC / "fcn_add.pte").read_bytes(),
        lambda: (DYNAMIC / "tok_emb.pte").read_bytes(),
    ),
    (
        "unchecked-dim",
        lambda: (DYNAMIC / "lin_rows.pte").read_bytes(),
        lambda: (DYNAMIC / "tok_emb.pte").read_bytes(),
    ),
    ("dynamic-input", lambda: dynamic(relu()), lambda: program(relu())),
    ("operator-layout", lambda: linear(8, 16, layout=INT8_4W4C), lambda: linear(8, 16)),
    ("operator-constant", lambda: linear(8, 16, weight=T((8, 16), "int8")), lambda: linear(8, 16)),
    ("known-defect", lambda: broadcast((1, 8, 6, 1)), lambda: broadcast((1, 8, 6, 6))),
    ("known-defect", lambda: broadcast((1, 8, 6, 6), alpha=0.5), lambda: broadcast((1, 8, 6, 6))),
    ("known-defect", lambda: conv(batch=2), conv),
    ("known-defect", lambda: conv(groups=2, name=POINTWISE), lambda: conv(name=POINTWISE)),
    ("known-defect", lambda: conv(batch=2, kernel=3, groups=2), lambda: conv(kernel=3, groups=2)),
    ("known-defect", lambda: float_head(2, 3), lambda: float_head(1, 6)),
    # float convolutions in groups: 1x1, transposed, twice as many outputs as channels, 2 and 6 channels of a group
    ("known-defect", lambda: float_conv((8, 4, 1, 1)), lambda: float_conv((8, 8, 1, 1), groups=1)),
    (
        "known-defect",
        lambda: float_conv((8, 4, 3, 3), transposed=True),
        lambda: float_conv((8, 8, 3, 3), groups=1, transposed=True),
    ),
    ("known-defect", lambda: float_conv((16, 1, 3, 3), groups=8), lambda: float_conv((8, 1, 3, 3), groups=8)),
    ("known-defect", lambda: float_conv((8, 2, 3, 3), groups=4), lambda: float_conv((8, 4, 3, 3))),
    ("known-defect", lambda: float_conv((12, 4, 3, 3)), lambda: float_conv((8, 1, 1, 1), groups=8)),
    (
        "known-defect",
        lambda: call("et_vk.linear_q4gsw.default", *q4gsw(T((2, 6, 64), layout=W), 8, 64)),
        lambda: call("et_vk.linear_q4gsw.default", *q4gsw(T((6, 64), layout=W), 8, 64)),
    ),
    (
        "known-defect",
        lambda: call("et_vk.embedding_q4gsw.default", *embedding(INDICES)),
        lambda: call("et_vk.embedding_q4gsw.default", *embedding(like(INDICES, storage=BUFFER))),
    ),
)


def found(rule: str, data: bytes) -> list[Finding]:
    return [finding for finding in check_bytes(data, "small.pte") if finding.rule == rule]


@pytest.mark.parametrize(("rule", "bad", "good"), EXAMPLES, ids=[name for name, *_ in EXAMPLES])
def test_a_rule_finds_what_it_is_for(rule: str, bad: Make, good: Make | None) -> None:
    findings = found(rule, bad())
    assert findings
    for finding in findings:
        assert all(text and not set("{}") & set(text) for text in (finding.what, finding.why, finding.fix))
    if good is not None:
        assert not found(rule, good())


def test_every_rule_has_an_example() -> None:
    shown = {name for name, *_ in EXAMPLES} | {pair.rule for pair in PAIRS}
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
