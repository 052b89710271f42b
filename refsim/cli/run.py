"""Execute a file, time every operator, and compare every buffer with recorded bytes."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial as partial_of
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from refsim.cli._accuracy import as_json as accuracy_json
from refsim.cli._accuracy import float_option, measured
from refsim.cli._accuracy import show as show_accuracy
from refsim.cli._execute import COLUMNS, DROP, Execution, execute, misshaped, unwatched_lines
from refsim.cli._origins import COLUMN, Origins, origin_option, read_origins
from refsim.cli._sequence import sequence_result
from refsim.cli.kit.buffers import GivenInputs, inputs_options
from refsim.cli.kit.complete import Completeness, check_run, fix_of, meant, named, partial_option
from refsim.cli.kit.given import recorded as dump_at
from refsim.cli.kit.given import same_run
from refsim.cli.kit.options import (
    executor_profile_option,
    executors_option,
    output_option,
    runtime_option,
    threads_option,
)
from refsim.cli.kit.target import opened, target_option
from refsim.cli.kit.text import print_table, say, say_all, shape_text, wrote
from refsim.cli.kit.verb import PROGRAM, Result, verb
from refsim.cli.kit.written import PatternWord, Written
from refsim.core.counted import counted, form
from refsim.core.errors import GraphError
from refsim.core.qmath import Profile
from refsim.core.status import DIFFERENT, SAME
from refsim.device.pairs import GOT
from refsim.exec.executor import YOURS
from refsim.exec.factory import executor_named
from refsim.exec.model import Model
from refsim.formats import npz
from refsim.formats.run_identity import identity
from refsim.formats.targets import TargetRow

if TYPE_CHECKING:
    from refsim.exec.cpu.plan import Memory

#: How the names of the executors begin that need no device.
CPU = "cpu"
EXPECTED_NAMES = ("out", "upstream_out")


@verb("run", "model.pte -i in.npz -o out.npz")
@click.argument("file")
@click.argument("runs", nargs=-1, metavar="[INPUTS]...")
@click.option(
    "--sequence",
    "several",
    is_flag=True,
    help="Run with each file of INPUTS, one after another, as one process of ExecuTorch's would, stale rows included.",
)
@inputs_options
@output_option("the outputs, an .npz with out0, out1...", required=False)
@executors_option
@target_option()
@runtime_option
@executor_profile_option
@threads_option
@click.option(
    "--repeat",
    type=click.IntRange(1),
    default=1,
    help="Run this many times and print the shortest times. The first run also loads or compiles the kernels.",
)
@click.option(
    "--dump",
    type=(PatternWord(), Written(folder=True)),
    metavar="REGEX DIR",
    help="Save each buffer whose value name and operator match: raw, with a JSON sidecar.",
)
@click.option(
    "--golden", metavar="PATH", help="Compare every buffer with the recorded one in this folder or zip file."
)
@partial_option
@click.option(
    "--expect",
    metavar="FILE",
    help="Compare the outputs bit by bit with an .npz: out0... or upstream_out0...",
)
@click.option(
    "--memory", is_flag=True, help="Print how much memory the executor cpu holds while it runs each delegate."
)
@origin_option
@float_option
def command(
    file: str,
    runs: tuple[str, ...],
    several: bool,
    inputs: str | None,
    seed: int | None,
    output: str | None,
    executors: str,
    family: TargetRow | None,
    release: str,
    profile: Profile | None,
    threads: int,
    repeat: int,
    dump: tuple[str, str] | None,
    golden: str | None,
    partial: bool,
    expect: str | None,
    memory: bool,
    origin: str | None,
    exact: str | None,
) -> Result:
    """Execute FILE, a .pte or a delegate blob, and print one row per operator."""
    if runs and not several:
        words = form(len(runs), "argument", "arguments")
        raise click.UsageError(
            f"Got unexpected extra {words} ({' '.join(runs)}); need refsim run [OPTIONS] FILE"
        )
    if several:
        if not runs:
            raise click.UsageError(
                "--sequence takes the inputs of each run: run FILE --sequence A.npz B.npz ..."
            )
        if inputs or seed is not None or output or dump or golden or expect:
            raise click.UsageError("--sequence compares runs with each other, and writes nothing")
        aimed = opened(file, family, profile, None, release=release)
        lists: dict[str, Any] = {name: [] for name in ("nodes", "outputs", "dumped", "golden_without_buffer")}
        facts = {
            "file": file,
            "executors": [executors],
            **aimed.as_json(),
            **lists,
            "unwatched": {},
            "golden": None,
        }
        return sequence_result(facts, aimed.model, runs, executor_named(executors))
    recorded = dump_at(golden, file) if golden else None
    asked = GivenInputs(inputs, seed)
    aimed = opened(file, family, profile, recorded, shaped=asked.at, release=release)
    model = aimed.model
    made = read_origins(model, origin)
    given = asked.of(model)
    if dump:
        same_run(dump[1], identity(model.path, given))
    notes: list[str] = []
    if recorded is not None:
        notes = check_run(recorded, aimed, given, partial) + aimed.misfits(recorded.path)

    lost = measured(model, given, exact, executor_named(executors.split(",")[0]))
    result = execute(
        model,
        given,
        executors.split(","),
        recorded=recorded,
        dump_regex=dump[0] if dump else None,
        dump_folder=dump[1] if dump else None,
        repeat=repeat,
        threads=threads,
        seed=seed,
    )
    if recorded is not None and "inputs" in recorded.unsaid() and (why := _other_inputs(result)):
        notes.append(why)
    if recorded is not None and result.exchanged is not None:
        notes.append(f"two buffers are exchanged in {recorded.path}: {GOT.format(*result.exchanged)}")
    outputs = next(iter(result.outputs.values()))
    wanted = _expected(outputs, expect) if expect else None
    verdicts = output_verdicts(result, wanted)
    if output:
        npz.write_npz(output, {f"out{i}": array for i, array in enumerate(outputs)})
        wrote(output)
    if dump:
        wrote(dump[1], said=True)
    held = memory_of(model, result, threads) if memory else {}
    same = not result.different and all(verdict["same"] is not False for verdict in verdicts)
    same = same and not any(result.apart.values())
    if recorded is not None and (near := meant(result.unmatched, model, recorded.entries)):
        notes.append(
            f"{named(result.unmatched)} {form(len(result.unmatched), 'is', 'are')} not compared{near}"
        )
    fix = fix_of(recorded, model)
    whole = Completeness(golden, result.needed, result.compared, partial, notes, fix) if golden else None
    wrong = misshaped(model)
    content = {
        "file": file,
        "executors": list(result.outputs),
        **aimed.as_json(),
        "nodes": [row.as_json() for row in result.rows],
        "outputs": verdicts,
        "unwatched": result.apart,
        **({"upstream": wrong} if wrong else {}),
        "dumped": result.dumped,
        "golden": golden,
        "golden_without_buffer": result.unmatched,
        "same": same and (whole is None or whole.enough),
        **({} if whole is None else whole.as_json()),
        **made.as_json(),
        **accuracy_json(lost),
        **({"memory": {n: m.as_dict() for n, m in held.items()}} if memory else {}),
    }

    def show() -> None:
        print_result(result, golden, made)
        if golden:
            say(aimed.line())
        say_all(whole.lines() if whole is not None else ())
        for name in result.outputs:
            say(steps_text(result, name))
            say_all(host_lines(result, name))
        say_all(verdict_text(verdict, expect) for verdict in verdicts)
        for one in wrong:
            say(f"ExecuTorch differs at this shape: node {one['node']} {one['operator']}: {one['what']}")
        say_all(unwatched_lines(result.apart))
        if not same:
            chosen = ["--target", family.name] if family is not None else []
            words = [file, *(["-i", inputs] if inputs else ["--random", str(seed)]), *chosen]
            said = next_step(result, words, golden)
            say(said, command=True)
            if said.endswith(f" {ANY_DUMP}"):
                say(f"{ANY_DUMP}: {HOW_DUMPED}")
        show_accuracy(lost, exact)
        for number, found in held.items():
            say(f"memory of delegate {number} as a whole: {found}")
        if dump:
            say(f"{counted(len(result.dumped), 'buffer')} written to {dump[1]}")

    right = SAME if same else DIFFERENT
    return Result(content, show, right if whole is None else partial_of(whole.status, same))


def _other_inputs(result: Execution) -> str:
    """Whether buffers may be of other inputs: the first one differs, and `bisect` looks for such inputs."""
    row = next((row for row in result.rows if row.checks), None)
    if row is None or not any(check.different for check in row.checks.values()):
        return ""
    return (
        f"node {row.node} {row.operator} differs: it is wrong, or had other inputs; refsim bisect tells which"
    )


def memory_of(model: Model, result: Execution, threads: int) -> dict[int, Memory]:
    """What the executor cpu holds for a whole run, by delegate. If it was asked to run, of the plans that ran."""
    from refsim.exec.cpu import NativeExecutor

    ran = (runner for runner in result.runners.values() if isinstance(runner, NativeExecutor))
    executor = next(ran, None) or NativeExecutor(threads)
    watched = result.watched
    return {number: executor.session(graph, watched[number]).memory for number, graph in model.graphs.items()}


def steps_text(result: Execution, executor: str) -> str:
    """How many steps an executor took, and what kept it from taking fewer."""
    steps = {(row.delegate, row.steps[executor][0]) for row in result.rows}
    nodes = {(row.delegate, row.node) for row in result.rows}
    text = f"{executor}: {counted(len(nodes), 'operator')} in {counted(len(steps), 'step')}"
    watched = sum(map(len, result.watched.values()))
    if not watched:
        return text
    kept = form(watched, "was kept, and its operator ran", "were kept, and their operators ran")
    return f"{text}; {counted(watched, 'buffer')} {kept} alone"


def host_lines(result: Execution, executor: str) -> Iterator[str]:
    """Which operators the host computed in place of the executor's device, how long that took, and why it did."""
    rows = [row for row in result.rows if executor in row.on_host]
    if not rows:
        return
    nodes = {(row.delegate, row.node): row for row in reversed(rows)}
    took = sum(row.ms[executor] for row in rows)
    ran = form(len(nodes), "operator ran", "operators ran")
    yield f"{executor}: {len(nodes)} {ran} on the host, {took:.3f} ms, and not on the device:"
    for why in dict.fromkeys(row.on_host[executor] for row in rows):
        names = Counter(row.operator for row in reversed(nodes.values()) if row.on_host[executor] == why)
        yield f"  {', '.join(f'{name} x {n}' if n > 1 else name for name, n in names.items())}: {why}"


