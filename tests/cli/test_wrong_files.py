"""What a verb says of a path that leads to nothing, or to something else than it reads or can write."""

from __future__ import annotations

import ast
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import refsim as refsim_package
from refsim.core.errors import MOST_IN_LINE
from refsim.formats.file import held
from refsim.golden import store

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
diff @ b.bin -l 4W4C -s 1,6,2,6 | diff a.bin @ -l 4W4C -s 1,6,2,6 | diff a.bin b.bin --case @
bisect @ -i in.npz --actual dumps | bisect model.pte -i in.npz --actual @
compare @ --random 0 -x cpu -x cpu:emulated | repeat @ --random 0 -n 2 | repeat model.pte -i @ -n 2
extract @ -n 1 --random 0 -o new | extract model.pte -n 1 -i @ -o new | replay @ | replay case --actual @
expose @ -o new.pte | triage @ -i in.npz --outputs in.npz | triage exposed.pte -i in.npz --outputs @
collect @ in.npz -o new | collect exposed.pte @ -o new | etdump @ dump | etdump model.pte @
pack @ -l 4W4C -o new.bin | unpack @ -l 4W4C -s 1,6,2,6 -o new.npy | lower @ -o new
probe --outputs @ -o new.json | golden verify q8ta_relu/1 --root @ | golden coverage --root @
golden check --pte @ --outputs outputs | sweep q8ta_relu -n 0 --workers 0 --models @
"""
#: What stands where a verb writes a file, and what its error must say of that.
WRITE = {
    "nofolder/sub/x": "no such folder as nofolder/sub",
    "hollow/x": "hollow, which is no folder",
    "heap": "is a folder, and a file is written; need a file, such as heap/NAME",
}
WRITERS = """
run model.pte -i in.npz -o @ | diff a.bin b.bin -l 4W4C -s 1,6,2,6 --html @ | pack a.npy -l 4W4C -o @
unpack a.bin -l 4W4C -s 1,6,2,6 -o @ | expose model.pte -o @ | inspect model.pte --html @
inspect model.pte --model-explorer @ | bisect model.pte -i in.npz --actual dumps --node-data @
golden verify q8ta_relu/1 --results @ | triage exposed.pte -i in.npz --outputs in.npz --html @
"""
#: Words of Python and of the system, which tell a stranger nothing.
FOREIGN = re.compile(
    r"Errno|codec|Expecting|Extra data|unpack \(|Not a dir|Is a dir|File exists|b'|not a zip"
)


def rows(text: str) -> list[str]:
    return [row.strip() for line in text.strip().splitlines() for row in line.split("|")]


@pytest.fixture(scope="module")
def _made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from refsim.cli import main

    folder = tmp_path_factory.mktemp("made")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for name, source in (("model.pte", "linear_head.pte"), ("in.npz", "linear_head.io.npz")):
            shutil.copy(MODELS / source, name)
        np.save("a.npy", np.zeros((1, 6, 2, 6), np.int8))
        for words in (
            "pack a.npy -l 4W4C -o a.bin", "pack a.npy -l 4W4C -o b.bin", "expose model.pte -o exposed.pte",
            "run model.pte -i in.npz --dump . dumps", "extract model.pte -n 1 -i in.npz -o case",
        ):  # fmt: skip
            assert main(words.split()) == 0
        Path("heap").mkdir()
        Path("hollow").touch()
        Path("words").write_text("hello world\n")
        Path("binary").write_bytes(bytes(range(256)) * 40)
    return folder


@pytest.fixture
def made(_made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with right files of every kind, and with the wrong ones of `READ`."""
    shutil.copytree(_made, tmp_path / "made")
    monkeypatch.chdir(tmp_path / "made")
    return tmp_path / "made"


def led_on(line: str, path: str, said: str) -> None:
    """A line that names the path, says what is there, and is of plain words."""
    assert len(line) <= MOST_IN_LINE and re.search(rf"(^refsim: |'|got ){re.escape(path)}", line), line
    assert re.search(said, line) and re.search(r"\bneed\b|: not an? ", line) and not FOREIGN.search(line), (
        line
    )


@pytest.mark.parametrize("row", [*rows(READERS), *rows(WRITERS)])
def test_the_line_names_the_path_and_what_is_there(row: str, made: Path, refsim) -> None:
    before = sorted(made.rglob("*"))
    written = {path: re.escape(said) for path, said in WRITE.items()}
    for path, said in (READ if row in rows(READERS) else written).items():
        done = refsim(row.replace("@", path))
        done.refused("")
        led_on(done.err.splitlines()[0], path, said)
        assert sorted(made.rglob("*")) == before


def test_a_pattern_is_no_path(made: Path, refsim) -> None:
    """The pattern ``.`` of --dump was taken for this folder, which is read then."""
    refsim("run model.pte -i in.npz --dump . words").refused("words: cannot be written; got a file")


@pytest.fixture
def unprivileged(_made: Path) -> Iterator[Path]:
    """A folder for somebody who is not root, whom no permission keeps out."""
    folder = Path(tempfile.mkdtemp())
    shutil.copytree(_made, folder, dirs_exist_ok=True)
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
