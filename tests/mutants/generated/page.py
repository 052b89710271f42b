"""The first part of docs/mutants.md: one run over generated mutants, as it came out."""

from __future__ import annotations

from collections.abc import Sequence

from mutants.generated import record
from mutants.generated.change import KINDS
from mutants.generated.trial import LIVES, Verdict
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
        f"Left out on that machine: {part} ({why}).\n" for part, why in about["left_out"].items()
    )
    return _SECTION.format(
        count=len(verdicts),
        seed=about["seed"],
        left_out=left_out,
        totals=table(_COLUMNS, [total.cells() for total in record.summary(verdicts)]),
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


def _survivors(verdicts: Sequence[Verdict]) -> str:
    rows = [(f"`{each.id}`", _cell(each.what)) for each in verdicts if each.verdict == LIVES]
    if not rows:
        return "None survived.\n"
    return "These survived:\n\n" + table(("change", "what"), rows)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("*", "\\*").replace("_", "\\_")


_RULES = """A change is drawn by a seed from all places of the emulated kernels, the native kernels and their plan,
the graph and the shaders: another operator, comparison, number, name, argument, type or order, or a statement,
condition or barrier less. It runs in a copy of the sources. First the cases of the corpus are tried, those first that
show most; then the bundled models, where the CPU's plan may be concerned; then the tests of that part.

- A change that does not compile, or that the first call refuses as one that no compiler of a typed language would take,
  is *no program* and does not count. Nor does an *equivalent* one: the compiler makes the same module of it, or
  `tests/mutants/generated/equivalent.json` says why nobody could notice it.
- *Noticed* are those that the corpus, a model or a test shows: other bytes, a typed error, a crash, or no end.
- *Named* is one whose report says what it is. Nobody wrote that down before, so the rule goes by what the changed code
  is about (`tests/mutants/generated/naming.py`): the names in it give it one or more classes, such as zero points,
  windows, addresses or the last tile. One of the first three causes must be of such a class, or the pattern must tell
  the region that such code decides: a lane, the border, the last columns, a workgroup.
"""

_NONE = _RULES + "\nNo run is recorded: `refsim mutate --random 500 --seed S --record`.\n"

_SECTION = (
    _RULES
    + """
This is one run over {count} changes with seed {seed}, which was used for nothing before:
`refsim mutate --random {count} --seed {seed} --record`. {left_out}
{totals}
{kinds}
{survivors}"""
)
