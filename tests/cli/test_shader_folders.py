"""refsim shaders: folders of modules, right ones and wrong ones, what it says of them, and what repairs them."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from modules import build, example, own
from modules.bugs import BUGS
from modules.build import put
from modules.example import BINARY
from modules.hidden import HIDDEN
from modules.test_modules_build import needs_tools

from refsim.exec.again import PACKED
from refsim.modules import build as _shaders_build
from refsim.modules import inventory
from refsim.modules import watch as verifying
from refsim.modules.repair.validator import refused, tool
from refsim.ops.base.registry import OPS

pytest_plugins = "modules.opened"

ROOT = Path(__file__).parents[2]
RELU, CONV = "q8ta_relu_buffer", "q8ta_conv2d_float"


# --- right modules ---------------------------------------------------------------------------------------


def test_a_case_that_is_left_out_has_its_reason(folder: Path, refsim) -> None:
    skipped = refsim(f"shaders {folder} q8ta_pixel_shuffle --count 30 --json").json["skipped"]
    assert "q8ta_pixel_shuffle: r = 3, the host takes 2 only" in skipped["q8ta_pixel_shuffle"]


def test_a_file_that_is_cut_off_says_so(folder: Path, refsim) -> None:
    relu = folder / f"{RELU}.spv"
    relu.write_bytes(relu.read_bytes()[:2001])
    done = refsim(f"shaders {folder} --case q8ta_add/000?")
    assert done.status == 1 and f"damaged: {relu.name}: the file is cut off; got 2001 bytes" in done.out


def test_the_help_lists_the_operators_that_the_verb_takes(folder: Path, refsim) -> None:
    listed = " ".join(refsim("shaders --help").out.split()).partition("OPERATORS: ")[2]
    names = listed.partition("; and those of a table")[0].split(", ")
    assert names == inventory.operators() and "q8ta_relu" in names and len(names) < len(OPS)
    for name in set(OPS) - set(names):
        done = refsim(f"shaders {folder} {name}")
        assert done.status == 2 and f" a table [{name}]" in done.err, done.err


@pytest.mark.parametrize("given", ["", "q8ta_relu", "--watch"])
@pytest.mark.parametrize("folder", ["shaders", "shaders/spirv"])
def test_refsims_own_modules_are_no_folder_of_an_author(folder: str, given: str, refsim) -> None:
    """Three of them have a name that ExecuTorch's have too; none of them is called as ExecuTorch calls its own."""
    done = refsim(f"shaders {ROOT}/{folder} {given}")
    done.refused(f"{ROOT / 'shaders' / 'spirv'}: holds refsim's own modules; got ")
    assert "need a kernel author's modules: files such as " in done.err and "refsim.toml" in done.err
    assert done.hints == [f"golden verify {given.replace('--watch', '')} -x gpu".split()]


@pytest.mark.long
def test_one_of_refsims_own_modules_among_others_is_named(folder: Path, refsim) -> None:
    shutil.copy(ROOT / "shaders" / "spirv" / "q8ta_clone.spv", folder)
    done = refsim(f"shaders {folder} --case q8ta_relu/000?")
    assert done.status == 1 and "damaged: q8ta_clone.spv: is one of refsim's own modules" in done.out
    refused = refsim(f"replay q8ta_clone/0003 -x spv:{folder}")
    refused.refused("q8ta_clone.spv: is one of refsim's own modules, which -x gpu runs")


def test_known_defects_are_named_and_no_failure(folder: Path, refsim) -> None:
    content = refsim(f"shaders {folder} q8ta_add --count 12 --json").json
    assert content["same"] is True and content["verb"] == "shaders"
    assert content["known"]["alpha"]["cases"] >= 5 and "ignores alpha" in content["known"]["alpha"]["what"]
    counts = content["operators"]["q8ta_add"]
    assert counts["known"] == content["known"]["alpha"]["cases"] and counts["same"] > 12


@pytest.mark.long
def test_the_runtime_says_which_defects_are_known(folder: Path, tmp_path: Path, refsim) -> None:
    asked = f"shaders {folder} q8ta_add --count 12 --json --runtime"
    assert refsim(f"{asked} main").json["known"]["alpha"]["cases"] >= 5
    (tmp_path / "mine.json").write_text('{"of": "main", "behaviour": {"ended": ["alpha:q8ta_add"]}}')
    mine = refsim(f"{asked} {tmp_path}/mine.json")
    assert mine.status == 1 and not mine.json["known"]


