"""golden list, show, coverage, regen and new: what the corpus has, and how it is made."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Annotated, Any

import click

from refsim.cli.kit.options import LIMIT, root_option
from refsim.cli.kit.verb import verb
from refsim.core import choices
from refsim.core.counted import counted
from refsim.core.errors import ParameterError
from refsim.core.layout import layout
from refsim.core.meanings import OperatorName
from refsim.core.plain import Column
from refsim.core.result import Result, Table, Text
from refsim.golden.covered import Coverage
from refsim.golden.named import open_case
from refsim.golden.regen import RenewedCorpus
from refsim.golden.rules import case_name
from refsim.golden.store import Corpus
from refsim.ops.base.case import Case, as_text
from refsim.ops.base.registry import OPS
from refsim.ops.base.shown import ShownCase

#: Option -> the parameter or feature that it asks for.
ASKED = {
    "kernel": "kernel_size",
    "stride": "stride",
    "padding": "padding",
    "dilation": "dilation",
    "groups": "groups",
    "activation": "activation",
}


@dataclass(frozen=True)
class ListedCase:
    """A case of the corpus."""

    case: Annotated[str, "Name of the case.", Column()]
    operator: OperatorName
    configuration: Annotated[str, "Shapes, layouts and parameters in one line.", Column()]


@dataclass(frozen=True)
class ListedCases(Result):
    """The cases that fit."""

    cases: Annotated[Sequence[ListedCase], "All of them, whatever --limit says."]
    limit: int

    def text(self) -> Text:
        cut = self.cases[: self.limit or None]
        yield Table.of(ListedCase, cut)
        if len(self.cases) > len(cut):
            yield choices.more(len(self.cases) - len(cut), "--limit 0 lists all")
        yield counted(len(self.cases), "case")


def asked_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """An option for each row of `ASKED`."""
    for name, parameter in reversed(ASKED.items()):
        help_text = f"Only cases with this {parameter.replace('_', ' ')}."
        function = click.option(f"--{name}", metavar="VALUE", help=help_text)(function)
    return function


@verb("list", "--kernel 3x3 --stride 2")
@click.argument("filters", metavar="[FILTER]...", nargs=-1)
@root_option
@click.option("--op", "operator", metavar="NAME", help="Only cases of this operator; * stands for anything.")
@click.option("--layout", "-l", "layouts", multiple=True, help="Only cases with a tensor in this layout.")
@click.option(
    "--shape", "-s", metavar="SHAPE", help="Only cases with an input of this shape: 1x8x4x4, *x8x*x*."
)
@asked_options
@click.option(
    "--where", "others", multiple=True, metavar="NAME=VALUE", help="The same for any other parameter."
)
@click.option(
    "--limit", type=click.IntRange(0), default=2 * LIMIT, show_default=True, help="How many to list; 0: all."
)
def list_cases(
    filters: tuple[str, ...],
    root: str | None,
    operator: str | None,
    layouts: tuple[str, ...],
    shape: str | None,
    others: tuple[str, ...],
    limit: int,
    **asked: str | None,
) -> ListedCases:
    """List cases of the corpus, each with its shapes, layouts and parameters in one line.

    FILTER is a pattern of names: OPERATOR, PREFIX*, or OPERATOR/00*. VALUE 2 means 2x2 too.
    """
    corpus = Corpus.at(root)
    named = [layout(one).name for one in layouts]
    values = {ASKED[name]: value for name, value in asked.items() if value is not None} | _pairs(others)

    def fits(case: Case) -> bool:
        held = {**case.params, **case.features}
        shapes = [as_text(dims) for dims, _ in case.inputs.values()]
        used = {layout(one).name for one in (*(one for _, one in case.inputs.values()), case.out_layout)}
        return (
            used.issuperset(named)
            and (shape is None or any(fnmatchcase(one, shape.replace(",", "x")) for one in shapes))
            and all(name in held and _is(held[name], value) for name, value in values.items())
        )

    wanted = [
        op for op in corpus.operators()
        if (operator is None or fnmatchcase(op, operator))
        and (not filters or any(fnmatchcase(op, one.partition("/")[0]) for one in filters))
    ]  # fmt: skip
    found = [
        (entry.name, entry.case) for op in wanted for entry in corpus.entries(op)
        if _called(entry.name, filters) and fits(entry.case)
    ]  # fmt: skip
    if not found:
        names = wanted or [choices.need(operator or filters[0], corpus.operators())]
        raise ParameterError(
            "golden list",
            "no case fits",
            got=" ".join((*filters, *layouts, *filter(None, [shape]), *map("=".join, values.items())))
            or None,
            need=f"other filters of {choices.listed(names)}",
        )
    return ListedCases([ListedCase(name, case.op, case.configuration) for name, case in found], limit)


def _called(name: str, filters: tuple[str, ...]) -> bool:
    return not filters or any(fnmatchcase(name, one if "/" in one else f"{one}/*") for one in filters)


def _pairs(others: tuple[str, ...]) -> dict[str, str]:
    wrong = next((one for one in others if "=" not in one), None)
    if wrong is not None:
        raise click.UsageError(f"--where {wrong}: not NAME=VALUE")
    return {name: value for name, _, value in (one.partition("=") for one in others)}


def _is(held: Any, value: str) -> bool:
    """Whether a parameter has a value as a command line says it: 3x2, or 3 for 3x3."""
    text = as_text(held).casefold()
    same = isinstance(held, tuple | list) and {str(one) for one in held} == {value}
    return same or fnmatchcase(text, value.casefold().replace(",", "x"))


@verb("show", case_name(next(iter(OPS)), 5))
@click.argument("case")
def show_case(case: str) -> ShownCase:
    """Show what CASE calls: the operator, its tensors and its parameters. CASE is named as for replay."""
    return ShownCase.of(case, open_case(case).bound)


@verb("coverage")
@root_option
def coverage(root: str | None) -> Coverage:
    """Count cases by operator, layouts and features, by native route, and chains by kind.

    The status is 1 if something has none.
    """
    from refsim.golden.covered import covered  # kernels come with it

    return covered(Corpus.at(root))


@verb("regen", "--dry-run")
@click.argument("operators", nargs=-1)
@root_option
@click.option("--reason", default="", help="Why the corpus changes; without one nothing is written.")
@click.option("--dry-run", is_flag=True, help="Only show what would change.")
@click.option("--new", "fresh", is_flag=True, help="Make a corpus where there is none.")
def regen(
    operators: tuple[str, ...], root: str | None, reason: str, dry_run: bool, fresh: bool
) -> RenewedCorpus:
    """Compute the corpus, or OPERATORS of it (or chains), from the rules; show what changes; write it with a reason."""
    from refsim.golden.regen import renewed  # kernels come with it

    return renewed(operators, root, reason, dry_run, fresh)


@verb("new", "q8ta_leaky_relu")
@click.argument("operator")
@root_option
def new(operator: str, root: str | None) -> RenewedCorpus:
    """Make the first cases of OPERATOR, by the rule in its file.

    OPERATOR is one that has none yet: python -m refsim.ops new NAME makes the file of a new one, as of the
    q8ta_leaky_relu below.
    """
    from refsim.golden.regen import begun  # kernels come with it

    return begun(operator, root)
