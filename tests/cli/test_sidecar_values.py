"""Which value and which run a buffer is of: what sidecars say is compared, and exchanged buffers are recognised."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture
def head(models: Path) -> tuple[object, ...]:
    return models / "linear_head.pte", "-i", models / "linear_head.io.npz"


@pytest.fixture
def dump(refsim: Callable, head, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A right dump of linear_head: v17 -> v20 -> v24 -> v28 -> v31; v20 and v24 have one shape and layout."""
    monkeypatch.chdir(tmp_path)
    assert refsim("run", *head, "--dump", ".", "dump").status == 0
    return Path("dump")


def swap(dump: Path, one: str, other: str) -> None:
    first, second = ((dump / f"delegate0_{name}.bin") for name in (one, other))
    held = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(held)


def flip(dump: Path, name: str) -> None:
    file = dump / f"delegate0_{name}.bin"
    raw = bytearray(file.read_bytes())
    raw[0] ^= 1
    file.write_bytes(raw)


EXCHANGED = "delegate0_v20 where delegate0_v24 should be, and the other way round"


@pytest.mark.long
@pytest.mark.parametrize("wrong", [(), ("v28",), ("v28", "v31")])
def test_bisect_recognises_two_exchanged_buffers(wrong, dump: Path, refsim, head) -> None:
    """v24's operator reads v20, and other operators may be wrong as well."""
    swap(dump, "v20", "v24")
    for name in wrong:
        flip(dump, name)
    given = ("bisect", *head, "--actual", dump)
    refsim(*given).refused(f"dump: two buffers are exchanged; got {EXCHANGED}")
    refsim(*given, "--json").refused(EXCHANGED)


def test_bisect_recognises_buffers_of_a_run_that_was_wrong_before(dump: Path, refsim, head) -> None:
    """Each is what its operator gives for the inputs that it had, which were not right."""
    flip(dump, "v17")
    model = head[0]
    assert refsim("run", model, "--random", 3, "--dump", "v20|v24|v28|v31", "other").status == 0
    for name in ("v20", "v24", "v28", "v31"):
        (dump / f"delegate0_{name}.bin").write_bytes((Path("other") / f"delegate0_{name}.bin").read_bytes())
    (dump / "delegate0_v17.bin").write_bytes(quantized(refsim, model))
    assert refsim("bisect", *head, "--actual", dump, "--json").json["wrong"] == ["delegate0_v17"]
    swap(dump, "v20", "v24")
    refsim("bisect", *head, "--actual", dump).refused(EXCHANGED)


def quantized(refsim, model: object) -> bytes:
    assert refsim("run", model, "--random", 3, "--dump", "v17", "first").status == 0
    return Path("first/delegate0_v17.bin").read_bytes()


def test_run_says_that_two_recorded_buffers_are_exchanged(dump: Path, refsim, head) -> None:
    given = ("run", *head, "--golden", dump)
    assert "exchanged" not in refsim(*given).out
    flip(dump, "v20")
    assert "exchanged" not in refsim(*given).out
    flip(dump, "v20")
    swap(dump, "v20", "v24")
    done = refsim(*given)
    assert done.status == 1 and f"two buffers are exchanged in dump: {EXCHANGED}" in done.out
    assert f"two buffers are exchanged in dump: {EXCHANGED}" in refsim(*given, "--json").json["notes"]


@pytest.mark.long
def test_bisect_explains_an_operator_that_is_right_but_not_for_its_dumped_inputs(
    dump: Path, refsim, head
) -> None:
    flip(dump, "v24")
    done = refsim("bisect", *head, "--actual", dump)
    line = (
        "node 3 q8ta_linear is right, since it gave what the right run gives: it read another delegate0_v24 than was "
        "dumped, which was changed later, or on the way to the file"
    )
    assert done.status == 1 and line in done.out.splitlines()
    assert refsim("bisect", *head, "--actual", dump, "--json").json["notes"] == [line]


