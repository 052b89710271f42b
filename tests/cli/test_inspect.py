"""refsim inspect and check: the facts of bundled files, the graph as a picture, what a runtime refuses."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

from examples import BINARY, UNARY
from hypothesis import given
from hypothesis import strategies as st

from refsim.devtools.layered import MOST_TRACKS, placed

NETWORKS = Path(__file__).parents[1] / "data" / "networks"
DYNAMIC = NETWORKS.parent / "dynamic"
REFUSED = NETWORKS.parent / "heads" / "int8_head.pte"


def test_facts_of_one_operator(models: Path, refsim) -> None:
    facts = refsim(f"inspect {models}/mixed_ops.pte --json").json
    assert facts["plan"] == ["delegate 0", "aten::mean.out", "delegate 1"]
    first, second = facts["delegates"]
    conv = first["operators"][7]
    assert conv["kernels"] == "q8ta_im2col, q8ta_conv2d_pw" and conv["inputs"] == ["delegate0_v66"]
    assert conv["parameters"]["stride"] == [1, 1] and conv["parameters"]["in_scale"] > 0
    assert [d["shader"] for d in conv["dispatches"]] == ["q8ta_im2col", "q8ta_conv2d_pw"]
    assert all(min(d["grid"]) >= 1 and d["push_words"] for d in conv["dispatches"])
    for dispatch in (d for operator in first["operators"] for d in operator["dispatches"]):
        for words in ("push", "specialization"):
            assert len(dispatch[f"{words}_names"]) == len(dispatch[f"{words}_words"])
        assert "OUT_W" in dispatch["push_names"]
    (out,) = conv["outputs"]
    assert out["layout"] == "PACKED_INT8_4C" and out["shape"] == [1, 64, 16, 16] and out["bytes"] == 16384
    assert first["constants"]["count"] == 24 and second["constants"]["count"] == 4
    assert first["memory"]["bytes"] < first["memory"]["bytes_unshared"]
    between = dict(before="PACKED_INT8_4W4C", after="PACKED_INT8_4C", bytes=8192)
    assert dict(node=6, operator="q8ta_add", **between) in first["transitions"]
    (one,) = refsim(f"inspect {models}/mobilenet_v2_035_96.pte --json").json["delegates"]
    assert {row["kernels"] for row in one["operators"] if row["operator"] == "aten.hardtanh"} == {"float"}


def test_files_of_other_verbs(tmp_path: Path, models: Path, refsim) -> None:
    refsim(f"inspect {models}").refused(f"got a folder, need a file of it, such as {models}/linear_head.pte")
    (tmp_path / "x.pt2").write_bytes(b"PK\3\4")
    refsim(f"inspect {tmp_path}/x.pt2").refused("refsim lower")
    content = (models / "mixed_ops.pte").read_bytes()
    for verb in ("inspect", "check"):
        for size in (0, 7, 40, 5000, len(content) - 1):
            (tmp_path / "x.pte").write_bytes(content[:size])
            refsim(f"{verb} {tmp_path}/x.pte").refused("x.pte")


def test_a_target_that_is_given_is_said(models: Path, refsim) -> None:
    line = f"inspect {models}/linear_head.pte"
    assert refsim(f"{line} --target mali").out.splitlines()[0] == "target mali, from --target"
    assert not refsim(line).out.startswith("target")


def test_plan_tells_routes_and_memory_and_takes_others(refsim, models: Path) -> None:
    file = models / "mixed_ops.pte"
    text = refsim(f"inspect {file} --plan")
    assert "memory: " in text.out and "times the weights" in text.out
    asked = ("--route", f"{BINARY.name}=via_nhwc", "--route", f"{UNARY.name}=emulated")
    facts = refsim(f"inspect {file} --plan", *asked, "--json").json
    routes = {step["operator"]: step["route"] for step in facts["delegates"][0]["steps"]}
    assert routes[BINARY.name] == "via_nhwc" and routes[UNARY.name] == "emulated"


def test_the_kernels_of_another_executor(refsim, models: Path) -> None:
    line = f"inspect {models}/linear_head.pte"
    own, taken = (refsim(f"{line} --json {more}").json["delegates"] for more in ("", "-x cpu:emulated"))
    assert [row["kernels"] for row in taken[0]["operators"]] == [
        row["kernels"] for row in own[0]["operators"]
    ]
    assert "--executor excludes" in refsim(f"{line} -x cpu --plan").err


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


def test_a_file_that_the_runtime_refuses(refsim) -> None:
    done = refsim(f"check {REFUSED}")
    assert done.status == 1 and done.err == f"rerun: refsim check {REFUSED}\n"
    assert done.out.count("why missing-shader: ") == done.out.count("fix missing-shader: ") == 1
    assert done.out.endswith("2 errors, 0 warnings, 0 notes\n")
    content = refsim(f"check {REFUSED} --json").json
    assert (content["runtime"], content["measured"]) == ("2026-08", True)
    assert content["counts"] == dict(error=2, warning=0, note=0)
    first = content["findings"][0]
    where = dict(rule="missing-shader", level="error", method="forward", delegate=0, node=1, value=12)
    assert where.items() <= first.items() and all(first[key] for key in ("operator", "what", "why", "fix"))


def test_notes_alone_and_nothing_at_all_give_status_0(models: Path, tmp_path: Path, refsim) -> None:
    noted = refsim(f"check {DYNAMIC}/fcn_add.pte")
    assert noted.status == 0 and noted.out.endswith("0 warnings, 3 notes\n")
    clean = refsim(f"check {models}/mixed_ops.pte")
    assert clean.status == 0 and clean.out.count("\n") == 2
    shutil.copy(models / "mixed_ops.pte", tmp_path / "model.pte")  # a folder as refsim lower makes one
    assert refsim(f"check {tmp_path}").out.startswith(f"{tmp_path}, against the runtime 2026-08: ")


def test_a_runtime_that_was_only_read(refsim) -> None:
    file = NETWORKS / "reflect.pte"
    assert "index-null" in refsim(f"check {file}").out
    read = refsim(f"check {file} --runtime 1.5.1")
    assert "index-null" not in read.out and "nobody ran a file on this runtime" in read.out
    assert refsim(f"inspect {file} --runtime 1.5.1").out.splitlines()[-1] == (
        f"check: {read.out.splitlines()[-1]} for the runtime 1.5.1, probably; see refsim check {file} --runtime 1.5.1"
    )


def test_a_runtime_of_ones_own(tmp_path: Path, refsim) -> None:
    file = DYNAMIC / "batch_conv.pte"
    assert "first-batch" not in refsim(f"inspect {file} --runtime main").out
    own = {"of": "2026-08", "title": "own", "measured": True, "source": "a test", "behaviour": {}}
    (tmp_path / "own.json").write_text(json.dumps(own))
    told = refsim(f"check {file} --runtime {tmp_path}/own.json").out.splitlines()
    assert told == [f"{file}, against the runtime own: own", *refsim(f"check {file}").out.splitlines()[1:]]
    wrong = ({"of": "1.4"}, [], {"of": "main", "requirements": [{}]}, {"of": "main", "behaviour": 1}, {})
    wrong = (*wrong, {"of": "main", "behaviour": {"routing": "none"}}, {"of": "main", "limit": {}})
    for number, content in enumerate(wrong):
        (tmp_path / f"{number}.json").write_text(json.dumps(content))
        refsim(f"check {file} --runtime {tmp_path}/{number}.json").refused("no description of a runtime")
    (tmp_path / "least.json").write_text(json.dumps({"of": "2026-08"}))
    least = refsim(f"check {file} --runtime {tmp_path}/least.json --json").json
    assert not least["measured"]


def test_inspect_points_to_it(refsim) -> None:
    file = NETWORKS / "int8_mixer.pte"
    last = refsim(f"inspect {file}").out.splitlines()[-1]
    assert last == f"check: 1 error, 0 warnings, 1 note for the runtime 2026-08; see refsim check {file}"
