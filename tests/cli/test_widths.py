"""What every verb prints fits the terminal: no line is too long, no word and no number is broken or cut off.

Each command runs here once, without a width; what it said is then shown at each of four, and must be the same words.
A command that fails says nothing, and runs at each width.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import click
import numpy as np
import pytest

from refsim.bytediff import Cause
from refsim.check.finding import Finding, Level, Place
from refsim.cli import demo
from refsim.cli._lowered import LoweredProgram
from refsim.cli.demo import bundled
from refsim.cli.kit import program
from refsim.cli.kit.text import show
from refsim.core.result import Part, Table
from refsim.device.execution import Misshaped
from refsim.golden import verify as checks
from refsim.golden.check import Checked
from refsim.partition.refusal import RefusedNode
from refsim.partition.rows import CheckedOperator, DelegateReport, FusedOperator

WIDTHS = (80, 100, 120, 200)
MODELS = Path(__file__).parents[1] / "data" / "models"
DEVICE = MODELS.parent / "device" / "linear_head.raw"
HEAD = f"{MODELS}/linear_head"
#: Verb -> the command lines that are run; {scratch} has what `prepared` put there.
COMMANDS = {
    "bisect": [f"{HEAD}.pte -i {HEAD}.io.npz --actual {{scratch}}/dump --limit 3 --search 0"],
    "check": [f"{MODELS.parent}/networks/int8_mixer.pte", f"{HEAD}.pte"],
    "collect": [f"{DEVICE}.pte {DEVICE}.npz -o {{scratch}}/new"],
    "compare": [
        f"{HEAD}.pte --random 0 -x cpu -x cpu",
        f"{MODELS.parent}/dynamic/batch_conv.pte --random 0 --runtime 2026-08 --runtime main",
    ],
    "demo": ["linear_head"],
    "devices": [""],
    "diff": ["{scratch}/good.bin {scratch}/bad.bin -l 4C -s 1,32,16,16"],
    "doctor": [""],
    "etdump": [f"{HEAD}.pte {{scratch}}/good.bin"],
    "expose": [f"{HEAD}.pte -o {{scratch}}/exposed.pte"],
    "extract": [f"{HEAD}.pte -n 1 --random 0 -o {{scratch}}/new --pte words"],
    "golden": ["verify q8ta_relu/0001", "regen nonesuch", "export nonesuch --pte {scratch}/new"],
    "inspect": [f"{MODELS}/mixed_ops.pte", f"{HEAD}.pte --plan"],
    "locate": ["-l 4W4C -s 1,6,2,6 --byte 54"],
    "lower": [f"{HEAD}.nonesuch"],
    "mend": [f"{MODELS}/mixed_ops.pte -o {{scratch}}/mended.pte"],
    "mutate": ["--list --bug P6"],
    "pack": ["{scratch}/array.npy -l 4W4C -o {scratch}/array.bin"],
    "probe": [""],
    "reduce": [f"{HEAD}.pte -o {{scratch}}/small.pte -- false"],
    "repeat": [f"{HEAD}.pte --random 0 -n 2"],
    "replay": ["{scratch}/case", "{scratch}/case --actual {scratch}/bad.bin --limit 3 --search 0"],
    "run": [
        f"{MODELS}/mixed_ops.pte -i {MODELS}/mixed_ops.io.npz --golden {MODELS}/mixed_ops.dump.zip --memory",
        f"{HEAD}.pte -i {HEAD}.io.npz --golden {{scratch}}/dump",
    ],
    "shaders": ["{scratch}/nothing-there"],
    "sweep": ["q8ta_relu -n 2 --workers 0 -x cpu --failures {scratch}/failures"],
    "triage": [f"{DEVICE}.pte -i {HEAD}.io.npz --outputs {DEVICE}.npz"],
    "unpack": ["{scratch}/good.bin -l 4C -s 1,32,16,16 -o {scratch}/back.npy"],
}  # fmt: skip
#: What `refsim lower --check` shows; the verb itself needs torch.
LOWERED = LoweredProgram(
    file="m.pt2", target="desktop", runtime="2026-08", steps=["delegate 0"], output=None, force=False, idle_blocks=[],
    delegates=[
        DelegateReport(
            0, [], [],
            [FusedOperator(
                "q8ta_conv2d_transposed", "q8ta_conv2d_transposed_1", "convolution_7",
                ["convolution_7", "dequantize_per_tensor_12", "dequantize_per_channel_7", "relu_6"],
                "quantize_per_tensor_13", [], [], [],
            )],
            [],
            {"operators": 172, "int8_operators": 170, "float_operators": 2, "dispatches": 188,
             "transitions": 14, "clones": 12, "clone_bytes": 1065668, "constant_bytes": 3504872,
             "memory_bytes": 1204224, "memory_bytes_unshared": 6705152},
        )
    ],
    refused=[
        RefusedNode("no-implementation", "aten_upsample_bilinear2d_vec", "aten.upsample_bilinear2d.vec",
                    "aten.upsample_bilinear2d.vec")
    ],
    unfused=[],
    defects=[
        Misshaped(0, 7, "q8ta_conv2d_pw",
                  "upstream ignores groups: each output sums over all input channels, with weights of other outputs")
    ],
    check=[CheckedOperator(0, "q8ta_conv2d_transposed_1", "q8ta_conv2d_transposed", 65536, {"0": 65536}, 0, 1, {})],
    runtime_errors=[
        Finding("overlapping-memory", Level.ERROR, Place("forward", 0, 12, "et_vk.q8ta_conv2d_pw.default", 37),
                "shares memory with a value that is read later", "the runtime reads what was written last",
                "give each its own memory")
    ],
)  # fmt: skip
VERBS = program.root.list_commands(click.Context(program.root))  # type: ignore[attr-defined]


#: What `refsim devices` shows of a device with long names, and `refsim probe` of one that no profile describes.
DEVICES = [
    SimpleNamespace(
        index=0, name="llvmpipe (LLVM 15.0.6, 256 bits)", kind="cpu", vendor="0x10005 (Mesa software)",
        api_version="1.3.230", driver="llvmpipe, Mesa 22.3.6 (LLVM 15.0.6)", device_local_bytes=2147483648,
        dot_4x8_accelerated=False, integer_dot_product=True, int8_matrices=False,
    )
]  # fmt: skip
FOUND = SimpleNamespace(
    device="Mali-G715 (Immortalis)", driver="v1.r38p1-01eac0.c1a71ccca2acf211eb87c5db5322f569",
    to_profile=lambda: None, as_json=dict, remarks=["denormals are flushed in some places only"],
    rows=lambda: [("denormal inputs", ", ".join(f"{op} flushed" for op in ("add", "multiply", "divide", "convert")))],
)  # fmt: skip


def _checked(corpus: object, work: list[checks.Task], *rest: object) -> list[list[Checked]]:
    """What `golden verify` would get of its processes: a case that fails with all that can be said of it."""
    cause = Cause("border padded with 0", "taps outside the image read 0", 12, 12, 0)
    detail = {
        "digest": "0" * 64, "recorded": "1" * 64, "differing": 12, "pattern": ["only lane 3", "only at h <= 2"],
        "causes": [cause], "sought": True,
    }  # fmt: skip
    said = "guard words were written"
    return [[Checked(case, "cpu", "different", said, **detail) for task in work for case in task.cases]]


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Buffers that differ, a case, and the dump of a run with a wrong buffer."""
    folder = tmp_path_factory.mktemp("widths")
    good = np.random.default_rng(0).integers(0, 255, 8192, np.uint8)
    bad = good.copy()
    bad[1000:1040] ^= 7
    good.tofile(folder / "good.bin")
    bad.tofile(folder / "bad.bin")
    np.save(folder / "array.npy", np.zeros((1, 6, 2, 6), np.int8))
    run = f"run {HEAD}.pte -i {HEAD}.io.npz --dump . {folder}/dump --json"
    cut = f"extract {MODELS}/mixed_ops.pte -n 0:6 --random 0 -o {folder}/case --json"
    assert [program.main(line.split()) for line in (run, cut)] == [0, 0]
    wrong = np.memmap(folder / "dump" / "delegate0_v20.bin", np.uint8, "r+")
    wrong[5:400:7] = 0x7F
    wrong.flush()
    return folder


