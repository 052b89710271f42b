"""Judge a device's run from the outputs of an exposed file: which operator is right, legal or wrong, and why."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from functools import partial as partial_of

import click

from refsim.bytediff import Cause
from refsim.check.runtime import runtime
from refsim.cli._model_explorer import node_data_option, write_node_data
from refsim.cli._origins import COLUMN, Origins, origin_option, read_origins
from refsim.cli.kit.apart import Telling, print_kernels
from refsim.cli.kit.buffers import GivenInputs, inputs_options, print_report
from refsim.cli.kit.complete import Completeness, partial_option, sure_option
from refsim.cli.kit.given import DUMP, FOUND
from refsim.cli.kit.options import (
    device_profile_option,
    folder_option,
    html_option,
    limit_option,
    runtime_option,
    search_option,
)
from refsim.cli.kit.progress import progress
from refsim.cli.kit.target import target_option
from refsim.cli.kit.text import print_table, say, say_all, wrote
from refsim.cli.kit.verb import Result, verb
from refsim.core import atomic_write, choices, strict_json
from refsim.core.counted import form
from refsim.core.qmath import PROFILES, Profile
from refsim.device import manifest
from refsim.device.collect import Given, files_of
from refsim.device.exchanged import taken_for
from refsim.device.outputs import FORM
from refsim.device.page import (
    COLUMNS,
    PAGE,
    cells,
    data,
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
from refsim.golden.causes import KernelCauses, WrongCase, of_kernels, table_of
from refsim.golden.named import CASES
from refsim.ops.base.target import Target

#: In the folder of a triage: the profile that was given.
PROFILE = "profile.json"
#: Reports that are printed.
MOST_REPORTS = 3


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
@click.option(
    "--more",
    nargs=2,
    multiple=True,
    metavar="EXPOSED OUTPUTS",
    help="Another part that expose --chunk wrote, and its outputs of the same run.",
)
@folder_option(
    "Where to write the dump, the pages, and each operator that differs as a case with the device's bytes",
    required=False,
)
@partial_option
@sure_option
@target_option("found by itself")
@runtime_option
@device_profile_option
@limit_option
@search_option
@html_option
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
) -> Result:
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
    parts: list[Given] = [(exposed, (path,)) for exposed, path in more]
    with progress("operators") as tell:
        judged = {
            path: triage([(file, (path,)), *parts], given, limit, profile, family, tell, sure, behaviour)
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
    if whole.missing and part.parts > 1 and (others := _other_parts(part, more)):
        whole.fix = others
        notes += [] if same else [f"not given: {others}"]
    telling = Telling()
    kernels = _kernels(found, several)
    table = table_of(kernels)
    content = data(file, found, several, commands, telling.as_json) | whole.as_json() | made.as_json()
    content["causes"] = [row.as_json() for row in kernels]
    content["same"] = content["same"] and whole.enough
    if output is not None:
        diffs = diff_pages(found, telling.texts)
        links = {value: f"pages/{value}.html" for value in diffs}
        pages = {links[value]: text for value, text in diffs.items()}
        pages[PAGE] = render(file, found, several, commands, links, made.lines(), telling.texts, table)
        write_folder(output, _files(found, pages, content, profile))
        wrote(output, said=True)
    if html is not None:
        page = render(file, found, several, commands, None, made.lines(), telling.texts, table)
        atomic_write.write(html, page.encode())
        wrote(html)
    write_node_data(node_data, f"triage {outputs[0]}", [(v.row.output, v.kind) for v in found.verdicts])

    def show() -> None:
        _print(found, several, commands, made, output, telling)
        print_kernels(kernels)
        say_all(whole.lines())

    return Result({**content, "folder": output}, show, partial_of(whole.status, same))


def _kernels(found: Triage, several: Repeats | None) -> list[KernelCauses]:
    """What is wrong with each kernel, by all of its wrong nodes."""
    cases: dict[tuple[str, str], list[WrongCase]] = {}
    for v in found.wrong:
        assert v.report is not None
        bound = v.report.evidence.bound
        op = v.row.operator if bound is None else bound.call.op.name
        causes = v.report.causes
        if several is not None and several.elements and several.first == v.row.output:
            told = Again(len(several.groups), sum(map(len, several.groups))).told
            assert told is not None
            causes = (Cause.seen(*told, v.report.differing), *causes)
        cases.setdefault((op, ""), []).append(WrongCase(v.row.output, causes, bound=bound))
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
            case = f"{output}/{CASES}/{v.row.output}"
            words = ["refsim", "replay", case, "--actual", f"{case}/{ACTUAL}"]
            words += ["--profile", given or v.profiles[0]] if v.kind == LEGAL else []
            commands[v.row.output] = shlex.join(words)
    return commands


def _files(
    found: Triage, pages: dict[str, str], content: dict[str, object], profile: Profile | None
) -> dict[str, bytes]:
    files = {f"{DUMP}/{name}": raw for name, raw in files_of(found.collected).items()}
    for value, case in found.cases().items():
        files |= {f"{CASES}/{value}/{name}": raw for name, raw in case.items()}
    if profile is not None:
        files[PROFILE] = (strict_json.dumps(profiles.as_json(profile), indent=1) + "\n").encode()
    text = strict_json.dumps(content, indent=1) + "\n"
    files |= {path: page.encode() for path, page in pages.items()}
    return files | {FOUND: text.encode()}


def _print(
    found: Triage,
    several: Repeats | None,
    commands: dict[str, str],
    made: Origins,
    output: str | None,
    telling: Telling,
) -> None:
    rows = [[*cells(v, several), *made.cell(v.row.delegate, v.row.node)] for v in found.verdicts]
    print_table((*COLUMNS, *([COLUMN] if made else [])), rows, drop=("delegate",))
    made.say_summary()
    run = f"run {several.shown}: " if several is not None and len(several.groups) > 1 else ""
    say(f"{run}{summary(found)} (profile {found.profile}, layouts as on {found.target})")
    if found.why:
        say(f"target {found.target}, {found.why}")
    if several is not None:
        for line in repeats_lines(several):
            say(line)
    for v in found.suspects[:MOST_REPORTS]:
        assert v.report is not None
        print_report(v.report, telling if v.kind == LEGAL else None)
        made.say(v.row.delegate, v.row.node)
    if len(found.suspects) > MOST_REPORTS:
        say(choices.more(len(found.suspects) - MOST_REPORTS, "--html FILE has the report of each"))
    for v in found.suspects:
        if v.row.output in commands:
            say(f"run node {v.row.node} alone: {commands[v.row.output]}", command=True)
    if output is not None:
        say(f"dump, cases and page: {output}")
    elif alone := [v for v in found.suspects if v.row.own is not None]:
        each = "each of these operators" if len(alone) == len(found.suspects) else _nodes(alone)
        say(f"with -o DIR {each} is written as a case that runs alone")
    for line in without_case(found):
        say(line)


def _nodes(verdicts: Sequence[OperatorVerdict]) -> str:
    nodes = [f"{v.row.node} {v.row.operator}" for v in verdicts]
    return (
        f"{'' if len(nodes) == 1 else 'each of '}{form(len(nodes), 'node', 'nodes')} {choices.listed(nodes)}"
    )
