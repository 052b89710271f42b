"""Which value and which run a buffer is of: what sidecars say is compared, and exchanged buffers are recognised."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from saved import flip

EXCHANGED = "delegate0_v20 where delegate0_v24 should be, and the other way round"
VERBS = pytest.mark.parametrize(("verb", "option"), [("bisect", "--actual"), ("run", "--golden")])


def buffer(name: str, dump: str = "dump") -> Path:
    return Path(dump) / f"delegate0_{name}.bin"


def swap() -> None:
    one, other = buffer("v20"), buffer("v24")
    held = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(held)


def says(sidecar: str, value: str) -> None:
    """Let a sidecar name another value."""
    path = buffer(sidecar).with_suffix(".json")
    path.write_text(json.dumps(json.loads(path.read_text()) | {"value": value}))


@pytest.mark.long
@pytest.mark.parametrize("wrong", [(), ("v28",), ("v28", "v31")])
def test_bisect_recognises_two_exchanged_buffers(wrong, dump: Path, refsim, head: str) -> None:
    """v24's operator reads v20, and other operators may be wrong as well."""
    swap()
    for name in wrong:
        flip(buffer(name))
    refsim(f"bisect {head} --actual dump").refused(f"dump: two buffers are exchanged; got {EXCHANGED}")


def test_bisect_recognises_buffers_of_a_run_that_was_wrong_before(dump: Path, refsim, head: str) -> None:
    """Each is what its operator gives for the inputs that it had, which were not right."""
    assert refsim(f"run {head.split()[0]} --random 3 --dump v other").status == 0
    for path in Path("other").glob("*.bin"):
        (dump / path.name).write_bytes(path.read_bytes())
    assert refsim(f"bisect {head} --actual dump --json").json["wrong"] == ["delegate0_v17"]
    swap()
    refsim(f"bisect {head} --actual dump --json").refused(EXCHANGED)


def test_run_says_that_two_recorded_buffers_are_exchanged(dump: Path, refsim, head: str) -> None:
    line, said = f"run {head} --golden dump --json", f"two buffers are exchanged in dump: {EXCHANGED}"
    flip(buffer("v20"))
    assert said not in refsim(line).json["notes"]
    flip(buffer("v20"))
    swap()
    done = refsim(line)
    assert done.status == 1 and said in done.json["notes"]


@pytest.mark.long
def test_bisect_explains_an_operator_that_is_right_but_not_for_its_dumped_inputs(dump, refsim, head) -> None:
    flip(buffer("v24"))
    done = refsim(f"bisect {head} --actual dump --json")
    assert done.status == 1 and done.json["notes"] == [
        "node 3 q8ta_linear is right, since it gave what the right run gives: it read another delegate0_v24 than was "
        "dumped, which was changed later, or on the way to the file"
    ]


def test_diff_says_what_the_sidecars_of_two_buffers_tell(dump: Path, refsim, head: str) -> None:
    assert refsim(f"run {head.split()[0]} --random 3 --dump . other").status == 0
    one, other, next_one = buffer("v20"), buffer("v20", "other"), buffer("v24")
    line = (
        "dump/delegate0_v20.json and other/delegate0_v20.json tell of two runs, the second of other inputs than the "
        "first: bytes may differ for that alone"
    )
    done = refsim(f"diff {one} {other} --html page.html")
    assert done.status == 1 and line in done.out.splitlines() and line in Path("page.html").read_text()
    other.write_bytes(one.read_bytes())
    assert refsim(f"diff {one} {other} --json").json["of_run"] == []
    names = "delegate0_v20 and delegate0_v24"
    line = f"dump/delegate0_v20.json and dump/delegate0_v24.json name two values, {names}"
    for status in (1, 0):
        done = refsim(f"diff {one} {next_one} --json")
        assert done.status == status and done.json["of_run"] == [line]
        next_one.write_bytes(one.read_bytes())


@pytest.mark.long
def test_a_case_of_a_model_knows_its_value(dump: Path, refsim, head: str) -> None:
    assert refsim(f"extract {head} -n delegate0_v20 -o case").status == 0
    assert json.loads(Path("case/case.json").read_text())["value"] == "delegate0_v20"
    beside = "dump/delegate0_v24.json says that dump/delegate0_v24.bin is delegate0_v24"
    line = f"{beside}, and case writes delegate0_v20"
    for given, status, said in (
        (f"replay case --actual {buffer('v24')}", 1, [line]),
        (f"diff case/out.bin {buffer('v24')} --case case", 1, [line]),
        (f"replay case --actual {buffer('v20')}", 0, []),
    ):
        done = refsim(f"{given} --json")
        assert (done.status, done.json["of_run"]) == (status, said)


@pytest.mark.long
def test_a_file_that_is_named_like_another_value_is_told(dump: Path, refsim, head: str) -> None:
    buffer("v20").with_suffix(".json").unlink()
    says("v24", "delegate0_v20")
    done = refsim(f"bisect {head} --actual dump")
    assert "dump: the sidecar says that delegate0_v24.bin is delegate0_v20" in done.out.splitlines()
    told = refsim(f"diff {buffer('v24')} {buffer('v24')} --json").json["of_run"]
    assert told == ["dump/delegate0_v24.json says that dump/delegate0_v24.bin is delegate0_v20"]


@VERBS
def test_two_sidecars_of_one_value_are_refused(verb, option, dump: Path, refsim, head: str) -> None:
    says("v24", "delegate0_v20")
    done = refsim(f"{verb} {head} {option} dump")
    done.refused("delegate0_v20: two sidecars name it; got delegate0_v20.json, delegate0_v24.json")


@VERBS
def test_a_value_with_a_slip_is_asked_back(verb, option, dump: Path, refsim, head: str) -> None:
    """The one that the dump lacks is meant, not one that it has."""
    says("v20", "delegate0-v20")
    done = refsim(f"{verb} {head} {option} dump")
    assert done.status == 2 and "delegate0-v20 " in done.out
    assert "; did you mean delegate0_v20?" in done.out
