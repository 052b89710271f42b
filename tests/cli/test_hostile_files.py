"""What files say cannot command a terminal, forge a line, or make a command take more memory than it may."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from check.small_files import INT8_4W, Graph, T, program

from refsim.cli.kit.text import say
from refsim.core.html import rendered
from refsim.golden.certify import Certificate

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
