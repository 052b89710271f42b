"""Our sets of representations against ExecuTorch's, operation by operation, on every and on random operands."""

from __future__ import annotations

import random
from itertools import combinations

import executorch.backends.vulkan.utils as theirs
import pytest
import torch
from executorch.backends.vulkan.serialization.vulkan_graph_schema import VkMemoryLayout, VkStorageType
from torch._subclasses.fake_tensor import FakeTensorMode

from refsim.core.layout import FLOAT_LAYOUTS, LAYOUTS, PACKED_4C, Layout
from refsim.partition.repset import sets as ours
from refsim.partition.repset.op import OpRepSets

#: 4C is only ever a resolved layout: upstream has the name, and no packed dim for it.
SHARED = [row for row in LAYOUTS.values() if row is not PACKED_4C]
INT8 = ours.PACKED_INT8_BUFFER.layouts(ours.Storage.BUFFER)
CONSTANTS = [name for name, value in vars(ours).items() if isinstance(value, ours.TensorRepSet)]
SHAPE = (1, 8, 6, 10)


def their_layout(row: Layout) -> VkMemoryLayout:
    return VkMemoryLayout[row.name]


def their_set(item: ours.TensorRepSet) -> theirs.TensorRepSet:
    # theirs grow as they do there: one layout after the other, into an empty set
    sides = (ours.Storage.BUFFER, ours.Storage.TEXTURE_3D)
    return theirs.TensorRepSet(*({their_layout(row) for row in item.layouts(side)} for side in sides))


def same(item: ours.TensorRepSet, other: theirs.TensorRepSet) -> bool:
    converted = their_set(item)
    return converted == other


def same_repr(one: ours.TensorRepr, other: theirs.TensorRepr) -> bool:
    row = VkMemoryLayout.DEFAULT_LAYOUT if one.memory_layout is None else their_layout(one.memory_layout)
    return (int(one.storage_type), row) == (int(other.storage_type), other.memory_layout)


def test_every_constant() -> None:
    assert len(CONSTANTS) == 19
    for name in CONSTANTS:
        assert same(getattr(ours, name), getattr(theirs, name)), name
    assert theirs.DEFAULT_TEXTURE_LIMITS == ours.DEFAULT_TEXTURE_LIMITS


def test_packed_dim_infos() -> None:
    for row in SHARED:
        for storage in (ours.Storage.BUFFER, ours.Storage.TEXTURE_3D)[: 1 if row.packed_int8 else 2]:
            other = theirs.PackedDimInfo.from_repr(their_layout(row), VkStorageType[storage.name])
            packed = (storage, other.packed_dim, other.packed_dim_block_size)
            assert ours.TensorRepr(storage, row).packed == packed


@pytest.mark.parametrize("rows", [INT8, FLOAT_LAYOUTS], ids=["int8", "float"])
def test_the_choice_on_every_subset_of_one_kind(rows: list[Layout]) -> None:
    for size in range(len(rows) + 1):
        for subset in combinations(rows, size):
            for sides in ((subset, ()), ((), subset), (subset, subset)):
                item = ours.repset(*sides)
                assert same_repr(item.choice(), their_set(item).make_tensor_repr()), item


def test_the_choice_on_mixed_subsets_differs_only_where_theirs_depends_on_insertion() -> None:
    """W and 4C1W, and H and CONV2D, share a slot of a small Python set: whoever came first is first there."""
    for size in range(1, len(SHARED) + 1):
        for subset in combinations(SHARED, size):
            item = ours.repset(subset)
            found = set()
            for order in (subset, subset[::-1]):
                grown: set[VkMemoryLayout] = set()
                for row in order:
                    grown.add(their_layout(row))
                found.add(theirs.TensorRepSet(grown, set()).make_tensor_repr().memory_layout)
            chosen = item.choice().memory_layout
            assert chosen is not None
            mine = their_layout(chosen)
            assert mine in found, (item, found)
            assert len(found) == 1 or size <= 4


def random_set(draw: random.Random) -> ours.TensorRepSet:
    if draw.random() < 0.4:
        return getattr(ours, draw.choice(CONSTANTS))
    return ours.repset(
        draw.sample(SHARED, draw.randint(0, 3)), draw.sample(FLOAT_LAYOUTS, draw.randint(0, 3))
    )