@pytest.mark.long
def test_each_variant_runs(folder: Path, refsim) -> None:
    done = refsim(f"shaders {folder} q8ta_linear --count 4 -v")
    assert done.status == 0 and f"the same with spv:{folder}@fallback" in done.out
    assert [line.split()[-1] for line in done.out.splitlines()[-2:]] == ["yes", "later"]
    content = refsim(f"shaders {folder} q8ta_quantize --images --count 4 --json").json
    runs = {row["module"]: row["runs"] for row in content["modules"]}
    assert runs["q8ta_quantize_texture3d_float"] == "yes" and content["executor"].endswith("@images")
    assert runs["q8ta_quantize_buffer_float"] == "yes"  # for tensors of more than four dims


@pytest.mark.long
def test_what_is_odd_about_a_folder(folder: Path, refsim) -> None:
    (folder / f"{RELU}.spv").rename(folder / "q8ta_relu_bufer.spv")
    other = "pack_q4_linear_weight_buffer.spv"  # another kernel of upstream's, whatever else the folder lacks
    (folder / "pack_q8_linear_weight_unsigned_buffer.spv").rename(folder / other)
    (folder / "q8ta_clone.spv").write_bytes((folder / "q8ta_clone.spv").read_bytes()[:-8])
    (folder / "conv1d_something.spv").write_bytes(b"")
    done = refsim(f"shaders {folder} --case q8ta_add/0000 -v")
    assert "unknown: q8ta_relu_bufer.spv, did you mean q8ta_relu_buffer.spv?" in done.out
    assert other not in done.out
    assert "2 other modules of operators that refsim has no reference for" in done.out
    rows = {line.split()[1]: line.split()[3:] for line in done.out.splitlines() if line.startswith("q8ta_")
            and len(line.split()) > 4}  # fmt: skip
    assert rows[RELU] == ["missing", "no,", "refsim's", "own", "does"]
    assert rows["q8ta_clone"][0] == "damaged"
    assert "damaged: q8ta_clone.spv: " in done.out
    assert done.status == 1 and "wrong: q8ta_clone.spv cannot be read" in done.out


def test_cases_by_pattern(folder: Path, refsim) -> None:
    content = refsim(f"shaders {folder} q8ta_relu --case", "upstream/*_q8ta_relu_*", "--json").json
    assert content["cases"] == 26 and content["operators"] == {"q8ta_relu": {"same": 26}}
    content = refsim(f"shaders {folder} q8ta_relu --case", "q8ta_relu/000?", "--json").json
    assert content["cases"] == 10


@pytest.mark.parametrize(
    ("line", "match"),
    [
        ("nowhere", "not a folder of modules"),
        ("{tests}", "no module of a kernel that refsim knows"),
        ("{tmp}", "a kernel author's modules: files such as q8ta_"),
        ("{right} q8ta_rellu", "(refsim shaders --help lists all); got q8ta_rellu, need "),
        ("{right} q8ta_rellu", "did you mean q8ta_relu?"),
        ("{right} linear_q4gsw", "does not know how ExecuTorch's host calls its module; need "),
        ("{wrong} q8ta_relu", "q8ta_conv2d, need q8ta_relu_buffer.spv"),
        ("{wrong} q8ta_rel", "need q8ta_conv2d_general, q8ta_conv2d\n"),  # the folder has no module of q8ta_relu
        ("{own} q8ta_relu", "no module computes q8ta_relu; got modules of q8ta_add, q8ta_conv2d_pw, need a table"),
        ("{right} --case q8ta_none/*", "no such case"),
        ("{right} --watch --html x.html", "--watch prints what it finds"),
        ("{right} --repeats 3", ""),
        ("{right} --patch x.spv", "--repair"),
        ("{kernels} --repair", "--repair edits SPIR-V modules"),
        ("{right} --device 99", "no such device; got 99"),
    ],
)  # fmt: skip
def test_nonsense_is_one_line(line: str, match: str, tmp_path: Path, folder: Path, refsim) -> None:
    places = {
        "right": build.BINARIES,
        "wrong": BINARY.parent,
        "tests": ROOT / "tests",
        "tmp": tmp_path / "none",
    }
    modules = Path(build.__file__).parent
    places |= {"own": modules / "own" / "right", "kernels": modules / "wgsl" / "right"}
    places["tmp"].mkdir()
    done = refsim(f"shaders {line.format(**places)}")
    done.refused(match, status=3 if "--device" in line else 2)
    assert not Path("x.spv").exists() and not Path("x.html").exists()


