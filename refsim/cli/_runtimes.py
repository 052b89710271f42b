"""refsim compare with two runtimes: one file, and which of its values are others on the second."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from refsim.cli.kit.buffers import GivenInputs
from refsim.cli.kit.target import opened
from refsim.cli.kit.text import print_table, say
from refsim.cli.kit.verb import Result
from refsim.core.counted import counted
from refsim.core.qmath import Profile
from refsim.core.status import DIFFERENT, SAME
from refsim.device.across import Across, across
from refsim.exec.factory import executor_named
from refsim.formats.targets import TargetRow

COLUMNS = ("node", "operator", "value", "elements", "different", "alone", "most", "why")


def compare_runtimes(
    file: str,
    releases: tuple[str, str],
    executor: str,
    asked: GivenInputs,
    family: TargetRow | None,
    profile: Profile | None,
) -> Result:
    """Each value with the elements that are others on the second runtime, and why."""
    first, second = (opened(file, family, profile, shaped=asked.at, release=name) for name in releases)
    given = asked.of(first.model)
    rows = across(first.model, second.model, given, executor_named(executor), releases)
    apart = [row for row in rows if row.different]
    outputs = {
        f"delegate{number}_v{value}"
        for number, graph in first.model.graphs.items() for value in graph.outputs
    }  # fmt: skip
    changed = sorted(row.value for row in apart if row.value in outputs)
    content: dict[str, object] = {
        "file": file, **first.as_json(), "executors": [executor], "runtimes": list(releases),
        "buffers": [], "guards": [], "unwatched": {}, "report": None, "apart": None,
        "values": [row.as_json() for row in rows], "outputs": changed,
        "first": apart[0].value if apart else None, "same": not apart,
    }  # fmt: skip
    return Result(content, partial(_show, rows, releases, changed), SAME if not apart else DIFFERENT)


def _show(rows: Sequence[Across], releases: tuple[str, str], changed: Sequence[str]) -> None:
    cells = [
        (row.node, row.operator, row.value, row.elements, row.different, row.alone, f"{row.most:.3g}", _why(row.why))
        for row in rows
    ]  # fmt: skip
    print_table(COLUMNS, cells, drop=("elements", "most", "alone"))
    differ = sum(bool(row.different) for row in rows)
    say(f"{counted(len(rows), 'value')} on {releases[0]} and {releases[1]}: {differ} differ")
    for line in dict.fromkeys(text for row in rows if row.alone for text in row.why if ":" in text):
        say(f"why {line}")
    say(f"outputs of delegates that differ: {', '.join(changed) or 'none'}")


def _why(why: tuple[str, ...]) -> str:
    """The runtime, or that the inputs are others: the sentences stand below the table."""
    return ", ".join(dict.fromkeys(text.partition(":")[0] for text in why))
