"""Our table of operators against ExecuTorch's registry, row by row."""

from __future__ import annotations

import operator

import executorch.backends.vulkan.op_registry as registry
import executorch.backends.vulkan.utils as utils
import pytest
from executorch.exir.dialects._ops import ops as exir_ops

from refsim.partition.features import ALL, FEATURES, Features
from refsim.partition.nodes import GETITEM
from refsim.partition.repset import TensorRepSetList

from .test_repset import same


def their_features(name: str) -> registry.OpFeatures:
    if name == GETITEM:
        return registry.vulkan_supported_ops[operator.getitem]
    space, base, overload = name.split(".")
    return registry.get_op_features(getattr(getattr(getattr(exir_ops.edge, space), base), overload))


def sets(given: object) -> TensorRepSetList:
    return TensorRepSetList(given)


def names(dtypes: utils.DtypeSet) -> frozenset[str]:
    return frozenset(str(dtype).removeprefix("torch.") for dtype in dtypes)


@pytest.mark.parametrize("name", FEATURES)
def test_row(name: str) -> None:
    mine: Features = FEATURES[name]
    other = their_features(name)
    for given, theirs in ((mine.inputs, other.inputs_storage), (mine.outputs, other.outputs_storage)):
        listed = sets(given)
        assert (len(listed) > 1) == (len(theirs) > 1), "synced or not"
        for index in range(len(theirs)):
            assert same(listed[index], theirs[index]), index
    for given, theirs in (
        (mine.input_dtypes, other.inputs_dtypes),
        (mine.output_dtypes, other.outputs_dtypes),
    ):
        if given is None:
            given = mine.input_dtypes if isinstance(mine.input_dtypes, frozenset) else mine.input_dtypes[0]
        rows = (given,) if isinstance(given, frozenset) else given
        assert [names(theirs[i]) for i in range(len(theirs))] == [frozenset(row) for row in rows]
    assert mine.prepacks == other.supports_prepacking
    assert mine.resize == other.supports_resize
    assert mine.high_dim == other.supports_highdim
    assert (mine.pick is not None) == (other.pick_io_storage_fn is not None)
    assert (mine.check is not None) == (other.are_node_inputs_supported_fn is not registry.allow_node)


def test_dtypes() -> None:
    assert names(utils.ALL_T) == ALL
