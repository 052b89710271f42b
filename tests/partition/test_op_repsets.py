"""The sets of one operator: what is synced, what is filtered, and how constraining one tensor moves the others."""

from __future__ import annotations

import operator

import pytest

from refsim.core.errors import GraphError
from refsim.core.layout import layout
from refsim.partition.repset.op import OpRepSets
from refsim.partition.repset.sets import (
    ANY_BUFFER,
    ANY_STORAGE,
    ANY_STORAGE_INCL_PACKED_INT8,
    ANY_TEXTURE,
    CHANNELS_PACKED_TEXTURE,
    CONTIGUOUS_BUFFER,
    NO_STORAGE,
    PACKED_INT8_4C1W_BUFFER,
    PACKED_INT8_4W4C_BUFFER,
    PACKED_INT8_4W_BUFFER,
    PACKED_INT8_BUFFER,
    PACKED_INT8_CHANNELS_PACKED_BUFFER,
    PACKED_INT8_CONV2D_BUFFER,
    Storage,
    TensorRepr,
    TensorRepSet,
)

from .fake import call, list_node, tensor_node

SHAPE = (1, 8, 6, 10)


def binary(sets: TensorRepSet) -> OpRepSets:
    return OpRepSets(sets, sets, call("binary", [tensor_node(SHAPE), tensor_node(SHAPE)], SHAPE))


def test_the_primary_argument_is_the_first_tensor_with_a_set() -> None:
    node = call("op", [3, tensor_node(SHAPE), tensor_node(SHAPE)], SHAPE)
    sets = OpRepSets([NO_STORAGE, NO_STORAGE, ANY_TEXTURE], ANY_TEXTURE, node)
    assert sets.primary_arg_idx == 2
    # neither a scalar nor a prepacked weight makes the operator impossible
    assert sets.args[0] == sets.args[1] == ANY_STORAGE_INCL_PACKED_INT8


def test_an_operator_without_tensor_arguments_has_no_primary_one() -> None:
    sets = OpRepSets(ANY_STORAGE, ANY_STORAGE, call("full", [4], SHAPE))
    assert sets.primary_arg_idx is None and not sets.sync_primary_io_repr
    assert sets.try_constrain_with_out_repset(ANY_BUFFER) and sets.outs[0] == ANY_BUFFER


def test_a_list_argument_takes_what_all_its_tensors_can() -> None:
    node = call("cat", [[tensor_node((1, 8, 4, 4)), tensor_node((1, 4 * 2048 + 1, 1, 1))]], SHAPE)
    sets = OpRepSets(ANY_STORAGE, ANY_STORAGE, node)
    assert sets.args[0] == sets.outs[0] == ANY_BUFFER


def test_more_than_four_dims_need_a_buffer() -> None:
    node = call("unary", [tensor_node((2, 1, 3, 4, 5))], (2, 1, 3, 4, 5))
    assert OpRepSets(ANY_TEXTURE, ANY_TEXTURE, node).any_is_empty()
    sets = OpRepSets(ANY_STORAGE, ANY_STORAGE, node)
    assert sets.outs[0] == ANY_BUFFER


def test_getitem_sees_the_tensor_that_it_takes() -> None:
    source = list_node((1, 8, 4, 4), (2, 1, 3, 4, 5))
    sets = OpRepSets(
        ANY_STORAGE,
        ANY_STORAGE,
        call(operator.getitem, [source, 1], (2, 1, 3, 4, 5)),
    )
    assert sets.args[0] == ANY_BUFFER
    with pytest.raises(GraphError, match="several tensors"):
        OpRepSets(ANY_STORAGE, ANY_STORAGE, call("unary", [source], SHAPE))


def test_outputs_with_sets_of_their_own() -> None:
    node = call("norm", [tensor_node(SHAPE)], SHAPE, (8,), (8,))
    sets = OpRepSets(
        CHANNELS_PACKED_TEXTURE,
        [CHANNELS_PACKED_TEXTURE, CONTIGUOUS_BUFFER, CONTIGUOUS_BUFFER],
        node,
    )
    assert not sets.sync_outs_repr and sets.sync_primary_io_repr
    assert sets.outs == [
        CHANNELS_PACKED_TEXTURE,
        CONTIGUOUS_BUFFER,
        CONTIGUOUS_BUFFER,
    ]
    assert [out.choice().storage_type for out in sets.outs] == [
        Storage.TEXTURE_3D,
        Storage.BUFFER,
        Storage.BUFFER,
    ]


# --- constraining ---


def test_an_addition_may_read_two_layouts_and_write_a_third() -> None:
    """The packed dim is synced, not the layout: no transition is needed for any of the three."""
    sets = binary(PACKED_INT8_BUFFER)
    assert sets.try_constrain_with_arg_repset(0, PACKED_INT8_4W4C_BUFFER)
    assert sets.args[1] == sets.outs[0] == PACKED_INT8_CHANNELS_PACKED_BUFFER
    assert sets.try_constrain_with_arg_repset(1, PACKED_INT8_4C1W_BUFFER)
    assert sets.try_constrain_with_out_repset(PACKED_INT8_CONV2D_BUFFER)
    assert [arg.choice().memory_layout for arg in sets.args] == [layout("4W4C"), layout("4C1W")]
    assert sets.outs[0].choice() == TensorRepr(Storage.BUFFER, layout("CONV2D"))


def test_synced_tensors_that_pack_different_dims_are_an_error() -> None:
    sets = binary(PACKED_INT8_BUFFER)
    sets.args[0] = PACKED_INT8_4W_BUFFER
    sets.args[1] = PACKED_INT8_4C1W_BUFFER
    with pytest.raises(GraphError, match="synced arguments pack different dims"):
        sets.check_synced()
