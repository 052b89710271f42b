"""An executor of another package joins every verb by its name; what it does wrong is one error that names it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from examples import UNARY

import refsim as api
from refsim.core.errors import DeviceError, ParameterError, PluginError, RefsimError
from refsim.exec import entry_points, fingerprint
from refsim.exec.factory import executor_named, executors
from refsim.exec.plugin import PluginExecutor
from refsim.ops.base.binding import bind
from refsim.ops.base.prepared import Prepared

ROOT = Path(__file__).parents[2]
VENDOR = ROOT / "tests/exec/vendor"
RELU, OTHER = "q8ta_relu", "q8ta_clone"


@pytest.fixture(scope="module", autouse=True)
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The example package, with the metadata that an installer would write."""
    pytest.importorskip("setuptools.build_meta", reason="setuptools writes the package's metadata")
    site = tmp_path_factory.mktemp("site")
    code = (
        "import os, shutil; from setuptools import build_meta;"
        f"shutil.copytree({str(VENDOR)!r}, {str(site / 'tree')!r}); os.chdir({str(site / 'tree')!r});"
        f"build_meta.prepare_metadata_for_build_wheel({str(site)!r}); shutil.move('vendor_kernels', {str(site)!r})"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
    patch = pytest.MonkeyPatch()
    patch.syspath_prepend(site)
    yield
    patch.undo()


def test_it_is_listed(refsim) -> None:
    (row,) = (row for row in executors() if row.name == "vendor")
    assert row.available and row.detail == "vendor-kernels 1.4: NumPy kernels of an imaginary vendor."
    assert "vendor" in [row["name"] for row in refsim("doctor --json").json["executors"]]


def test_the_page_shows_the_example() -> None:
    page = (ROOT / "docs/executors.md").read_text()
    for name in ("pyproject.toml", "vendor_kernels/__init__.py"):
        assert (VENDOR / name).read_text() in page


def test_nobody_looks_for_it_when_the_name_is_refsims_own() -> None:
    code = (
        "import sys; from refsim.cli import main; from refsim.exec.factory import executor_named;"
        "executor_named('cpu'); print('refsim.exec.entry_points' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "False\n"


def test_a_model_runs_on_it_and_the_rest_on_ours(refsim, models: Path) -> None:
    given = f"{models}/mixed_ops.pte --random 0"
    done = refsim(f"run {given} -x vendor --json")
    sources = {row["operator"]: row["sources"]["vendor"] for row in done.json["nodes"] if "sources" in row}
    other = sources["q8ta_conv2d_pw"]
    assert done.status == 0 and sources[RELU]["whose"] == "yours"
    assert (other["whose"], other["why"]) == ("ours", "the library has no such kernel")
    assert refsim(f"compare {given} -x cpu -x vendor").status == 0


@pytest.mark.long
def test_compare_and_bisect_find_its_bug(refsim, models: Path) -> None:
    given = (models / "mixed_ops.pte", "--random", 0, "-x", "vendor:truncate", "--json")
    found = refsim("compare", *given, "-x", "cpu").json
    assert found["first"] == "delegate0_v66" and not found["same"]
    rows = {row["value"]: row for row in found["buffers"]}
    assert rows["delegate0_v66"]["judged"]["verdict"] == "wrong"
    assert rows["delegate0_v55"]["source"]["whose"] == "yours" and rows["delegate0_v55"]["judged"] is None
    assert refsim("bisect", *given).json["wrong"] == ["delegate0_v66"]


@pytest.mark.long
def test_replay_names_the_cause(refsim) -> None:
    assert refsim(f"replay {RELU}/0005 -x vendor").status == 0
    done = refsim(f"replay {RELU}/0005 -x vendor:truncate")
    assert done.status == 1 and "truncat" in done.out
    assert ".spv" not in done.out  # the package has no modules


def test_a_test_of_pytest_fails_if_it_refuses_the_case(packed_golden) -> None:
    packed_golden.check_kernel(f"{RELU}/0005", "vendor")
    said = "no kernel of yours runs it: the library has no such kernel"
    with pytest.raises(pytest.fail.Exception, match=said):
        packed_golden.check_kernel(f"{OTHER}/0005", "vendor")


@pytest.mark.long
def test_golden_verify_counts_what_it_refuses(refsim) -> None:
    given = f"golden verify {RELU}/0005 {OTHER}/0005 --workers 1 --json -x"
    done = refsim(f"{given} vendor,vendor:truncate")
    facts = done.json
    assert done.status == 1 and facts["executors"]["vendor"] == {"same": 1, "refused": 1}
    assert facts["executors"]["vendor:truncate"] == {"different": 1, "refused": 1}
    assert facts["refused"]["vendor"] == {"the library has no such kernel": 1}
    done = refsim(f"golden verify {OTHER}/0005 --workers 1 -x vendor")
    done.refused("executor vendor: not one of its own kernels ran; got the library has no such kernel")


@pytest.mark.long
def test_sweep_runs_it(refsim, tmp_path: Path) -> None:
    given = f"sweep {RELU} -n 8 --workers 0 --profile canonical --failures {tmp_path} --json"
    (row,) = refsim(f"{given} -x vendor").json["counts"]
    assert row["statuses"]["same"] == 8
    found = refsim(f"{given} -x vendor:truncate").json
    assert not found["same"] and "off by one step only" in found["failures"][0]["message"]


# --- what goes wrong -------------------------------------------------------------------------------------


class Whatever:
    """Runs whatever it is given."""

    def __init__(self, run: Any) -> None:
        self.run = run


def _relu(run: Any) -> api.PackedBuffer:
    bound = bind(UNARY.cases.example)
    return PluginExecutor(Whatever(run), "x", "executor x of y 1").run_call(bound.call, bound.inputs)


def _spoil(call: Any, inputs: Any) -> bytes:
    next(iter(inputs.values())).words[0] ^= 1
    return bytes(call.out.nbytes)


@pytest.mark.parametrize(
    ("run", "text"),
    [
        (lambda call, inputs: 1 // 0, "failed; got ZeroDivisionError: integer division or modulo by zero ("),
        (lambda call, inputs: None, "got NoneType, need"),
        (lambda call, inputs: b"123", "got 3 bytes, need"),
        (lambda call, inputs: np.zeros(call.out.shape, np.int8), "got int8 array of ["),
        (lambda call, inputs: np.zeros(7, np.uint8), "got 7 bytes, need"),
        (lambda call, inputs: api.PackedBuffer.pack(np.zeros((1, 4, 1, 1), np.int8), "4C"), "need"),
        (lambda call, inputs: call.packed(np.zeros((1, 1, 1, 1), np.int8), inputs), "got ShapeError"),
        (lambda call, inputs: call.packed(np.zeros(call.out.shape), inputs), "got RawBufferError"),
        (lambda call: b"", "got TypeError"),
        (_spoil, "input x was written to"),
    ],
)
def test_what_a_run_gives_is_checked(run: Any, text: str) -> None:
    with pytest.raises(PluginError, match="executor x of y 1: ") as caught:
        _relu(run)
    assert text in str(caught.value)


def test_bytes_arrays_and_buffers_are_taken() -> None:
    bound = bind(UNARY.cases.example)
    expected = bound.call.expected(bound.inputs)
    for run in (
        lambda call, inputs: expected.raw.tobytes(),
        lambda call, inputs: np.concatenate([expected.raw, np.zeros(-expected.raw.size % 16, np.uint8)]),
        lambda call, inputs: expected,
    ):
        assert _relu(run) == expected


def test_its_own_error_of_a_device_passes() -> None:
    def run(call: Any, inputs: Any) -> bytes:
        raise DeviceError("vendor's board", "not connected")

    with pytest.raises(DeviceError, match="vendor's board: not connected"):
        _relu(run)


def test_what_it_keeps_for_a_call_is_there_again() -> None:
    seen: list[dict[str, Any]] = []

    def run(call: Any, inputs: Any) -> bytes:
        seen.append(dict(call.kept))
        call.kept["weights"] = "laid out"
        return bytes(call.out.nbytes)

    bound = bind(UNARY.cases.example)
    executor, prepared = PluginExecutor(Whatever(run), "x"), Prepared(bound.call)
    for one in (prepared, prepared, Prepared(bound.call)):
        executor.run_prepared(one, bound.inputs)
    assert seen == [{}, {"weights": "laid out"}, {}]


@pytest.fixture
def bad(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package of executors that cannot be opened, and a second package that has a name of its own and a taken one."""
    (tmp_path / "bad_kernels.py").write_text(
        "import os\ndef die(arguments): os._exit(7)\ndef number(arguments): return 5\ntext = 'a text'\n"
    )
    for package, entries in {
        "bad": "lost = bad_lost:open\nnone = bad_kernels:none\ntext = bad_kernels:text\n"
        "dead = bad_kernels:die\nnumber = bad_kernels:number\ncpu = bad_kernels:die\n",
        "twice": "number = bad_kernels:die\n",
    }.items():
        info = tmp_path / f"{package}-0.1.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 0.1\n")
        (info / "entry_points.txt").write_text(f"[{entry_points.GROUP}]\n{entries}")
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.parametrize(
    ("name", "kind", "text"),
    [
        ("lost", PluginError, "executor lost of bad 0.1: the import of bad_lost:open failed; got ModuleNotFoundError"),
        ("none:1", PluginError, "executor none of bad 0.1: the import of bad_kernels:none failed; got AttributeError"),
        ("text", PluginError, "bad_kernels:text cannot be called; got str"),
        ("number", PluginError, "several distributions have the name; got bad 0.1 and twice 0.1"),
        ("dead", DeviceError, "dead: the worker process ended during opening; got exit status 7"),
        ("vendor:fast", PluginError, "vendor-kernels 1.4: opening vendor:fast failed; got ValueError: unknown arg"),
        ("nonesuch", ParameterError, "cpu, cpu:emulated, gpu, gpu:N, spv:DIR, wgsl:DIR, cpu, dead, lost, none, "),
    ],
)  # fmt: skip
def test_what_cannot_be_opened_is_named(name: str, kind: type[RefsimError], text: str, bad: None) -> None:
    with pytest.raises(kind) as caught:
        executor_named(name)
    assert text in str(caught.value)


def test_those_that_cannot_be_opened_are_listed_with_the_reason(bad: None) -> None:
    found = {row.name: row for row in entry_points.executors({"cpu", "dead", "none", "number", "text"})}
    assert found["vendor"].available and not found["lost"].available
    assert "No module named 'bad_lost'" in found["lost"].detail
    assert "the name is refsim's own" in found["cpu"].detail


@pytest.mark.long
def test_results_of_another_version_are_not_continued(tmp_path: Path, refsim) -> None:
    command = f"sweep {RELU} -n 2 --workers 0 -x vendor --db {tmp_path}/s.db"
    assert refsim(command).status == 0 and refsim(f"{command} --resume").status == 0
    before = fingerprint.foreign(["vendor", "cpu", "nonesuch"])
    assert set(before) == {"vendor"} and before != fingerprint.foreign(["vendor:truncate"])
    (site,) = (Path(path) for path in sys.path if (Path(path) / "vendor_kernels").is_dir())
    code = site / "vendor_kernels/__init__.py"
    text = code.read_text()
    try:
        code.write_text(text + "\n# a kernel was mended\n")
        assert fingerprint.foreign(["vendor"]) != before
        refsim(f"{command} --resume").refused("other modules, or another package, of executor vendor")
    finally:
        code.write_text(text)
    assert refsim(f"{command} --resume").status == 0
