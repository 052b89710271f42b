"""Where people stopped and thought: what a verb says there, so that the next one need not."""

from __future__ import annotations

from pathlib import Path

import pytest

from refsim.cli.probe import Device
from refsim.core import choices
from refsim.formats.targets import named

NETWORKS = Path(__file__).parents[1] / "data" / "networks"


def test_a_device_has_the_name_that_other_verbs_give_it() -> None:
    assert [Device().convert(given, None, None) for given in ("gpu:3", "3", 3)] == [3, 3, 3]


def test_a_float_operator_has_no_case_and_others_are_named(models: Path, refsim) -> None:
    done = refsim(f"extract {models}/mobilenet_v2_035_96.pte --random 0 -o case -n 3")
    done.refused("need an int8 operator, which has a case, as refsim inspect lists them: node 0 ")


def test_inspect_says_for_which_target_where_one_is_given(head: str, refsim) -> None:
    line = f"inspect {head.split()[0]}"
    assert refsim(f"{line} --target mali").out.splitlines()[0] == "target mali, from --target"
    assert not refsim(line).out.startswith("target")


def test_an_index_past_the_rank_is_one_of_a_larger_shape(refsim) -> None:
    said = refsim("locate -l 4W4C -s 6,12 --byte 2").out
    assert "index           2,0,0 of 1,6,12\n" in said
    assert "index           1,0\n" in refsim("locate -l 4W4C -s 6,12 --index 1,0").out


@pytest.mark.parametrize(("file", "taken"), [("int8_mixer", False), ("int8_scaled", True)])
def test_a_file_that_no_runtime_loads_is_said_to_be_one(file: str, taken: bool, tmp_path, refsim) -> None:
    done = refsim(f"expose {NETWORKS}/{file}.pte -o {tmp_path}/e.pte")
    said = " ".join(done.out.split())
    assert done.status == 0 and ("does not take it (claimed-operator, " in said) != taken
    assert (f"see refsim check {NETWORKS}/{file}.pte" in said) != taken


def test_several_exposed_files_have_a_table_each_and_one_sentence(head: str, tmp_path: Path, refsim) -> None:
    lines = refsim(f"expose {head.split()[0]} --chunk 2 -o {tmp_path}/e.pte").out.splitlines()
    heads = [line for line in lines if line.startswith(str(tmp_path)) and line.endswith(".pte:")]
    assert len(heads) > 1 and sum(line.startswith("output ") for line in lines) == len(heads)
    assert " ".join(lines).count("refsim run does not take it") == 1
    assert "run each with ExecuTorch's runtime" in " ".join(" ".join(lines).split())


def test_inputs_are_no_outputs_and_the_dump_beside_them_is_named(models: Path, refsim) -> None:
    done = refsim(f"run {models}/linear_head.pte --random 0 --golden {models}/linear_head.io.npz")
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
