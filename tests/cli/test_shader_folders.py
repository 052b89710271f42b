"""refsim shaders: folders of modules, right ones and wrong ones; what it says of them, and again after each save."""

from __future__ import annotations

import contextlib
import os
import queue
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import json_schema
import pytest
from modules import build, example
from modules.bugs import BUGS
from modules.example import BINARY
from modules.hidden import HIDDEN
from modules.test_modules_build import needs_tools

from refsim.cli import _shaders_build, shaders
from refsim.core.errors import DeviceError, MissingDependencyError
from refsim.exec.executor import Executor
from refsim.exec.factory import executor_named
from refsim.modules.verification import FIRST_WORD

ROOT = Path(__file__).parents[2]
RELU, CONV = "q8ta_relu_buffer", "q8ta_conv2d_float"
SECONDS = 120.0  # for one line of a process; machines that run tests are busy


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Executor]]:
    """A folder of right modules, and an executor of it that stays open; it reads what has changed.

    On lavapipe it has one thread. Some of the seeded bugs are races, and more threads would let them lose.
    """
    folder = tmp_path_factory.mktemp("modules") / "spirv"
    shutil.copytree(build.BINARIES, folder)
    try:
        executor = executor_named(f"spv:{folder}")
    except (DeviceError, MissingDependencyError) as error:
        if os.environ.get("REFSIM_GPU") == "require":
            raise
        pytest.skip(str(error))
    with pytest.MonkeyPatch.context() as patch, executor:  # type: ignore[attr-defined]
        patch.setenv("LP_NUM_THREADS", "1")
        yield folder, executor


class Kept:
    """An executor that a verb cannot close."""

    def __init__(self, executor: Executor) -> None:
        self._executor, self.name = executor, executor.name

    def run_call(self, call, inputs):
        return self._executor.run_call(call, inputs)

    def sanitize(self, call, inputs, repeats=0):
        return self._executor.sanitize(call, inputs, repeats)