def test_no_count_of_cases_is_above_its_total(folder: Path, refsim, monkeypatch: pytest.MonkeyPatch) -> None:
    """--count bounds the spread; telling cases and recordings come on top."""
    told: list[int] = []

    @contextlib.contextmanager
    def progress(what: str, total: int | None = None) -> Iterator[Callable[..., None]]:
        done: list[int] = []
        yield lambda count=1, note="": done.append(count)
        told.append(sum(done))
        assert sum(done) > 1 and (total is None or sum(done) <= total)

    monkeypatch.setattr(verifying, "progress", progress)
    assert refsim(f"shaders {folder} q8ta_relu --count 1").status == 0 and told


def test_a_module_that_cannot_be_read_is_what_the_line_is_about(tmp_path: Path, refsim) -> None:
    (tmp_path / f"{RELU}.spv").write_bytes(b"")
    said = f"{RELU}.spv: not SPIR-V; got 0 bytes, need "
    alone = refsim(f"shaders {tmp_path}")
    alone.refused(f"no module of a kernel that refsim knows: {said}")
    shutil.copy(next(build.BINARIES.glob("q8ta_add*.spv")), tmp_path)
    beside = refsim(f"shaders {tmp_path} q8ta_relu")
    beside.refused(f"no module computes q8ta_relu: {said}")
    for line in (alone.err, beside.err):
        assert line.count("got ") == line.count("need ") == 1


# --- wrong modules ---------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.search(2)
def test_a_wrong_module_is_met_in_the_first_cases(folder: Path, tmp_path: Path, refsim) -> None:
    put(folder, CONV, BINARY)
    done = refsim(f"shaders {folder} --json --limit 2 --html {tmp_path}/page.html")
    content = done.json
    assert done.status == 1 and done.err.startswith("rerun: refsim shaders")
    assert content["same"] is False and content["cases"] <= len(_shaders_build.OPS)
    (wrong,), (kernel,) = content["wrong"], content["causes"]
    assert content["bad"] == [wrong["case"]] and wrong["module"] == CONV and wrong["distinct"] == 1
    assert wrong["again"] == f"refsim shaders {folder} {kernel['operator']} --case {wrong['case']} --limit 2"
    assert kernel["causes"][0]["name"] == "border padded with 0"
    assert (kernel["operator"], kernel["wrong"]) == ("q8ta_conv2d_general", len(wrong["cases"]))
    file, _, number = wrong["lines"][0]["place"].partition(":")
    source = (build.SOURCES / file).read_text().splitlines()[int(number) - 1]
    assert file == "q8ta_conv2d.comp" and source.strip() == wrong["lines"][0]["source"]
    first, _ = wrong["report"]["differences"]
    assert {"word", "lane", "workgroup", "invocation"} <= set(first)
    assert "workgroup" in (tmp_path / "page.html").read_text()


@pytest.mark.long
def test_all_counts_what_is_wrong(folder: Path, refsim) -> None:
    put(folder, CONV, BINARY)
    done = refsim(f"shaders {folder} q8ta_conv2d_general q8ta_relu --all --variant base --count 8")
    assert done.status == 1 and done.out.count("wrong: q8ta_conv2d_general/") >= 5
    assert done.out.count("likely cause:") == 1  # the first of the operator
    rows = {line.split()[0]: line.split()[1:] for line in done.out.splitlines() if line.startswith("q8ta_")}
    assert int(rows["q8ta_relu"][0]) > 30
    (offered,) = (line for line in done.out.splitlines() if line.startswith("search "))
    assert f"refsim shaders {folder} q8ta_conv2d_general --repair" in offered


