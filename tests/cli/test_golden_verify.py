"""golden verify: what it finds, survives, resumes and refuses."""

from __future__ import annotations

import fcntl
import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from examples import LINEAR, UNARY

from refsim.bytediff import Cause
from refsim.core.errors import DeviceError, FormatError
from refsim.exec.cpu import isa
from refsim.formats.typed_json import typed
from refsim.golden import verify
from refsim.golden.apart import of_kernels
from refsim.golden.check import BYTES, Checked
from refsim.golden.named import open_case
from refsim.golden.store import SUMS, Corpus, sums_of
from refsim.golden.verified import failed_text

ROOT = Path(__file__).parents[2]
OP = UNARY.name
CASE = f"{OP}/0003"


def verified(refsim, root: Path, *options: str) -> dict:
    done = refsim(f"golden verify --root {root} --workers 1 --json", *options)
    assert done.status == (0 if done.json["same"] else 1)
    return done.json


@pytest.mark.long
def test_a_good_corpus_is_the_same(small: Path, refsim) -> None:
    facts = verified(refsim, small)
    assert facts["same"] and facts["damaged_files"] == [] and facts["failures"] == []
    assert facts["executors"]["cpu"] == facts["executors"]["define"] == {"same": facts["cases"]}
    assert facts["digests"] > 0 < facts["whole"] and facts["cases"] == facts["digests"] + facts["whole"]
    covered = refsim(f"golden coverage --root {small} --json").json
    assert facts["digests"] == covered["cases"] and covered["operators"][OP]["cases"] == 26
    assert facts["whole"] == covered["whole"]
    last = refsim(f"golden verify {CASE} --root {small}").out.splitlines()[-1]
    twice = ", 1 of them by stored bytes too" if last.startswith("2") else ""
    assert re.fullmatch(rf"[12] checks?: 1 case by digest{twice}; 0 failures, \d+ s", last)


def test_damage_is_named(small: Path, refsim) -> None:
    path = small / "digests" / f"{OP}.jsonl"
    path.write_text(path.read_text().replace('"sha256":"', '"sha256":"0', 1).replace('"}', '"}', 1))
    (small / "stray.bin").write_bytes(b"1")
    facts = verified(refsim, small, OP)
    damage = ["stray.bin: not listed in SHA256SUMS", f"digests/{OP}.jsonl: changed"]
    assert facts["damaged_files"] == damage
    (failure,) = facts["failures"]
    assert failure["case"] == f"{OP}/0000" and failure["executor"] == "define"
    assert failure["status"] == "different" and failure["recorded"].startswith("0")


def test_a_changed_output_is_different_and_says_how_to_repeat_it(small: Path, refsim) -> None:
    path = small / "digests" / f"{OP}.jsonl"
    rows = path.read_text().splitlines()
    row = json.loads(rows[3])
    row["params"]["out_zp"] += -1 if row["params"]["out_zp"] > 0 else 1
    path.write_text("\n".join([*rows[:3], json.dumps(row), *rows[4:]]) + "\n")
    (small / SUMS).write_bytes(sums_of(small))
    done = refsim(f"golden verify {OP} --root {small}")
    assert done.status == 1
    assert f"{CASE} define: different" in done.out
    assert f"  refsim golden verify {CASE} -x cpu --root {small}" in done.out.splitlines()


def test_a_case_of_stored_bytes_has_the_name_that_verbs_take(refsim) -> None:
    failed = Checked(CASE, "cpu", "different", stored=True, causes=TWO_CAUSES, sought=True)
    first, *others = failed_text(failed, ["-x", "cpu"])
    assert first == f"{CASE} cpu: different, from its stored bytes" and BYTES not in " ".join(others)
    assert failed.key == f"{CASE}{BYTES}" and typed(Checked, failed.as_json(), CASE) == failed
    ((case,),) = verify.wrong_cases([failed]).values()
    assert (case.name, [cause.name for cause in case.causes]) == (CASE, ["nothing written", "padding leaked"])
    assert refsim(f"replay {case.name} -x cpu").status == 0


TWO_CAUSES = tuple(Cause(name, "so", 9, 9, 0) for name in ("nothing written", "padding leaked"))

#: Run by every Python that finds it on its path: makes one case fail in its own way, ...
SABOTAGE = """
import os, sys, time
if "golden verify" in sys.orig_argv:
    import refsim.golden.check as check
    honest = check.run
    def run(case, *rest):
        if case == {case!r}:
            {act}
        return honest(case, *rest)
    check.run = run
"""
ACTS = {"crashed": "os._exit(7)", "timeout": "time.sleep(100)"}
#: ... or the emulated kernels write each word one further, and a diff takes longer than a case may.
WRONG = """
import sys, time
if "golden verify" in sys.orig_argv:
    import numpy
    import refsim.bytediff.report as report
    from refsim.exec.cpu import EmulatedExecutor
    right, explained = EmulatedExecutor.run_prepared, report.explained
    def run_prepared(self, prepared, inputs):
        out = right(self, prepared, inputs)
        out.raw[:] = numpy.roll(out.raw, 4)
        return out
    def slow(*buffers, **given):
        time.sleep({slow})
        return explained(*buffers, **given)
    EmulatedExecutor.run_prepared, report.explained = run_prepared, slow
"""
Sabotage = Callable[[str], None]