@pytest.fixture
def folder(opened: tuple[Path, Executor], monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder, whose modules are right again afterwards. Plain names of it get the executor that is open."""
    path, executor = opened
    real = _shaders_build.executor_named

    def named(name: str) -> object:
        return Kept(executor) if name == f"spv:{path}" else real(name)

    monkeypatch.setattr(_shaders_build, "executor_named", named)
    yield path
    shutil.rmtree(path)
    shutil.copytree(build.BINARIES, path)


def put(folder: Path, name: str, source: Path | bytes) -> None:
    """Replace a module as a compiler does."""
    data = source if isinstance(source, bytes) else source.read_bytes()
    (folder / "written").write_bytes(data)
    os.replace(folder / "written", folder / f"{name}.spv")


# --- right modules ---------------------------------------------------------------------------------------


def test_right_modules(folder: Path, refsim) -> None:
    done = refsim("shaders", folder, "q8ta_relu", "--count", "4")
    assert done.status == 0 and done.err == ""
    lines = done.out.splitlines()
    assert lines[0].split() == ["operator", "module", "variant", "state", "runs"]
    assert lines[1].split() == ["q8ta_relu", RELU, "base", "found", "yes"]
    assert lines[-1].startswith("right: ") and " same; " in lines[-1] and "of 1 operator," in lines[-1]


def test_an_operator_without_a_module_is_not_said_to_be_none(folder: Path, refsim) -> None:
    done = refsim("shaders", folder, "linear_q4gsw")
    done.refused("shaders: linear_q4gsw: refsim does not know how ExecuTorch's host calls its module; need ")
    assert "refsim.toml with a table [linear_q4gsw]" in done.err
    refsim("shaders", folder, "q8ta_rellu").refused("(refsim sweep --help lists all); got q8ta_rellu, need ")


@pytest.mark.parametrize("given", [(), ("q8ta_relu",), ("--watch",)])
@pytest.mark.parametrize("folder", ["shaders", "shaders/spirv"])
def test_refsims_own_modules_are_no_folder_of_an_author(folder: str, given: tuple[str, ...], refsim) -> None:
    """Three of them have a name that ExecuTorch's have too; none of them is called as ExecuTorch calls its own."""
    done = refsim("shaders", ROOT / folder, *given)
    done.refused(f"{ROOT / 'shaders' / 'spirv'}: holds refsim's own modules; got ")
    assert "need a kernel author's modules: files such as " in done.err and "refsim.toml" in done.err
    named = "".join(f"{name} " for name in given if "-" not in name)
    assert done.err.splitlines()[-1] == f"try: refsim golden verify {named}-x gpu"
    assert "again:" not in done.out + done.err


def test_one_of_refsims_own_modules_among_others_is_named(folder: Path, refsim) -> None:
    own = ROOT / "shaders" / "spirv" / "q8ta_clone.spv"
    (folder / own.name).write_bytes(own.read_bytes())
    done = refsim("shaders", folder, "--case", "q8ta_relu/000?")
    assert done.status == 1 and "damaged: q8ta_clone.spv: is one of refsim's own modules" in done.out
    refused = refsim("replay", "q8ta_clone/0003", "-x", f"spv:{folder}")
    refused.refused("q8ta_clone.spv: is one of refsim's own modules, which -x gpu runs")


def test_known_defects_are_named_and_no_failure(folder: Path, refsim) -> None:
    content = refsim("shaders", folder, "q8ta_add", "--count", "12", "--json").json
    assert content["same"] is True and content["verb"] == "shaders"
    assert content["known"]["alpha"]["cases"] >= 5 and "ignores alpha" in content["known"]["alpha"]["what"]
    counts = content["operators"]["q8ta_add"]
    assert counts["known"] == content["known"]["alpha"]["cases"] and counts["same"] > 12


def test_each_variant_runs(folder: Path, refsim) -> None:
    done = refsim("shaders", folder, "q8ta_linear", "--count", "4")
    assert done.status == 0 and f"the same with spv:{folder}@fallback" in done.out
    assert [line.split()[-1] for line in done.out.splitlines()[1:3]] == ["yes", "later"]
    content = refsim("shaders", folder, "q8ta_quantize", "--images", "--count", "4", "--json").json
    runs = {row["module"]: row["runs"] for row in content["modules"]}
    assert runs["q8ta_quantize_texture3d_float"] == "yes" and content["executor"].endswith("@images")
    assert runs["q8ta_quantize_buffer_float"] == "yes"  # for tensors of more than four dims


def test_what_is_odd_about_a_folder(folder: Path, refsim) -> None:
    (folder / f"{RELU}.spv").rename(folder / "q8ta_relu_bufer.spv")
    other = "pack_q4_linear_weight_buffer.spv"  # another kernel of upstream's, whatever else the folder lacks
    (folder / "pack_q8_linear_weight_unsigned_buffer.spv").rename(folder / other)
    (folder / "q8ta_clone.spv").write_bytes((folder / "q8ta_clone.spv").read_bytes()[:-8])
    (folder / "conv1d_something.spv").write_bytes(b"")
    done = refsim("shaders", folder, "--case", "q8ta_add/0000")
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
    content = refsim("shaders", folder, "q8ta_relu", "--case", "upstream/*_q8ta_relu_*", "--json").json
    assert content["cases"] == 26 and content["operators"] == {"q8ta_relu": {"same": 26}}
    content = refsim("shaders", folder, "q8ta_relu", "--case", "q8ta_relu/000?", "--json").json
    assert content["cases"] == 10


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        (["nowhere"], "not a folder of modules"),
        ([str(ROOT / "tests")], "no module of a kernel that refsim knows"),
        ([str(build.BINARIES), "q8ta_rellu"], "did you mean q8ta_relu?"),
        ([str(build.BINARIES), "linear_q4gsw"], "does not know how ExecuTorch's host calls its module"),
        ([str(BINARY.parent), "q8ta_relu"], "q8ta_conv2d, need q8ta_relu_buffer.spv"),
        ([str(build.BINARIES), "--case", "q8ta_none/*"], "no such case"),
        ([str(build.BINARIES), "--profile", "tpu"], "numerics profile: unknown"),
        ([str(build.BINARIES), "--watch", "--html", "x.html"], "--watch prints what it finds"),
        ([str(build.BINARIES), "--variant", "best"], "'best' is not one of"),
        ([str(build.BINARIES), "--count", "-1"], "-1 is no whole number from 0 to 2000"),
    ],
)
def test_nonsense_is_one_line(arguments: list[str], match: str, folder: Path, refsim) -> None:
    refsim("shaders", *arguments).refused(match)