@pytest.mark.long
@pytest.mark.search(2)
def test_what_was_compiled_last_is_what_the_first_word_is_about(folder: Path, refsim) -> None:
    for path in folder.glob("*.spv"):
        age = 1 + (path.stem == "q8ta_add_buffer")
        os.utime(path, (age, age))
    operators = ("q8ta_add", "q8ta_conv2d_general", "q8ta_relu")
    arguments = ("shaders", folder, *operators, "--variant", "base", "--count", 8)
    right = [line.split(": ")[0] for line in refsim(*arguments).out.splitlines() if "right so far" in line]
    assert right[0] == operators[0] and sorted(right[1].split(", ")) == [*operators[1:]]
    put(folder, CONV, BINARY)
    lines = refsim(*arguments).out.splitlines()
    told = next(number for number, line in enumerate(lines) if line.startswith("q8ta_conv2d_general/"))
    assert " is wrong: byte " in lines[told] and "likely cause:" in lines[told:]
    assert not any("right so far" in line for line in lines), "it is the newest"


@needs_tools
def test_the_example_of_the_page_is_up_to_date() -> None:
    stale = [
        name
        for name, bug in example.EXAMPLES.items()
        if example.binary(name).read_bytes() != example.compiled(bug)
    ]
    assert not stale, "run: PYTHONPATH=tests python -m modules.example --write"


# --- sanitizers ------------------------------------------------------------------------------------------


def hidden(id: str, scratch: Path) -> tuple[str, bytes]:
    bug = next(bug for bug in HIDDEN if bug.id == id)
    return bug.module, bug.compiled(scratch)


@pytest.mark.long
def test_sanitizers_on_right_modules(folder: Path, refsim) -> None:
    arguments = f"shaders {folder} q8ta_relu --count 4 --sanitize --repeats 5"
    done = refsim(arguments)
    assert done.status == 0 and ", 6 sanitized; " in done.out
    content = refsim(f"{arguments} --json").json
    assert (content["unsafe"], content["notes"], content["sanitized"]) == ([], [], 6)
    assert refsim(f"shaders {folder} --repeats 3").status == 2


@pytest.mark.long
@needs_tools
def test_right_bytes_that_are_not_certain(folder: Path, tmp_path: Path, refsim) -> None:
    put(folder, *hidden("gemv-clears-the-next", tmp_path))
    arguments = f"shaders {folder} q8ta_linear_gemv --variant base"
    assert refsim(arguments).status == 0, "its bytes are right"
    done = refsim(f"{arguments} --sanitize")
    assert done.status == 1 and "has the right bytes, but not for certain" in done.out
    assert (
        "  two writers: q8ta_linear_gemv_float stores different bits twice in a word; binding 0 (out)"
        in done.out
    )
    assert (
        "  order of work: q8ta_linear_gemv_float writes other bytes when workgroups run from last" in done.out
    )
    assert (verdict := next(line for line in done.out.splitlines() if line.startswith("wrong: ")))
    assert " is unsafe; " in verdict
    again = next(line for line in done.out.splitlines() if line.startswith("  again: refsim shaders"))
    assert again.endswith(" --sanitize")
    content = refsim(f"{arguments} --sanitize --json").json
    (row,) = content["unsafe"]
    assert {one["kind"] for one in row["findings"]} == {"two writers", "order of work"}
    assert len(row["findings"][0]["workers"]) == 2 and content["same"] is False


@pytest.mark.long
@needs_tools
def test_what_is_harmless_is_a_note(folder: Path, tmp_path: Path, refsim) -> None:
    put(folder, *hidden("conv-last-row-again", tmp_path))
    done = refsim(f"shaders {folder} q8ta_conv2d_general --variant base --count 8 --sanitize --all")
    assert done.status == 0
    assert "note: same bits twice: q8ta_conv2d_float stores a word twice, in " in done.out


@pytest.mark.long
@needs_tools
def test_a_write_outside_names_the_invocation(folder: Path, tmp_path: Path, refsim) -> None:
    """Without being asked: it is looked at once more."""
    put(folder, *hidden("conv-past-the-end", tmp_path))
    done = refsim(f"shaders {folder} q8ta_conv2d_general --variant base")
    assert done.status == 1
    assert "  write out of bounds: q8ta_conv2d_float writes behind the buffer of out" in done.out
    assert "binding 0 (out), word " in done.out and ", workgroup (" in done.out
    assert " ran, but: write out of bounds: " in done.out
    # what lies inside is explained or said to be right: that depends on the order in which invocations ran
    assert " bytes differ\n" in done.out or "  the bytes of its output are right\n" in done.out


