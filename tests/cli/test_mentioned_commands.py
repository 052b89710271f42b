"""The commands that README, docs and help texts mention outside of consoles run, and what they print fits a terminal.

No line is too long, no word and no number is broken or cut off. What a command says is shown at each of four widths,
and must be the same words. A command that fails says nothing, and runs at each width.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import click
import pytest
from test_docs import console, mentioned
from verbs import commands

from refsim.bytediff import Cause
from refsim.check.finding import Finding, Level, Place
from refsim.cli._lowered import LoweredProgram
from refsim.cli.kit import program
from refsim.cli.kit.document import Document
from refsim.cli.kit.text import show
from refsim.core.result import Part, Table
from refsim.device.execution import Misshaped
from refsim.golden import verify as checks
from refsim.golden.check import Checked
from refsim.partition.refusal import RefusedNode
from refsim.partition.rows import CheckedOperator, DelegateReport, FusedOperator

WIDTHS = (80, 100, 120, 200)

#: What a word of a command stands for, on the desk that `desk` lays out. Behind a verb's name, for this verb alone.
WORDS = {
    "FILE": "model.pte", "IN.npz": "in.npz", "LAYOUT": "4W4C", "SHAPE": "1,64,56,56", "DIR": "new",
    "A": "good.bin", "B": "bad.bin", "EXPECTED": "good.bin", "ACTUAL": "bad.bin", "CASE": "case",
    "OUTPUT": "dump.bin", "EXPOSED": "seg.exposed.pte", "OUTPUTS": "outputs.npz", "ETDUMP": "net.etdp",
    "BIN": "net.bin", "OP": "q8ta_add", "FILE.npy": "array.npy", "FILE.bin": "good.bin", "OUT.npy": "new.npy",
    "OUT.bin": "new.bin", "N": "0:7", "case": "case", "bisect DIR": "dumps", "replay DIR": "case",
    "extract case": "new", "extract alone": "new", "replay alone": "case",
    "extract conv": "new", "replay conv": "case",
    "(--byte": "--byte", "locate B": "7", "device_dumps/": "dumps", "expected/": "new",
    "dumps/": "dumps", "run dumps/": "dumps", "expected/delegate0_v38.bin": "dumps/delegate0_v38.bin",
    "ncnn.toml": "NC4HW4", "etdump FILE": "net.pte", "triage OUT": "seg.exposed.pte",
    "device_dumps/delegate0_v38.bin": "dumps/delegate0_v38.bin", "inspect OUT": "new.json",
    "expose OUT": "new.pte", "out/debugging/frame/delegate0_v38.bin": "dumps/delegate0_v38.bin",
    "replay FOLDER": "case", "EXECUTOR": "cpu", "NAME": "cpu", "tests/data/models/mixed_ops.pte": "model.pte",
    "tests/data/models/mixed_ops.io.npz": "in.npz", "spv:build/shaders": "cpu:emulated",
    "cpu,spv:build/shaders": "cpu,cpu:emulated", "gpu:0": "cpu:emulated", "gpu": "cpu:emulated",
    "'delegate0_v38'": "delegate0_v38", "1000000": "50", "100000": "50", "gpu:1,cpu": "cpu", "14": "1",
    "10": "1", "q8ta_linear/17": "q8ta_linear/0017", "demo NAME": "linear_head",
    "golden OPERATOR": "q8ta_relu", "FILTER": "q8ta_relu",
    "expected.bin": "good.bin", "actual.bin": "bad.bin", "etdump model.pte": "net.pte", "run.etdp": "net.etdp",
    "run.bin": "net.bin", "expose exposed.pte": "new.pte", "exposed.pte": "seg.exposed.pte", "found": "new",
    "pack buffer.bin": "new.bin", "buffer.bin": "good.bin", "unpack array.npy": "new.npy", "bisect dumps": "dumps",
    "triage found": "new", "1000": "20", "corpus": "new", "100": "3", "VERB": "run",
    "tests/data/dynamic/fcn_add.pte": "fcn_add.pte", "A.npz": "in.npz", "B.npz": "in.npz",
}  # fmt: skip

#: What is not run, by how it begins, and why.
LEFT_OUT = {
    "run tests/data/dynamic/split_glu.pte --sequence": "tests/cli/test_dynamic_verbs.py runs it at two shapes",
    "run model.pte --random 0 --runtime webgpu": "tests/cli/test_wgsl_verbs.py runs it on kernels of its own",
    "compare model.pte --random 0 --runtime webgpu": "tests/cli/test_wgsl_verbs.py runs it on kernels of its own",
    "bisect model.pte --random 0 --runtime webgpu": "tests/cli/test_wgsl_verbs.py runs it on kernels of its own",
    "lower": "needs torch; tests/lowering runs it",
    "golden regen": "writes the corpus of the checkout; tests/golden runs it on a copy",
    "golden new": "writes into the checkout; tests/golden runs it on a copy",
    "golden verify -x": "takes minutes; tests/golden and tests/gpu run it",
    "golden verify": "takes minutes; tests/golden runs it",
    "golden coverage": "takes minutes; tests/golden runs it",
    "golden check": "needs what a device wrote; tests/golden runs it",
    "golden export --size small --pte out/corpus": "takes a minute; tests/golden runs it",
    "golden export --pte out/corpus": "takes a minute; tests/golden runs it",
    "mutate": "takes minutes; tests/mutants runs it",
    "reduce": "needs a command that fails; tests/cli/test_reduce_verb.py runs it",
    "shaders": "needs a folder of modules; tests/cli/test_shader_folders.py runs it",
    "probe": "needs a device or what it wrote; tests/cli and tests/gpu run it",
    "triage seg.exposed.pte -i in.npz --outputs seg.exposed.runs": "tests/cli/test_triage.py makes such a folder",
    "collect": "needs an exposed program's own outputs; tests/cli/test_expose.py runs it",
}

#: Bare names of verbs, and commands with parts left out, are no whole commands; but some verbs need nothing more.
NO_COMMAND = re.compile(
    r"^(?!(demo|devices|doctor|schema)$)\S+( --?[a-z-]+)*$|(?<!\[OP) \.\.\.( |$)|^golden \w+( --?\w+)?$"
)


def _commands() -> Iterator[tuple[str, str]]:
    for page in console.PAGES:
        for words in mentioned(page.read_text()):
            text = " ".join(words)
            if not NO_COMMAND.search(text) and not any(text.startswith(name) for name in LEFT_OUT):
                yield page.name, text
    for name, command in commands():
        text = f"{name} {command.example}".rstrip()
        if not any(text.startswith(left) for left in LEFT_OUT):
            yield "--help", text


COMMANDS = sorted(set(_commands()))
#: Of verbs that are left out, and of what is hard to show: long names, causes, errors. `fakes` has the devices.
HARD = [
    "bisect model.pte -i in.npz --actual wrong --limit 3 --search 0", "check refused.pte",
    "collect seg.exposed.pte outputs.npz -o new", "compare head.pte --random 0 -x cpu -x cpu", "devices",
    "diff good.bin bad.bin -l 4C -s 1,64,56,56", "etdump head.pte good.bin", "extract model.pte -n 1 -o new",
    "golden verify q8ta_relu/0001", "golden regen nonesuch", "golden export nonesuch --pte new",
    "inspect head.pte --plan", "lower head.nonesuch", "mutate --list --bug P6", "probe",
    "reduce head.pte -o small.pte -- false", "replay case --actual actual.bin --limit 3 --search 0",
    "run model.pte -i in.npz --golden wrong --memory", "shaders nothing-there",
    "sweep q8ta_relu -n 2 --workers 0 -x cpu --failures failures",
]  # fmt: skip


def line(text: str) -> list[str]:
    """The command with the desk's files in it."""
    verb, *words = re.sub(r"[\[\]]|\.\.\.", "", text).split()
    return [verb, *(WORDS.get(f"{verb} {word}", WORDS.get(word, word)) for word in words)]


