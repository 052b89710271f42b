"""Files for ExecuTorch's runtime alone, in which values lie in each other's memory: no verb runs one here."""

from __future__ import annotations

from pathlib import Path

import pytest

from refsim.core.errors import GraphError
from refsim.exec.model import load

ON = {
    "run": (), "repeat": ("-n", "2", "-x", "cpu"), "compare": ("-x", "cpu", "-x", "numpy"), "bisect": ("-x", "numpy"),
    "extract": ("-n", "0:1", "-o", "CASE"),
}  # fmt: skip
ELSEWHERE = "ExecuTorch's runtime: only it runs what expose, extract --pte and golden export write"


@pytest.mark.parametrize("verb", ON)
@pytest.mark.parametrize("way", [(), ("--share",), ("--as", "values")])
def test_an_exposed_file(refsim, models: Path, tmp_path: Path, verb: str, way: tuple[str, ...]) -> None:
    out = tmp_path / "exposed.pte"
    told = refsim("expose", models / "linear_head.pte", "-o", out, *way)
    assert "with ExecuTorch's runtime on the device (refsim run does not take it)" in told.out
    options = [str(tmp_path / "case") if word == "CASE" else word for word in ON[verb]]
    refsim(verb, out, "--random", 0, *options).refused(
        f"{out}: is exposed: only ExecuTorch's runtime on the device runs it, and refsim triage judges its outputs; "
        "need linear_head.pte"
    )
    assert not (tmp_path / "case").exists()
    _is_shown(refsim, out)
    Path(f"{out}.json").unlink()  # the file itself says it too, where words of a buffer are read
    done = refsim("run", out, "--random", 0)
    if way == ("--as", "values"):
        assert done.status == 0  # floats of their own, which are right here as well
    else:
        done.refused(
            f"{out}: is exposed, but {out}.json is missing; need that file: copy it from where expose wrote it"
        )


@pytest.mark.parametrize("way", ["words", "constants"])
@pytest.mark.parametrize("node", ["0:0", "0:1"])  # of float inputs, and of packed ones
def test_an_extracted_call(refsim, models: Path, tmp_path: Path, node: str, way: str) -> None:
    told = refsim(
        "extract", models / "linear_head.pte", "-n", node, "--random", 0, "-o", tmp_path / "c", "--pte", way
    )
    assert told.status == 0 and "with ExecuTorch's runtime on the device" in told.out
    refsim("run", tmp_path / "c" / "program.pte", "--random", 0).refused(ELSEWHERE)
    assert ("no inputs" in _is_shown(refsim, tmp_path / "c" / "program.pte")) is (way == "constants")


@pytest.mark.long
def test_exported_cases(refsim, tmp_path: Path) -> None:
    assert refsim("golden", "export", "q8ta_relu", "--size", "small", "--pte", tmp_path / "c").status == 0
    refsim("run", tmp_path / "c" / "q8ta_relu.pte", "--random", 0).refused(ELSEWHERE)
    with pytest.raises(GraphError, match="only it runs"):
        load(tmp_path / "c" / "q8ta_relu.pte")
    _is_shown(refsim, tmp_path / "c" / "q8ta_relu.pte")


def _is_shown(refsim, file: Path) -> str:
    """`inspect` runs nothing, so it shows such a file, in every form but the plan of a run; the text that it prints."""
    plain = refsim("inspect", file)
    assert plain.status == 0 and "outputs" in plain.out and not plain.err
    for way in (["--json"], ["--html", file.with_suffix(".html")]):
        assert refsim("inspect", file, *way).status == 0, way
    refsim("inspect", file, "--plan").refused("only")
    return plain.out
