"""Where people stopped and thought: what a verb says there, so that the next one need not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from refsim.core import choices
from refsim.formats.cases import read_folder
from refsim.formats.targets import named

NETWORKS = Path(__file__).parents[1] / "data" / "networks"


@pytest.fixture
def alone(models: Path, tmp_path: Path, refsim, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    given = ("extract", models / "linear_head.pte", "-n", 1, "--random", 0, "-o")
    done = refsim(*given, "plain")
    assert done.out.splitlines()[-1] == (
        "for ExecuTorch's runtime on a device: --pte words also writes a program of this call"
    )
    assert refsim(*given, "alone", "--pte", "words").status == 0
    return "alone"


def test_elements_without_padding_are_judged(alone: str, refsim) -> None:
    """Where several arrays are in a file, the one with elements is named."""
    expected = read_folder(alone).expected
    np.save("elements.npy", expected.unpack())
    np.savez("some.npz", out0=np.zeros(3, np.float32), out1=expected.unpack())
    for given in ("elements.npy", "some.npz"):
        assert refsim("replay", alone, "--actual", given).status == 0
    said = refsim("replay", alone, "--actual", "some.npz").out.splitlines()
    assert said[-2] == "some.npz: out1 was compared, the only one in it that is such a buffer"
    np.save("short.npy", np.zeros(3, np.int8))
    refsim("replay", alone, "--actual", "short.npy").refused("or int8 [6, 128], its elements")


def test_a_program_of_one_call_is_judged_by_replay(alone: str, refsim) -> None:
    done = refsim("expose", f"{alone}/program.pte", "-o", "exposed.pte")
    done.refused("alone/program.pte: is a program of calls alone, which have nothing inside to hand out")
    assert done.err.splitlines()[1] == "try: refsim replay alone --actual OUTPUT"
    assert not Path("exposed.pte").exists()


@pytest.mark.long
def test_the_case_beside_a_buffer_is_the_one_to_give(alone: str, refsim) -> None:
    raw = bytearray(Path("alone/out.bin").read_bytes())
    raw[0] ^= 1
    Path("other.bin").write_bytes(raw)
    done = refsim("diff", "alone/out.bin", "other.bin")
    assert done.status == 1
    assert done.out.splitlines()[-1] == "more causes, and who wrote each word: --case alone"
    assert refsim("diff", "alone/out.bin", "other.bin", "--case", "alone").status == 1


def test_a_float_operator_has_no_case_and_others_are_named(models: Path, tmp_path: Path, refsim) -> None:
    given = ("extract", models / "mobilenet_v2_035_96.pte", "--random", 0, "-o", tmp_path / "case", "-n")
    refsim(*given, 3).refused(
        "need an int8 operator, which has a case, as refsim inspect lists them: node 0 "
    )


def test_inspect_says_for_which_target_where_one_is_given(models: Path, refsim) -> None:
    model = models / "linear_head.pte"
    assert refsim("inspect", model, "--target", "mali").out.splitlines()[0] == "target mali, from --target"
    assert not refsim("inspect", model).out.startswith("target")


def test_an_index_past_the_rank_is_one_of_a_larger_shape(refsim) -> None:
    said = refsim("locate", "-l", "4W4C", "-s", "6,12", "--byte", 2).out
    assert "index           2,0,0 of 1,6,12\n" in said
    assert "index           1,0\n" in refsim("locate", "-l", "4W4C", "-s", "6,12", "--index", "1,0").out


def test_a_file_that_no_runtime_loads_is_said_to_be_one(models: Path, tmp_path: Path, refsim) -> None:
    mixer = NETWORKS / "int8_mixer.pte"
    done = refsim("expose", mixer, "-o", tmp_path / "e.pte")
    said = " ".join(done.out.split())
    assert done.status == 0 and "does not take it (claimed-operator, " in said
    assert f"see refsim check {mixer}" in said
    assert (
        "does not take it (" not in refsim("expose", models / "linear_head.pte", "-o", tmp_path / "f.pte").out
    )


def test_several_exposed_files_have_a_table_each_and_one_sentence(
    models: Path, tmp_path: Path, refsim
) -> None:
    out = tmp_path / "e.pte"
    lines = refsim("expose", models / "linear_head.pte", "--chunk", 2, "-o", out).out.splitlines()
    heads = [line for line in lines if line.startswith(str(tmp_path)) and line.endswith(".pte:")]
    assert len(heads) > 1 and sum(line.startswith("output ") for line in lines) == len(heads)
    assert " ".join(lines).count("refsim run does not take it") == 1
    assert "run each with ExecuTorch's runtime" in " ".join(" ".join(lines).split())


def test_inputs_are_no_outputs_and_the_dump_beside_them_is_named(models: Path, refsim) -> None:
    given = models / "linear_head.io.npz"
    done = refsim("run", models / "linear_head.pte", "--random", 0, "--golden", given)
    done.refused("the inputs of a run, and no dump; need ")
    assert "linear_head.dump.zip, the dump beside it" in done.err


def test_what_is_suggested_is_like_what_was_typed() -> None:
    with pytest.raises(Exception, match=r"got 'apple', need desktop, adreno, mali, lavapipe, nvidia$"):
        named("apple")
    with pytest.raises(Exception, match="did you mean nvidia"):
        named("nvida")
    parts = ["ch.1.pte", "ch.2.pte", "ch.3.pte"]
    for order in (parts, parts[::-1]):
        assert choices.nearest("ch.pte", order) == "ch.1.pte"