def test_diff_says_what_the_sidecars_of_two_buffers_tell(dump: Path, refsim, head) -> None:
    """Of two runs where bytes differ, of two values always."""
    assert refsim("run", head[0], "--random", 3, "--dump", ".", "other").status == 0
    one, other = dump / "delegate0_v20.bin", Path("other/delegate0_v20.bin")
    line = (
        "dump/delegate0_v20.json and other/delegate0_v20.json tell of two runs, the second of other inputs than the "
        "first: bytes may differ for that alone"
    )
    done = refsim("diff", one, other, "--html", "page.html")
    assert done.status == 1 and line in done.out.splitlines() and line in Path("page.html").read_text()
    assert refsim("diff", one, other, "--json").json["of_run"] == [line]
    other.write_bytes(one.read_bytes())
    assert refsim("diff", one, other, "--json").json["of_run"] == []
    line = (
        "dump/delegate0_v20.json and dump/delegate0_v24.json name two values, delegate0_v20 and delegate0_v24"
    )
    pair = (one, dump / "delegate0_v24.bin")
    assert refsim("diff", *pair, "--json").json["of_run"] == [line]
    pair[1].write_bytes(pair[0].read_bytes())
    done = refsim("diff", *pair)
    assert done.status == 0 and line in done.out.splitlines()


@pytest.mark.long
def test_a_case_of_a_model_knows_its_value(dump: Path, refsim, head) -> None:
    assert refsim("extract", *head, "-n", "delegate0_v20", "-o", "case").status == 0
    assert json.loads(Path("case/case.json").read_text())["value"] == "delegate0_v20"
    beside = "dump/delegate0_v24.json says that dump/delegate0_v24.bin is delegate0_v24"
    line = f"{beside}, and case writes delegate0_v20"
    done = refsim("replay", "case", "--actual", dump / "delegate0_v24.bin")
    assert done.status == 1 and line in done.out.splitlines()
    given = ("diff", "case/out.bin", dump / "delegate0_v24.bin", "--case", "case", "--json")
    assert refsim(*given).json["of_run"] == [line]
    done = refsim("replay", "case", "--actual", dump / "delegate0_v20.bin", "--json")
    assert done.status == 0 and done.json["of_run"] == []


@pytest.mark.long
def test_a_file_that_is_named_like_another_value_is_told(dump: Path, refsim, head) -> None:
    beside = dump / "delegate0_v24.json"
    said = json.loads(beside.read_text())
    (dump / "delegate0_v20.json").unlink()
    beside.write_text(json.dumps({**said, "value": "delegate0_v20"}))
    done = refsim("bisect", *head, "--actual", dump)
    assert "dump: the sidecar says that delegate0_v24.bin is delegate0_v20" in done.out.splitlines()
    done = refsim("diff", dump / "delegate0_v24.bin", dump / "delegate0_v24.bin", "--json")
    assert done.json["of_run"] == [
        "dump/delegate0_v24.json says that dump/delegate0_v24.bin is delegate0_v20"
    ]


def test_two_sidecars_of_one_value_are_refused(dump: Path, refsim, head) -> None:
    said = json.loads((dump / "delegate0_v24.json").read_text())
    (dump / "delegate0_v24.json").write_text(json.dumps({**said, "value": "delegate0_v20"}))
    for verb in (("bisect", "--actual"), ("run", "--golden")):
        refsim(verb[0], *head, verb[1], dump).refused(
            "dump: delegate0_v20: two sidecars name it; got delegate0_v20.json, delegate0_v24.json"
        )


def test_the_folder_above_a_dump_and_a_case_is_one_of_dumps(dump: Path, refsim, head) -> None:
    assert refsim("extract", *head, "-n", "delegate0_v20", "-o", "case").status == 0
    for verb in (("bisect", "--actual"), ("run", "--golden")):
        refsim(verb[0], *head, verb[1], ".").refused(
            ".: a folder of dumps, and no dump; need one of those in it: dump\n"
        )


def test_a_value_with_a_slip_is_asked_back(dump: Path, refsim, head) -> None:
    """The one that the dump lacks is meant, not one that it has."""
    said = json.loads((dump / "delegate0_v20.json").read_text())
    (dump / "delegate0_v20.json").write_text(json.dumps({**said, "value": "delegate0-v20"}))
    done = refsim("bisect", *head, "--actual", dump)
    model = head[0]
    assert f"delegate0-v20 in dump is no value of {model}; did you mean delegate0_v20?" in done.out
    done = refsim("run", *head, "--golden", dump)
    assert done.status == 2 and "delegate0-v20 is not compared; did you mean delegate0_v20?" in done.out


def test_a_slip_in_a_folder_above_is_asked_back(dump: Path, refsim, head) -> None:
    Path("phone").mkdir()
    dump.rename("phone/dump")
    for verb in (("bisect", "--actual"), ("run", "--golden")):
        for slip in ("phon/dump", "phone/dunp", "phon/dunp"):
            refsim(verb[0], *head, verb[1], slip).refused("did you mean phone/dump?\n")
        assert "did you mean" not in refsim(verb[0], *head, verb[1], "elsewhere/dump").err