def sources_lines(result: Execution, executor: str) -> Iterator[str]:
    """How many operators ran on kernels of another build, why others did not, and what such kernels are known for."""
    found = {(row.delegate, row.node): row for row in result.rows if executor in row.sources}
    yours = sum(row.sources[executor].whose == YOURS for row in found.values())
    yield f"{executor}: {yours} of {counted(len(found), 'operator')} ran on your kernels"
    for why in dict.fromkeys(row.sources[executor].why for row in found.values()):
        if why:
            names = dict.fromkeys(row.operator for row in found.values() if row.sources[executor].why == why)
            yield f"{executor}: ours for {', '.join(names)}: {why}"
    for row in found.values():
        source = row.sources[executor]
        if source.whose == YOURS and source.forgiven and row.known:
            yield f"{executor}: node {row.node} {row.operator}: known defect of upstream: {', '.join(row.known)}"


def print_result(result: Execution, golden: str | None, made: Origins | None = None) -> None:
    """The table of operators, and what came of the comparison."""
    executors = list(result.outputs)
    heads = [f"{name} ms" for name in executors]
    foreign = [name for name in executors if result.runners[name].foreign]
    heads += [f"{name} kernels" for name in foreign]
    if golden:
        heads += ["golden"] if len(executors) == 1 else [f"{name} golden" for name in executors]
    rows = []
    for row in result.rows:
        cells: list[object] = [*row.cells(), *(row.time(name) for name in executors)]
        cells += [row.sources.get(name, "-") for name in foreign]
        if golden:
            cells += [row.checks.get(name, "-") for name in executors]
        rows.append([*cells, *made.cell(row.delegate, row.node)] if made else cells)
    more = (f"{name} kernels" for name in foreign)  # the lines below the table sum them up
    print_table((*COLUMNS, *heads, *([COLUMN] if made else [])), rows, (*DROP, *more))
    if made:
        made.say_summary()
    for name in foreign:
        say_all(sources_lines(result, name))
    if golden:
        say(golden_text(result, golden))


