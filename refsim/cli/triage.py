"""Judge a device's run from the outputs of an exposed file: which operator is right, legal or wrong, and why."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial as partial_of
from typing import Annotated

import click

from refsim.bytediff import Cause
from refsim.check.runtime import runtime
from refsim.cli.kit.devtools import node_data_option, origin_option, read_origins, write_node_data
from refsim.cli.kit.options import (
    device_profile_option,
    folder_option,
    inputs_options,
    more_option,
    partial_option,
    report_options,
    runtime_option,
    sure_option,
)
from refsim.cli.kit.target import GivenInputs, target_option
from refsim.cli.kit.text import wrote
from refsim.cli.kit.verb import verb
from refsim.core import atomic_write, choices, strict_json
from refsim.core.counted import form
from refsim.core.doing import progress
from refsim.core.meanings import BestProfile
from refsim.core.plain import FLAT, plain
from refsim.core.qmath import PROFILES, Profile
from refsim.core.result import Command, Text
from refsim.device import manifest
from refsim.device.collect import files_of, parts_of
from refsim.device.complete import Complete, Completeness
from refsim.device.exchanged import taken_for
from refsim.device.outputs import FORM
from refsim.device.page import (
    COLUMNS,
    PAGE,
    cells,
    diff_pages,
    render,
    repeats_lines,
    summary,
    without_case,
)
from refsim.device.repeats import Repeats, repeats, worst
from refsim.device.runs import results
from refsim.device.strip import source
from refsim.device.triage import triage
from refsim.device.verdicts import LEGAL, OperatorVerdict, Triage
from refsim.exec.again import Again
from refsim.formats import profiles
from refsim.formats.cases import ACTUAL, write_folder
from refsim.formats.targets import TargetRow
from refsim.golden.apart import KernelCauses, WrongCase, of_kernels, table_of
from refsim.golden.named import CASES, DUMP, FOUND
from refsim.golden.told import ToldReport, kernels_text
from refsim.graph.origin import Origins
from refsim.ops.base.target import Target

#: In the folder of a triage: the profile that was given.
PROFILE = "profile.json"
#: Reports that are printed.
MOST_REPORTS = 3


@dataclass(frozen=True)
class TriageNode:
    """One operator."""

    judged: Annotated[OperatorVerdict, FLAT]
    reproduce: Annotated[str | None, "With --output: the command that runs it alone."]
    told: Annotated[ToldReport, FLAT]


@dataclass(frozen=True, kw_only=True)
class TriagedRun(Complete):
    """The operators of a device's run."""

    file: Annotated[str, "The exposed program."]
    found: Triage
    nodes: Annotated[Sequence[TriageNode], "The operators, in the order of execution."]
    causes: Annotated[Sequence[KernelCauses], "What is wrong with each kernel."]
    runs: Annotated[Repeats | None, "Several runs with the same inputs; null for one."]
    folder: Annotated[str | None, "What --output wrote."]
    made: Annotated[Origins, FLAT]

    @property
    def profile(self) -> BestProfile:
        return self.found.profile

    @property
    def target(self) -> Annotated[str, "The family of devices whose layouts fit."]:
        return self.found.target

    @property
    def summary(self) -> Annotated[str, "One sentence about the whole."]:
        return summary(self.found, self.runs)

    @property
    def _suspects(self) -> list[TriageNode]:
        return [node for node in self.nodes if node.judged in self.found.suspects]

    def text(self) -> Text:
        found, several = self.found, self.runs
        rows = [(node.judged.row.at, cells(node.judged, several)) for node in self.nodes]
        yield self.made.table(COLUMNS, rows, drop=("delegate",))
        yield from self.made.summary()
        run = f"run {several.shown}: " if several is not None and len(several.groups) > 1 else ""
        yield f"{run}{self.summary} (profile {self.profile}, layouts as on {self.target})"
        if found.why:
            yield f"target {found.target}, {found.why}"
        if several is not None:
            yield from repeats_lines(several)
        for node in self._suspects[:MOST_REPORTS]:
            yield from node.told.text() if node.judged.verdict == LEGAL else node.told.report_text()
            yield from self.made.made_by(*node.judged.row.at)
        if len(self._suspects) > MOST_REPORTS:
            yield choices.more(len(self._suspects) - MOST_REPORTS, "--html FILE has the report of each")
        for node in self._suspects:
            if node.reproduce is not None:
                yield Command(f"run node {node.judged.row.node} alone: {node.reproduce}")
        yield from self._folder()
        yield from without_case(found)
        yield from kernels_text(self.causes)
        yield from self.whole.lines()

    def _folder(self) -> Iterator[str]:
        """Where the cases are, or that there could be some."""
        if self.folder is not None:
            yield f"dump, cases and page: {self.folder}"
        elif alone := [v for v in self.found.suspects if v.row.own is not None]:
            nodes = [f"{v.row.node} {v.row.operator}" for v in alone]
            each = "each of these operators"
            if len(alone) < len(self.found.suspects):
                each = f"{form(len(nodes), 'node', 'each of nodes')} {choices.listed(nodes)}"
            yield f"with -o DIR {each} is written as a case that runs alone"


