"""refsim check: what it prints, its exit status, and the lines by which other verbs point to it."""

from __future__ import annotations

from pathlib import Path

NETWORKS = Path(__file__).parents[1] / "data" / "networks"
REFUSED = Path(__file__).parents[1] / "data" / "heads" / "int8_head.pte"


def test_a_file_that_the_runtime_refuses(refsim) -> None:
    done = refsim("check", REFUSED)
    assert done.status == 1
    assert "clone_buffer_to_image_int8_int32" in done.out and "delegate 0, node 1, value 12" in done.out
    assert done.out.count("why missing-shader: ") == done.out.count("fix missing-shader: ") == 1
    assert done.out.endswith("2 errors, 0 warnings, 0 notes\n")
    assert done.err == f"rerun: refsim check {REFUSED}\n"


def test_json(refsim) -> None:
    content = refsim("check", REFUSED, "--json").json
    assert (content["verb"], content["runtime"]) == ("check", "1.5.1")
    assert content["counts"] == {"error": 2, "warning": 0, "note": 0}
    first = content["findings"][0]
    assert (first["rule"], first["level"], first["method"]) == ("missing-shader", "error", "forward")
    assert (first["delegate"], first["node"], first["value"]) == (0, 1, 12)
    assert all(first[key] for key in ("operator", "what", "why", "fix"))


def test_notes_alone_and_nothing_at_all_give_status_0(models: Path, refsim) -> None:
    noted = refsim("check", NETWORKS / "reflect.pte", "--runtime", "1.5.1")
    assert noted.status == 0 and "index-null" in noted.out and noted.out.endswith("0 warnings, 2 notes\n")
    clean = refsim("check", models / "mixed_ops.pte")
    assert clean.status == 0 and clean.out.count("\n") == 2


def test_a_folder_of_lower_and_a_blob(tmp_path: Path, models: Path, refsim) -> None:
    (tmp_path / "model.pte").write_bytes((models / "mixed_ops.pte").read_bytes())
    assert refsim("check", tmp_path).out.startswith(f"{tmp_path}, against the runtime of ExecuTorch 1.5.1\n")


def test_bad_input(tmp_path: Path, models: Path, refsim) -> None:
    refsim("check", tmp_path / "absent.pte").refused("cannot be read")
    refsim("check", tmp_path).refused("got a folder")
    (tmp_path / "x.pte").write_bytes(b"\0" * 64)
    refsim("check", tmp_path / "x.pte").refused("neither a .pte file nor a delegate blob")
    refsim("check", models / "mixed_ops.pte", "--runtime", "1.5.0").refused(
        "'1.5.0' is unknown, need 1.5.1, the only one\n"
    )
    content = (models / "mixed_ops.pte").read_bytes()
    for size in (40, 5000, len(content) - 1):
        (tmp_path / "x.pte").write_bytes(content[:size])
        refsim("check", tmp_path / "x.pte").refused("x.pte")


def test_inspect_points_to_it(refsim) -> None:
    file = NETWORKS / "int8_mixer.pte"
    last = refsim("inspect", file).out.splitlines()[-1]
    assert (
        last
        == f"check: 1 error, 0 warnings, 1 note for the runtime of ExecuTorch 1.5.1; see refsim check {file}"
    )