def test_set_operations() -> None:
    draw = random.Random(1)
    for _ in range(4000):
        a, b = random_set(draw), random_set(draw)
        ta, tb = their_set(a), their_set(b)
        assert same(a & b, ta.make_intersect(tb)) and same(
            a.like(b), ta.constrain_to_compatible_packed_dim(tb)
        )
        assert (b.packed <= a.packed) == ta.has_compatible_packed_dim_info_set(tb), (a, b)
        assert (bool(a & b), not a) == (ta.any_in_common(tb), ta.is_empty())
        assert (len(a) <= 1) == ta.is_constrained(), a


# --- operators ---


def make_node(draw: random.Random, mode: FakeTensorMode) -> torch.fx.Node:
    graph = torch.fx.Graph()
    shapes = [SHAPE, (7, 5), (3, 2, 4, 4, 4), (1, 16390, 4), (1, 1, 16390, 8)]
    outs = draw.choice([1, 1, 1, 2, 3])
    args: list[object] = []
    for number in range(draw.randint(1, 4)):
        kind = draw.random()
        if kind < 0.65:
            node = graph.placeholder(f"x{number}")
            node.meta["val"] = mode.from_tensor(torch.empty(draw.choice(shapes)))
            args.append(node)
        elif kind < 0.8:
            entries = [graph.placeholder(f"x{number}_{i}") for i in range(2)]
            for entry in entries:
                entry.meta["val"] = mode.from_tensor(torch.empty(draw.choice(shapes)))
            args.append(entries)
        else:
            args.append(3)
    node = graph.call_function(torch.ops.aten.add.Tensor, tuple(args))
    node.args = tuple(list(arg) if isinstance(arg, (list, tuple)) else arg for arg in node.args)
    values = [mode.from_tensor(torch.empty(draw.choice(shapes[:3]))) for _ in range(outs)]
    node.meta["val"] = values[0] if outs == 1 else tuple(values)
    return node


def test_operators() -> None:
    """Build the sets of random operators, constrain them at random, and compare after every step."""
    draw = random.Random(2)
    mode = FakeTensorMode()
    built = refused = steps = 0
    for _ in range(3000):
        node = make_node(draw, mode)
        outs = len(node.meta["val"]) if isinstance(node.meta["val"], tuple) else 1
        ins = [random_set(draw) for _ in range(draw.choice([1, len(node.args)]))]
        results = [random_set(draw) for _ in range(draw.choice([1, outs]))]
        if draw.random() < 0.6:
            results[0] = ins[0]
        try:
            other = theirs.OpRepSets(
                theirs.TensorRepSetList([their_set(item) for item in ins]),
                theirs.TensorRepSetList([their_set(item) for item in results]),
                node,
                theirs.DEFAULT_TEXTURE_LIMITS,
            )
        except (AssertionError, NotImplementedError):
            # fx turns lists into immutable lists, which upstream takes for something else
            refused += 1
            continue
        mine = OpRepSets(ins, results, node)
        built += 1
        check(mine, other)
        for _ in range(4):
            wanted = random_set(draw)
            if draw.random() < 0.6 and node.args:
                index = draw.randrange(len(node.args))
                call = ("try_constrain_with_arg_repset", (index, wanted), (index, their_set(wanted)))
            else:
                call = ("try_constrain_with_out_repset", (wanted,), (their_set(wanted),))
            name, args, their_args = call
            try:
                expected = getattr(other, name)(*their_args)
            except AssertionError:
                with pytest.raises(Exception, match="pack different dims"):
                    getattr(mine, name)(*args)
                break
            assert getattr(mine, name)(*args) == expected
            check(mine, other)
            steps += expected
    assert built > 1500 and steps > 1000, (built, refused, steps)


def check(mine: OpRepSets, other: theirs.OpRepSets) -> None:
    for name in ("sync_args_repr", "sync_outs_repr", "sync_primary_io_repr", "primary_arg_idx"):
        assert getattr(mine, name) == getattr(other, name), name
    assert mine.any_is_empty() == other.any_is_empty()
    for index, held in enumerate(mine.args):
        assert same(held, other.get_arg_repset(index))
    for index, held in enumerate(mine.outs):
        assert same(held, other.get_out_repset(index))
