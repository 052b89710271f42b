"""Generated mutants are drawn alike everywhere, apply, and are judged as their docs say."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mutants import limits, objects, runner
from mutants.generated import (
    equivalent,
    glsl_sites,
    naming,
    own_tests,
    page,
    python_sites,
    record,
    sample,
    targets,
    trial,
    verb,
)
from mutants.generated.change import KINDS, Change
from mutants.generated.targets import AREAS, Area, subjects
from mutants.mutant import Mutant
from mutants.tree import CHECKOUT, check
from refsim.bytediff import Cause, Report, diff
from refsim.bytediff.consensus import Agreed
from refsim.cli import main
from refsim.core.buffer import PackedBuffer
from refsim.core.errors import ParameterError
from refsim.exec.cpu import compiled
from refsim.exec.cpu.job import parts
from refsim.exec.cpu.routes import RULES as RULES_OF_ROUTES
from refsim.exec.process import ProcessError
from refsim.golden.chain import defined
from refsim.golden.rules import RULES, case
from refsim.golden.store import Corpus
from refsim.graph.interpreter import logical
from refsim.ops.base.binding import bind

KERNEL = """
STRIDE_H, STRIDE_W = 0, 1

def kernel(push, x, out):
    zp = push[0]
    for h in range(3):
        w = h + 1
        if h < 2 and w > 0:
            out[h] = x[w * STRIDE_H + h // 4] - zp
        out[w] += min(h, 127)
    if zp > 8:
        raise ValueError(zp + 1)

def define(x):
    return x + 1
"""
SHADER = """#version 450
// w + h is not code
int lane(int w, int h) { return w >> 8 * h; }
void main() {
    int acc = 0;
    if (acc < 4 && acc != 7) acc = lane(acc, 2);
    barrier();
    acc -= 1;
}
"""


def in_python() -> list[Change]:
    return list(python_sites.changes("kernel.py", KERNEL, lambda name: name == "kernel"))


def in_shader() -> list[Change]:
    return list(glsl_sites.changes("shader.comp", SHADER))


def said(changes: list[Change]) -> set[tuple[str, str, str]]:
    return {(change.kind, change.original.strip(), change.replacement.strip()) for change in changes}


def test_python_is_changed_by_its_syntax() -> None:
    found = said(in_python())
    for row in (
        ("operator", "-", "+"), ("operator", "//", "%"), ("operator", "+=", "-="), ("compare", "<", "<="),
        ("constant", "127", "128"), ("constant", "127", "(-127)"), ("constant", "4", "0"), ("index", "w", "h"),
        ("index", "STRIDE_H", "STRIDE_W"), ("arguments", "h, 127", "127, h"), ("type", "min", "max"),
        ("condition", "h < 2 and w > 0", "(h < 2)"), ("removed", "out[w] += min(h, 127)", "pass"),
    ):  # fmt: skip
        assert row in found, row


def test_meanings_and_refusals_are_left_alone() -> None:
    lines = {change.line for change in in_python()}
    assert lines and max(lines) < KERNEL.splitlines().index("    if zp > 8:") + 1


def test_shaders_are_changed_by_their_tokens() -> None:
    found = said(in_shader())
    for row in (
        ("operator", ">>", "<<"), ("operator", "-=", "+="), ("compare", "<", "<="), ("condition", "&&", "||"),
        ("constant", "8", "16"), ("index", "w", "h"), ("arguments", "acc, 2", "2, acc"), ("barrier", "barrier();", ";"),
        ("condition", "(acc < 4 && acc != 7)", "(false)"), ("removed", "acc -= 1;", ";"), ("type", "int", "uint"),
    ):  # fmt: skip
        assert row in found, row
    assert all(change.line > 2 for change in in_shader())


def test_what_computes_nothing_is_not_changed() -> None:
    source = """
def kernel(flags, rows):
    if flags & CLAMP_FIRST:
        rows = rows + 1
    def cycles(n):
        return n * 7
    def ahead(i):
        return i + 9
    rows.prefetch(rows + 2)
    rows = (flags | 1 << 4) + ahead(rows + 3)
    return rows
"""
    found = said(list(python_sites.changes("kernel.py", source, lambda name: True)))
    told = {row[1] for row in found}
    assert not {"7", "9", "2", "3"} & told, found
    assert ("operator", "|", "&") in found and ("operator", "|", "^") not in found, found


def test_statements_are_exchanged_only_if_one_uses_what_the_other_sets() -> None:
    """Two attributes of one object are as good as two names."""
    source = """
def kernel(self, a, b):
    self.rows = a
    self.columns = b
    self.size = self.rows * self.columns
    self.words[0] = a
    self.words[1] = self.words[0]
"""
    changes = python_sites.changes("kernel.py", source, lambda name: True)
    lines = {change.line for change in changes if change.kind == "order"}
    assert lines == {4, 6}, lines


@pytest.mark.parametrize("change", [*in_python(), *in_shader()], ids=str)
def test_a_change_is_its_edit(change: Change) -> None:
    assert change.kind in KINDS
    assert change.source.count(change.edit.anchor) == 1
    assert change.source.replace(change.edit.anchor, change.edit.replacement) == change.changed


def test_ids_are_unique_and_hold_while_the_lines_do() -> None:
    changes = in_python()
    assert len({change.id for change in changes}) == len(changes)
    moved = python_sites.changes("kernel.py", "# a line more\n" + KERNEL, lambda name: name == "kernel")
    assert {change.id for change in moved} >= {
        change.id for change in changes if change.edit.anchor.count("\n") == 1
    }


# --- what is drawn ---------------------------------------------------------------------------------------


def test_a_draw_repeats_and_has_every_part() -> None:
    drawn = sample.drawn(60, 7)
    assert drawn == sample.drawn(60, 7) and len(drawn) == 60
    assert {area for area, _ in drawn} == set(AREAS)
    assert [change.id for _, change in drawn] != [change.id for _, change in sample.drawn(60, 8)]
    for area, change in drawn:
        check(Mutant(change.id, change.kind, "", (), (change.edit,)))
        assert set(subjects(change, AREAS[area])) <= set(RULES)
        assert sample.named(change.id) == (area, change)


def test_a_larger_draw_holds_the_smaller_one() -> None:
    few = {change.id for _, change in sample.drawn(20, 3, ("graph",))}
    assert few <= {change.id for _, change in sample.drawn(40, 3, ("graph",))}


def test_changes_that_are_known_to_be_equivalent_have_a_reason() -> None:
    for id, reason in equivalent.known().items():
        assert len(reason) > 20 and id == id.strip(), id


@pytest.mark.parametrize("area", AREAS.values(), ids=AREAS)
def test_every_file_has_tests_and_its_own_come_first(area: Area) -> None:
    for path in area.files():
        file = str(path.relative_to(CHECKOUT))
        rows = own_tests.tests(area, file)
        assert rows, file
        for row in rows:
            assert (CHECKOUT / row.partition(" ")[0]).exists(), row
    first = own_tests.tests(AREAS["native"], "refsim/exec/cpu/elementwise/lut.py")
    assert first.index("tests/exec/cpu/test_sums.py") < first.index("tests/exec/test_networks.py")


def test_machine_code_is_shared_where_the_text_is_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, made = compiled._object, list[str]()

    def counted(name: str, *rest: Any) -> bytes:
        made.append(name)
        return plain(name, *rest)

    monkeypatch.setenv(objects.FOLDER, str(tmp_path))
    monkeypatch.setattr(compiled, "_object", counted)
    objects.install()
    first = compiled._object("parts", parts, {})
    assert compiled._object("parts", parts, {}) == first and made == ["parts"]
    compiled._object("others", parts, {})
    assert made == ["parts", "others"] and len(list(tmp_path.iterdir())) == 2


def test_an_unknown_id_is_an_error() -> None:
    with pytest.raises(ParameterError, match="no such change"):
        sample.named("kernel-constant-00000000")


# --- what becomes of one ---------------------------------------------------------------------------------


def change_of(file: str, before: str, after: str, scope: str) -> tuple[str, Change]:
    """A change of today's sources by its text."""
    for area in AREAS:
        for change in sample.every(area).values():
            if (change.file, change.scope) == (file, scope) and (change.original, change.replacement) == (
                before,
                after,
            ):
                return area, change
    raise AssertionError((file, before, after))


def test_a_wrong_lane_is_noticed_and_its_region_named() -> None:
    area, change = next(
        (area, change)
        for area, change in [("emulated", each) for each in sample.every("emulated").values()]
        if change.file == "refsim/core/lanes.py" and change.scope == "lane" and change.kind == "operator"
    )
    found = trial.run(area, change)
    assert found.verdict == trial.CORPUS and found.by and found.noticed, found


def test_a_program_that_cannot_run_does_not_count() -> None:
    source = Path(__file__).parents[2] / "refsim/ops/q8ta_relu.py"
    text = source.read_text()
    at = text.index("push[", text.index("def kernel("))
    change = Change("refsim/ops/q8ta_relu.py", text, at, at + 4, "pusch", "index", "kernel", "push")
    found = trial.run("emulated", change)
    assert found.verdict == trial.INVALID and not found.noticed, found


def test_names_tell_what_code_is_about() -> None:
    def named(original: str, statement: str = "", scope: str = "f") -> set[str]:
        source = f"{original}\n"
        change = Change("f.py", source, 0, len(original), "0", "constant", scope, statement)
        return {role.name for role in naming.roles(change)}

    assert "zero point" in named("push[IN_ZP]")
    assert "window" in named("push[STRIDE_H]") and "window" in named("pad_w")
    assert "bias" in named("3", "t = t + bias[n]")
    assert "lanes" in named("3", "17", "insert_lane") and named("3", "17", "f") == set()
    assert "transform" in named("b", "return c + (a + b)", "_inputs4")  # single letters say little
    assert "transform" not in named("stride_h", "return stride_h", "_inputs4")


def test_a_cause_counts_only_if_it_is_of_the_code_that_was_changed() -> None:
    change = Change("f.py", "in_zp", 0, 5, "out_zp", "index", "f", "acc - in_zp")
    assert naming.cause(change, ["byte order", "zero point not folded"]) == "zero point not folded"
    assert naming.cause(change, ["byte order"]) == ""
    one = agreed_cause("zero point not folded")
    assert naming.named(change, [one]) == "zero point not folded"
    assert naming.named(change, [replace(one, cause=replace(one.cause, contradicted=9))]) == ""
    assert naming.named(change, [agreed_cause("byte order")]) == ""


def agreed_cause(name: str) -> Agreed:
    """A cause that explains 20 of 30 wrong elements of one case, and none of another."""
    return Agreed(Cause(name, "so", 20, 30, 0, values=9), 0, 1, 2, 0.6)


def test_a_cause_that_predicts_everything_counts_whatever_its_class() -> None:
    change = Change("f.py", "in_zp", 0, 5, "out_zp", "index", "f", "acc - in_zp")
    row = agreed_cause("byte order")
    whole = replace(row.cause, explained=30)
    assert naming.named(change, [replace(row, cause=whole, exact=2)]) == "byte order"
    assert naming.named(change, [replace(row, cause=whole, exact=1, of=1)]) == "byte order"
    few = replace(whole, explained=3, differing=3)
    assert naming.named(change, [replace(row, cause=few, exact=1, of=1)]) == ""


def test_a_region_counts_if_it_says_where_the_error_is() -> None:
    change = Change("f.py", "in_zp", 0, 5, "out_zp", "index", "f", "acc - in_zp")
    expected = PackedBuffer.pack(np.arange(2 * 8 * 4 * 6).reshape(2, 8, 4, 6).astype(np.int8), "4W4C")

    def report(wrong: Callable[[np.ndarray], Any]) -> Report:
        actual = PackedBuffer.from_raw(expected.raw.copy(), expected.desc.shape, expected.desc.layout)
        wrong(actual.raw)
        return diff(expected, actual)

    def lane(raw: np.ndarray) -> None:
        raw[3::4] ^= np.arange(len(raw) // 4, dtype=np.uint8) | 1

    def scattered(raw: np.ndarray) -> None:
        raw[::7] ^= 1

    told = naming.region(change, [report(lane)])
    assert told.startswith("only in lane 3: ") and told in report(lane).facts
    assert naming.region(change, [report(lane), report(scattered)]) == ""
    assert naming.region(change, [report(lambda raw: raw.__setitem__(slice(0, 4), 9))]) == ""


def test_an_error_names_the_function_that_it_came_from() -> None:
    change = Change("refsim/ops/x.py", "in_zp", 0, 5, "out_zp", "index", "kernel", "acc - in_zp")
    outer = [("refsim/exec/emulated.py", "run"), ("refsim/ops/x.py", "kernel")]
    assert naming.place(change, outer) == "refsim/ops/x.py: kernel"
    assert naming.place(change, [*outer, *[("refsim/core/index.py", "buf_idx")] * 3]) == ""


_FAILING = """
import pytest
from refsim.core.layout import layout
from refsim.core.errors import LayoutError

def test_error(): layout("none")
def test_claim(): assert 1 == 2
def test_expected():
    with pytest.raises(LayoutError, match="something else"): layout("none")
@pytest.fixture
def prepared(): layout("none")
def test_setup(prepared): pass
"""


@pytest.mark.parametrize("name", ["error", "setup", "claim", "expected"])
def test_an_error_of_a_test_names_the_function_that_it_came_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """What a test only claims is no error of the sources, though they may have been asked before."""
    (tmp_path / "refsim").symlink_to(CHECKOUT / "refsim")
    (tmp_path / "test_it.py").write_text(_FAILING)
    monkeypatch.setattr(own_tests, "tests", lambda *_: (f"test_it.py {name}",))
    monkeypatch.setattr(trial, "_fails_anyway", lambda _: False)
    file = "refsim/core/layout.py"
    for scope, named in (("layout", name in ("error", "setup")), ("Layout.numel", False)):
        change = Change(file, "!=", 0, 2, "==", "compare", scope, "a != b")
        tried = trial._Trial(AREAS["native"], change, tmp_path)
        found = tried._tests(trial.Verdict(change.id, "native", "", trial.LIVES))
        assert found is not None and found.by == f"test_it.py::test_{name}"
        assert found.region == (f"{file}: layout" if named else "") and limits.THROUGH not in found.said


def test_an_error_in_preparing_a_kernel_names_its_sources() -> None:
    def prepared(file: str, notes: str = "while x was prepared for the native route gemm") -> str:
        change = Change(file, "in_zp", 0, 5, "out_zp", "index", "tiles", "acc - in_zp")
        return naming.prepared(change, notes, [*outer, ("refsim/exec/cpu/ir.py", "loop")])

    outer = [("refsim/exec/cpu/routes.py", "jobs"), ("refsim/exec/cpu/gemm/prepack.py", "lower")]
    assert prepared("refsim/exec/cpu/gemm/kernel.py") == "preparing refsim/exec/cpu/gemm/prepack.py"
    assert prepared("refsim/exec/cpu/gemm/kernel.py", "ValueError") == ""
    assert prepared("refsim/exec/cpu/winograd/kernel.py") == prepared("refsim/exec/cpu/ir.py") == ""


def test_the_first_wrong_value_of_a_chain_is_explained(tmp_path: Path) -> None:
    """A chain's digest says that its outputs are wrong; the report says which operator's bytes are, and how."""
    (area, change), *_ = sample.drawn(1, 1, ("native",))
    entry = next(entry for entry in Corpus(CHECKOUT / "golden").chains() if len(entry.chain.links) > 3)
    graph, data = entry.chain.graph(entry.name), entry.chain.data()
    values = {0: data, **defined(graph, data)[1]}
    made = trial._Trial(AREAS[area], change, tmp_path)
    node = next(node for node in graph.nodes if node.call is not None and node.call.out.is_int8)
    for value in values:
        array = logical(graph, values, value)
        if value >= node.outputs[0]:  # what reads it is wrong as well
            array = np.where(array < 64, array + 1, array).astype(array.dtype)
        np.save(tmp_path / f"value-{value}.npy", array)
    report = made._chain_report(tmp_path, entry.name)
    assert (
        report is not None and report.title == f"value {node.outputs[0]} of node {node.number}, {node.name}"
    )
    assert report.evidence.bound is not None and report.causes and report.causes[0].exact
    np.save(tmp_path / f"value-{node.outputs[0]}.npy", logical(graph, values, node.outputs[0]))
    later = made._chain_report(tmp_path, entry.name)
    assert later is not None and later.title != report.title


def test_forced_routes_are_routes_of_the_changed_file() -> None:
    known = {rule.route for rule in RULES_OF_ROUTES}
    for prefix, routes in targets._FORCED:
        assert set(routes) <= known and list((CHECKOUT / "refsim/exec/cpu").glob(f"{prefix}*")), prefix
    area, change = next(row for row in sample.drawn(60, 1, ("native",)) if "/amx/" in row[1].file)
    first, *rest = targets.conditions(change, AREAS[area])
    assert first.route == "amx_emulated" and tuple(rest) == AREAS[area].also


def test_cases_that_cannot_take_the_forced_route_are_left_out() -> None:
    runner_ = runner._opened("cpu", 1, "repack")
    calls = {op: bind(case(op, 0)).call for op in ("q8ta_clone", "q8ta_linear")}
    assert not runner._takes(runner_, calls["q8ta_linear"])
    assert all(runner._takes(runner._opened("cpu", 1, ""), call) for call in calls.values())
    taken = [runner._takes(runner_, bind(case("q8ta_clone", number)).call) for number in range(40)]
    assert any(taken) and not all(taken)


def test_verdicts_are_kept_and_read_again(tmp_path: Path) -> None:
    rows = [
        trial.Verdict("a", "native", "what", trial.CORPUS, causes=("x",)),
        trial.Verdict("b", "graph", "w", "survived"),
    ]
    path = tmp_path / "verdicts"
    path.write_text("".join(json.dumps(each.as_json()) + "\n" for each in rows))
    assert record.read_verdicts(path) == rows
    totals = {total.area: total for total in record.summary(rows)}
    assert (totals["all"].meant, totals["all"].noticed, totals["native"].noticed) == (2, 1, 1)


@pytest.mark.parametrize(
    ("file", "names"),
    [("refsim/exec/cpu/amx/prepack.py", True), ("refsim/exec/cpu/gemm/prepack.py", False)],
)
def test_a_choice_names_a_change_of_the_file_that_makes_it(file: str, names: bool) -> None:
    change = replace(next(row for _, row in sample.drawn(1, 3, ("native",))), file=file)
    said = (
        "AssertionError: 3 of 9 lines differ, first of x: 3 was 4; chosen in refsim/exec/cpu/amx/prepack.py"
    )
    assert bool(naming.choice(change, said)) is names
    assert not naming.choice(change, "exit status 1")


def test_what_only_a_choice_shows_is_counted_apart() -> None:
    """The records of plans and launches notice any other choice, which says less than a wrong byte."""
    rows = [
        trial.Verdict("a", "native", "what", trial.TESTS, f"{record.CHOICES[0]}::test_x[avx2-1]"),
        trial.Verdict("b", "native", "what", trial.TESTS, "tests/exec/cpu/test_wake.py::test_y"),
        trial.Verdict("c", "graph", "what", trial.CORPUS, "q8ta_add/0001"),
    ]
    every = record.summary(rows)[-1]
    assert (every.noticed, every.by_choice) == (3, 1)
    assert "1 changed nothing but a choice" in page._choices(every) and "2 of 2" in page._choices(every)
    assert all((CHECKOUT / file).is_file() for file in record.CHOICES)


def test_a_line_that_was_cut_off_is_tried_again(tmp_path: Path) -> None:
    path = tmp_path / "verdicts"
    first, second = (trial.Verdict(id, "native", "what", trial.CORPUS) for id in "ab")
    record.append(path, first)
    path.write_text(path.read_text() + '{"id": "b", "ar')
    assert record.read_verdicts(path) == [first]
    record.append(path, second)
    assert record.read_verdicts(path) == [first, second]


def test_what_fails_here_stops_no_other_change(tmp_path: Path) -> None:
    """Verdicts are kept as they are found, and a second run tries only the others."""
    path = tmp_path / "verdicts"
    good = [row for row in sample.drawn(12, 3, ("emulated",)) if row[1].file.startswith("refsim/ops/q8ta_")][
        :2
    ]
    stale = replace(good[0][1], source=good[0][1].source + "# not what the file holds\n", kind="removed")
    stale = replace(stale, begin=len(stale.source) - 4, end=len(stale.source) - 1)
    rows = [("emulated", stale), *good]
    with pytest.raises(ProcessError, match=f"1 changes could not be tried.*{stale.id}"):
        list(verb._verdicts(rows, 2, str(path), tests=False))
    kept = {each.id for each in record.read_verdicts(path)}
    assert kept == {change.id for _, change in good}
    assert [each.id for each in verb._verdicts(good, 2, str(path), tests=False)] == [c.id for _, c in good]
    assert len(record.read_verdicts(path)) == len(good)


def test_the_command_lists_what_a_seed_draws(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["mutate", "--random", "4", "--seed", "5", "--area", "graph", "--list", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["random"]
    assert len(rows) == 4 and all(row["area"] == "graph" and row["line"] > 0 for row in rows)
    assert main(["mutate", "--random", "4", "--part", "4/4", "--list"]) == 2
    assert [
        main(["mutate", *more, "--list"]) for more in (["--first", "2"], ["--no-tests"], ["--area", "graph"])
    ] == [2, 2, 2]
