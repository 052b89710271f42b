"""A module that computes what it did, and says more of itself: who wrote what, in which order, from which memory.

Three changes are made together. Stores are recorded (`refsim.spirv.writers`). The numbers of workgroups and
invocations can be permuted (`refsim.spirv.order`). And memory that a kernel must fill itself before it reads it, shared
memory and its own variables, is filled with a word of the caller's choice. What the caller chooses lies in a buffer
more, so that one pipeline serves all choices.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from refsim.spirv.emit import Emitter, behind_variables, word_buffer
from refsim.spirv.instruction import Instruction
from refsim.spirv.module import Module
from refsim.spirv.opcodes import Decoration, Op, StorageClass
from refsim.spirv.order import Order, by_subgroup
from refsim.spirv.reflect import Binding, entry_point
from refsim.spirv.types import Types
from refsim.spirv.writers import Writers

Triple = tuple[int, int, int]
#: Variables of more words are left as they are.
MOST_WORDS = 4096
WORKGROUP_SCOPE, SHARED_MEMORY = 2, 0x108  # acquire and release, workgroup memory


class RunChoice(NamedTuple):
    """What one run does otherwise: the order of its work, and the word in memory that nobody has filled.

    The workgroups are taken from last to first if ``reverse``, and begin ``rotate`` later; so do the invocations of a
    workgroup. ``shared`` and ``variables`` are the words in the two kinds of memory.
    """

    reverse: bool = False
    rotate: int = 0
    reverse_local: bool = False
    rotate_local: int = 0
    shared: int = 0
    variables: int = 0

    def words(self, local: Triple, grid: Triple) -> list[int]:
        """The words of the buffer of parameters."""
        order = (self.reverse, self.rotate, self.reverse_local, self.rotate_local)
        return [*map(int, order), *local, *grid, self.shared, self.variables]


PARAMETERS = len(RunChoice().words((1, 1, 1), (1, 1, 1)))
SHARED_WORD, VARIABLE_WORD = PARAMETERS - 2, PARAMETERS - 1


class Instrumented(NamedTuple):
    """The module, the binding of its parameters, and of each binding that it stores to, the binding of its record.

    ``shared`` and ``variables``: whether there is such memory that is filled. ``subgroups``: whether it asks for places
    in subgroups, so that the order of invocations must stay. ``uncounted``: why stores are not recorded.
    """

    code: bytes
    parameters: int
    records: dict[int, int]
    shared: bool
    variables: bool
    subgroups: bool
    uncounted: tuple[str, ...]


def instrumented(module: Module, bindings: Sequence[Binding], first: int) -> Instrumented:
    """``module``, which has storage buffers only, instrumented; it is not changed itself.

    ``first`` is the first binding that nothing uses. UnsupportedError where a built-in number is used in a way that
    cannot be changed.
    """
    work = module.copy()
    types = Types(work)
    shared = [row for row in _variables(work, StorageClass.WORKGROUP) if _fillable(work, types, row)]
    private = [row for row in _variables(work, StorageClass.PRIVATE) if _fillable(work, types, row)]
    variables = {
        row.result: number
        for row in work.globals
        if row.op == Op.VARIABLE and (number := _binding(bindings, types, row.result)) is not None
    }
    order = Order(work, types)
    writers = Writers(work, types, variables, first + 1)
    writers.run()
    parameters = word_buffer(work, first, False)
    own = sum(_fill_variables(work, types, body, parameters) for body in work.functions)
    main = next(body for body in work.functions if body[0].result == entry_point(work).args[1])
    code = Emitter(work)
    given = [code.load(code.word, code.element(parameters, code.number(n))) for n in range(PARAMETERS)]
    code.do(Op.STORE, writers.invocation, order.prologue(code, given[:SHARED_WORD]))
    for row, word in [*((row, given[SHARED_WORD]) for row in shared), *((row, given[-1]) for row in private)]:
        kind = types.pointee(row.type)
        code.do(Op.STORE, row.result, code.filled(types, kind, word, MOST_WORDS))
    if shared:
        scope = code.number(WORKGROUP_SCOPE)
        code.do(Op.CONTROL_BARRIER, scope, scope, code.number(SHARED_MEMORY))
    place = behind_variables(main)
    main[place:place] = code.rows
    return Instrumented(
        work.to_bytes(),
        first,
        writers.bindings,
        bool(shared),
        bool(own or private),
        by_subgroup(types),
        tuple(sorted(writers.uncounted)),
    )


def _binding(bindings: Sequence[Binding], types: Types, variable: int) -> int | None:
    number = types.decoration(variable, Decoration.BINDING)
    return number if any(row.number == number for row in bindings) else None


def _variables(work: Module, storage: int) -> list[Instruction]:
    """Global variables of a storage class that nobody fills."""
    return [
        row for row in work.globals if row.op == Op.VARIABLE and row.args[2] == storage and len(row.args) == 3
    ]


def _fillable(work: Module, types: Types, row: Instruction) -> bool:
    return bool(Emitter(work).filled(types, types.pointee(row.type), 1, MOST_WORDS))


def _fill_variables(work: Module, types: Types, body: list[Instruction], parameters: int) -> int:
    """Fill a function's own variables, and what it takes of undefined values; how many these are."""
    code = Emitter(work)
    pointer = code.element(parameters, code.number(VARIABLE_WORD))
    word = code.load(code.word, pointer)
    empty = len(code.rows)
    undefined = {row.result: row.type for row in (*work.globals, *body) if row.op == Op.UNDEF}
    used = {row.args[at] for row in body if row.op != Op.UNDEF for at in _ids(row, undefined)}
    ids, own = {}, set()
    for number in sorted(used):
        made = code.filled(types, undefined[number], word, MOST_WORDS)
        if made:
            ids[number] = made
            own.add(number)
    for row in body:
        if row.op == Op.VARIABLE and len(row.args) == 3:
            value = code.filled(types, types.pointee(row.type), word, MOST_WORDS)
            if value:
                code.do(Op.STORE, row.result, value)
    if len(code.rows) == empty and not ids:
        return 0
    kept = [
        row.renamed(ids) if not ids.keys().isdisjoint(row.args) else row
        for row in body
        if row.op != Op.UNDEF or row.result not in own
    ]
    place = behind_variables(kept)
    body[:] = [*kept[:place], *code.rows, *kept[place:]]
    return 1


def _ids(row: Instruction, wanted: dict[int, int]) -> list[int]:
    """Where an instruction has one of the ids."""
    if wanted.keys().isdisjoint(row.args):
        return []
    return [at for at in row.id_places() if row.args[at] in wanted]
