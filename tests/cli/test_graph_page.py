"""`refsim inspect --html`: the graph as a picture, transitions and verdicts; where boxes and edges lie."""

from __future__ import annotations

import json
import re
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from refsim.devtools.layered import MOST_TRACKS, placed


def test_every_node_is_a_box_and_a_row(refsim, models: Path, tmp_path: Path) -> None:
    file = models / "mixed_ops.pte"
    assert "memory: " in refsim(f"inspect {file} --html {tmp_path}/g.html").out  # printed as ever
    page = (tmp_path / "g.html").read_text()
    assert not re.search(r"https?://|src=|@import|url\(|<script", page)
    ids = re.findall(r' id="(.*?)"', page)
    assert len(ids) == len(set(ids)) == 2 * 17
    assert sorted(re.findall('href="#(.*?)"', page)) == sorted(ids)
    delegates = refsim(f"inspect {file} --json").json["delegates"]
    marked = page.count("stroke-dasharray"), len(re.findall(r'class="k\d changes', page))
    assert marked == (1, sum(len(d["transitions"]) for d in delegates))
    for operator in (operator for delegate in delegates for operator in delegate["operators"]):
        assert f">{operator['node']} {operator['operator']}</text>" in page
    assert "4W4C -&gt; 4C</text>" in page and "aten::mean.out</text>" in page


def test_verdicts(refsim, models: Path, tmp_path: Path) -> None:
    given_to = ("inspect", models / "linear_head.pte", "--html", tmp_path / "g.html", "--verdicts")
    found = tmp_path / "found.json"

    def write(*pairs: tuple[object, object]) -> Path:
        found.write_text(json.dumps({"nodes": [{"value": v, "verdict": said} for v, said in pairs]}))
        return found

    refsim(*given_to, write(("delegate0_v99", "same"))).refused("is of another program")
    refsim(*given_to, write(("delegate0_v20", 3))).refused("node 0 has no value and verdict")
    refsim(*given_to, write()).refused("has no list of nodes")
    found.write_text("[1")
    refsim(*given_to, found).refused("not JSON")
    assert not (tmp_path / "g.html").exists()
    refsim(*given_to[:2], "--verdicts", found).refused("--verdicts needs --html")
    made = write(
        ("delegate0_v20", "same"), ("delegate0_v24", "wrong inputs"), ("delegate0_v28", '"><script>')
    )
    assert refsim(*given_to, made).status == 0
    page = (tmp_path / "g.html").read_text()
    assert "1 same" in page and "<script>" not in page
    assert (
        len(re.findall(r'<rect [^>]* wrong-inputs"', page)) == 1 == len(re.findall('<td class="same">', page))
    )


@given(st.lists(st.lists(st.integers(1, 60), max_size=4), max_size=90))
def test_nothing_lies_on_anything(steps: list[list[int]]) -> None:
    """Any graph: a place for each node, edges downwards, and long edges that share no piece of a track."""
    sources = {str(at): [str(at - back) for back in given] for at, given in enumerate(steps)}
    found = placed(sources)
    assert set(found.places) == set(sources) and len(set(found.places.values())) == len(sources)
    assert all(row < found.rows and column < found.columns for row, column in found.places.values())
    wanted = {(source, at) for at, given in sources.items() for source in given if source in sources}
    assert {(edge.source, edge.target) for edge in found.edges} == wanted
    pieces = set()
    for edge in found.edges:
        begin, end = found.places[edge.source][0], found.places[edge.target][0]
        assert begin < end and (edge.track is None) == (end == begin + 1)
        if edge.track is not None and edge.track < MOST_TRACKS - 1:
            mine = {(edge.track, row) for row in range(begin, end)}
            assert not mine & pieces
            pieces |= mine
        assert edge.track is None or edge.track < found.tracks <= MOST_TRACKS