@pytest.fixture
def printed(refsim, monkeypatch: pytest.MonkeyPatch, scratch: Path) -> Callable[[str, int | None], list[str]]:
    """What a command line prints in this width, or without one: the lines of stdout, then those of stderr."""
    monkeypatch.setattr(checks, "run", _checked)
    monkeypatch.setattr("refsim.cli.devices.devices", lambda: DEVICES)
    monkeypatch.setattr("refsim.cli.probe.probe", lambda index: FOUND)
    few = {name: path for name, path in bundled().items() if name.startswith("linear_head")}
    monkeypatch.setattr(demo, "bundled", lambda: few)

    def run(line: str, width: int | None) -> list[str]:
        shutil.rmtree(scratch / "new", ignore_errors=True)
        if width is not None:
            monkeypatch.setenv("COLUMNS", str(width))
        else:
            monkeypatch.delenv("COLUMNS", raising=False)
        done = refsim(*line.format(scratch=scratch).split())
        assert "Traceback" not in done.err
        return (done.out + done.err).splitlines()

    return run


def words(lines: list[str]) -> set[str]:
    """The words, cut where they may fold; without times, and without what says that a line goes on."""
    every = {word for line in lines if not line.lstrip().startswith("not shown: ") for word in line.split()}
    kept = {word for word in every if not re.fullmatch(r"\d+\.\d{3}|[\d.]+s?|\\", word)}
    return {part for word in kept for part in re.split(r"(?<=[/,;.])", word) if part}


