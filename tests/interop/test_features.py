"""Our table of operators against ExecuTorch's registry, row by row."""

from __future__ import annotations

import operator

import executorch.backends.vulkan.op_registry as registry
import executorch.backends.vulkan.utils as utils
import pytest
import torch
from executorch.exir.dialects._ops import ops as exir_ops

from refsim.partition.features import ALL, FEATURES, Features
from refsim.partition.nodes import GETITEM
from refsim.partition.repset.sets import Sets, TensorRepSet

from .test_repset import same

#: What computes sizes, by our names; theirs has a row for the function itself.
FUNCTIONS = {
    GETITEM: operator.getitem,
    "sym_size.int": torch.ops.aten.sym_size.int,
    **{name: getattr(operator, name) for name in ("add", "sub", "mul", "floordiv")},
}
#: A pass of theirs makes it behind the partitioner, so that it needs no row there.
MADE_LATER = "et_vk.select_as_symint.default"


def their_features(name: str) -> registry.OpFeatures:
    if name in FUNCTIONS:
        return registry.vulkan_supported_ops[FUNCTIONS[name]]
    space, base, overload = name.split(".")
    return registry.get_op_features(getattr(getattr(getattr(exir_ops.edge, space), base), overload))


def sets(given: Sets) -> list[TensorRepSet]:
    return given if isinstance(given, list) else [given]


def names(dtypes: utils.DtypeSet) -> frozenset[str]:
    return frozenset(str(dtype).removeprefix("torch.") for dtype in dtypes)


@pytest.mark.parametrize("name", [name for name in FEATURES if name != MADE_LATER])
def test_row(name: str) -> None:
    mine: Features = FEATURES[name]
    other = their_features(name)
    for given, theirs in ((mine.inputs, other.inputs_storage), (mine.outputs, other.outputs_storage)):
        listed = sets(given)
        assert (len(listed) > 1) == (len(theirs) > 1), "synced or not"
        for index in range(len(theirs)):
            assert same(listed[index] if len(listed) > 1 else listed[0], theirs[index]), index
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


#: Rows of theirs that we lack: the beginnings of the operators' names, and why.
LEFT_OUT = {
    "aten._assert_scalar.": "sizes that change between runs",
    "aten.sym_": "sizes that change between runs",
    "aten.scalar_tensor.": "has a row there that no node ever finds: it is looked up by another name",
    "llama.": "caches of language models",
    "et_vk.sdpa": "made by the exporter of language models",
    "et_vk.apply_rotary_emb": "made by patterns that look for the exporter of language models",
    "et_vk.adamw_step": "training",
    "et_vk.fused_ce.": "training",
    "et_vk.linear_dW.": "training",
    "et_vk.linear_q4gsw_backward.": "training",
    "et_vk.q4gsw_requant.": "training",
    "et_vk.grid_priors.": "an operator of one customer",
    "et_vk.linear_qcs4w.": "its results are far from torch's",
    "et_vk.": "weights in groups: made by patterns of their own",
    "torchao.": "weights in groups: made by patterns of their own",
    "quantized_decomposed.embedding_4bit.": "weights in groups: made by patterns of their own",
    "quantized_decomposed.choose_qparams": "scales that are chosen at run time",
    "quantized_decomposed.quantize_per_token.": "scales that are chosen at run time",
    "quantized_decomposed.dequantize_per_token.": "scales that are chosen at run time",
    "quantized_decomposed.quantize_per_tensor.tensor": "scales that are chosen at run time",
    "quantized_decomposed.dequantize_per_tensor.tensor": "scales that are chosen at run time",
}


def test_every_row_is_here_or_left_out() -> None:
    missing = []
    for key in registry.vulkan_supported_ops:
        if getattr(key, "__module__", "") == "_operator":
            continue  # reading a list, arithmetic of sizes
        if isinstance(key, str):
            name = key.replace("::", ".")
        else:
            name = str(key) if isinstance(key, torch._ops.OpOverload) else key.__name__
        if name not in FEATURES and not name.startswith(tuple(LEFT_OUT)):
            missing.append(name)
    assert not missing