def golden_text(result: Execution, golden: str) -> str:
    """One sentence about all buffers."""
    checks = [check for row in result.rows for check in row.checks.values()]
    compared, different = sum(c.compared for c in checks), sum(c.different for c in checks)
    count = sum(bool(row.checks) for row in result.rows)
    on = "" if len(result.outputs) == 1 else f" on each of {', '.join(result.outputs)}"
    compared //= len(result.outputs)
    what = f"{counted(count, 'buffer')}, {counted(compared, 'byte')} compared{on} with {golden}"
    text = f"{what}: {counted(different, 'byte', 'differ')}"
    if not compared:
        text = f"nothing was compared{on} with {golden}"
    if result.unmatched:
        text += f"; not in this run: {named(result.unmatched)}"
    return text


def output_verdicts(result: Execution, wanted: Sequence[np.ndarray] | None) -> list[dict[str, Any]]:
    """Of every output: name, shape, dtype, and whether its bits are as expected and equal on all executors."""
    runs = list(result.outputs.values())
    verdicts: list[dict[str, Any]] = []
    for number, array in enumerate(runs[0]):
        others = [run[number] for run in runs[1:]] + ([wanted[number]] if wanted is not None else [])
        same = all(array.tobytes() == other.tobytes() for other in others) if others else None
        verdicts.append(
            {"output": f"out{number}", "shape": list(array.shape), "dtype": str(array.dtype), "same": same}
        )
    return verdicts