@pytest.fixture
def sabotaged(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Sabotage:
    """Lets every Python that is started run this code first."""

    def write(code: str) -> None:
        (tmp_path / "site").mkdir()
        (tmp_path / "site" / "sitecustomize.py").write_text(code)
        monkeypatch.setenv("PYTHONPATH", f"{tmp_path / 'site'}{os.pathsep}{ROOT}")

    return write


@pytest.mark.long
def test_a_long_diff_is_no_silence(small: Path, sabotaged: Sabotage, refsim) -> None:
    sabotaged(WRONG.format(slow=9))
    facts = verified(refsim, small, CASE, "-x", "cpu:emulated", "--seconds", "8")
    assert {failure["status"] for failure in facts["failures"]} == {"different"}
    assert all(failure["differing"] and failure["causes"] for failure in facts["failures"])


@pytest.mark.long
def test_enough_wrong_cases_of_an_operator_end_it(
    small: Path, sabotaged: Sabotage, refsim, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verify, "ENOUGH", 6)
    sabotaged(WRONG.format(slow=0))
    facts = verified(refsim, small, OP, "-x", "cpu:emulated", "--search", "0")
    failed = facts["failures"]
    assert len(failed) == 6 and sum(bool(row["causes"]) for row in failed) == verify.EXPLAINED
    assert all(row["configuration"] == open_case(row["case"]).bound.case.configuration for row in failed)
    (row,) = facts["causes"]
    assert (row["operator"], row["wrong"], row["sought"]) == (OP, 6, verify.EXPLAINED) and row["causes"]
    everything = verified(refsim, small, OP, "-x", "cpu:emulated", "--search", "0", "--all")
    assert facts["cases"] + facts["not_checked"][OP] == everything["cases"]
    assert everything["not_checked"] == {} and len(everything["failures"]) > 20
    assert all(row["causes"] for row in everything["failures"])


def test_causes_are_summed_up_by_kernel() -> None:
    def checked(case: str, executor: str, *names: str) -> Checked:
        causes = tuple(Cause(name, "so", 9, 9, 0) for name in names)
        return Checked(case, executor, "different", causes=causes, sought=True)

    found = [checked("a/0", "x", "p", "q"), checked("a/1", "x", "p"), checked("b/0", "x")]
    found += [Checked("a/2", "x", "different"), Checked("a/2", "y", "error")]
    rows = {(row.operator, row.executor): row for row in of_kernels(verify.wrong_cases(found))}
    row = rows["a", "x"]
    assert (row.wrong, row.sought, row.case) == (3, 2, "a/0")
    assert [(cause.name, cause.exact, cause.of) for cause in row.causes] == [("p", 2, 2), ("q", 1, 2)]
    assert (rows["a", "y"].sought, rows["a", "y"].causes) == (0, ())
    assert (rows["b", "x"].sought, rows["b", "x"].causes) == (1, ())


@pytest.mark.long
def test_a_wrong_chain_names_its_first_wrong_operator_and_a_cause(sabotaged: Sabotage, refsim) -> None:
    sabotaged(WRONG.format(slow=0))
    given = "golden verify chains/46 -x cpu:emulated --workers 1"
    (failure,) = refsim(f"{given} --json").json["failures"]
    assert (failure["operator"], failure["nodes"]) == ("q8ta_quantize", [0])
    assert failure["causes"] and failure["differing"]
    text = refsim(given)
    assert text.status == 1 and failure["message"] in text.out
    assert "; ".join((f"  {failure['differing']} differ", *failure["pattern"])) in text.out.splitlines()
    assert f"  likely cause: {typed(Cause, failure['causes'][0], CASE)}" in text.out.splitlines()


@pytest.mark.long
@pytest.mark.parametrize("status", ACTS)
def test_a_case_that_takes_its_process_down_costs_nothing_else(
    status: str, small: Path, sabotaged: Sabotage, refsim
) -> None:
    sabotaged(SABOTAGE.format(case=CASE, act=ACTS[status]))
    facts = verified(refsim, small, OP, "--seconds", "25" if status == "crashed" else "12")
    assert {(one["case"], one["status"]) for one in facts["failures"]} == {(CASE, status)}
    assert facts["executors"]["define"]["same"] == facts["cases"] - len(facts["failures"])


@pytest.mark.long
def test_an_error_says_which_functions_it_left(small: Path, sabotaged: Sabotage, refsim) -> None:
    sabotaged(SABOTAGE.format(case=CASE, act="{}[7]"))
    failures = verified(refsim, small, OP)["failures"]
    assert failures
    for failure in failures:
        assert (failure["case"], failure["status"]) == (CASE, "crashed")
        assert failure["message"].startswith("KeyError: 7 | raised in run (sitecustomize.py:")


@pytest.mark.long
def test_results_are_written_as_they_come_and_resumed(small: Path, tmp_path: Path, refsim) -> None:
    path = tmp_path / "results.jsonl"
    facts = verified(refsim, small, OP, "--results", str(path))
    lines = path.read_text().splitlines()
    assert len(lines) == 1 + facts["cases"] and all(json.loads(line) for line in lines)
    path.write_text("\n".join(lines[:6]) + f'\n{{"case": "{OP}/0')  # killed while it wrote
    again = verified(refsim, small, OP, "--results", str(path), "--resume")
    assert again["resumed"] == 5 and again["cases"] == facts["cases"] and again["same"]
    assert len(path.read_text().splitlines()) == 1 + facts["cases"]
    refused = refsim(f"golden verify -x cpu:emulated --root {small} --results {path} --resume")
    refused.refused("results of another state")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("case", None),
        ("status", []),
        ("executor", 1),
        ("pattern", [1]),
        ("causes", [{}]),
        ("profiles", "nvidia"),
    ],
)
def test_results_of_another_form_are_refused(tmp_path: Path, key: str, value: object) -> None:
    path = tmp_path / "results.jsonl"
    row = {"case": CASE, "results": [{"case": CASE, "executor": "cpu", "status": "same"}]}
    path.write_text("\n".join((json.dumps({"golden verify": {}}), json.dumps(row), "")))
    assert verify.read_results(path, {}) == {CASE: [Checked(CASE, "cpu", "same")]}
    row = {"case": CASE, "results": [{"case": CASE, "executor": "cpu", "status": "same", key: value}]}
    path.write_text("\n".join((json.dumps({"golden verify": {}}), json.dumps(row), "")))
    with pytest.raises(FormatError) as refused:
        verify.read_results(path, {})
    assert refused.value.where.startswith(f"{path}: {CASE}: {key}")


