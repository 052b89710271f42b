"""The first part of docs/mutants.md: one run over generated mutants, as it came out."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from mutants import runner
from mutants.generated import naming, record
from mutants.generated.change import KINDS
from mutants.generated.trial import LIVES, REPAIR_SECONDS, TEST_SECONDS, TESTS_SECONDS, Verdict
from mutants.markdown import table

_COLUMNS = (
    "part",
    "drawn",
    "no program",
    "equivalent",
    "corpus",
    "models",
    "tests",
    "survived",
    "noticed",
    "named",
    "of reports",
    "place right",
    "or among equals",
    "or by repair",
    "report s (median, 95 %)",
)


def section() -> str:
    """The section below its title; a line that says so if no run is recorded. Of the run's note the first paragraph."""
    found = record.read()
    if found is None:
        return _NONE
    about, verdicts = found
    left_out = "".join(
        f" Left out on that machine: {part} ({why})." for part, why in about["left_out"].items()
    )
    note = " ".join(about.get("note", "").partition("\n\n")[0].split())
    first, totals = about["first"], record.summary(verdicts)
    return _SECTION.format(
        changes=f"{about['count']} changes"
        if first is None
        else f"the first {first} of {about['count']} changes",
        command=f"--random {about['count']} --seed {about['seed']}" + (f" --first {first}" if first else ""),
        seed=about["seed"],
        left_out=left_out,
        totals=table(_COLUMNS, [total.cells() for total in totals]),
        choices=textwrap.fill(f"{_choices(totals[-1])} {note}".strip(), 120),
        kinds=table(("kind", "what changes", "that count", "noticed", "named"), _kinds(verdicts)),
        survivors=_survivors(verdicts),
    )


def _kinds(verdicts: Sequence[Verdict]) -> list[tuple[object, ...]]:
    rows: list[tuple[object, ...]] = []
    for kind, what in KINDS.items():
        mine = record.Total(kind, tuple(each for each in verdicts if f": {kind}: " in each.what))
        shares = record.share(mine.noticed, mine.meant), record.share(mine.named, mine.noticed)
        rows.append((kind, what.replace("|", "\\|"), mine.meant, *shares))
    return rows


def _choices(every: record.Total) -> str:
    """What bytes alone would give: tests of choices notice any other choice, also one that is no worse."""
    if not every.by_choice:
        return "None of them was noticed by a choice alone."
    noticed, meant = every.noticed - every.by_choice, every.meant - every.by_choice
    return (
        f"Of those that tests noticed, {every.by_choice} changed nothing but a choice that is written down. "
        f"Without these, {record.share(noticed, meant)} were noticed."
    )


def _survivors(verdicts: Sequence[Verdict]) -> str:
    rows = [(f"`{each.id}`", _cell(each.what)) for each in verdicts if each.verdict == LIVES]
    if not rows:
        return "None survived.\n"
    return "These survived:\n\n" + table(("change", "what"), rows)


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
    run. What a test alone notices is not named.
- *Place right*, of changes in emulated kernels and shaders that gave wrong bytes in a case: one of the first
  three causes tells the changed function, or a line not more than {naming.NEAR_LINES} from the change; or one
  of the edits with the same bytes does (*among equals*); or, of a shader, a search of {REPAIR_SECONDS:g} s for its
  repair tells the line (*by repair*).

Sizes of blocks and costs of estimates are not drawn, since no byte depends on them:
`tests/exec/cpu/test_tuning.py` sets each to other values.
"""

_NONE = "No run is recorded: `refsim mutate --random 500 --seed S --record`.\n\n" + _METHOD

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
