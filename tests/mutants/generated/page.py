"""The first part of docs/mutants.md: one run over generated mutants, as it came out."""

from __future__ import annotations

from collections.abc import Sequence

from mutants import runner
from mutants.generated import record
from mutants.generated.change import KINDS
from mutants.generated.trial import LIVES, TEST_SECONDS, TESTS_SECONDS, Verdict
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
)


def section() -> str:
    """The section below its title; a line that says so if no run is recorded."""
    found = record.read()
    if found is None:
        return _NONE
    about, verdicts = found
    left_out = "".join(
        f" Left out on that machine: {part} ({why})." for part, why in about["left_out"].items()
    )
    first, totals = about["first"], record.summary(verdicts)
    return _SECTION.format(
        changes=f"{about['count']} changes"
        if first is None
        else f"the first {first} of {about['count']} changes",
        command=f"--random {about['count']} --seed {about['seed']}" + (f" --first {first}" if first else ""),
        seed=about["seed"],
        left_out=left_out,
        totals=table(_COLUMNS, [total.cells() for total in totals]),
        choices=_choices(totals[-1]),
        kinds=table(("kind", "what changes", "that count", "noticed", "named"), _kinds(verdicts)),
        survivors=_survivors(verdicts) + _paragraph(about.get("note", "")),
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


def _paragraph(note: str) -> str:
    return f"\n{note}\n" if note else ""


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("*", "\\*").replace("_", "\\_")


_RULES = f"""A change is drawn by a seed from all places of the emulated kernels, the native kernels and their plan,
the graph and the shaders: another operator, comparison, number, name, argument, type or order, or a statement,
condition or barrier less. It runs in a copy of the sources, and these are tried one after the other:

- the cases of the corpus, those first that show most;
- for native kernels and the graph, the chains of the corpus: several operators that a plan may join;
- some of the cases once more under other conditions. Changes of the emulated kernels' sources are tried on a GPU, on
  `cpu` and under the profiles `lavapipe` and `nvidia`; those of the native kernels on each route that runs their file,
  such as the emulated matrix unit, on several threads, with each other instruction set and under these profiles;
- the bundled models, where the CPU's plan may be concerned;
- the tests of that part; one that fails on the unchanged sources too says nothing. Among them are five that compare
  choices: which build of a shader is dispatched in what workgroups (`tests/data/launches.txt`), how long the arrays of
  these builds are (`tests/data/arrays.txt`), how often they ask for each buffer (`tests/data/reads.txt`), and how
  native kernels divide their work on several processors, with digests of the numbers and constants that they are given
  (`tests/data/plans`): for layers of networks, and for calls of drawn sizes. No byte shows that such a choice went
  wrong, only the clock, or a processor that is not here.

A case may take {runner.CASE_SECONDS:g} s of processor time and a stage {runner.SECONDS:g} s;
a test may take {TEST_SECONDS:g} s and a row of tests {TESTS_SECONDS:g} s. What is compiled meanwhile does not count.

- A change that does not compile, or that the first call refuses as one that no compiler of a typed language would take,
  is *no program* and does not count. Nor does an *equivalent* one: the compiler makes the same module of it, or
  `tests/mutants/generated/equivalent.json` says why nobody could notice it.
- A change that failed because the checkout lacks a file or module, as somebody works in it, is tried once more. If that
  fails as well, it is an error of the run.
- Sizes of blocks and tasks and costs of estimates that stand at the level of a module are not drawn. No byte depends on
  them: `tests/exec/cpu/test_tuning.py` sets each to other values and compares. Nor are calls of `prefetch` drawn, nor
  the sign of a divisor where it only counts whether nothing is left, nor another negative number for an open length,
  nor another order of arguments that commute, such as those of `min` and of a dot product.
- *Noticed* are those that the corpus, a model or a test shows: other bytes, a typed error, a crash, or no end.
- *Named* is one whose report says what it is. Nobody wrote that down before, so this is the rule
  (`tests/mutants/generated/naming.py`):
  - one of the first three causes is of the class of the changed code, such as zero points, windows, addresses or the
    last tile, which the names in that code tell. It must explain most of what is wrong, and no more than a few right
    bytes may contradict it;
  - or one of the first three predicts every byte of every wrong case that was looked at: at least two cases, or one
    with 16 wrong elements. Whatever its name, the kernel does what it says;
  - or in most of the wrong cases the report states a region that holds all wrong elements. It is at most three quarters
    of the tensor, at least a quarter of it is wrong, and so many elements would lie in it by chance less often than
    once in a million. If padding alone is wrong, the report must say that;
  - or all wrong elements are off by one step and the change is about rounding, or all are off by the same number and it
    is about a zero point or a bias;
  - or an error says it: its text is of the class, or the changed function is one of the three innermost that the
    error came through. An error that stops a native kernel from being prepared tells which it was: it names a change of
    the file that writes this kernel, or of the one beside it that lays out its arguments. What LLVM refuses names the
    functions that wrote it. A device that is lost while a shader ran names a change of that shader's own file. A case
    that is wrong on several threads and right on one names a change of what several threads alone run: the runner, the
    pool, and what wakes its threads. A crash that leaves its signal alone is not named, nor is what a test alone
    notices: a kernel's author has the report, and nothing else.
"""

_NONE = _RULES + "\nNo run is recorded: `refsim mutate --random 500 --seed S --record`.\n"

_SECTION = (
    _RULES
    + """
This is one run over {changes} with seed {seed}, which was used for nothing before:
`refsim mutate {command} --record`.{left_out}

{totals}
{choices}

{kinds}
{survivors}"""
)