def test_no_count_of_cases_is_above_its_total(folder: Path, refsim, monkeypatch: pytest.MonkeyPatch) -> None:
    """--count bounds the spread; telling cases and recordings come on top."""
    told: list[int] = []

    @contextlib.contextmanager
    def progress(what: str, total: int | None = None) -> Iterator[Callable[..., None]]:
        done: list[int] = []
        yield lambda count=1, note="": done.append(count)
        told.append(sum(done))
        assert sum(done) > 1 and (total is None or sum(done) <= total)

    monkeypatch.setattr(shaders, "progress", progress)
    assert refsim("shaders", folder, "q8ta_relu", "--count", 1).status == 0 and told


def test_a_module_that_cannot_be_read_is_what_the_line_is_about(tmp_path: Path, refsim) -> None:
    """One line, with one thing found and one needed."""
    relu = next(path for path in build.BINARIES.glob("*.spv") if path.stem.startswith("q8ta_relu"))
    (tmp_path / relu.name).write_bytes(b"")
    alone = refsim("shaders", tmp_path)
    alone.refused(f"no module of a kernel that refsim knows: {relu.name}: not SPIR-V; got 0 bytes, need ")
    add = next(path for path in build.BINARIES.glob("*.spv") if path.stem.startswith("q8ta_add"))
    shutil.copy(add, tmp_path)
    beside = refsim("shaders", tmp_path, "q8ta_relu")
    beside.refused(f"no module computes {'q8ta_relu'}: {relu.name}: not SPIR-V; got 0 bytes, need ")
    for line in (alone.err, beside.err):
        assert line.count("got ") == line.count("need ") == 1


def test_the_example_of_a_module_is_a_kernel(tmp_path: Path, refsim) -> None:
    refsim("shaders", tmp_path).refused("a kernel author's modules: files such as q8ta_")


def test_what_is_asked_back_is_there(refsim) -> None:
    """The folder has no module of q8ta_relu, which is nearest to the name."""
    asked = refsim("shaders", BINARY.parent, "q8ta_rel")
    asked.refused("need q8ta_conv2d")
    assert "q8ta_relu" not in asked.err


def test_no_such_device(folder: Path, refsim) -> None:
    refsim("shaders", folder, "--device", "99").refused("no such device; got 99", status=3)


# --- wrong modules ---------------------------------------------------------------------------------------


def test_a_wrong_module_is_met_in_the_first_cases(folder: Path, tmp_path: Path, refsim) -> None:
    put(folder, CONV, BINARY)
    done = refsim("shaders", folder, "--html", tmp_path / "page.html")
    assert done.status == 1 and done.err.startswith("rerun: refsim shaders")
    lines = [line.strip() for line in done.out.splitlines()]
    assert lines[-1] == f"wrote {tmp_path / 'page.html'}"
    last = lines[-2].split()
    assert last[:4] == ["wrong:", last[1], "is", "wrong;"] and int(last[4]) <= len(_shaders_build.OPS)
    assert last[1].startswith("q8ta_conv2d")
    assert any(line.startswith("1. border padded with 0: taps outside the image read 0") for line in lines)
    assert f"written by {CONV}.spv" in lines
    (stored,) = (line for line in lines if line.startswith("stored at "))
    place, _, source = stored.removeprefix("stored at q8ta_conv2d.comp:").partition(": ")
    assert (build.SOURCES / "q8ta_conv2d.comp").read_text().splitlines()[int(place) - 1].strip() == source
    assert f"again: refsim shaders {folder} {last[1].partition('/')[0]} --case {last[1]}" in lines
    assert "workgroup" in (tmp_path / "page.html").read_text()


def test_the_same_as_json(folder: Path, refsim) -> None:
    put(folder, CONV, BINARY)
    done = refsim("shaders", folder, "q8ta_conv2d_general", "--json", "--limit", "2")
    content = done.json
    assert done.status == 1 and content["same"] is False and len(content["bad"]) == 1
    (wrong,) = content["wrong"]
    assert wrong["case"] == content["bad"][0] and wrong["module"] == CONV
    assert wrong["causes"][0]["name"] == "border padded with 0" and wrong["distinct"] == 1
    assert wrong["lines"][0]["place"].startswith("q8ta_conv2d.comp:")
    difference = wrong["report"]["differences"][0]
    assert len(wrong["report"]["differences"]) == 2 and {"word", "lane", "workgroup", "invocation"} <= set(
        difference
    )