REPAIRABLE = example.EXAMPLES["repairable"]


@pytest.mark.long
@needs_tools
def test_a_module_whose_bug_no_cause_explains_is_repaired_unasked(
    folder: Path, refsim, tmp_path: Path
) -> None:
    bug = next(bug for bug in BUGS if bug.id == "clone-layouts-exchanged")
    (folder / f"{bug.module}.spv").write_bytes(bug.compiled(tmp_path))
    command = f"shaders {folder} {bug.op} --count 8"
    repaired, never = (refsim(f"{command} {option}").out for option in ("--seconds 60", "--no-repair"))
    said = f"repair: {bug.module}.spv, declarations: specialization constants 3 and 4 exchanged makes all "
    offered = f"refsim shaders {folder} {bug.op} --repair"
    assert said in repaired and offered not in repaired
    assert "repair: " not in never and offered in never


@pytest.mark.long
@needs_tools
@pytest.mark.parametrize(
    ("id", "said", "repaired"),
    [
        ("pack-window-last-channel", "; got 0x00, need [", True),
        ("pack-window-taps-last", "as if its dims lay in the order 0, 3, 1, 2", False),
    ],
)
def test_a_module_that_packs_weights_wrong_is_named(
    id: str, said: str, repaired: bool, folder: Path, refsim, tmp_path: Path
) -> None:
    """The kernel that reads them is right, and is not edited."""
    bug = next(bug for bug in BUGS if bug.id == id)
    (folder / f"{bug.module}.spv").write_bytes(bug.compiled(tmp_path))
    done = refsim(f"shaders {folder} {bug.op} --count 8")
    assert f"1. {PACKED}: {bug.module}.spv: packs weight [" in done.out and said in done.out
    assert (f"\nrepair: {bug.module}.spv, " in done.out) == repaired
    assert f"of {bug.module}.spv, makes all" in done.out or repaired


@pytest.mark.long
def test_the_change_is_named_and_the_patch_is_right(folder: Path, refsim, tmp_path: Path) -> None:
    put(folder, REPAIRABLE.module, example.binary("repairable"))
    patch = tmp_path / "fixed.spv"
    done = refsim(f"shaders {folder} {REPAIRABLE.op} --count 8 --repair --patch {patch} --json")
    assert done.status == 1
    (found,) = json.loads(done.out)["repair"]
    assert found["operator"] == REPAIRABLE.op and found["modules"] == [REPAIRABLE.module]
    assert {(row["place"].rpartition(":")[0], row["wrong"]) for row in found["repairs"]} == {
        (REPAIRABLE.file, None)
    }
    first = found["repairs"][0]
    assert first["source"].startswith("for (uint k4") and first["cases"] > 8 and first["copies"] == 1
    assert tool() is None or refused(patch.read_bytes()) is None
    put(folder, REPAIRABLE.module, patch)
    done = refsim(f"shaders {folder} {REPAIRABLE.op} --count 8")
    assert done.status == 0, done.out


@pytest.mark.long
def test_nothing_is_found_in_no_time(folder: Path, refsim) -> None:
    """The one bug of the other example takes more than one edit."""
    put(folder, example.BUG.module, example.BINARY)
    done = refsim(f"shaders {folder} {example.BUG.op} --count 8 --repair --seconds 1")
    assert done.status == 1 and "no repair: none of the single edits" in done.out
    assert not any(line.startswith("search ") for line in done.out.splitlines())
    assert os.listdir(folder).count(f"{example.BUG.module}.spv") == 1


@pytest.mark.long
def test_kernels_of_a_description(refsim, tmp_path: Path) -> None:
    """The wrong twin takes the zero point of the other input (tests/modules/own)."""
    page = tmp_path / "page.html"
    wrong = Path(own.__file__).parent / "wrong"
    done = refsim(f"shaders {wrong} q8ta_add --repair --json --html {page}")
    assert done.status == 1
    (found,) = json.loads(done.out)["repair"]
    first = found["repairs"][0]
    assert first["place"].startswith("sum.comp:") and first["change"] == "b_zp in place of a_zp", found
    assert "b_zp in place of a_zp" in page.read_text()
