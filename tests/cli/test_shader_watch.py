"""refsim shaders: patterns of --case, and the verdict after each save with --watch."""

from __future__ import annotations

import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import json_schema
import pytest
from modules import build, example
from modules.bugs import BUGS
from modules.build import put
from modules.test_modules_build import needs_tools
from needed import needs_device

from refsim.core.errors import FormatError
from refsim.core.result import Part
from refsim.exec.factory import executor_named
from refsim.golden.store import default_root
from refsim.modules import verification
from refsim.modules.build import Request
from refsim.modules.watch import EditedFile, watch

pytest_plugins = "modules.opened"

ROOT = Path(__file__).parents[2]
RELU = "q8ta_relu_buffer"
SECONDS = 120.0  # for one line of a process; machines that run tests are busy


WATCHED = ("relu-clamps-first", "clone-lanes-reversed")


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    wanted = [bug for bug in BUGS if bug.id in WATCHED]
    return {bug.id: bug.compiled(tmp_path_factory.mktemp(bug.id)) for bug in wanted}


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


@pytest.mark.long
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
        assert "q8ta_relu: " in watching.until("right so far")
        watching.until("q8ta_relu: right, ")
        (folder / f"{RELU}.spv").write_bytes(wrong[:1000])
        (folder / "q8ta_add_buffer.spv").touch()
        time.sleep(0.3)
        (folder / f"{RELU}.spv").write_bytes(wrong)
        line = watching.until("q8ta_relu: ")
        assert "clamp order: " in line
        assert watching.end() == 1


@pytest.mark.long
@needs_tools
def test_watch_with_a_module_that_stays_damaged(folder: Path, compiled: dict[str, bytes]) -> None:
    with Watching(folder, "q8ta_relu", "q8ta_clone", "--count", "2", "--json") as watching:
        first = json_schema.read(watching.until('"stage": "first"'))
        assert first["changed"] == [] and first["same"] is True and first["verb"] == "shaders"
        watching.until('"stage": "all"')
        put(folder, RELU, compiled["relu-clamps-first"])
        found = json_schema.read(watching.until('"stage": "first"'))
        assert found["changed"] == [RELU] and list(found["operators"]) == ["q8ta_relu"]
        assert found["causes"][0]["causes"][0]["name"] == "clamp order" and found["seconds"] < 20
        (folder / f"{RELU}.spv").write_bytes(b"half of it")
        put(folder, "q8ta_clone", compiled["clone-lanes-reversed"])
        found = json_schema.read(watching.until('"changed": ["q8ta_clone"]'))
        assert list(found["operators"]) == ["q8ta_clone"]
        assert found["causes"][0]["causes"][0]["name"] == "byte order"
        assert watching.end() == 1


@pytest.mark.long
def test_watch_searches_for_a_repair(folder: Path) -> None:
    bug = example.EXAMPLES["repairable"]
    with Watching(folder, bug.op, "--count", "4", "--repair", "--json") as watching:
        watching.until('"stage": "all"')
        put(folder, bug.module, example.binary("repairable"))
        found = json_schema.read(watching.until(f'"changed": ["{bug.module}"]'))
        assert found["repair"][0]["repairs"][0]["place"].startswith(f"{bug.file}:")
        put(folder, bug.module, build.BINARIES / f"{bug.module}.spv")
        found = json_schema.read(watching.until(f'"changed": ["{bug.module}"]'))
        assert found["same"] is True and found["repair"] == []


def test_a_change_is_one_when_the_bytes_have_settled(tmp_path: Path) -> None:
    file = tmp_path / "refsim.toml"
    held = EditedFile(str(tmp_path))
    assert not held.changed()
    file.write_text("[q8ta_add]")
    assert [held.changed() for _ in range(3)] == [False, True, False]  # it is there now
    file.write_text("")
    assert not held.changed()
    file.write_text("[q8ta_relu]")  # the rest of a save in two pieces
    assert [held.changed() for _ in range(3)] == [False, True, False]
    file.write_text("")
    assert not held.changed()
    file.write_text("[q8ta_relu]")  # the same as before
    assert [held.changed() for _ in range(3)] == [False, False, False]
    file.unlink()
    assert [held.changed() for _ in range(3)] == [False, True, False]
    assert not EditedFile(str(file)).changed()


