"""What a `Plan` must satisfy beyond its schema: every id, index and jump leads somewhere."""

from __future__ import annotations

from typing import Any

from refsim.core.errors import FormatError
from refsim.formats.limits import Limits, check_code, check_ids, check_size
from refsim.formats.literals import Int, Null
from refsim.formats.pte.schema import (
    DELEGATE_INLINE,
    DELEGATE_SEGMENT,
    EXTERNAL,
    IN_SEGMENT,
    SCALAR_TYPES,
    SHAPE_DYNAMISM,
    Chain,
    DelegateCall,
    FreeCall,
    Instruction,
    IntIdList,
    JumpFalseCall,
    KernelCall,
    MoveCall,
    OptionalTensorList,
    Plan,
    Program,
    Tensor,
    TensorList,
)

#: List class -> (lowest id, classes that its items may be).
_LISTS: dict[type, tuple[int, tuple[type, ...]]] = {
    IntIdList: (0, (Int,)),
    TensorList: (0, (Tensor,)),
    OptionalTensorList: (-1, (Tensor, Null)),
}


def check_plan(plan: Plan, program: Program, where: str, limits: Limits) -> None:
    """Raise FormatError or LimitError unless ``plan`` is consistent. The data of tensors is not checked here."""
    count = len(plan.values)
    check_ids(f"{where}.inputs", plan.inputs, count)
    check_ids(f"{where}.outputs", plan.outputs, count)
    total = 0
    for number, value in enumerate(plan.values):
        place = f"{where}.values[{number}]"
        if isinstance(value, Tensor):
            total += _check_tensor(place, value, limits)
        elif type(value) in _LISTS:
            _check_list(place, value, plan)
    limits.check(f"{where}.values", "total_bytes", total)
    pools = {DELEGATE_INLINE: program.inline_delegates, DELEGATE_SEGMENT: program.segments}
    for number, delegate in enumerate(plan.delegates):
        if delegate.processed is not None:
            place = f"{where}.delegates[{number}].processed"
            check_code(f"{place}.location", delegate.processed.location, pools)
            check_ids(f"{place}.index", (delegate.processed.index,), len(pools[delegate.processed.location]))
    for number, chain in enumerate(plan.chains):
        place = f"{where}.chains[{number}]"
        check_ids(f"{place}.inputs", chain.inputs, count)
        check_ids(f"{place}.outputs", chain.outputs, count)
        for step, call in enumerate(chain.instructions):
            _check_call(f"{place}.instructions[{step}]", call, plan, chain)


def _check_tensor(place: str, tensor: Tensor, limits: Limits) -> int:
    check_code(f"{place}.scalar_type", tensor.scalar_type, SCALAR_TYPES)
    check_code(f"{place}.shape_dynamism", tensor.shape_dynamism, SHAPE_DYNAMISM)
    if tensor.extra is not None:
        check_code(f"{place}.extra.location", tensor.extra.location, (IN_SEGMENT, EXTERNAL))
    nbytes = check_size(place, tensor.sizes, SCALAR_TYPES[tensor.scalar_type][1], limits)
    rank = len(tensor.sizes)
    if len(tensor.dim_order) != rank or sorted(tensor.dim_order) != list(range(rank)):
        got = list(tensor.dim_order[: rank + 1])
        raise FormatError(
            f"{place}.dim_order", "not an order of the dims", got=got, need=f"0 to {rank - 1}, each once"
        )
    if tensor.storage_offset != 0:
        raise FormatError(f"{place}.storage_offset", "not supported", got=tensor.storage_offset, need=0)
    return nbytes


def _check_list(place: str, value: Any, plan: Plan) -> None:
    lowest, kinds = _LISTS[type(value)]
    check_ids(f"{place}.items", value.items, len(plan.values), lowest)
    for position, number in enumerate(value.items):
        if number >= 0 and not isinstance(plan.values[number], kinds):
            names = " or ".join(kind.__name__ for kind in kinds)
            got = type(plan.values[number]).__name__
            raise FormatError(f"{place}.items[{position}]", "wrong kind of value", got=got, need=names)


def _check_call(place: str, call: Instruction, plan: Plan, chain: Chain) -> None:
    values, operators, delegates = len(plan.values), len(plan.operators), len(plan.delegates)
    match call:
        case KernelCall(op_index, args):
            check_ids(f"{place}.op_index", (op_index,), operators)
            check_ids(f"{place}.args", args, values)
        case DelegateCall(delegate_index, args):
            check_ids(f"{place}.delegate_index", (delegate_index,), delegates)
            check_ids(f"{place}.args", args, values)
        case MoveCall(move_from, move_to):
            check_ids(place, (move_from, move_to), values)
        case JumpFalseCall(condition, destination):
            check_ids(f"{place}.condition", (condition,), values)
            # one past the last instruction ends the chain
            check_ids(f"{place}.destination", (destination,), len(chain.instructions) + 1)
        case FreeCall(value_index):
            check_ids(f"{place}.value_index", (value_index,), values)