def test_a_hundred_commands_of_the_pages_are_run() -> None:
    """Here, and as the examples of consoles (tests/test_docs.py)."""
    shown = sum(len(list(console.examples(page))) for page in console.PAGES)
    assert len(COMMANDS) + shown >= 100


def test_every_verb_is_run() -> None:
    """Here, and as the examples of consoles (tests/test_docs.py)."""
    shown = sum(len(list(console.examples(page))) for page in console.PAGES)
    assert len(COMMANDS) + shown >= 100
    assert {text.split()[0] for text in (*(text for _, text in COMMANDS), *HARD)} >= set(VERBS)


def test_help_ends_with_an_example() -> None:
    for name, command in commands():
        needs = any(parameter.required for parameter in command.params)
        assert command.example or not needs, name
        context = click.Context(command, info_name=f"refsim {name}")
        assert command.get_help(context).endswith(f"Example: {command.call(context)}")
        command.make_context(name, command.example.split(), obj=Document())


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


@pytest.fixture
def fakes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A case that fails, and devices with long names."""
    monkeypatch.setattr(checks, "run", _checked)
    monkeypatch.setattr("refsim.cli.devices.devices", lambda: DEVICES)
    monkeypatch.setattr("refsim.cli.probe.probe", lambda index: FOUND)


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


@pytest.fixture
def fitting(refsim, capsys, monkeypatch: pytest.MonkeyPatch) -> Callable:
    """Runs a command on 80 columns, and shows what it printed at other widths."""
    said: list[Part] = []

    def shown(parts: Iterator[Part]) -> None:
        said.extend(
            Table(one.columns, list(one.rows), one.drop) if isinstance(one, Table) else one for one in parts
        )
        show(said)

    def at(width: int | None, *words: str):
        """What the command prints in this width, or without one."""
        if width is None:
            monkeypatch.delenv("COLUMNS")
        else:
            monkeypatch.setenv("COLUMNS", str(width))
        if not said:
            done = refsim(*words)
            assert "Traceback" not in done.err
            return done, (done.out + done.err).splitlines()
        show(said)
        return None, capsys.readouterr().out.splitlines()

    def run(*words: str):
        monkeypatch.setattr("refsim.cli.kit.verb.show", shown)
        done, narrow = at(WIDTHS[0], *words)
        assert not too_long(narrow, WIDTHS[0])
        _, whole = at(None, *words)
        for width in WIDTHS:
            fits(at(width, *words)[1], whole, width)
        return done

    return run


@pytest.mark.few(6)
@pytest.mark.parametrize(("page", "text"), COMMANDS)
def test_it_runs(page: str, text: str, desk: Path, fitting: Callable, refsim: Callable) -> None:
    done = (refsim if text.split()[0] == "schema" else fitting)(*line(text))  # which prints a file as it is
    unavailable = {3} if text == "devices" else set()  # where there is no driver
    assert done.status in {0, 1} | unavailable, f"{page}: {text}\n{done.out}{done.err}"


@pytest.mark.parametrize("text", HARD)
def test_what_is_hard_to_show_fits(text: str, desk: Path, fakes: None, fitting: Callable) -> None:
    fitting(*text.split())


def test_what_lower_prints_fits(capsys: pytest.CaptureFixture[str], monkeypatch) -> None:
    show(LOWERED.text())
    whole = capsys.readouterr().out.splitlines()
    for width in WIDTHS:
        monkeypatch.setenv("COLUMNS", str(width))
        show(LOWERED.text())
        fits(capsys.readouterr().out.splitlines(), whole, width)


@pytest.mark.parametrize(
    "verb",
    [*VERBS, "", *(f"golden {name}" for name in ("verify", "coverage", "regen", "new", "export", "check"))],
)
def test_help_fits(verb: str, refsim, monkeypatch: pytest.MonkeyPatch) -> None:
    """Click folds help texts, and also after a hyphen."""

    def printed(width: int) -> list[str]:
        monkeypatch.setenv("COLUMNS", str(width))
        return refsim(f"{verb} --help").out.splitlines()

    whole = words(printed(1000))
    whole |= {part for word in whole for part in re.split(r"(?<=-)", word)}
    for width in WIDTHS:
        narrow = printed(width)
        assert not too_long(narrow, width)
        assert words(narrow) <= whole
