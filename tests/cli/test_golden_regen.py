"""golden regen and new: the corpus written from its rules, repaired, and never half of it."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from examples import LINEAR, SMALL_CORPUS, UNARY
from saved import contents

from refsim.golden import regen, rules
from refsim.golden.store import Corpus, write_sums

OP = UNARY.name
BOTH = " ".join(SMALL_CORPUS)
DIGESTS, STORED = f"digests/{OP}.jsonl", f"cases/{OP}.zip"


@pytest.fixture
def shrink(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """The rules give so many cases of each operator of the small corpus: first as many as it has."""

    def count(spread: int) -> None:
        for name in SMALL_CORPUS:
            monkeypatch.setitem(rules.RULES, name, replace(rules.RULES[name], spread=spread, hard=()))

    count(26)
    return count


def test_regen_of_the_same_rules_changes_nothing(small: Path, refsim, shrink) -> None:
    before = contents(small)
    done = refsim(f"golden regen {BOTH} --root {small} --reason nothing")
    assert done.status == 0 and done.out == "nothing would change\n"
    assert before == contents(small)


def test_regen_shows_what_changes_and_notes_why(small: Path, refsim, shrink) -> None:
    shrink(30)
    dry = refsim(f"golden regen {OP} --root {small} --dry-run")
    assert dry.status == 1 and f"{OP}: 4 added: {OP}/0026" in dry.out
    assert Corpus(small).damaged() == []
    done = refsim(f"golden regen {OP} --root {small} --reason", "more of\nrelu")
    assert done.status == 0 and Corpus(small).damaged() == []
    assert len(list(Corpus(small).entries(OP))) == 30
    assert f": more of relu\n\n- {OP}: 4 added" in (small / regen.CHANGELOG).read_text()


def test_regen_tells_changed_bytes_from_redrawn_cases(small: Path, shrink) -> None:
    path = small / DIGESTS
    rows = [json.loads(text) for text in path.read_text().splitlines()]
    rows[2]["sha256"] = "0" * 64
    rows[4]["seed"] += 1
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    shrink(25)
    change = regen.plan(OP, Corpus(small)).change
    assert change.changed == [f"{OP}/0002"] and change.redrawn == [f"{OP}/0004"]
    assert change.removed == [f"{OP}/0025"] and change.added == []


def _another_sum(small: Path) -> None:
    rows = (small / "SHA256SUMS").read_text().splitlines()
    (small / "SHA256SUMS").write_text("\n".join([*rows[:-1], "0" * 64 + rows[-1][64:]]) + "\n")


def _behind_the_last_line(small: Path, data: bytes) -> None:
    (small / DIGESTS).write_bytes((small / DIGESTS).read_bytes() + data)


#: As after a regen that was killed between two files: the files and SHA256SUMS do not fit each other.
DAMAGE: dict[str, Callable[[Path], object]] = {
    "digests": lambda small: shutil.copy(small / f"digests/{LINEAR.name}.jsonl", small / DIGESTS),
    "line": lambda small: _behind_the_last_line(small, b"x"),
    "byte": lambda small: _behind_the_last_line(small, b"\xff"),
    "zip": lambda small: (small / STORED).write_bytes(b"PK"),
    "missing": lambda small: (small / STORED).unlink(),
    "sums": _another_sum,
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_regen_repairs_what_verify_sees(damage: str, small: Path, refsim, shrink) -> None:
    good = {path: data for path, data in contents(small).items() if path.suffix != ".md"}
    DAMAGE[damage](small)
    assert Corpus(small).damaged()
    dry = refsim(f"golden regen {BOTH} --root {small} --dry-run")
    assert dry.status == 1
    if damage in ("line", "byte"):
        read = refsim(f"golden verify {OP} --root {small}")
        read.refused(f"need refsim golden regen {OP} --reason TEXT" if damage == "line" else DIGESTS)
        assert dry.out == f"{OP}: 1 damaged: {DIGESTS}:27: not a line of digests\n"
    done = refsim(f"golden regen {BOTH} --root {small} --reason repair")
    assert done.status == 0 and "nothing would change" not in done.out and Corpus(small).damaged() == []
    assert good == {path: path.read_bytes() for path in good}
    again = refsim(f"golden regen {BOTH} --root {small} --reason nothing")
    assert again.out == "nothing would change\n"


def test_regen_writes_no_digest_for_a_damaged_file_of_another(small: Path, refsim, shrink) -> None:
    other = small / "cases" / f"{LINEAR.name}.zip"
    other.write_bytes(other.read_bytes() + b"x")
    done = refsim(f"golden regen {OP} --root {small} --reason x")
    done.refused("other files do not match SHA256SUMS; got cases/q8ta_linear.zip: changed")
    (small / "stray.bin").write_bytes(b"1")
    done = refsim(f"golden regen {BOTH} --root {small} --reason x")
    assert "SHA256SUMS: stray.bin: not listed" in done.out and Corpus(small).damaged() == []


@pytest.mark.long
def test_a_regen_that_is_killed_is_done_or_not(small: Path, shrink) -> None:
    shrink(30)
    plans = [regen.plan(name, Corpus(small)) for name in SMALL_CORPUS]
    folder = small.parent / "again"
    seen = set()
    for turn in range(30):
        shutil.copytree(small, folder)
        child = os.fork()
        if child == 0:
            regen.write(folder, plans, "killed")
            os._exit(0)
        time.sleep(turn * 0.001)
        if turn < 29:  # the last one comes to its end
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        corpus = Corpus(folder)
        assert corpus.damaged() == []
        counts = {len(list(corpus.entries(name))) for name in SMALL_CORPUS}
        assert counts in ({26}, {30})
        seen |= counts
        regen.write(folder, plans, "again")
        assert Corpus(folder).damaged() == [] and not list(folder.glob(".*"))
        shutil.rmtree(folder)
    assert seen == {26, 30}


def test_a_mistyped_root_is_no_corpus(tmp_path: Path, refsim, shrink) -> None:
    typo = tmp_path / "goldne"
    refsim(f"golden regen {OP} --root {typo} --reason x").refused("no corpus there")
    refsim(f"golden new {OP} --root {typo}").refused("no corpus there")
    assert not typo.exists()
    assert refsim(f"golden regen {OP} --root {typo} --reason x --new").status == 0
    assert Corpus(typo).damaged() == []


def test_new_makes_a_missing_operator(small: Path, refsim, shrink) -> None:
    for name in (DIGESTS, STORED):
        (small / name).unlink()
    write_sums(small)
    assert refsim(f"golden new {OP} --root {small}").status == 0
    assert refsim(f"golden verify {OP} --root {small} --workers 1 --json").json["same"]
