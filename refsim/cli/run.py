"""Execute a file, time every operator, and compare every buffer with recorded bytes."""

from __future__ import annotations

from collections.abc import Sequence

import click
import numpy as np

from refsim.cli._accuracy import float_option, measured, write_losses
from refsim.cli.kit.devtools import node_data_option, origin_option, read_origins
from refsim.cli.kit.options import (
    executor_profile_option,
    executors_option,
    html_option,
    inputs_options,
    output_option,
    partial_option,
    runtime_option,
    threads_option,
)
from refsim.cli.kit.target import GivenInputs, target_option
from refsim.cli.kit.text import wrote
from refsim.cli.kit.verb import drawing, verb
from refsim.cli.kit.written import PatternWord, Written
from refsim.core.counted import form
from refsim.core.doing import progress
from refsim.core.errors import GraphError
from refsim.core.qmath import Profile
from refsim.device.complete import Completeness, check_run, fix_of, meant, named
from refsim.device.exchanged import GOT
from refsim.device.execution import Execution, execute, misshaped
from refsim.device.opened import opened
from refsim.device.ran_file import RanFile, outputs_of
from refsim.device.sequenced import RanSequence, run_sequence
from refsim.exec.factory import executor_named
from refsim.exec.model import Model
from refsim.exec.plan_rows import PlanMemory
from refsim.formats import npz
from refsim.formats.dumps import Recorded
from refsim.formats.run_identity import identity
from refsim.formats.targets import TargetRow
from refsim.golden.named import recorded as dump_at
from refsim.golden.named import same_run

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
@html_option
@node_data_option
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
    html: str | None,
    node_data: str | None,
) -> RanFile | RanSequence:
    """Execute FILE, a .pte or a delegate blob, and print one row per operator."""
    if several:
        if not runs:
            raise click.UsageError(
                "--sequence takes the inputs of each run: run FILE --sequence A.npz B.npz ..."
            )
        if inputs or seed is not None or output or dump or golden or expect or html or node_data:
            raise click.UsageError("--sequence compares runs with each other, and writes nothing")
        aimed = opened(file, family, profile, None, release=release)
        many = [GivenInputs(path, None).of(aimed.model) for path in runs]
        return run_sequence(file, aimed, runs, many, executors)
    if runs:
        words = form(len(runs), "argument", "arguments")
        raise click.UsageError(
            f"Got unexpected extra {words} ({' '.join(runs)}); need refsim run [OPTIONS] FILE"
        )
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
        notes = check_run(recorded, aimed, given, partial, drawing) + aimed.misfits(recorded.path)
    names = executors.split(",")
    lost = measured(model, given, exact, executor_named(names[0]))
    write_losses(lost, file, html, node_data)
    with progress("operators", sum(1 for _ in model.nodes()) * len(names) * repeat) as advance:
        result = execute(
            model, given, names, recorded=recorded, dump_regex=dump[0] if dump else None,
            dump_folder=dump[1] if dump else None, repeat=repeat, threads=threads, seed=seed, advance=advance,
        )  # fmt: skip
    found = next(iter(result.results.values()))
    outputs = outputs_of(result, _expected(found, expect) if expect else None)
    if output:
        npz.write_npz(output, {f"out{i}": array for i, array in enumerate(found)})
        wrote(output)
    if dump:
        wrote(dump[1], said=True)
    same = not result.different and all(one.same is not False for one in outputs)
    if recorded is not None:
        notes += _notes(result, recorded, model)
    where = golden or file
    needed = result.needed if golden else []
    whole = Completeness(where, needed, result.compared, partial, notes, fix_of(recorded, model))
    return RanFile(
        file=file, aimed=aimed, whole=whole, differs=not same or any(result.unwatched.values()),
        result=result, outputs=outputs, upstream=misshaped(model), golden=golden,
        memory=_memory(model, result, threads) if memory else None, accuracy=lost, made=made,
        words=[file, *asked.words, *(["--target", family.name] if family is not None else [])], expect=expect,
        folder=dump[1] if dump else None,
    )  # fmt: skip


def _notes(result: Execution, recorded: Recorded, model: Model) -> list[str]:
    """What people should know about the recorded buffers, now that the file has run."""
    notes = []
    row = next((row for row in result.nodes if row.golden), None)
    differs = row is not None and any(check.different for check in row.golden.values())
    if row is not None and differs and "inputs" in recorded.unsaid():
        why = "it is wrong, or had other inputs; refsim bisect tells which"
        notes.append(f"node {row.node} {row.operator} differs: {why}")
    if result.exchanged is not None:
        notes.append(f"two buffers are exchanged in {recorded.path}: {GOT.format(*result.exchanged)}")
    if near := meant(result.golden_without_buffer, model, recorded.entries):
        are = form(len(result.golden_without_buffer), "is", "are")
        notes.append(f"{named(result.golden_without_buffer)} {are} not compared{near}")
    return notes


def _memory(model: Model, result: Execution, threads: int) -> dict[int, PlanMemory]:
    """What the executor cpu holds for a whole run, by delegate. If it was asked to run, of the plans that ran."""
    from refsim.exec.cpu import NativeExecutor

    ran = (runner for runner in result.runners.values() if isinstance(runner, NativeExecutor))
    executor = next(ran, None) or NativeExecutor(threads)
    watched = result.watched
    return {number: executor.session(graph, watched[number]).memory for number, graph in model.graphs.items()}


def _expected(outputs: Sequence[np.ndarray], path: str) -> list[np.ndarray]:
    if not outputs:
        raise GraphError(path, "the model has no outputs to compare")
    return npz.read_arrays(path, EXPECTED_NAMES, [(a.shape, a.dtype) for a in outputs])