def test_results_of_two_processes_do_not_mix(small: Path, tmp_path: Path, refsim) -> None:
    path = tmp_path / "results.jsonl"
    facts = verified(refsim, small, CASE, "--results", str(path))
    before = path.read_bytes()
    with open(path, "a") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        refused = refsim(f"golden verify {CASE} --root {small} --results {path} --resume")
        refused.refused("another process writes its results there")
    assert path.read_bytes() == before
    path.write_bytes(before + b'{"case": "half a li')  # as after a kill
    again = verified(refsim, small, CASE, "--results", str(path), "--resume")
    assert again["resumed"] == facts["cases"] and path.read_bytes() == before
    other = refsim(f"golden verify {CASE} --root {small} --results {path} --resume --isa portable")
    other.refused("results of another state")


@pytest.mark.parametrize(
    ("executors", "said"),
    [("gpuu", "executor: unknown; got 'gpuu'"), ("cpu,cpu", "one executor is named twice")],
)
def test_an_executor_that_is_not_there_is_named_before_anything_is_read(
    executors: str, said: str, small: Path, refsim, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(self: Corpus) -> list[str]:
        raise AssertionError("the corpus was read")

    monkeypatch.setattr(Corpus, "damaged", read)
    refsim(f"golden verify --root {small} -x {executors}").refused(said)


def test_cases_on_kernels_of_refsims_own_are_counted(small: Path, refsim, monkeypatch) -> None:
    def run(corpus, work, executors, *_):
        for task in work:
            for case in task.cases:
                yield [
                    Checked(
                        case, "spv:few", "same", stored=task.kind == "bytes", ours="no module computes it"
                    )
                ]
        yield [Checked("q8ta_add/0000", "spv:few", "same")]

    monkeypatch.setattr(verify, "run", run)
    done = refsim(f"golden verify q8ta_relu --root {small}")
    head, row = (line.split() for line in done.out.splitlines()[:2])
    assert head == ["executor", "same", "ours"] and row[0] == "spv:few" and int(row[1]) == int(row[2]) + 1 > 1
    found = refsim(f"golden verify q8ta_relu --root {small} --json").json["ours"]
    assert found == {"spv:few": {"q8ta_relu": {"cases": int(row[2]), "why": ["no module computes it"]}}}


# --- threads and instruction sets ------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize(
    "options", [("--threads", "3"), ("--isa", "portable"), ("--isa", "portable", "--threads", "2")]
)
def test_one_machine_checks_other_threads_and_instruction_sets(
    small: Path, refsim, options: tuple[str, ...]
) -> None:
    facts = verified(refsim, small, "-x", "cpu,cpu:emulated", LINEAR.name, *options)
    assert facts["same"] and facts["executors"]["cpu"] == {"same": facts["cases"]}
    given = dict(zip(options[::2], options[1::2], strict=True))
    assert facts["threads"] == int(given.get("--threads", 1))
    assert facts["isa"] == given.get("--isa", isa.cpu().isa.name)


def test_an_instruction_set_that_the_machine_lacks_is_named(refsim) -> None:
    def has(row: isa.Isa) -> bool:
        try:
            return bool(isa.environment(row.name))
        except DeviceError:
            return False

    lacking = [row.name for row in isa.ISAS if not has(row)]
    assert lacking, "a machine with the instructions of two families"
    refsim(f"golden verify {CASE} --isa {lacking[0]}").refused("lacks", status=3)
