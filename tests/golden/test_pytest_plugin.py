"""packed_golden, the fixture for other projects: what it stores, compares, says and refuses; and docs/pytest.md."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from modules.wgsl_kernels import RIGHT
from needed import needs_device

from refsim.core.buffer import PackedBuffer
from refsim.exec.factory import executor_named
from refsim.golden.named import open_case

pytest_plugins = ["pytester"]
ROOT = Path(__file__).parents[2]
CASE = "q8ta_add/0105"
TEST = """
import numpy as np, pytest
@pytest.mark.parametrize("step", [1, 2], ids=["one/a", "one_a"])
def test_it(packed_golden, step):
    x = (np.arange(48) * step).astype(np.int8)
    packed_golden.check(x{bug}, layout="4W4C", shape=(1, 4, 3, 4))
    packed_golden.check(bytes(16), layout="4C", shape=(1, 3, 2, 2), name="second")
"""


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A project that has nothing of refsim but the plugin."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # it may be installed, or not
    monkeypatch.setenv("PYTEST_ADDOPTS", "-p refsim.golden.pytest_plugin")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("COLUMNS", "100")
    return pytester


def run(project: pytest.Pytester, *options: str) -> pytest.RunResult:
    return project.runpytest_subprocess("-q", *options)


def stored(project: pytest.Pytester) -> list[str]:
    return sorted(str(p.relative_to(project.path)) for p in (project.path / "packed_golden").rglob("*.bin"))


def test_nothing_is_written_without_a_reason(project: pytest.Pytester) -> None:
    project.makepyfile(test_a=TEST.format(bug=""))
    done = run(project)
    done.assert_outcomes(failed=2)
    done.stdout.fnmatch_lines(
        ["*no golden buffer yet; write it with --packed-golden-regen REASON", "*2 failed*"]
    )
    assert not (project.path / "packed_golden").exists()
    for reason in ("", "  "):
        refused = run(project, "--packed-golden-regen", reason)
        assert refused.ret == pytest.ExitCode.USAGE_ERROR
        refused.stderr.fnmatch_lines(["*--packed-golden-regen: needs a reason"])
    assert not (project.path / "packed_golden").exists()


@pytest.mark.long
def test_it_writes_compares_and_fails(project: pytest.Pytester) -> None:
    project.makepyfile(test_a=TEST.format(bug=""))
    done = run(project, "--packed-golden-regen", "first\nversion")
    done.assert_outcomes(passed=2)
    # names that only differ in what a file name cannot hold stay apart
    folder = "packed_golden/test_a/test_it"
    names = [f"{folder}[{k}]{s}.bin" for k in ("one%2Fa", "one_a") for s in ("", ".second")]
    assert stored(project) == sorted(names)
    assert (project.path / names[0]).read_bytes() == np.arange(48, dtype=np.int8).tobytes()
    facts = json.loads((project.path / names[0]).with_suffix(".json").read_text())
    assert facts["layout"] == "PACKED_INT8_4W4C" and facts["shape"] == [1, 4, 3, 4]
    log = (project.path / "packed_golden" / "CHANGELOG.md").read_text()
    assert log.count("48 bytes, new. first version\n") == 2 and log.count("16 bytes, new.") == 2
    run(project).assert_outcomes(passed=2)

    project.makepyfile(test_a=TEST.format(bug=".reshape(-1, 4)[:, ::-1]"))
    before = {path: path.read_bytes() for path in project.path.rglob("packed_golden/**/*") if path.is_file()}
    wrong = run(project)
    wrong.assert_outcomes(failed=2)
    wrong.stdout.fnmatch_lines(
        ["*test_it?one%2Fa?.bin: 48 bytes differ", "*1. byte order: *predicts every byte*"]
    )
    assert before == {path: path.read_bytes() for path in before}
    done = run(project, "--packed-golden-regen", "lanes the other way round", "-k", "one/a")
    done.assert_outcomes(passed=1, deselected=1)
    done.stdout.fnmatch_lines(["*test_it?one%2Fa?.bin: 48 of 48 bytes changed"])
    assert (project.path / "packed_golden" / "CHANGELOG.md").read_text().startswith(log)
    run(project).assert_outcomes(passed=1, failed=1)
    run(project, "--packed-golden-regen", "none", "-k", "one/a").stdout.fnmatch_lines(["nothing changed"])


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("call", "says"),
    [
        ("check(bytes(48))", "*TypeError: packed_golden.check: raw bytes need layout= and shape="),
        ("check(bytes(7), layout='4W4C', shape=(1, 4, 3, 4))", "*RawBufferError: *wrong size; got 7 bytes*"),
        ("check(bytes(48), layout='5W', shape=(1, 4, 3, 4))", "*LayoutError: *5W*"),
        ("check(bytes(48), layout='4C', shape=(1, 4, 3, 4))", "*is 1x4x3x4 4W4C, the test has 1x4x3x4 4C"),
        ("check(bytes(3), case='q8ta_add/0105')", "*RawBufferError: *wrong size; got 3 bytes*"),
        ("check(bytes(3), case='q8ta_add/x')", "*FormatError: *no such case*"),
        ("check('no.bin', case='q8ta_add/0105')", "*FormatError: no.bin: cannot be read; got no such file*"),
        (
            "check(bytes(48), layout='4W4C', shape=(1, 4, 3, 4), case='q8ta_add/0105')",
            "*ShapeError: *writes another tensor; got 1x4x3x4 4W4C, need *",
        ),
    ],
)
def test_nonsense_is_said(project: pytest.Pytester, call: str, says: str) -> None:
    good = "check(bytes(48), layout='4W4C', shape=(1, 4, 3, 4))"
    project.makepyfile(test_a=f"def test(packed_golden):\n    packed_golden.{good}\n")
    run(project, "--packed-golden-regen", "x").assert_outcomes(passed=1)
    project.makepyfile(test_a=f"def test(packed_golden):\n    packed_golden.{call}\n")
    done = run(project)
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines([says])
    done.stdout.no_fnmatch_line("*refsim/*.py*")  # nobody has to read refsim's sources


def test_two_buffers_of_a_test_need_names(project: pytest.Pytester) -> None:
    twice = "    packed_golden.check(bytes(16), layout='4C', shape=(1, 3, 2, 2))\n" * 2
    project.makepyfile(test_a=f"def test(packed_golden):\n{twice}")
    done = run(project, "--packed-golden-regen", "x")
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines(["*a second buffer of this test without a name of its own*"])
    done.stdout.no_fnmatch_line("*refsim/*.py*")


@pytest.mark.long
def test_a_case_needs_no_file(project: pytest.Pytester) -> None:
    """A dump is held against what the operator must write; what the operator leaves to chance is spared."""
    case = open_case(CASE)
    dump = PackedBuffer(case.expected.desc)
    dump.raw[:] = case.expected.raw
    dump.data[~case.bound.call.device_defined()] ^= 1
    (project.path / "good.bin").write_bytes(dump.raw.tobytes())
    own = "n c/4 h w c%4 align:c=16"
    (project.path / "own.bin").write_bytes(PackedBuffer.pack(case.expected.unpack(), own).raw.tobytes())
    (project.path / "ncnn.toml").write_text('order = "n c/4 h w c%4"\nalign = { c = 16 }\n')
    project.makepyfile(f"""
        import pathlib
        def test(packed_golden):
            packed_golden.check(pathlib.Path("good.bin"), case={CASE!r})
            packed_golden.check("good.bin", case={CASE!r})
            packed_golden.check("own.bin", layout="ncnn.toml", case={CASE!r})
    """)
    run(project).assert_outcomes(passed=1)
    dump.raw[0] ^= 1
    (project.path / "good.bin").write_bytes(dump.raw.tobytes())
    done = run(project)
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines([f"{CASE}*: 1 byte differs", "likely cause: could be many*"])
    assert not (project.path / "packed_golden").exists()


@pytest.mark.long
def test_the_documented_example(project: pytest.Pytester) -> None:
    """docs/pytest.md: its files are written and its commands run in the order of the page, with that output."""
    page = (ROOT / "docs" / "pytest.md").read_text()
    shown: list[tuple[str, str]] = []
    for kind, block in re.findall(r"^```(python|text)\n(.*?)^```$", page, re.M | re.S):
        first, _, rest = block.partition("\n")
        if kind == "python":
            path = project.path / first.removeprefix("# ")
            path.parent.mkdir(exist_ok=True)
            path.write_text(block)
        else:
            command, *options = shlex.split(first.removeprefix("$ "))
            assert command == "pytest"
            printed = [
                re.sub(r"in [\d.]+s", "in 0.01s", row)
                for row in project.runpytest_subprocess(*options).outlines
            ]
            shown.append((rest, "\n".join(row.rstrip() for row in printed).strip() + "\n"))
    assert len(shown) == 4
    for page_shows, printed in shown:
        assert page_shows == printed


def test_a_kernel_on_flat_tensors_is_compared_with_its_own_meaning(project: pytest.Pytester) -> None:
    """A right convolution gives other bytes there than the packed kernel of the same case."""
    with needs_device():
        executor_named(f"wgsl:{RIGHT}")
    project.makepyfile(
        f"def test_it(packed_golden): packed_golden.check_kernel('q8ta_conv2d/0027', 'wgsl:{RIGHT}')"
    )
    run(project).assert_outcomes(passed=1)
