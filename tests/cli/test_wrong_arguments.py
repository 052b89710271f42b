"""What a reader of the pages types at first and is not what a verb takes: the line says what to type instead."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from refsim.core import choices
from refsim.core.extras import GPU_FIX, NO_KP
from refsim.exec.factory import executors
from refsim.ops.base.registry import OPS

KP = any(one.name == "spv:DIR" and one.available for one in executors())

ROOT = Path(__file__).parents[2]
DATA = ROOT / "tests" / "data"


@pytest.fixture
def desk(tmp_path: Path, models: Path, monkeypatch: pytest.MonkeyPatch, refsim: Callable) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("model.pte").write_bytes((models / "mixed_ops.pte").read_bytes())
    assert refsim("extract", "model.pte", "-n", "0:7", "--random", "0", "-o", "case").status == 0
    Path("README.md").write_text("words\n")
    return tmp_path


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("compare model.pte --random 0 -x cpu -x cpu", "cpu would be compared with itself; need another"),
        (
            "extract model.pte -n q8ta_conv2d_pw --random 0 -o new",
            "an operator and no node; got q8ta_conv2d_pw, need 0:3, 0:5",
        ),
        ("extract model.pte -n nonesuch --random 0 -o new", "(refsim inspect model.pte lists all)"),
        ("replay README.md", "README.md: not a case; got a file, need a case directory"),
        ("replay case/out.bin", "; did you mean case?"),
        (
            "diff case/out.bin README.md",
            "README.md: raw buffer for 1x64x16x16 4C: wrong size; got 6 bytes, need 16384\n",
        ),
        (
            "unpack README.md -l 4C -s 1,4,2,2 -o new.npy",
            "README.md: raw buffer for 1x4x2x2 4C: wrong size; got 6 bytes, need 16\n",
        ),
        ("lower nonesuch.pt2", "nonesuch.pt2: cannot be read; got no such file"),
        ("lower README.md", "README.md: not a .pt2 file"),
        ("sweep nonesuch", "no such operator (refsim sweep --help lists all)"),
        ("golden verify nonesuch", "no such operator (refsim sweep --help lists all)"),
        ("golden export nonesuch --pte new", "with packed int8 (refsim golden export --help lists all)"),
        (
            "golden new nonesuch",
            "no such operator; got nonesuch, need python -m refsim.ops new nonesuch first",
        ),
        ("golden regen nonesuch --dry-run", "no rule for that operator (refsim sweep --help lists all)"),
        ("golden new", "Missing OPERATOR; for example: refsim golden new q8ta_leaky_relu"),
        ("etdump", "Missing FILE, ETDUMP; for example: "),
        (
            "sweep q8ta_relu -n 9 --db case --resume",
            "case: no file of results; got a folder, need a file, such as case/results.sqlite",
        ),
        ("sweep q8ta_relu -n 9 --scheduler local -x nonesuch", "executor: unknown; got 'nonesuch'"),
    ],
)
def test_the_line_says_what_to_type(given: str, said: str, desk: Path, refsim: Callable) -> None:
    refsim(*given.split()).refused(said)


@pytest.mark.parametrize(
    ("given", "example"),
    [
        ("run model.pte", "run model.pte -i in.npz -o out.npz"),
        ("compare model.pte -x cpu -x cpu:emulated", "compare model.pte --random 0 -x cpu -x gpu"),
        ("compare model.pte --random 0 -x cpu", "compare model.pte --random 0 -x cpu -x gpu"),
        ("locate -l 4C -s 1,4,2,2", "locate -l 4W4C -s 1,16,8,8 --byte 5"),
        ("unpack README.md -o new.npy", "unpack buffer.bin -l 4W4C -s 1,64,56,56 -o array.npy"),
        ("diff README.md README.md", "diff expected.bin actual.bin -l 4W4C -s 1,64,56,56"),
        ("bisect model.pte --random 0", "bisect model.pte -i in.npz --actual dumps"),
        ("bisect model.pte -x cpu", "bisect model.pte -i in.npz --actual dumps"),
    ],
)
def test_one_of_several_arguments_is_missing(given: str, example: str, desk: Path, refsim: Callable) -> None:
    done = refsim(*given.split())
    assert done.status == 2 and " ".join(done.err.split()).endswith(f"; for example: refsim {example}")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            "golden verify --op q8ta_add",
            "--op: CASES stand without an option; for example: refsim golden verify ",
        ),
        (
            "sweep --operator=q8ta_add",
            "OPERATORS stand without an option; for example: refsim sweep -n 1000 q8ta_add",
        ),
        ("run x.pte --exec cpu", "No such option --exec; did you mean --executor?"),
        ("golden verify --rot x", "No such option --rot; did you mean --root?"),
    ],
)
def test_an_argument_that_was_taken_for_an_option(given: str, said: str, refsim: Callable) -> None:
    refsim(*given.split()).refused(said)


def test_one_module_is_no_folder_of_modules(desk: Path, refsim: Callable) -> None:
    (desk / "q8ta_relu_buffer.spv").write_bytes(b"")
    said = "is one module, need the folder that it lies in; for example: refsim shaders "
    refsim("shaders", "q8ta_relu_buffer.spv", "q8ta_relu").refused(f"q8ta_relu_buffer.spv: {said}. q8ta_relu")
    refsim("shaders", desk / "q8ta_relu_buffer.spv").refused(f"{said}{desk}")
    refsim("shaders", "absent.spv").refused("got no such file")
    said = "q8ta_relu_buffer.spv: is one module; need the folder that it lies in, ."
    refsim("replay", "q8ta_relu/1", "-x", "spv:q8ta_relu_buffer.spv").refused(said, status=2 if KP else 3)
    if KP:
        Path("build/inside").mkdir(parents=True)
        Path("build/inside/own.spv").write_bytes(b"")
        refsim("shaders", "build").refused("; did you mean build/inside?")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            "extract q8ta_ad/1 -o new",
            "no such case; got q8ta_ad/1, need OPERATOR/NUMBER as in digests/; did you mean",
        ),
        ("extract chains/16 -o new", "a chain, and no case; need refsim golden verify chains/16"),
        ("inspect model.pte --html a/b.html", "a/b.html: cannot be written; got no such folder as "),
        (
            "golden new q8ta_relu",
            "the operator has cases; got q8ta_relu, need refsim golden regen q8ta_relu --reason ",
        ),
    ],
)
def test_the_next_step_can_be_pasted(given: str, said: str, desk: Path, refsim: Callable) -> None:
    refsim(*given.split()).refused(said)


def test_help_of_help(refsim: Callable) -> None:
    done = refsim("help", "help")
    assert done.status == 0 and done.out == refsim("help").out
    refsim("hlep").refused("No such command 'hlep'; did you mean help?")
    assert refsim("help", "golden").out.endswith("Example: refsim golden verify -x cpu --workers 2\n")


@pytest.mark.parametrize(("given", "meant"), [("noen", "none"), ("locl", "local")])
def test_a_scheduler_that_is_nearly_right(given: str, meant: str, refsim: Callable) -> None:
    refsim("sweep", "q8ta_relu", "-n", 1, "--scheduler", given).refused(
        f"sweep --scheduler: unknown; got {given}, need local, none or HOST:PORT; did you mean {meant}?"
    )


def test_a_case_of_a_zip_file_that_is_not_there(refsim: Callable) -> None:
    path = ROOT / "golden" / "cases" / "q8ta_add.zip"
    refused = refsim("replay", f"{path}!0017")
    refused.refused(f"{path}: no such case in it; got 0017, need 0175, 0176, ")
    assert re.search(
        r", \.\.\. and \d+ more; it is in the corpus\ntry: refsim replay q8ta_add/0017\n", refused.err
    )
    assert refsim("replay", "q8ta_add/0017").status == 0
    refsim("replay", f"{path}!0175x").refused("got 0175x, need 0175, ")
    assert "did you mean 0175?" in refsim("replay", f"{path}!0175x").err
    assert "did you mean" not in refsim("replay", f"{path}!99999").err


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("check other.pt2", "got text: 'words', need a .pte, which refsim lower makes of a .pt2"),
        ("diff case/out.bin case/out.bin --profile nvidia", "--profile needs --case CASE: "),
        ("bisect model.pte -x cpu --actual case --random 0", "or run the file with -x EXECUTOR, not both"),
        ("run model.pte --random 0 -i in.npy", "with -i FILE or with --random SEED, not both"),
        ("locate -l 4C -s 1,4,2,2 --byte 0 --index 0,0,0,0", "--index n,c,h,w, not both"),
        ("pack in.npy -l 4C -o out.bin --lane 0x100", "'0x100' is not a byte: -128 to 255, or 0x00 to 0xFF"),
        ("pack in.npy -l 4C -o out.bin --word five", "'five' is not a byte"),
        ("pack in.npy -l 4C -o ./in.npy", "./in.npy: is read as FILE, and --output would replace it; need"),
        ("collect model.pte in.npy -o in.npy", "is a file, and a folder is made; need the name of a new"),
        ("unpack case/out.bin -o case/out.bin", "need another name, such as case/out-2.bin"),
    ],
)  # fmt: skip
def test_what_was_meant_is_said(given: str, said: str, desk: Path, refsim: Callable) -> None:
    np.save("in.npy", np.zeros((1, 4, 2, 2), np.int8))
    Path("other.pt2").write_text("words\n")
    before = {path: path.read_bytes() for path in desk.rglob("*") if path.is_file()}
    refsim(*given.split()).refused(said)
    assert {path: path.read_bytes() for path in desk.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("option", ["--lane", "--word"])
@pytest.mark.parametrize("text", ["-38", "218", "0xDA"])
def test_padding_is_a_byte_in_any_form(option: str, text: str, desk: Path, refsim: Callable) -> None:
    np.save("in.npy", np.ones((1, 3, 2, 5), np.int8))
    assert refsim("pack", "in.npy", "-l", "4W4C", "-o", "out.bin", option, text).status == 0
    assert set(np.fromfile("out.bin", np.uint8)) == {0, 1, 0xDA}


def test_buffers_that_are_no_value_of_the_file_are_named(desk: Path, refsim: Callable) -> None:
    assert refsim("run", "model.pte", "--random", "0", "--dump", ".", "dump").status == 0
    given = ("bisect", "model.pte", "--random", "0", "--actual", "dump")
    assert "no value" not in refsim(*given).out
    for suffix in (".bin", ".json"):
        Path(f"dump/delegate0_v54{suffix}").rename(f"dump/delegate0_v99{suffix}")
    info = Path("dump/delegate0_v99.json")
    info.write_text(info.read_text().replace("delegate0_v54", "delegate0_v99"))
    done = refsim(*given)
    said = "not compared: delegate0_v99 in dump is no value of model.pte; did you mean delegate0_v54?"
    assert done.status == 2 and said in done.out.splitlines()
    assert said in refsim(*given, "--json").json["notes"]


def test_a_buffer_of_a_case_needs_no_layout(desk: Path, refsim: Callable) -> None:
    """The case.json beside it has layout and shape."""
    done = refsim("unpack", "case/out.bin", "-o", "out.npy")
    assert done.status == 0 and np.load("out.npy").shape == (1, 64, 16, 16)
    assert refsim("diff", "case/out.bin", "case/out.bin").status == 0
    shutil.copy("case/out.bin", "case/actual.bin")  # where triage puts what a device made of it
    assert refsim("unpack", "case/actual.bin", "-o", "actual.npy").status == 0
    assert refsim("diff", "case/actual.bin", "case/out.bin").status == 0
    Path("case/other.bin").write_bytes(bytes(4))
    refsim("unpack", "case/other.bin", "-o", "other.npy").refused("give --layout and --shape")


def test_what_a_family_shares_makes_no_two_names_alike() -> None:
    assert choices.nearest("q8ta_foo", OPS) is None
    assert choices.nearest("q8ta_ad", OPS) == "q8ta_add"
    assert choices.nearest("delegate0_v300", ["delegate0_v30", "delegate0_v87"]) == "delegate0_v30"


def test_the_help_of_sweep_lists_every_operator(refsim: Callable) -> None:
    assert set(OPS) <= set(re.findall(r"\w+", refsim("sweep", "--help").out))


def test_tables_say_no_count_behind_what_they_count(refsim: Callable, desk: Path) -> None:
    done = refsim("sweep", "q8ta_relu", "-n", "4", "-x", "cpu:emulated", "--workers", "0")
    assert done.out.splitlines()[0].split() == ["operator", "executor", "configs", "same", "bytes"]


def test_a_triage_with_other_inputs_says_so(refsim: Callable, models: Path, tmp_path: Path) -> None:
    """It finds inputs that people take for these, and then blames nobody; it finds no others."""
    held = np.load(models / "linear_head.io.npz")
    right = {name: held[name] for name in held.files if name.startswith("in")}
    np.savez(tmp_path / "large.npz", **{name: array * np.float32(255) for name, array in right.items()})
    np.savez(tmp_path / "turned.npz", **{name: array[..., ::-1] for name, array in right.items()})
    given = (DATA / "device" / "linear_head.raw.pte", "--outputs", DATA / "device" / "linear_head.raw.npz")
    words = "q8ta_quantize is right for other inputs"
    done = refsim("triage", *given, "-i", tmp_path / "large.npz")
    assert done.status == 1 and f"{words}: in0 divided by 255. " in done.out
    found = refsim("triage", *given, "-i", tmp_path / "large.npz", "--json").json
    assert words in str(found["notes"]) and not found["same"]
    assert [node["verdict"] for node in found["nodes"]] == ["unknown inputs", *["same"] * 4]
    found = refsim("triage", *given, "-i", tmp_path / "turned.npz", "--json").json
    assert [node["verdict"] for node in found["nodes"]] == ["wrong", *["same"] * 4]
    assert words not in refsim("triage", *given, "-i", models / "linear_head.io.npz").out


def test_a_missing_kp_has_one_wording(
    refsim: Callable, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """In `devices`, where the driver lists them all the same, and where a verb wants to run on one."""
    from refsim.cli import devices

    found = importlib.util.find_spec
    monkeypatch.setattr(devices, "find_spec", lambda name: None if name == "kp" else found(name))
    row = dict(index=0, name="d", kind="cpu", vendor="v", api_version="1", driver="d", device_local_bytes=1)
    row |= dict(dot_4x8_accelerated=False, integer_dot_product=False, int8_matrices=False)
    monkeypatch.setattr(devices, "devices", lambda: [dataclasses.make_dataclass("Row", row)(**row)])
    done = refsim("devices")
    assert done.status == 0 and done.out.endswith(f"nothing runs on it: {NO_KP}; fix: {GPU_FIX}\n")
    monkeypatch.setattr(devices, "devices", lambda: [])
    told = refsim("devices", "--json").json
    assert (told["kp"], told["fix"]) == (False, GPU_FIX)
    (tmp_path / "kp.py").write_text("raise ImportError('not in this test')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "kp", raising=False)
    done = refsim("run", DATA / "models" / "mixed_ops.pte", "--random", "0", "-x", "gpu")
    done.refused("need " + GPU_FIX if NO_KP in done.err else "vulkan", status=3)


def test_the_script_of_the_pages_knows_its_runs() -> None:
    command = [sys.executable, "docs/seeded_bugs.py", "nonesuch"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and done.stderr.count("\n") == 1
    assert "no such run: nonesuch; need frame, grid, steps or phone" in done.stderr


@pytest.mark.parametrize("verb", ["diff", "golden check"])
def test_the_schema_of_one_verb(verb: str, refsim: Callable) -> None:
    done = refsim("schema", *verb.split())
    assert done.status == 0
    whole = json.loads(refsim("schema").out)
    assert json.loads(done.out) == {**whole["$defs"]["verbs"][verb], "$defs": whole["$defs"]}
    refsim("schema", "dif").refused("no such verb; got dif, need bisect, check, ")


def test_a_pattern_says_each_thing_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from refsim.bytediff import diff, pattern

    monkeypatch.setattr(pattern, "RULES", (*pattern.RULES, *pattern.RULES))
    found = diff(bytes(16), bytes([1, *bytes(15)]), "4C", (1, 4, 2, 2))
    assert found.pattern and len(set(found.pattern)) == len(found.pattern)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("run", "m.pte", "--dump", "x"),
         "requires 2 arguments; for example: refsim run model.pte -i in.npz -o out.npz --dump REGEX DIR"),
        (("extract", "m.pte", "--pte"), "-o case --pte words"),
        (("extract", "m.pte", "--html", "x"),
         "No such option --html; bisect, compare, diff, inspect, repeat, replay, run, shaders, triage have it"),
    ],
)  # fmt: skip
def test_the_option_itself_is_shown(refsim, words: tuple[str, ...], said: str) -> None:
    refsim(*words).refused(said)