def test_everything_is_opened_anew(tmp_path: Path) -> None:
    file = tmp_path / "refsim.toml"
    file.write_text("0")
    opened: list[str] = []

    def wait(seconds: float) -> frozenset[str]:
        if len(opened) == 3:
            raise KeyboardInterrupt
        file.write_text("mistake" if len(opened) == 1 else "2")
        return frozenset()

    @contextmanager
    def build():
        opened.append(file.read_text())
        if opened[-1] == "mistake":
            file.write_text("1")  # somebody mends it
            raise FormatError(str(file), "not TOML")
        yield SimpleNamespace(
            operators=[], path=str(tmp_path), rows=[], own={}, broken={}, unsure=set(), stages=tuple,
            profiles=(), suffix=".spv", device=SimpleNamespace(index=0, name="a GPU"),
            folder=SimpleNamespace(names=list, wait=wait, changed=frozenset, unsettled=frozenset()),
        )  # fmt: skip

    said: list[Part] = []
    verdicts = watch(build, Request(str(tmp_path), say=said.extend))
    with pytest.raises(StopIteration) as ended:
        while True:
            next(verdicts)
    assert ended.value.value == 0
    assert opened == ["0", "mistake", "1"] and any("not TOML" in str(part) for part in said)


# --- cases by pattern ------------------------------------------------------------------------------------

UPSTREAM = default_root() / "upstream"
OWN = Path(__file__).parents[1] / "modules" / "own" / "right"


@pytest.fixture(scope="module")
def device() -> None:
    """A Vulkan device that runs modules."""
    with needs_device():
        executor_named(f"spv:{build.BINARIES}").close()


@pytest.mark.parametrize(
    ("pattern", "operator", "said"),
    [
        (
            "upstream/*_N2_*",
            "q8ta_relu",
            "it fits cases of q8ta_conv2d_general, q8ta_conv2d_im2col, q8ta_con",
        ),
        ("q8ta_ad/00*", "q8ta_add", "; did you mean q8ta_add?"),
        ("q8ta_ad/9999", "q8ta_add", "or upstream/041*; did you mean q8ta_add?"),
        ("q8ta_add/0001", "q8ta_relu", "it fits cases of q8ta_add"),
        ("nothing", "q8ta_relu", "such as q8ta_relu/00*"),
    ],
)
def test_what_is_said_of_a_pattern(pattern: str, operator: str, said: str) -> None:
    text = str(verification.no_case(pattern, [operator], UPSTREAM))
    assert text.startswith(f"--case: no such case of {operator}; got {pattern!r}, need ") and said in text
    proposed = re.findall(r"such as (\S+?)(?: or (\S+?))?(?:;|$)", text)[0]
    held = verification.names(operator, UPSTREAM)
    for other in filter(None, proposed):
        assert other != pattern and any(verification.fnmatchcase(name, other) for name in held)
    assert ("did you mean" in text) == said.endswith("?")


@pytest.mark.long
@pytest.mark.usefixtures("device")
def test_a_variant_without_a_case_is_not_right(refsim) -> None:
    done = refsim(f"shaders {build.BINARIES} q8ta_conv2d_pw --case", "upstream/*_N2_*")
    assert done.status == 0 and "right: 1 same; 1 case of 1 operator" in done.out
    assert "right: ;" not in done.out
    assert done.out.count("nothing ran: no case of q8ta_conv2d_pw that 'upstream/*_N2_*' fits") == 2
    content = refsim(f"shaders {build.BINARIES} q8ta_conv2d_pw --case", "upstream/*_N2_*", "--json").json
    assert [(row["cases"], row["same"]) for row in content["variants"]] == [(0, False)] * 2
    assert content["same"] is True and content["cases"] == 1


@pytest.mark.usefixtures("device")
def test_nothing_ran_at_all(refsim) -> None:
    """The folder's kernel takes other layouts, so that the only case of the pattern is skipped."""
    done = refsim(f"shaders {OWN} q8ta_conv2d_pw --case", "upstream/*_4W4C_4C", "--json")
    assert done.status == 2 and "no case ran" in done.err


@pytest.mark.long
@pytest.mark.usefixtures("device")
def test_wrong_cases_without_a_common_edit(refsim, tmp_path: Path) -> None:
    """The file says that weights lie otherwise than the module reads them: it is asked which it multiplies."""
    shutil.copytree(OWN, tmp_path / "own")
    table = tmp_path / "own" / "refsim.toml"
    table.write_text(table.read_text().replace('"o i/4 i%4"', '"o i"'))
    done = refsim(f"shaders {tmp_path}/own q8ta_conv2d_pw --count 3")
    assert done.status == 1 and re.search(r"^1 asked of \d+ +other elements read", done.out, re.M)