def too_long(lines: list[str], width: int) -> list[str]:
    """Lines that do not fit, but for those of one word that cannot fold."""
    return [line for line in lines if len(line) > width and len(line.split()) > 1]


def fits(narrow: list[str], whole: list[str], width: int) -> None:
    assert not too_long(narrow, width)
    assert words(narrow) <= words(whole)
    assert sum(not text for text in narrow) <= sum(not text for text in whole), "lines that say nothing"


def test_what_lower_prints_fits(capsys: pytest.CaptureFixture[str], monkeypatch) -> None:
    show(LOWERED.text())
    whole = capsys.readouterr().out.splitlines()
    for width in WIDTHS:
        monkeypatch.setenv("COLUMNS", str(width))
        show(LOWERED.text())
        fits(capsys.readouterr().out.splitlines(), whole, width)


def test_every_verb_is_tried() -> None:
    """All but one: `schema` prints a file as it is."""
    assert sorted([*COMMANDS, "schema"]) == VERBS


@pytest.mark.parametrize(
    "line",
    [f"{verb} {more}".strip() for verb in COMMANDS for more in COMMANDS[verb]],
    ids=[f"{verb}-{number}" for verb in COMMANDS for number in range(len(COMMANDS[verb]))],
)
def test_what_a_verb_prints_fits(line: str, printed, capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[Part] = []

    def shown(parts: Iterator[Part]) -> None:
        said.extend(
            Table(one.columns, list(one.rows), one.drop) if isinstance(one, Table) else one for one in parts
        )
        show(said)

    monkeypatch.setattr("refsim.cli.kit.verb.show", shown)
    whole = printed(line, None)
    assert whole
    for width in WIDTHS:
        monkeypatch.setenv("COLUMNS", str(width))
        show(said)
        fits(capsys.readouterr().out.splitlines() if said else printed(line, width), whole, width)


@pytest.mark.parametrize(
    "verb",
    [*VERBS, "", *(f"golden {name}" for name in ("verify", "coverage", "regen", "new", "export", "check"))],
)
def test_help_fits(verb: str, printed) -> None:
    """Click folds help texts, and also after a hyphen."""
    whole = words(printed(f"{verb} --help", 1000))
    whole |= {part for word in whole for part in re.split(r"(?<=-)", word)}
    for width in WIDTHS:
        narrow = printed(f"{verb} --help", width)
        assert not too_long(narrow, width)
        assert words(narrow) <= whole
