"""The executor spv:DIR on kernels of our own that keep upstream's calling conventions (tests/modules)."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from examples import some
from exec.recorded import inputs as inputs_of
from module_cases import (
    EVERY,
    INDEX,
    LINEAR_HEAD,
    MODELS,
    SPIRV,
    WITH_MODULES,
    case_of,
    folder_with,
    opened,
    right,
)

from refsim.core.errors import FormatError, PackingError, ParameterError, RawBufferError, RefsimError
from refsim.core.qmath import NVIDIA
from refsim.exec.cpu import NativeExecutor
from refsim.exec.executor import OURS, YOURS
from refsim.exec.factory import executor_named
from refsim.exec.model import load
from refsim.golden import recorded
from refsim.golden.check import fails
from refsim.golden.rules import RULES
from refsim.golden.rules import case as corpus_case
from refsim.ops.base.binding import bind
from refsim.ops.base.registry import OPS
from refsim.ops.base.target import Target
from refsim_gpu import conformance, modules
from refsim_gpu.conformance import Count, compare_model
from refsim_gpu.kompute import Device
from refsim_gpu.module_folder import ModuleFolder
from refsim_gpu.modules import ModuleExecutor, Options

WAYS: list[dict[str, Any]] = [
    {}, {"variant": "fallback"}, {"variant": "unsigned"}, {"images": True},
]  # fmt: skip


@pytest.fixture(scope="module")
def executor(device: Device) -> Iterator[ModuleExecutor]:
    with ModuleExecutor(str(SPIRV), Options(INDEX)) as opened:
        yield opened


# --- the same bytes --------------------------------------------------------------------------------------


@pytest.mark.few(5)
@pytest.mark.parametrize("op", sorted({r.op for r in recorded.every()}))
def test_recordings(executor: ModuleExecutor, op: str) -> None:
    wanted = [r.id for r in recorded.every() if r.op == op][::EVERY]
    rows = list(recorded.check(executor, only=lambda r: r.id in wanted))
    assert rows
    assert not [row for row in rows if fails([row])]
    assert any(row.status == "same" for row in rows)


@pytest.mark.parametrize("options", [{}, {"variant": "fallback"}], ids=str)
def test_the_longest_sums(device: Device, options: dict[str, Any]) -> None:
    """K of 131068: 32767 iterations, where lavapipe ends all loops of an invocation after 65535."""
    with opened(SPIRV, **options) as executor:
        for op, number in (("q8ta_linear", 963), ("q8ta_linear_gemv", 963)):
            bound = bind(corpus_case(op, number))
            assert bound.call.descs["x"].shape[-1] == 131068
            assert right(executor, bound)


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.stem)
def test_models_node_by_node(executor: ModuleExecutor, path: Path) -> None:
    model = load(path)
    assert all(
        executor.source(node.call).whose == YOURS for _, node in model.nodes() if node.call is not None
    )
    count = Count(path.stem)
    compare_model(executor, path, inputs_of(path), count)
    assert count.compared and not count.failed


@pytest.mark.parametrize("options", WAYS, ids=str)
@pytest.mark.parametrize("op", WITH_MODULES)
def test_every_way_gives_the_same_bytes(device: Device, op: str, options: dict[str, Any]) -> None:
    cases = [bind(case) for case in some(OPS[op])]
    corpus = range(0, 0 if options else RULES[op].count, 97 * EVERY)
    cases += [bind(corpus_case(op, number)) for number in corpus]
    with opened(SPIRV, **options) as executor:
        taken = 0
        for bound in cases:
            source = executor.source(bound.call)
            taken += source.whose == YOURS
            assert source.whose == YOURS or "refuses the call" in source.why or "the host takes" in source.why
            assert bound.call.defects or right(executor, bound), bound.case
        assert taken


def test_variants_are_the_ones_that_were_asked_for(device: Device) -> None:
    call = case_of("q8ta_linear").call
    with opened(SPIRV, variant="fallback") as executor:
        assert executor.source(call).kernels == ("q8ta_linear_fallback_float",)
        assert executor.source(case_of("q8ta_relu").call).kernels == ("q8ta_relu_buffer",), "has only one"
    with opened(SPIRV, variant="base") as executor:
        assert executor.source(call).kernels == ("q8ta_linear_float",)
    with opened(SPIRV, images=True) as executor:
        assert executor.source(case_of("q8ta_quantize").call).kernels == ("q8ta_quantize_texture3d_float",)


def test_equal_dispatches_share_a_pipeline_and_few_are_kept(device: Device) -> None:
    with opened(SPIRV) as executor:
        for most, ops, kept in ((8, ("q8ta_relu",) * 2, 1), (1, ("q8ta_relu", "q8ta_clone", "q8ta_relu"), 1)):
            executor.pipelines.most = most
            assert all(right(executor, case_of(op)) for op in ops)
            assert len(executor.pipelines._kept) == kept


def test_a_module_that_changes_is_read_again(device: Device, tmp_path: Path) -> None:
    folder = folder_with(tmp_path, "q8ta_relu_buffer")
    bound = case_of("q8ta_relu")
    with opened(folder) as executor:
        assert right(executor, bound)
        path = folder / "q8ta_relu_buffer.spv"
        path.write_bytes(b"\x03\x02#\x07 not one")
        with pytest.raises(FormatError, match=r"q8ta_relu_buffer\.spv"):
            executor.run_call(bound.call, bound.inputs)
        shutil.copy(SPIRV / "q8ta_relu_buffer.spv", path)
        assert right(executor, bound)
        path.unlink()
        assert executor.source(bound.call).whose == OURS
        assert right(executor, bound)


# --- folders without some, or all ------------------------------------------------------------------------


def test_what_is_missing_runs_on_our_shaders_and_says_so(device: Device, tmp_path: Path) -> None:
    with opened(folder_with(tmp_path, "q8ta_relu_buffer", "q8ta_conv2d_pw_float")) as executor:
        relu, add, im2col = (case_of(op) for op in ("q8ta_relu", "q8ta_add", "q8ta_conv2d_im2col"))
        assert str(executor.source(relu.call)) == "yours: q8ta_relu_buffer"
        source = executor.source(add.call)
        assert (source.whose, source.kernels) == (OURS, ("q8ta_add",))
        assert "q8ta_add_buffer" in source.why
        assert executor.source(im2col.call).whose == OURS, "one of its two modules is missing"
        assert all(right(executor, bound) for bound in (relu, add, im2col))


def test_what_our_shaders_cannot_runs_emulated(device: Device, tmp_path: Path) -> None:
    with opened(folder_with(tmp_path, "q8ta_relu_buffer")) as executor:
        case = OPS["q8ta_linear"].cases.example
        bound = bind(case, Target(NVIDIA))
        assert right(executor, bound)


@pytest.mark.parametrize("name", ["nonesuch", "file", "empty", "none"])
def test_bad_folders(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_bytes(b"")
    for folder in ("empty", "none"):
        (tmp_path / folder).mkdir()
    (tmp_path / "none" / "q8ta_add_buffer.glsl").write_text("")
    with pytest.raises(FormatError, match=rf"{name}.*folder with \.spv files"):
        executor_named(f"spv:{tmp_path / name}")


@pytest.mark.parametrize(
    ("rest", "kind", "said"),
    [
        ("", ParameterError, "spv:DIR"),
        ("DIR@7x", ParameterError, "fallback"),
        ("DIR@fallback+nonesuch", ParameterError, "fallback"),
        ("DIR@", ParameterError, "fallback"),
        ("DIR@99", RefsimError, "no such device|Kompute is not|no driver"),
    ],
)
def test_bad_names(rest: str, kind: type[RefsimError], said: str) -> None:
    with pytest.raises(kind, match=said):
        executor_named(f"spv:{rest.replace('DIR', str(SPIRV))}")


def test_names(tmp_path: Path) -> None:
    assert modules.parse("a/b") == ("a/b", Options())
    assert modules.parse("a@b/c@1+fallback") == ("a@b/c", Options(1, "fallback", False))
    assert modules.parse("a@images+0+base") == ("a", Options(0, "base", True))
    folder = tmp_path / "a@1"
    folder.mkdir()
    assert modules.parse(str(folder)) == (str(folder), Options())


# --- weights packed by the folder's own modules ----------------------------------------------------------


def test_a_packing_module_that_packs_otherwise_is_found_by_texel(device: Device, tmp_path: Path) -> None:
    """The kernel reads what it packed; where there is no such module, what refsim packs."""
    names = [path.stem for path in SPIRV.glob("*.spv") if not path.stem.startswith("pack_")]
    folder = folder_with(tmp_path, *names)
    for storage in ("buffer", "texture2d"):
        shutil.copy(
            SPIRV / f"pack_q8_linear_weight_unsigned_{storage}.spv",
            folder / f"pack_q8_linear_weight_{storage}.spv",
        )
    bound = case_of("q8ta_linear")
    with opened(folder) as executor:
        with pytest.raises(
            PackingError, match=r"pack_q8_linear_weight_.*: packs weight .*first is texel \(0, 0\), word 0"
        ) as caught:
            executor.run_call(bound.call, bound.inputs)
        assert caught.value.buffer != bound.call.expected(bound.inputs)
        pw = case_of("q8ta_conv2d_pw")
        assert executor.run_call(pw.call, pw.inputs) == pw.call.expected(pw.inputs)


# --- bounds ----------------------------------------------------------------------------------------------


def test_a_write_outside_is_found(device: Device, tmp_path: Path) -> None:
    """A module that writes a larger tensor than the one that it was given: the guard words behind it change."""
    bound = case_of("q8ta_clone")
    with opened(SPIRV) as executor:
        (step,) = executor.dispatches(bound.call)
        out, *rest = step.binds
        short = replace(step, binds=(replace(out, count=4), *rest))
        given = {name: buffer.words for name, buffer in bound.inputs.items()}
        with pytest.raises(RawBufferError, match="wrote behind the buffer of out"):
            executor.pipelines.run(short, given)


# --- in a process of its own -----------------------------------------------------------------------------


def test_in_a_child_process(device: Device, tmp_path: Path) -> None:
    executor = executor_named(f"spv:{SPIRV}@{INDEX}")
    assert executor.foreign
    bound = case_of("q8ta_conv2d_pw")
    assert str(executor.source(bound.call)).startswith("yours: q8ta_conv2d_pw")
    model, inputs = load(LINEAR_HEAD), inputs_of(LINEAR_HEAD)
    seen: list[str] = []
    (found,) = model.run(inputs, executor, lambda event: seen.append(event.node.name))
    assert len(seen) == sum(1 for _ in model.nodes())
    (expected,) = model.run(inputs, NativeExecutor())
    assert found.tobytes() == expected.tobytes()
    (tmp_path / "q8ta_relu_buffer.spv").write_bytes(b"nothing of the kind")
    relu = case_of("q8ta_relu")
    with pytest.raises(FormatError, match=r"q8ta_relu_buffer\.spv"):  # errors keep their type
        executor_named(f"spv:{tmp_path}@{INDEX}").run_call(relu.call, relu.inputs)


def test_a_graph_takes_modules_that_come_and_go(device: Device, tmp_path: Path) -> None:
    model, inputs = load(LINEAR_HEAD), inputs_of(LINEAR_HEAD)
    expected = model.run(inputs, NativeExecutor())[0].tobytes()
    folder = folder_with(tmp_path, "q8ta_relu_buffer")
    with opened(folder) as executor:
        calls = [node.call for _, node in model.nodes() if node.call is not None]
        for names, whose in (
            ((), OURS),
            (("q8ta_quantize_buffer_float", "q8ta_dequantize_buffer_float"), YOURS),
        ):
            folder_with(tmp_path, *names)
            assert model.run(inputs, executor)[0].tobytes() == expected
            assert executor.source(calls[0]).whose == whose
        path = folder / "q8ta_quantize_buffer_float.spv"
        path.write_bytes(path.read_bytes()[:100])
        with pytest.raises(FormatError, match=r"q8ta_quantize_buffer_float\.spv"):
            model.run(inputs, executor)
        path.unlink()
        assert model.run(inputs, executor)[0].tobytes() == expected


def test_conformance_takes_modules(
    device: Device, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = folder_with(tmp_path, "q8ta_relu_buffer", "q8ta_add_buffer")
    models = tmp_path / "models"
    models.mkdir()
    for suffix in (".pte", ".io.npz"):
        shutil.copy(LINEAR_HEAD.with_suffix(suffix), models)
    status = conformance.main(
        [str(INDEX), "--random", "0", "--modules", str(folder), "--models", str(models)]
    )
    assert status == 0, capsys.readouterr().out
    assert "0 failed" in capsys.readouterr().out


def test_a_folder_is_a_mapping_of_what_modules_declare() -> None:
    folder = ModuleFolder(SPIRV)
    assert len(folder) == len(list(SPIRV.glob("*.spv"))) and "q8ta_clone" in folder
    assert [*folder] == sorted(folder) and folder["q8ta_clone"].push_bytes == 0
    assert "nonesuch" not in folder and "../spirv/q8ta_clone/x" not in folder
    with pytest.raises(KeyError):
        folder["nonesuch"]