@verb("triage", "exposed.pte -i in.npz --outputs outputs.npz -o found")
@click.argument("file", metavar="EXPOSED")
@inputs_options
@click.option(
    "--outputs",
    required=True,
    multiple=True,
    metavar="OUTPUTS",
    help=f"The outputs of a run: {FORM}; give it several times for several runs, or the folder of expose --runs.",
)
@more_option
@folder_option(
    "Where to write the dump, the pages, and each operator that differs as a case with the device's bytes",
    required=False,
)
@partial_option
@sure_option
@target_option("found by itself")
@runtime_option
@device_profile_option
@report_options
@node_data_option
@origin_option
def command(
    file: str,
    inputs: str | None,
    seed: int | None,
    outputs: tuple[str, ...],
    more: tuple[tuple[str, str], ...],
    output: str | None,
    partial: bool,
    sure: bool,
    family: TargetRow | None,
    release: str,
    profile: Profile | None,
    limit: int,
    html: str | None,
    node_data: str | None,
    origin: str | None,
) -> TriagedRun:
    """Read the outputs of EXPOSED, a program that refsim expose wrote, and say which operators are wrong.

    Each operator is judged on the inputs that it had on the device.

    Without --profile, refsim looks for the profile that explains most of the differences.
    """
    outputs = tuple(one for path in outputs for one in results(path))
    if len(outputs) > 1 and more:
        raise click.UsageError("several runs of several parts: give either --outputs once or no --more")
    pte, part = manifest.read(file)
    behaviour = runtime(release).behaviour
    model = source(pte, part, Target(runtime=behaviour))
    made = read_origins(model, origin)
    given = GivenInputs(inputs, seed).of(model)
    with progress("operators") as tell:
        judged = {
            path: triage(parts_of(file, (path,), more), given, limit, profile, family, tell, sure, behaviour)
            for path in dict.fromkeys(outputs)
        }
    runs = [judged[path] for path in outputs]
    several = repeats(runs) if len(runs) > 1 else None
    found = runs[worst(runs)]
    commands = _commands(found, output, profile)
    held = frozenset.intersection(*(run.judged for run in runs))
    notes = [
        f"not checked: {path} does not say of which file and of which inputs it is; taken as outputs of {exposed}"
        for exposed, path in (*((file, path) for path in judged), *more)
    ]
    notes += found.doubts
    notes += taken_for(found, given)
    whole = Completeness(file, found.needed, held, partial, notes)
    same = all(run.same for run in runs) and (several is None or len(several.groups) == 1)
    if whole.not_compared and part.parts > 1 and (others := _other_parts(part, more)):
        whole.fix = others
        notes += [] if same else [f"not given: {others}"]
    nodes = [TriageNode(v, commands.get(v.row.value), ToldReport.of(v.report)) for v in found.verdicts]
    result = TriagedRun(
        file=file, found=found, nodes=nodes, causes=_kernels(found, several), runs=several, whole=whole,
        folder=output, made=made, differs=not same,
    )  # fmt: skip
    remarks = {id(node.told.report): node.told.lines() for node in nodes}
    page = partial_of(
        render, file, found, several, commands, made=made.lines(), kernels=table_of(result.causes),
        remarks=lambda one: remarks[id(one)],
    )  # fmt: skip
    if output is not None:
        diffs = diff_pages(found, lambda one: remarks[id(one)])
        links = {value: f"pages/{value}.html" for value in diffs}
        pages = {links[value]: text for value, text in diffs.items()} | {PAGE: page(pages=links)}
        write_folder(output, _files(result, pages, profile))
        wrote(output, said=True)
    if html is not None:
        atomic_write.write(html, page().encode())
        wrote(html)
    write_node_data(node_data, f"triage {outputs[0]}", [(v.row.value, v.verdict) for v in found.verdicts])
    return result


def _kernels(found: Triage, several: Repeats | None) -> list[KernelCauses]:
    """What is wrong with each kernel, by all of its wrong nodes."""
    cases: dict[tuple[str, str], list[WrongCase]] = {}
    for v in found.wrong:
        assert v.report is not None
        bound = v.report.evidence.bound
        op = v.row.operator if bound is None else bound.call.op.name
        causes = v.report.causes
        if several is not None and several.elements and several.first == v.row.value:
            told = Again(len(several.groups), sum(map(len, several.groups))).told
            assert told is not None
            causes = (Cause.seen(*told, v.report.differing), *causes)
        cases.setdefault((op, ""), []).append(WrongCase(v.row.value, causes, bound=bound))
    return of_kernels(cases)


def _other_parts(exposed: manifest.Manifest, more: Sequence[tuple[str, str]]) -> str:
    """What would give the values of the parts that were not named; empty if all were."""
    known = {exposed.part, *(manifest.read(path)[1].part for path, _ in more)}
    left = [str(number) for number in range(1, exposed.parts + 1) if number not in known]
    if not left:
        return ""
    parts = f"{form(len(left), 'part', 'parts')} {choices.listed(left)} of {exposed.parts}"
    return f"{parts}, each with --more EXPOSED OUTPUTS"


def _commands(found: Triage, output: str | None, profile: Profile | None) -> dict[str, str]:
    """Output of an operator -> the command that repeats it alone; without a folder there are no cases."""
    commands = {}
    given = f"{output}/{PROFILE}" if profile is not None and profile.name not in PROFILES else None
    for v in found.suspects if output is not None else []:
        if v.row.own is not None:
            case = f"{output}/{CASES}/{v.row.value}"
            words = ["refsim", "replay", case, "--actual", f"{case}/{ACTUAL}"]
            words += ["--profile", given or v.profiles[0]] if v.verdict == LEGAL else []
            commands[v.row.value] = shlex.join(words)
    return commands


def _files(result: TriagedRun, pages: dict[str, str], profile: Profile | None) -> dict[str, bytes]:
    found = result.found
    files = {f"{DUMP}/{name}": raw for name, raw in files_of(found.collected).items()}
    for value, case in found.cases().items():
        files |= {f"{CASES}/{value}/{name}": raw for name, raw in case.items()}
    if profile is not None:
        files[PROFILE] = (strict_json.dumps(profiles.as_json(profile), indent=1) + "\n").encode()
    text = strict_json.dumps(plain(result), indent=1) + "\n"
    files |= {path: page.encode() for path, page in pages.items()}
    return files | {FOUND: text.encode()}
