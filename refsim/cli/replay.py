"""Run a case on an executor, or compare a buffer from a device with what the case expects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

import click
import numpy as np

from refsim.bytediff import diff
from refsim.cli.kit.options import (
    actual_layout_option,
    all_bytes_option,
    device_profile_option,
    executors_option,
    report_options,
)
from refsim.cli.kit.report import write_html
from refsim.cli.kit.text import remark
from refsim.cli.kit.verb import verb
from refsim.core import choices, doing
from refsim.core.buffer import PackedBuffer
from refsim.core.layout import Layout
from refsim.core.meanings import CaseName
from refsim.core.plain import FLAT
from refsim.core.qmath import Profile
from refsim.core.result import Result, Same, Text
from refsim.core.status import DIFFERENT, SAME
from refsim.core.tensor import TensorDesc
from refsim.device.bisect import launched
from refsim.device.outputs import ONE_FORMS
from refsim.exec.executor import YOURS, Executor, Source
from refsim.exec.factory import executor_named
from refsim.exec.share import Share
from refsim.formats.cases import Stored
from refsim.formats.sidecars import unlike_case
from refsim.golden.check import asked_of, diff_on, within
from refsim.golden.judge import KNOWN_DEFECT, Judged, judged
from refsim.golden.named import open_case, raw_buffer, raw_files
from refsim.golden.told import BufferCompared, ToldReport, written_by
from refsim.ops.base.binding import BoundCase, has_sums, ruled
from refsim.ops.base.requantization import RULES


@dataclass(frozen=True)
class Foreign:
    """Where the kernels of an executor came from, and how what they wrote comes out.

    ``module`` is the SPIR-V module that wrote the output; empty for kernels that are none.
    """

    source: Annotated[Source, "Where they came from."]
    judged: Annotated[Judged, "How what they wrote comes out."]
    module: str
    stores: list[tuple[str, str]]

    @property
    def known(self) -> bool:
        """Whether a known defect of upstream explains every byte."""
        return self.source.whose == YOURS and self.judged.verdict == KNOWN_DEFECT


@dataclass(frozen=True)
class OnExecutor:
    """What one executor made of the case."""

    told: Annotated[ToldReport, FLAT]
    guard: Annotated[str, "An error about a write outside of the output, in words; else empty."]
    kernels: Annotated[Foreign | None, "Its kernels, if kernels of another build may have run."]

    @property
    def same(self) -> bool:
        """Whether it gave the right bytes, or those of a known defect of upstream, and wrote nothing else."""
        known = self.kernels is not None and self.kernels.known
        return not self.guard and self.told.report is not None and (self.told.report.same or known)

    def text(self, name: str) -> Text:
        if self.guard:
            yield self.guard
        yield from self.told.text()
        if self.kernels is not None and self.told.report is not None:
            row = self.kernels
            yield f"{name}: {row.source}" + (f" ({row.source.why})" if row.source.why else "")
            if not self.told.report.same:
                yield from (f"{name}: {line}" for line in written_by(row.module, row.stores))
            if row.known:
                yield f"{name}: {row.judged}"


@dataclass(frozen=True)
class Replayed(Result):
    """A case on executors."""

    case: CaseName
    executors: Annotated[Mapping[str, OnExecutor], "By executor."]

    @property
    def same(self) -> Same:
        return not self._differ and not any(share.idle for share in self._shares)

    @property
    def _differ(self) -> bool:
        return not all(one.same for one in self.executors.values())

    @property
    def _shares(self) -> list[Share]:
        found = self.executors.items()
        return [Share.of(name, [one.kernels.source]) for name, one in found if one.kernels is not None]

    @property
    def status(self) -> int:
        """IncompleteError if nothing differs, but an executor's own kernels did not run the case."""
        for share in () if self._differ else self._shares:
            share.check()
        return DIFFERENT if self._differ else SAME

    def text(self) -> Text:
        for name, one in self.executors.items():
            yield from one.text(name)


@dataclass(frozen=True, kw_only=True)
class ReplayedActual(BufferCompared):
    """With --actual: what a device made of a case."""

    case: CaseName


