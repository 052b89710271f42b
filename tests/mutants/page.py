"""docs/mutants.md, made of the records."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path

from mutants import record, runner
from mutants.bugs import BUGS, CPU, GPU, LOWERING, PLACES, Bug
from mutants.generated import naming
from mutants.generated.change import KINDS
from mutants.generated.trial import LIVES, REPAIR_SECONDS, TEST_SECONDS, TESTS_SECONDS, Verdict
from mutants.outcome import FIRST, SURVIVED
from mutants.record import Row
from mutants.seeded import ALL
from mutants.tree import CHECKOUT
from refsim.cli._mutated import RandomTotal
from refsim.core import atomic_write

TITLES = {CPU: "CPU", GPU: "lavapipe", LOWERING: "lowering"}
#: The columns of totals of random changes: as `refsim mutate` prints them, and as the page does.
COLUMNS = {
    "area": "part", "drawn count": "drawn", "invalid count": "no program", "equivalent count": "equivalent",
    "by corpus count": "corpus", "by models count": "models", "by tests count": "tests",
    "survived count": "survived", "noticed": "noticed", "cause or region named": "named", "of reports": "of reports",
    "place right": "place right", "or among equals": "or among equals", "or by repair": "or by repair",
    "report s (median, 95 %)": "report s (median, 95 %)",
}  # fmt: skip


def path() -> Path:
    return CHECKOUT / "docs" / "mutants.md"


def renew(rows: Sequence[Row]) -> None:
    """Make the page anew, with these rows of known bugs."""
    atomic_write.write(path(), page(rows).encode())


def page(rows: Sequence[Row]) -> str:
    return _PAGE.format(
        random=_random(),
        totals=_table(("place", "killed", f"true cause among the first {FIRST}"), map(_total, counts(rows))),
        bugs=_table(("bug", "what", "seen in", *TITLES.values(), "where not"), map(_bug, BUGS.values())),
    )


def _table(head: Iterable[str], rows: Iterable[Sequence[object]]) -> str:
    titles = list(head)
    lines = [titles, ["---"] * len(titles), *rows]
    return "".join("| " + " | ".join(map(str, line)) + " |\n" for line in lines)


def share(part: int, whole: int) -> str:
    return f"{part} of {whole} ({100 * part // whole} %)" if whole else "-"


# --- known bugs ------------------------------------------------------------------------------------------


def counts(rows: Sequence[Row]) -> list[tuple[str, int, int, int]]:
    """(place, mutants, killed, killed with the true cause among the first) of each place, and of all."""
    found = []
    for place in (*PLACES, "all"):
        mine = [each for each in rows if place in (ALL[each["id"]].place, "all")]
        killed = [each for each in mine if each["how"] != SURVIVED]
        named = sum(each["rank"] is not None and each["rank"] <= FIRST for each in killed)
        found.append((place, len(mine), len(killed), named))
    return found


def _total(row: tuple[str, int, int, int]) -> tuple[str, ...]:
    place, mutants, killed, named = row
    return TITLES.get(place, place), f"{killed} of {mutants}", share(named, killed)


def _bug(bug: Bug) -> tuple[object, ...]:
    found = [mutant.place for mutant in ALL.values() if mutant.bug == bug.id]
    return bug.id, bug.what, bug.seen, *(found.count(place) or "-" for place in TITLES), bug.elsewhere


# --- random changes --------------------------------------------------------------------------------------


def cells(total: RandomTotal) -> tuple[object, ...]:
    """The columns of `COLUMNS`."""
    right = (total.placed, total.among_equals, total.repaired)
    return (
        total.area, total.drawn, total.invalid, total.equivalent, total.corpus, total.models, total.tests,
        total.survived, share(total.noticed, meant(total)), share(total.named, total.noticed),
        share(total.named, total.reported), *(share(count, total.places) for count in right),
        "-" if total.seconds is None else "{:.2f}, {:.2f}".format(*total.seconds),
    )  # fmt: skip


def meant(total: RandomTotal) -> int:
    """Those that count: programs that do something else."""
    return total.drawn - total.invalid - total.equivalent


def _random() -> str:
    """What is recorded of a run, and how one goes. Of the run's note the first paragraph."""
    found = record.read_random()
    if found is None:
        return "No run is recorded: `refsim mutate --random 500 --seed S --record`.\n\n" + _METHOD
    about, verdicts = found
    why = about["left_out"].items()
    left_out = "".join(f" Left out on that machine: {part} ({reason})." for part, reason in why)
    note = " ".join(about.get("note", "").partition("\n\n")[0].split())
    first, totals = about["first"], record.totals(verdicts)
    return _SECTION.format(
        changes=f"the first {first} of {about['count']} changes" if first else f"{about['count']} changes",
        command=f"--random {about['count']} --seed {about['seed']}" + (f" --first {first}" if first else ""),
        seed=about["seed"],
        left_out=left_out,
        totals=_table(COLUMNS.values(), map(cells, totals)),
        choices=textwrap.fill(f"{choices(verdicts)} {note}".strip(), 120),
        kinds=_table(("kind", "what changes", "that count", "noticed", "named"), _kinds(verdicts)),
        survivors=_survivors(verdicts),
    )


