"""What the host of a call gives to a module, word by word: push words, uniform blocks, specialization constants."""

from __future__ import annotations

import numpy as np

from refsim.core.errors import RefsimError
from refsim.modules.repair.code import Code, Leaf
from refsim.ops.base.module_call import ModuleDispatch
from refsim.spirv.opcodes import Decoration, Op, StorageClass

#: OpConstantTrue, OpConstantFalse.
_TRUTHS = {41: 1, 42: 0}
#: Words of the largest value that an edit puts in the place of another.
MOST_WORDS = 4


class Given:
    """The words of one dispatch."""

    def __init__(self, code: Code, step: ModuleDispatch) -> None:
        self.code = code
        self._spec = step.spec_words
        self._push = np.frombuffer(step.push, np.uint32)
        self._blocks = {at: bind.words for at, bind in enumerate(step.binds) if bind.storage == "uniform"}

    def words(self, known: Leaf | int) -> tuple[int, ...] | None:
        """The words of a value, uint32, as many as the largest has; None for one that the host does not know."""
        found = self._loaded(known) if isinstance(known, Leaf) else self._constant(known)
        return found and (*found, *[0] * (MOST_WORDS - len(found)))

    def _constant(self, number: int) -> tuple[int, ...] | None:
        row = self.code.rows[number] if number else None
        if row is None:
            return None
        if row.op in _TRUTHS:
            return (_TRUTHS[row.op],)
        if row.op == Op.CONSTANT_COMPOSITE:
            parts = [self._constant(one) for one in row.args[2:]]
            return tuple(word for one in parts if one for word in one) if all(parts) else None
        if row.op == Op.SPEC_CONSTANT:
            own = self.code.types.decoration(number, Decoration.SPEC_ID)
            return (self._spec.get(-1 if own is None else own, row.args[2]) & 0xFFFFFFFF,)
        return (row.args[2],) if row.op == Op.CONSTANT else None

    def _loaded(self, leaf: Leaf) -> tuple[int, ...] | None:
        types, variable = self.code.types, self.code.rows[leaf.variable]
        words: np.ndarray | None = self._push
        if variable.args[2] == StorageClass.UNIFORM:
            binding = types.decoration(leaf.variable, Decoration.BINDING)
            words = self._blocks.get(-1 if binding is None else binding)
        elif variable.args[2] != StorageClass.PUSH_CONSTANT:
            return None
        try:
            first = self._offset(types.pointee(variable.type), leaf.path) // 4
        except RefsimError:
            return None
        found = [] if words is None else words.reshape(-1)[first : first + self.code.size(leaf.type)].tolist()
        return tuple(found) if len(found) == self.code.size(leaf.type) else None

    def _offset(self, inside: int, path: tuple[int, ...]) -> int:
        """The bytes in front of what a path leads to."""
        types, offset = self.code.types, 0
        for at in path:
            row = types.row(inside)
            if row.op == Op.TYPE_STRUCT:
                offset += types.members(inside)[at].offset
                inside = row.args[1 + at]
                continue
            offset += at * (types.stride(inside) if row.op == Op.TYPE_ARRAY else types.nbytes(row.args[1]))
            inside = row.args[1]
        return offset