@verb("replay", "case -x cpu")
@click.argument("case")
@click.option(
    "--actual",
    metavar="FILE",
    help=f"Instead of running the case, compare what a device made of it: {ONE_FORMS}.",
)
@actual_layout_option
@click.option(
    "--rule",
    metavar="RULE",
    help=f"With --actual: how sums become bytes in your library: {choices.listed(RULES)}, or an expression.",
)
@executors_option
@click.option(
    "--other",
    "others",
    multiple=True,
    metavar="FILE",
    help="Another raw buffer that may have been mixed up with the actual one.",
)
@device_profile_option
@all_bytes_option
@report_options
def command(
    case: str,
    actual: str | None,
    actual_layout: Layout | None,
    rule: str | None,
    executors: str,
    others: tuple[str, ...],
    profile: Profile | None,
    all_bytes: bool,
    limit: int,
    html: str | None,
) -> Replayed | ReplayedActual:
    """Run one operator call: CASE is a case directory, ZIPFILE!NAME, or OPERATOR/NUMBER of the golden corpus.

    Without --actual the executors run the case, and every byte is compared. With --actual, padding that a device
    may fill with anything is not compared.
    """
    if rule is not None and actual is None:
        raise click.UsageError("--rule needs --actual: the executors follow ExecuTorch's rule")
    stored = open_case(case)
    if actual is not None:
        if actual_layout is None:
            unlike_case(
                actual, stored, case, same=True
            )  # before anything is read: whether it can be this tensor
        desc = stored.expected.desc
        bound = stored.bound if rule is None else ruled(stored.bound, rule)
        report = diff(
            stored.expected if rule is None else bound.call.expected(bound.inputs),
            raw_buffer(actual, desc.shape, actual_layout or desc.layout, remark),
            call=bound,
            others=raw_files(others),
            profile=profile,
            device=not all_bytes,
            limit=limit,
            title=f"{stored.name} {TensorDesc(desc.shape, actual_layout or desc.layout)}",
            actual_layout=actual_layout,
        )
        texts = unlike_case(actual, stored, case, report.same) if actual_layout is None else []
        texts += [] if report.same else _by_rule(stored.bound, report.evidence.actual.unpack())
        told = ToldReport.of(report)
        write_html(told, html, texts)
        return ReplayedActual(case=case, actual=actual, of_run=texts, told=told, notes=texts)
    found = {
        name: _replayed(name, stored, raw_files(others), profile, limit) for name in executors.split(",")
    }
    shown = next(
        (one for one in found.values() if one.told.report and not one.told.report.same),
        next(iter(found.values())),
    )
    write_html(shown.told, html)
    return Replayed(case, found)


def _replayed(
    name: str, stored: Stored, others: Mapping[str, np.ndarray], profile: Profile | None, limit: int
) -> OnExecutor:
    """The case on one executor."""
    runner = executor_named(name)
    bound, expected = asked_of(runner, stored.bound, stored.expected)
    result, broken = within(runner, bound)
    report = diff_on(
        runner, bound, expected, result, fresh=False, others=others, profile=profile, limit=limit,
        title=f"{stored.name} on {name}", geometry=launched(runner, bound.call),
    )  # fmt: skip
    return OnExecutor(
        ToldReport.of(report, name, runner),
        "" if broken is None else doing.told(broken, place=False),
        _foreign(runner, bound, result) if runner.foreign else None,
    )


def _foreign(runner: Executor, bound: BoundCase, result: PackedBuffer) -> Foreign:
    source = runner.source(bound.call)
    spirv = source.whose == YOURS and runner.written(bound.call) is not None
    module = source.kernels[-1] if spirv else ""
    return Foreign(source, judged(bound, result, defects=source.forgiven), module, runner.stores(bound.call))


def _by_rule(bound: BoundCase, actual: np.ndarray) -> list[str]:
    """Which known rule of requantization gives these values."""
    if not has_sums(bound.call):
        return []
    ways = {name: ruled(bound, name).call for name in RULES}
    names = [
        name for name, call in ways.items() if np.array_equal(call.expected(bound.inputs).unpack(), actual)
    ]
    return [f"these are the values of the rule {names[0]}: --rule {names[0]}"] if names else []
