"""What a verb says of a path that leads to nothing, to something else than it reads, or to a hostile file."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from check.small_files import INT8_4W, Graph, T, program

import refsim as refsim_package
from refsim.cli.kit.text import say
from refsim.core.errors import MOST_IN_LINE
from refsim.core.html import rendered
from refsim.formats.file import held
from refsim.golden import store
from refsim.golden.certify import Certificate

MODELS = Path(__file__).parents[1] / "data" / "models"

#: What stands where a verb reads, and what its error must say of that, in other words than the name.
READ = {
    "nothere": r"no such|unknown|holds no|'nothere'",
    "heap": r"folder|holds no",
    "model.pte/x": r"model\.pte, which is no folder|no such|holds no",
    "nofolder/x": r"no such|holds no",
    "hollow": r"empty|0 bytes|got a file|holds no|1: ",
    "words": r"'hello world'|12 bytes|got a file|holds no|1: |text: ",
    "binary": r"bytes that begin with 00 01 02|10240 bytes|got a file|holds no|1: ",
}
#: Verbs with a path each; ``@`` stands for it.
READERS = """
run @ -i in.npz | run model.pte -i @ | run model.pte -i in.npz --golden @ | run model.pte -i in.npz --expect @
run model.pte -i in.npz --origin @ | run model.pte -i in.npz --profile @
inspect @ | inspect model.pte --html page.html --verdicts @ | check @
golden verify q8ta_add/1 --profile @ | sweep -n 1 --profile @
diff @ b.bin -l 4W4C -s 1,6,2,6 | diff a.bin @ -l 4W4C -s 1,6,2,6 | diff a.bin b.bin --case @
bisect @ -i in.npz --actual dumps | bisect model.pte -i in.npz --actual @
compare @ --random 0 -x cpu -x cpu:emulated | repeat @ --random 0 -n 2 | repeat model.pte -i @ -n 2
extract @ -n 0:7 --random 0 -o new | extract model.pte -n 0:7 -i @ -o new | replay @ | replay case --actual @
expose @ -o new.pte | triage @ -i in.npz --outputs in.npz | triage seg.exposed.pte -i in.npz --outputs @
collect @ in.npz -o new | collect seg.exposed.pte @ -o new | etdump @ dump | etdump model.pte @
pack @ -l 4W4C -o new.bin | unpack @ -l 4W4C -s 1,6,2,6 -o new.npy | lower @ -o new
probe --outputs @ -o new.json | golden verify q8ta_relu/1 --root @ | golden coverage --root @
golden check --pte @ --outputs outputs | sweep q8ta_relu -n 0 --workers 0 --models @
"""
#: Words of Python and of the system, which tell a stranger nothing.
FOREIGN = re.compile(
    r"Errno|codec|Expecting|Extra data|unpack \(|Not a dir|Is a dir|File exists|b'|not a zip"
)


def rows(text: str) -> list[str]:
    return [row.strip() for line in text.strip().splitlines() for row in line.split("|")]


def spread(folder: Path) -> None:
    """Put there what no verb reads, and what some write over."""
    for name in ("a.bin", "b.bin"):
        (folder / name).write_bytes(bytes(128))
    np.save(folder / "a.npy", np.zeros((1, 6, 2, 6), np.int8))
    (folder / "heap").mkdir()
    (folder / "hollow").touch()
    (folder / "words").write_text("hello world\n")
    (folder / "binary").write_bytes(bytes(range(256)) * 40)


@pytest.fixture
def made(desk: Path) -> Path:
    """A folder with right files of every kind, and with the wrong ones of `READ`."""
    spread(desk)
    return desk


def led_on(line: str, path: str, said: str) -> None:
    """A line that names the path, says what is there, and is of plain words."""
    assert len(line) <= MOST_IN_LINE and re.search(rf"(^refsim: |'|got ){re.escape(path)}", line), line
    assert re.search(said, line) and re.search(r"\bneed\b|: not an? ", line) and not FOREIGN.search(line), (
        line
    )


@pytest.mark.parametrize("row", rows(READERS))
def test_the_line_names_the_path_and_what_is_there(row: str, made: Path, refsim) -> None:
    before = sorted(made.rglob("*"))
    for path, said in READ.items():
        done = refsim(row.replace("@", path))
        done.refused("")
        led_on(done.err.splitlines()[0], path, said)
        assert sorted(made.rglob("*")) == before


@pytest.fixture
def unprivileged(_desk: Path) -> Iterator[Path]:
    """A folder for somebody who is not root, whom no permission keeps out."""
    folder = Path(tempfile.mkdtemp())
    shutil.copytree(_desk, folder, dirs_exist_ok=True)
    spread(folder)
    folder.chmod(0o755)
    yield folder
    for path in folder.iterdir():
        path.chmod(0o700)
    shutil.rmtree(folder)


CLOSED = """
run model.pte -i in.npz --golden heap | bisect model.pte -i in.npz --actual heap | replay heap
golden verify q8ta_relu/1 --root heap | run model.pte -i in.npz -o heap/out.npz | run model.pte -i heap/in.npz
run model.pte -i words | diff a.bin words -l 4W4C -s 1,6,2,6 | check words
"""


def test_what_may_not_be_read_is_named(unprivileged: Path, refsim, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(unprivileged)
    for row in rows(CLOSED):
        refsim(*row.split())  # imports what it needs as whoever runs the tests
    (unprivileged / "heap" / "out.npz").unlink(missing_ok=True)
    for name in ("heap", "words"):
        (unprivileged / name).chmod(0)
    user = os.geteuid()
    for row in rows(CLOSED):
        try:
            os.seteuid(65534 if user == 0 else user)
            done = refsim(*row.split())
        finally:
            os.seteuid(user)
        path = "heap" if "heap" in row else "words"
        done.refused("Permission denied" if "in.npz" not in row.split()[-1] else "which you may not enter")
        assert done.err.startswith(f"refsim: {path}"), done.err


#: A path of a checkout in a text, or a target of its Makefile.
IN_CHECKOUT = re.compile(r"\b(docs|tests|shaders|bench|release)/\w|\bmake [a-z]+\b")
#: Files of refsim whose texts may name such paths, for what they do needs a checkout.
CHECKOUT_ONLY = {"mutate.py", "__main__.py", "extras.py"}


def test_no_text_leads_to_a_file_that_only_a_checkout_has() -> None:
    found = []
    for path in sorted(Path(refsim_package.__file__).parent.rglob("*.py")):
        if not IN_CHECKOUT.search(source := path.read_text()):
            continue
        tree = ast.parse(source)
        comments = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        texts = (n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and id(n) not in comments)
        said = [text for text in texts if isinstance(text, str) and IN_CHECKOUT.search(text)]
        found += [(path.name, text) for text in said if path.name not in CHECKOUT_ONLY]
    assert found == []


def test_only_verbs_with_a_root_are_told_of_one(refsim, monkeypatch: pytest.MonkeyPatch) -> None:
    """replay, extract and diff read cases of the corpus too, and have no option --root."""
    monkeypatch.setattr(store, "__file__", "/no/such/place/store.py")
    monkeypatch.setitem(sys.modules, store.MODULE, None)
    refsim("replay q8ta_relu/1").refused("or, for refsim golden, --root DIR", status=3)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "an empty file"),
        (b"PK\x03\x04...", "a zip file"),
        (b"\x93NUMPY\x01\x00", "an array (.npy)"),
        (b"\x10\0\0\0ET12", "a .pte"),
        (b"\x03\x02\x23\x07\0\0", "a SPIR-V module"),
        (b"  a\nb", "text: 'a'"),
        ("ß".encode() * 40, "text: 'ßßßßßßßßßßßßßßßß...'"),
        (b"\n\n", "text: ''"),
        (b"ab\xffcd", "bytes that begin with 61 62 ff 63 64"),
        (b"ab\x1bcd", "bytes that begin with 61 62 1b 63 64"),
    ],
)
def test_a_file_of_another_kind_is_described(data: bytes, said: str) -> None:
    assert held(data) == said


# --- hostile files ---------------------------------------------------------------------------------------

#: Clears a screen, sets a title, turns letters around, begins a line, and is markup of rich.
NAME = "aten.\x1b[2Jrelu\x1b]0;owned\x07\u202eoot\n0 q8ta_fake\x9b1m[bold red]x[/]"
SHOWN = "\\x1b[2Jrelu\\x1b]0;owned\\x07\\u202eoot\\n0 q8ta_fake\\x9b1m[bold red]x[/]"


def saved(path: Path, graph: Graph, *kernels: str) -> Path:
    """The graph as a blob, or as a program with kernels behind its delegate."""
    path.write_bytes(graph.blob() if path.suffix == ".blob" else program(graph, kernels=list(kernels)))
    return path


def of_one(operator: str, x: T, *arguments: object) -> Graph:
    graph = Graph()
    graph.call(operator, x, *arguments, x.but())
    return graph


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """A program with a delegate, and behind it a kernel of that name."""
    return saved(tmp_path / "m.pte", of_one("aten.relu.default", T((1, 4))), NAME)


def unprintable(text: str) -> set[str]:
    return {c for c in text if not c.isprintable() and c != "\n"}


def test_names_are_escaped(refsim, hostile: Path) -> None:
    done = refsim(f"inspect {hostile}")
    assert done.status == 0, done.err
    assert not unprintable(done.out) and not unprintable(done.err)
    assert SHOWN in done.out
    assert not [line for line in done.out.splitlines() if line.startswith("0 q8ta_fake")]


def test_names_in_findings_and_errors_are_escaped(refsim, tmp_path: Path) -> None:
    path = saved(tmp_path / "m.pte", of_one(NAME, T((1, 4))))
    found, refused = refsim(f"check {path}"), refsim(f"inspect {path}")
    assert found.status == 1 and SHOWN in found.out and not unprintable(found.out)
    assert refused.status == 2 and SHOWN in refused.err and not unprintable(refused.err)


def test_json_has_names_as_they_are(refsim, hostile: Path) -> None:
    done = refsim(f"inspect {hostile} --json")
    assert not unprintable(done.out)
    assert any(NAME in step for step in done.json["plan"])


def test_a_line_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    say("a\nb\x1b[1m", fg="red")
    assert "a\\nb\\x1b[1m" in capsys.readouterr().out


def test_random_inputs_are_not_larger_than_files_may_ask_for(refsim, tmp_path: Path) -> None:
    """A delegate of some 500 bytes whose input takes 2 GB: 16 of random bits."""
    huge = saved(tmp_path / "m.blob", of_one("aten.relu.default", T((2**29,), storage=0, layout=0)))
    assert huge.stat().st_size < 1000 and refsim(f"inspect {huge}").status == 0
    refsim(f"run {huge} --random 0").refused("REFSIM_MAX_BYTES")


def test_buffers_are_not_either(tmp_path: Path) -> None:
    """In a process that has 2 GB, the reason is the limit and no lack of memory."""
    x = T((1, 4, 1 << 14, 1 << 14), "int8", 0, INT8_4W)
    path = saved(tmp_path / "m.blob", of_one("et_vk.q8ta_relu.default", x, 0.5, 0, 0.5, 0))
    code = (
        "import resource, sys; from refsim.cli import main\n"
        "resource.setrlimit(resource.RLIMIT_AS, (2 << 30,) * 2)\n"
        "sys.exit(main(sys.argv[1:]))"
    )
    command = [sys.executable, "-c", code, "run", str(path), "--random", "0", "-x", "cpu:emulated"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 2
    assert "REFSIM_MAX_BYTES" in done.stderr, done.stderr


def test_pages_show_names_escaped() -> None:
    page = rendered(
        "page", "refsim.golden", "certificate.html", certificate=Certificate({"device": "\x1b[1m<i>"}, "canonical", ()),
        verdict="\x1b[2J<b>\u202ex", verdicts=(), meanings={}, deviations=[], causes=[], what=None, version="0",
    )  # fmt: skip
    assert "\\x1b[2J&lt;b&gt;\\u202ex" in page and "\x1b" not in page and "\u202e" not in page


def test_sidecars_of_any_depth(refsim, tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(bytes(64))
    (tmp_path / "a.json").write_text('{"value": "a", "layout": "4C", "shape": ' + "[" * 100_000)
    refsim(f"unpack {tmp_path}/a.bin -o {tmp_path}/b.npy").refused("nested too deep")
    (tmp_path / "a.json").write_text(json.dumps({"value": "a", "layout": "4C", "shape": [1.5, "2"]}))
    refsim(f"unpack {tmp_path}/a.bin -o {tmp_path}/b.npy").refused("not a shape")