#: The dump that a next step asks for, and what makes one.
ANY_DUMP = "DIR"
HOW_DUMPED = "refsim run --dump writes one; of a run on a device, refsim expose and then refsim collect"


def next_step(result: Execution, words: Sequence[str], golden: str | None) -> str:
    """The command that says which operator gave other bytes; ``words``: the file, its inputs and its target."""
    (name, first), *others = result.outputs.items()
    parts = (
        n for n, run in others if any(a.tobytes() != b.tobytes() for a, b in zip(first, run, strict=True))
    )
    if (other := next(parts, None)) is not None:
        return f"which operator: {_command('compare', *words, '-x', name, '-x', other)}"
    if result.different and golden is not None:
        return f"which operator: {_command('bisect', *words, '--actual', golden)}"
    if (device := next((n for n in result.outputs if not n.startswith(CPU)), None)) is not None:
        return f"which operator: {_command('bisect', *words, '-x', device)}"
    command = _command("bisect", *words, "--actual", ANY_DUMP)
    return f"which operator, if {ANY_DUMP} is a dump of the other run: {command}"


def _command(*words: str) -> str:
    return shlex.join([PROGRAM, *words])


def verdict_text(verdict: dict[str, Any], expect: str | None) -> str:
    text = f"{verdict['output']} {verdict['dtype']} {shape_text(verdict['shape'])}"
    if verdict["same"] is None:
        return text
    against = f"as in {expect}" if expect else "on all executors"
    return f"{text}: {'the same bits' if verdict['same'] else 'DIFFERENT bits, not'} {against}"


def _expected(outputs: Sequence[np.ndarray], path: str) -> list[np.ndarray]:
    if not outputs:
        raise GraphError(path, "the model has no outputs to compare")
    return npz.read_arrays(path, EXPECTED_NAMES, [(a.shape, a.dtype) for a in outputs])