def test_all_counts_what_is_wrong(folder: Path, refsim) -> None:
    put(folder, CONV, BINARY)
    done = refsim(
        "shaders", folder, "q8ta_conv2d_general", "q8ta_relu", "--all", "--variant", "base", "--count", "8"
    )
    assert done.status == 1 and done.out.count("wrong: q8ta_conv2d_general/") >= 5
    assert done.out.count("likely cause:") == 1  # the first of the operator
    rows = {line.split()[0]: line.split()[1:] for line in done.out.splitlines() if line.startswith("q8ta_")}
    assert int(rows["q8ta_relu"][0]) > 30


@needs_tools
def test_the_example_of_the_page_is_up_to_date() -> None:
    assert BINARY.read_bytes() == example.compiled(), (
        "run: PYTHONPATH=tests python -m modules.example --write"
    )


# --- sanitizers ------------------------------------------------------------------------------------------


def hidden(id: str, scratch: Path) -> tuple[str, bytes]:
    bug = next(bug for bug in HIDDEN if bug.id == id)
    return bug.module, bug.compiled(scratch)


def test_sanitizers_on_right_modules(folder: Path, refsim) -> None:
    arguments = ("shaders", folder, "q8ta_relu", "--count", "4", "--sanitize", "--repeats", "5")
    done = refsim(*arguments)
    assert done.status == 0 and ", 6 sanitized; " in done.out.splitlines()[-1]
    content = refsim(*arguments, "--json").json
    assert (content["unsafe"], content["notes"], content["sanitized"]) == ([], [], 6)
    assert refsim("shaders", folder, "--repeats", "3").status == 2


@needs_tools
def test_right_bytes_that_are_not_certain(folder: Path, tmp_path: Path, refsim) -> None:
    put(folder, *hidden("gemv-clears-the-next", tmp_path))
    arguments = ("shaders", folder, "q8ta_linear_gemv", "--variant", "base")
    assert refsim(*arguments).status == 0, "its bytes are right"
    done = refsim(*arguments, "--sanitize")
    assert done.status == 1 and "has the right bytes, but not for certain" in done.out
    assert (
        "  two writers: q8ta_linear_gemv_float stores different bits twice in a word; binding 0 (out)"
        in done.out
    )
    assert (
        "  order of work: q8ta_linear_gemv_float writes other bytes when workgroups run from last" in done.out
    )
    assert done.out.splitlines()[-1].startswith("wrong: q8ta_linear_gemv/")
    assert " is unsafe; " in done.out.splitlines()[-1]
    again = next(line for line in done.out.splitlines() if line.startswith("  again: refsim shaders"))
    assert again.endswith(" --sanitize")
    content = refsim(*arguments, "--sanitize", "--json").json
    (row,) = content["unsafe"]
    assert {one["kind"] for one in row["findings"]} == {"two writers", "order of work"}
    assert len(row["findings"][0]["workers"]) == 2 and content["same"] is False


@needs_tools
def test_what_is_harmless_is_a_note(folder: Path, tmp_path: Path, refsim) -> None:
    put(folder, *hidden("conv-last-row-again", tmp_path))
    done = refsim(
        "shaders", folder, "q8ta_conv2d_general", "--variant", "base", "--count", "8", "--sanitize", "--all"
    )
    assert done.status == 0
    assert "note: same bits twice: q8ta_conv2d_float stores a word twice, in " in done.out


@needs_tools
def test_a_write_outside_names_the_invocation(folder: Path, tmp_path: Path, refsim) -> None:
    """Without being asked: it is looked at once more."""
    put(folder, *hidden("conv-past-the-end", tmp_path))
    done = refsim("shaders", folder, "q8ta_conv2d_general", "--variant", "base")
    assert done.status == 1
    assert "  write out of bounds: q8ta_conv2d_float writes behind the buffer of out" in done.out
    assert "binding 0 (out), word " in done.out and ", workgroup (" in done.out
    assert " ran, but: write out of bounds: " in done.out
    # what lies inside is explained or said to be right: that depends on the order in which invocations ran
    assert (" bytes differ\n" in done.out) != ("  the bytes of its output are right\n" in done.out)


# --- seeded bugs -----------------------------------------------------------------------------------------

#: Every second one: each takes some seconds to compile and to run.
SOME = BUGS[::2]
WATCHED = ("relu-clamps-first", "clone-lanes-reversed")


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    wanted = [bug for bug in BUGS if bug in SOME or bug.id in WATCHED]
    return {bug.id: bug.compiled(tmp_path_factory.mktemp(bug.id)) for bug in wanted}


