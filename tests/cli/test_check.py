"""refsim check: what it prints, its exit status, and the lines by which other verbs point to it."""

from __future__ import annotations

import json
from pathlib import Path

NETWORKS = Path(__file__).parents[1] / "data" / "networks"
DYNAMIC = NETWORKS.parent / "dynamic"
REFUSED = Path(__file__).parents[1] / "data" / "heads" / "int8_head.pte"


def test_a_file_that_the_runtime_refuses(refsim) -> None:
    done = refsim(f"check {REFUSED}")
    assert done.status == 1
    assert "clone_buffer_to_image_int8_int32" in done.out and "delegate 0, node 1, value 12" in done.out
    assert done.out.count("why missing-shader: ") == done.out.count("fix missing-shader: ") == 1
    assert done.out.endswith("2 errors, 0 warnings, 0 notes\n")
    assert done.err == f"rerun: refsim check {REFUSED}\n"


def test_json(refsim) -> None:
    content = refsim(f"check {REFUSED} --json").json
    assert (content["verb"], content["runtime"], content["measured"]) == ("check", "2026-08", True)
    assert content["counts"] == {"error": 2, "warning": 0, "note": 0}
    first = content["findings"][0]
    assert (first["rule"], first["level"], first["method"]) == ("missing-shader", "error", "forward")
    assert (first["delegate"], first["node"], first["value"]) == (0, 1, 12)
    assert all(first[key] for key in ("operator", "what", "why", "fix"))


def test_notes_alone_and_nothing_at_all_give_status_0(models: Path, refsim) -> None:
    noted = refsim(f"check {DYNAMIC}/fcn_add.pte")
    assert noted.status == 0 and noted.out.endswith("0 warnings, 3 notes\n")
    clean = refsim(f"check {models}/mixed_ops.pte")
    assert clean.status == 0 and clean.out.count("\n") == 2


def test_a_folder_of_lower_and_a_blob(tmp_path: Path, models: Path, refsim) -> None:
    (tmp_path / "model.pte").write_bytes((models / "mixed_ops.pte").read_bytes())
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