def _kinds(verdicts: Sequence[Verdict]) -> list[tuple[object, ...]]:
    rows: list[tuple[object, ...]] = []
    for kind, what in KINDS.items():
        mine = record.total(kind, [each for each in verdicts if f": {kind}: " in each.what])
        shares = share(mine.noticed, meant(mine)), share(mine.named, mine.noticed)
        rows.append((kind, what.replace("|", "\\|"), meant(mine), *shares))
    return rows


def choices(verdicts: Sequence[Verdict]) -> str:
    """What bytes alone would give: tests of choices notice any other choice, also one that is no worse."""
    every, alone = record.total("all", verdicts), record.by_choice(verdicts)
    if not alone:
        return "None of them was noticed by a choice alone."
    return (
        f"Of those that tests noticed, {alone} changed nothing but a choice that is written down. "
        f"Without these, {share(every.noticed - alone, meant(every) - alone)} were noticed."
    )


def _survivors(verdicts: Sequence[Verdict]) -> str:
    rows = [(f"`{each.id}`", _cell(each.what)) for each in verdicts if each.verdict == LIVES]
    if not rows:
        return "None survived.\n"
    return "These survived:\n\n" + _table(("change", "what"), rows)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("*", "\\*").replace("_", "\\_")


_METHOD = f"""### How a change is tried

A change is drawn by a seed from all places of the emulated kernels, the native kernels and their plan, the
graph and the shaders. It runs in a copy of the sources, and these look at it one after the other, until one
notices:

1. the cases of the corpus, those first that show most; for native kernels and the graph the chains of
   operators, too;
2. some cases under other conditions: on a GPU, under other profiles, on each route that runs the changed
   file, on several threads, with each other instruction set;
3. the bundled models, where the CPU's plan may be concerned;
4. the tests of that part, if they pass on the unchanged sources. Five of them compare choices that no byte
   shows, such as workgroups, sizes of arrays and shares of work (`tests/data/launches.txt`, `arrays.txt`,
   `reads.txt`, `plans`).

A case may take {runner.CASE_SECONDS:g} s of processor time and a stage {runner.SECONDS:g} s; a test may
take {TEST_SECONDS:g} s and a row of tests {TESTS_SECONDS:g} s.

- *No program*: it does not compile, or the first call refuses it as a compiler of a typed language would.
  It does not count.
- *Equivalent*: the compiler makes the same module of it, or `tests/mutants/generated/equivalent.json` says
  why nobody could notice it. It does not count either.
- *Noticed*: other bytes, a typed error, a crash, or no end.
- *Named*: the report says what it is, by one of these rules (`tests/mutants/generated/naming.py`):
  - one of the first three causes is of the class of the changed code, which the names in that code tell. It
    explains most of what is wrong, and few right bytes contradict it;
  - one of the first three predicts every byte of every wrong case that was looked at: two cases at least,
    or one with 16 wrong elements;
  - the report states a region, in most of the wrong cases, that holds all wrong elements: at most three
    quarters of the tensor, at least a quarter of it wrong, and by chance less often than once in a million;
    or that padding alone is wrong;
  - all wrong elements are off by one step and the change is about rounding, or by one number and it is
    about a zero point or a bias;
  - an error names the class, the changed function as one of its three innermost, or the changed file; or
    the case is right on one thread and wrong on several, and the change is in what several threads alone
    run; or the native kernel alone is wrong and the emulated one right, or the node by node run of a graph, or a
    native kernel crashes, has no end or writes outside of its buffer, and the change is in the folder of the
    kernel that is told;
  - the kernel was asked what its outputs read, they read other elements than they should, and the change is of
    an address, a window, a sum, weights, lanes or a tail. What a test alone notices is not named.
- *Place right*, of changes in emulated kernels and shaders that gave wrong bytes in a case: one of the first
  three causes tells the changed function, or a line not more than {naming.NEAR_LINES} from the change; or one
  of the edits with the same bytes does (*among equals*); or, of a shader, a search of {REPAIR_SECONDS:g} s for its
  repair tells the line, with its first edit or one told beside it (*by repair*).

Sizes of blocks and costs of estimates are not drawn, since no byte depends on them:
`tests/exec/cpu/test_tuning.py` sets each to other values.
"""

_SECTION = (
    """One run over {changes} with seed {seed}, which was used for nothing before:
`refsim mutate {command} --record`.{left_out}

{totals}
{choices}

{kinds}
{survivors}
"""
    + _METHOD
)

_PAGE = """# Bugs that must be noticed

## Bugs that nobody thought of

{random}
## Seeded bugs

Each kind of bug that really happened in packed int8 kernels is put into a copy of the sources: into kernels, shaders,
launches, executors and passes. The corpus must notice it, and the diff must name it. This page is made by
`refsim mutate --record`, which keeps the outcome of each in tests/mutants/seeded.jsonl;
`refsim mutate --id ID` runs one again.

{totals}
On the CPU and on lavapipe a mutant runs cases of the corpus, or a bundled model (`MODEL/VALUE`: the first buffer that
is wrong). One of the lowering takes a network of `tests/lowering/networks.py` through the passes; the graph is
compared, then every buffer of its run. Bugs in what is computed before there is an executor, constants and launches,
are seeded once and run on both.

### Kinds

{bugs}"""