@needs_tools
def test_seeded_bugs_are_found_and_nearly_all_are_named(
    folder: Path, compiled: dict[str, bytes], refsim
) -> None:
    """Each is met among the first words of a verdict or in a recording, and the first cause is true of it."""
    unnamed, late = [], []
    for bug in SOME:
        put(folder, bug.module, compiled[bug.id])
        images = ["--images"] if "texture3d" in bug.module else []
        variant = ["--variant", "unsigned"] if "unsigned" in bug.module else []
        content = refsim(
            "shaders", folder, bug.op, *images, *variant, "--count", "24", "--json", "--limit", "1"
        ).json
        put(folder, bug.module, build.BINARIES / f"{bug.module}.spv")
        assert content["same"] is False, f"{bug.id} was not found"
        named = [row["causes"][0]["name"] for row in content["wrong"] if row["causes"]]
        failed = " ".join(row["message"] for row in content["failed"])
        if not set(named[:1]) & set(bug.causes) and not any(cause in failed for cause in bug.causes):
            unnamed.append((bug.id, named))
        if content["cases"] > FIRST_WORD:
            late.append(bug.id)
    assert len(SOME) - len(unnamed) >= 25, unnamed
    assert len(late) <= len(SOME) // 10, late


# --- watching --------------------------------------------------------------------------------------------


class Watching:
    """`refsim shaders --watch` in a process of its own, and its lines as they come."""

    def __init__(self, *arguments: object) -> None:
        command = [sys.executable, "-m", "refsim.cli", "shaders", *map(str, arguments), "--watch"]
        # named, because readline, which pytest loads, gives COLUMNS to children behind Python's back
        environment = dict(os.environ)
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT, env=environment
        )
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line.rstrip())
        self._lines.put(None)

    def until(self, words: str) -> str:
        """The next line with these words."""
        seen = []
        while True:
            line = self._lines.get(timeout=SECONDS)
            assert line is not None, ("it ended", seen, self.process.stderr and self.process.stderr.read())
            seen.append(line)
            if words in line:
                return line

    def end(self) -> int:
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(SECONDS)

    def __enter__(self) -> Watching:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()


@needs_tools
def test_watch(folder: Path, compiled: dict[str, bytes]) -> None:
    """Right, saved wrong, saved right again; a save that is still being written is waited for."""
    wrong = compiled["relu-clamps-first"]
    with Watching(folder, "q8ta_relu", "--count", "12") as watching:
        watching.until("q8ta_relu: right, ")
        put(folder, RELU, wrong)
        line = watching.until("q8ta_relu: ")
        assert "wrong in q8ta_relu/" in line and "clamp order: " in line
        watching.until(f"again: refsim shaders {folder} q8ta_relu --case q8ta_relu/")
        put(folder, RELU, build.BINARIES / f"{RELU}.spv")
        line = watching.until("q8ta_relu: ")
        assert "right so far" in line
        watching.until("q8ta_relu: right, ")
        (folder / f"{RELU}.spv").write_bytes(wrong[:1000])
        (folder / "q8ta_add_buffer.spv").touch()
        time.sleep(0.3)
        (folder / f"{RELU}.spv").write_bytes(wrong)
        line = watching.until("q8ta_relu: ")
        assert "clamp order: " in line
        assert watching.end() == 1


@needs_tools
def test_watch_with_a_module_that_stays_damaged(folder: Path, compiled: dict[str, bytes]) -> None:
    with Watching(folder, "q8ta_relu", "q8ta_clone", "--count", "2", "--json") as watching:
        first = json_schema.read(watching.until('"stage": "first"'))
        assert first["changed"] == [] and first["same"] is True and first["verb"] == "shaders"
        watching.until('"stage": "all"')
        put(folder, RELU, compiled["relu-clamps-first"])
        found = json_schema.read(watching.until('"stage": "first"'))
        assert found["changed"] == [RELU] and list(found["operators"]) == ["q8ta_relu"]
        assert found["wrong"][0]["causes"][0]["name"] == "clamp order" and found["seconds"] < 20
        (folder / f"{RELU}.spv").write_bytes(b"half of it")
        put(folder, "q8ta_clone", compiled["clone-lanes-reversed"])
        found = json_schema.read(watching.until('"changed": ["q8ta_clone"]'))
        assert list(found["operators"]) == ["q8ta_clone"]
        assert found["wrong"][0]["causes"][0]["name"] == "byte order"
        assert watching.end() == 1
