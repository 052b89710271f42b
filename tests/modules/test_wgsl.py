"""WGSL on flat tensors: right kernels give the bits of the flat meaning, and seeded bugs are found and named."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from needed import needs_device

from modules.wgsl_kernels import BUGS, INDEX, RIGHT, Bug
from refsim.core.errors import FormatError, ParameterError
from refsim.formats import kernels, wgsl
from refsim.golden.check import asked_of
from refsim.golden.judge import LEGAL, SAME
from refsim.modules.build import Build, Request, opened
from refsim.modules.verification import FolderOutcome
from refsim.ops.base.binding import bind
from refsim.ops.base.registry import OPS

#: How many causes count as named at once, and how many cases of the corpus each operator has.
FIRST, COUNT = 3, 24


@pytest.fixture(scope="module")
def right() -> Iterator[Build]:
    with needs_device(), opened(Request(str(RIGHT), (), COUNT, device=INDEX)) as build:
        yield build


@pytest.mark.few(7)
@pytest.mark.parametrize("op", kernels.read(RIGHT / kernels.NAME))
def test_right_kernels_give_the_bits_of_the_flat_meaning(right: Build, op: str) -> None:
    outcome = right.verification.run([op], everything=True)
    exact = right.device.numerics in ("canonical", "lavapipe")
    assert set(outcome.operators[op]) <= ({SAME} if exact else {SAME, LEGAL})
    assert outcome.cases >= COUNT / 2


@contextmanager
def seeded(bug: Bug, folder: Path) -> Iterator[tuple[Build, FolderOutcome]]:
    """What the verification of the kernels with a bug says."""
    request = Request(str(bug.seeded(folder)), [bug.op], COUNT, device=INDEX)
    with needs_device(), opened(request) as build:
        yield build, build.verification.run([bug.op])


@pytest.mark.long
@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.id)
def test_a_seeded_bug_is_found_and_named(bug: Bug, tmp_path: Path) -> None:
    with seeded(bug, tmp_path / "kernels") as (build, outcome):
        assert outcome.wrong, "every case is right"
        named = [str(cause) for cause in outcome.wrong[0].kernel.causes[:FIRST]]
        assert any(true in name for name in named for true in bug.causes), named
        call = outcome.wrong[0].tried.candidate.bound.call
        assert any(place.startswith(bug.file) for place, _ in build.stores(build.writer(call)))


@pytest.mark.parametrize(
    ("text", "instead", "said"),
    [
        # a device that keeps writes inside a buffer may let such a one hit another word
        ("if (word >= block.words) {", "if (word > 9999999u) {", "write out of bounds"),
        ("let word = id.x;", "let word = id.x + nothing;", "nothing"),  # as the compiler says
    ],
)
def test_what_fails_is_told(text: str, instead: str, said: str, tmp_path: Path) -> None:
    bug = Bug("failing", "q8ta_relu", "rectified.wgsl", text, instead, ())
    with seeded(bug, tmp_path / "kernels") as (_, outcome):
        assert said in outcome.failed[0].message


# --- sources and their description ----------------------------------------------------------------------------


def test_a_source_tells_what_it_declares() -> None:
    found = wgsl.read(RIGHT / "sum.wgsl")
    assert [(row.number, row.name, row.writes) for row in found.bindings] == [
        (0, "a", False), (1, "b", False), (2, "block", False), (3, "sum", True),
    ]  # fmt: skip
    assert (found.entry, found.overrides, found.measures) == ("add", ("size",), False)
    assert found.stores(3) == [("sum.wgsl:31", "sum[word] = packed;")]


@pytest.mark.parametrize("data", [b"", b"fn main() {}", b"@compute @workgroup_size(1) fn main() {", b"\xff"])
def test_what_is_no_whole_source_is_refused(data: bytes) -> None:
    with pytest.raises(FormatError):
        wgsl.parse(data, "odd")


def test_upstreams_own_shaders_are_called_without_a_file(tmp_path: Path) -> None:
    """By their names, wherever they lie in the source tree."""
    (tmp_path / "q8ta_relu").mkdir()
    (tmp_path / "q8ta_relu" / "q8ta_relu.wgsl").write_bytes((RIGHT / "rectified.wgsl").read_bytes())
    folder, rows = kernels.rows_of(tmp_path)
    assert folder == str(tmp_path) and kernels.is_wgsl(rows)
    assert rows["q8ta_relu"].shaders[0].name == "q8ta_relu"


@pytest.mark.parametrize(
    ("change", "place"),
    [
        (("local = [16, 1, 1]", ""), "local"),
        (("local = [16, 1, 1]", 'local = [16, 1, 1]\npush = ["a_zp"]'), "push"),
        (('spec = { size = "local.x" }', 'spec = ["local.x"]'), "spec"),
        (('"a_scale"', '"a_scales"'), "a_scales"),
        (("[q8ta_add]", 'global = "worlds:out"\n[q8ta_add]'), "global"),
        (("[q8ta_add]", "[embedding_q4gsw]"), "embedding_q4gsw"),
    ],
)
def test_a_slip_in_the_file_is_told_with_its_place(
    change: tuple[str, str], place: str, tmp_path: Path
) -> None:
    text = (RIGHT / kernels.NAME).read_text()
    begin = text.index("[q8ta_add]")
    table = 'global = "words:out"\n' * (change[1][:6] != "global") + text[begin : text.index("[q8ta_relu]")]
    assert change[0] in table
    (tmp_path / "sum.wgsl").write_bytes((RIGHT / "sum.wgsl").read_bytes())
    (tmp_path / kernels.NAME).write_text(table.replace(*change))
    with pytest.raises(FormatError, match=place):
        kernels.read(tmp_path / kernels.NAME)


def test_one_file_has_kernels_of_one_kind(tmp_path: Path) -> None:
    for name in ("a.spv", "b.wgsl"):
        (tmp_path / name).write_bytes(b"")
    table = 'bindings = ["x", "out"]\nglobal = "words:out"\nlocal = [1, 1, 1]\n'
    (tmp_path / kernels.NAME).write_text(
        f'[q8ta_relu]\nmodule = "a.spv"\n{table}[q8ta_quantize]\nmodule = "b.wgsl"\n{table}'
    )
    with pytest.raises(FormatError, match="two kinds"):
        kernels.read(tmp_path / kernels.NAME)


def test_a_whole_number_is_a_float_where_a_kernel_takes_one(right: Build) -> None:
    """Exporters write alpha=1 as it stands in the model."""
    asked = bind(OPS["q8ta_add"].cases.example.changed(alpha=1))
    bound, expected = asked_of(right.executor, asked, asked.call.expected(asked.inputs))
    assert type(bound.call.params.alpha) is float
    assert right.executor.run_call(bound.call, bound.inputs) == expected


@pytest.mark.parametrize(
    ("alpha", "said"), [(10**400, "alpha is out of range"), (True, "alpha has the wrong type")]
)
def test_what_is_no_float_is_refused(alpha: object, said: str) -> None:
    with pytest.raises(ParameterError, match=said):
        bind(OPS["q8ta_add"].cases.example.changed(alpha=alpha))
