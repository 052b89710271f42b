"""`refsim collect`: from saved outputs to what the other verbs read."""

from __future__ import annotations

from pathlib import Path

DEVICE = Path(__file__).parents[1] / "data" / "device"


def test_a_dump_for_the_other_verbs(refsim, models: Path, tmp_path: Path) -> None:
    dump = tmp_path / "dump"
    done = refsim("collect", DEVICE / "linear_head.raw.pte", DEVICE / "linear_head.raw.npz", "-o", dump)
    assert done.status == 0 and "5 values in" in done.out
    given = ("-i", models / "linear_head.io.npz")
    assert refsim("bisect", models / "linear_head.pte", *given, "--actual", dump).status == 0
    assert "0 bytes differ" in refsim("run", models / "linear_head.pte", *given, "--golden", dump).out


def test_json_and_refusals(refsim, tmp_path: Path) -> None:
    given = (DEVICE / "linear_head.raw.pte", DEVICE / "linear_head.raw.npz")
    done = refsim("collect", *given, "-o", tmp_path / "dump", "--json")
    assert [row["value"] for row in done.json["values"]] == [f"delegate0_v{n}" for n in (17, 20, 24, 28, 31)]
    refsim("collect", *given, "-o", tmp_path / "dump").refused("already exists")
    other = DEVICE / "linear_head_gemv.raw.npz"
    refsim("collect", given[0], other, "-o", tmp_path / "x").refused("out0: does not fit")
    refsim("collect", *given, "--more", *given, "-o", tmp_path / "x").refused("collected twice")
    refsim("collect", given[1], given[1], "-o", tmp_path / "x").refused(
        "neither a .pte file nor a delegate blob; got a zip file"
    )
    assert not (tmp_path / "x").exists()
