"""Keeps a module from harm that an edit may do: loops without an end, and indices far outside of what they go into.

Drivers wait for ever, lose the device, or crash over these, and all other edits of the module with it.
"""

from __future__ import annotations

from refsim.modules.repair.code import CHAINS, MERGES
from refsim.spirv.instruction import Instruction
from refsim.spirv.module import Module
from refsim.spirv.opcodes import Op, StorageClass
from refsim.spirv.types import Types

_BEYOND = 174  # OpUGreaterThanEqual


def bound(module: Module, turns: int) -> None:
    """The loops of an invocation turn ``turns`` times in all, and indices stay inside, or one behind a buffer's end."""
    _end_loops(module, turns)
    _keep_inside(module)


def _end_loops(module: Module, turns: int) -> None:
    """Turns are counted where a condition leads out of a loop."""
    word, truth = module.type(Op.TYPE_INT, 32, 0), module.type(Op.TYPE_BOOL)
    one, most = module.constant(word, 1), module.constant(word, turns)
    counter = module.add_variable(StorageClass.PRIVATE, word, module.constant(word, 0))
    for body in module.functions:
        ends = {row.args[0] for row in body if row.op == Op.LOOP_MERGE}
        made: list[Instruction] = []
        for row in body:
            if row.op == Op.BRANCH_CONDITIONAL and ends & set(row.args[1:3]):
                done, more, over, ended = (module.new_id() for _ in range(4))
                out = row.args[1] in ends
                at = len(made) - (made[-1].op in MERGES)
                made[at:at] = [
                    Instruction(Op.LOAD, (word, done, counter)),
                    Instruction(Op.IADD, (word, more, done, one)),
                    Instruction(Op.STORE, (counter, more)),
                    Instruction(_BEYOND if out else Op.ULESS_THAN, (truth, over, done, most)),
                    Instruction(Op.LOGICAL_OR if out else Op.LOGICAL_AND, (truth, ended, row.args[0], over)),
                ]
                row = row.with_args(ended, *row.args[1:])
            made.append(row)
        body[:] = made


def _keep_inside(module: Module) -> None:
    types = Types(module)
    for body in module.functions:
        kinds = {row.result: row.type for row in body if row.result}
        made: list[Instruction] = []
        for row in body:
            if row.op in CHAINS:
                row = _chain(module, types, kinds, row, made)
            made.append(row)
        body[:] = made


def _chain(
    module: Module,
    types: Types,
    kinds: dict[int, int],
    row: Instruction,
    made: list[Instruction],
) -> Instruction:
    """An access chain whose computed indices stay inside of arrays and vectors; ``made`` gets what that takes.

    ``kinds``: the types of the values that the function makes.
    """
    word, truth = module.type(Op.TYPE_INT, 32, 0), module.type(Op.TYPE_BOOL)
    args, base = list(row.args), row.args[2]
    inside = types.pointee(kinds[base] if base in kinds else types.row(base).type)
    for at in range(3, len(args)):
        index, holder = args[at], types.row(inside)
        if holder.op == Op.TYPE_STRUCT:
            inside = holder.args[1 + types.row(index).args[2]]
            continue
        inside = holder.args[1]
        kind = kinds.get(index, 0)  # 0: a constant
        if not kind or types.row(kind).args[1:2] != (32,):
            continue
        instead = module.constant(kind, 0)
        if holder.op == Op.TYPE_ARRAY:
            length = holder.args[2]
        elif holder.op == Op.TYPE_VECTOR:
            length = module.constant(word, holder.args[2])
        elif holder.op == Op.TYPE_RUNTIME_ARRAY and at == 4:  # the last member of a block
            length = instead = module.new_id()
            member = types.row(args[3]).args[2]
            made.append(Instruction(Op.ARRAY_LENGTH, (word, length, base, member)))
            if kind != word:
                instead = module.new_id()
                made.append(Instruction(Op.BITCAST, (kind, instead, length)))
        else:
            continue
        within, args[at] = module.new_id(), module.new_id()
        made.append(Instruction(Op.ULESS_THAN, (truth, within, index, length)))
        made.append(Instruction(Op.SELECT, (kind, args[at], within, index, instead)))
    return row.with_args(*args)
