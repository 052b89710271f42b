"""Search for the change that makes a wrong module right, and say what the module does not use of what it is given."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from refsim.core.doing import progress
from refsim.modules import executors
from refsim.modules.build import Build, Repairing
from refsim.modules.repair.code import CHAINS
from refsim.modules.repair.found import RepairSearch
from refsim.modules.repair.search import QUICK, Search, copied
from refsim.modules.trial import Tried
from refsim.modules.verification import FolderOutcome
from refsim.ops.base.module_call import ModuleDispatch
from refsim.spirv.instruction import Instruction
from refsim.spirv.module import Module
from refsim.spirv.opcodes import Op, StorageClass
from refsim.spirv.reflect import interface

#: So many of the named causes say which kinds of edits are tried first.
MOST_CAUSES = 2


def repaired(
    build: Build, outcome: FolderOutcome, interrupted: Callable[[], bool] = lambda: False
) -> list[RepairSearch] | None:
    """Search for a repair of each operator that is wrong in some case; the first repair of all is kept.

    None where none is to be searched for.
    """
    wanted = build.request.repair
    if wanted is None or build.flat:
        return None
    ran = [one for one in outcome.failed if one.actual is not None] if wanted.always else []
    asked = [row.tried for row in outcome.wrong if wanted.always or row.tried.packer or not row.kernel.told]
    wrong = {one.candidate.op: one for one in (*ran, *asked)}
    if not wrong and not wanted.always:
        return None
    causes = {
        row.tried.candidate.op: [cause.name for cause in row.report.causes if not cause.weak]
        for row in outcome.wrong
    }
    found = [
        _searched(build, tried, wanted, interrupted, causes.get(op, [])[:MOST_CAUSES])
        for op, tried in wrong.items()
    ]
    first = next((one for each in found for one in each.repairs), None)
    wanted.keep(None if first is None else first.spirv)
    return found


def _searched(
    build: Build, wrong: Tried, wanted: Repairing, interrupted: Callable[[], bool], causes: Sequence[str]
) -> RepairSearch:
    trial, case, modules, steps = build.verification.trial, wrong.candidate, build.modules, build.steps
    if wrong.packer:  # alone: one for another kind of memory may be wrong as well
        steps = build.packings
        packers = {step.shader for step in steps(case.bound.call)} - {wrong.packer}
        modules = {name: module for name, module in modules.items() if name not in packers}
    unread = {
        step.shader: list(unused(modules[step.shader], step))
        for step in steps(case.bound.call)
        if step.shader in modules
    }
    with copied(build.path, modules) as folder, progress("edits") as advance:
        features = build.features
        executor = executors.of(folder, build.device.index, features.variant, features.float_images, QUICK)
        try:
            search = Search(
                replace(trial, executor=executor), folder, modules, steps,
                [one for one in build.verification.every(case.op) if build.takes(one.bound.call)],
                wanted.seconds, advance, interrupted, causes, wanted.most,
            )  # fmt: skip
            return replace(search.run(case), unread=unread)
        finally:
            executor.close()


def unused(module: Module, step: ModuleDispatch) -> Iterator[str]:
    """The bindings, push words and specialization constants that a host gives to a module, and that it never uses."""
    declared = interface(module)
    used = {word for body in module.functions for row in body for word in row.args}
    there = {row.number for row in declared.bindings if row.variable in used}
    for number, bind in enumerate(step.binds):
        if number not in there:
            yield f"never uses binding {number} ({bind.what})"
    read = _push_words(module)
    for word in range(len(step.push) // 4):
        if word not in read:
            yield f"never reads push word {word} (bytes {4 * word} to {4 * word + 3})"
    for number in step.spec_words:
        if number >= step.first_spec and number not in declared.spec_ids:
            yield f"has no specialization constant {number}"


def _push_words(module: Module) -> set[int]:
    """The push words that the functions of a module read; all of a member that they read at once."""
    rows = module.definitions()
    blocks = {
        row.result: row.type
        for row in module.globals
        if row.op == Op.VARIABLE and row.args[2] == StorageClass.PUSH_CONSTANT
    }
    members = interface(module).push
    found: set[int] = set()
    for body in module.functions:
        for row in body:
            for variable in blocks.keys() & set(row.args):
                found |= _words_of(rows, row, variable, members)
    return found


def _words_of(
    rows: dict[int, Instruction], row: Instruction, variable: int, members: Sequence[Any]
) -> set[int]:
    chosen = members
    if row.op in CHAINS and row.args[2] == variable and len(row.args) > 3:
        index = rows.get(row.args[3])
        if index is not None and index.op == Op.CONSTANT:
            chosen = members[index.args[2] : index.args[2] + 1]
    return {word for one in chosen for word in range(one.offset // 4, (one.offset + one.nbytes + 3) // 4)}
