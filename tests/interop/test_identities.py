"""ExecuTorch's own tagging of FourPixelShuffles: how many clones it dispatches if identities take no int8 layouts."""

from __future__ import annotations

from typing import Any

import executorch.backends.vulkan.op_registry as registry
import executorch.backends.vulkan.utils as utils
import executorch.backends.vulkan.vulkan_preprocess as preprocess
import pytest
from executorch.exir.dialects._ops import ops as exir_ops
from executorch.exir.tensor import TensorSpec
from lowering.networks import CLONES, IDENTITIES, program

from . import executorch_lowering as theirs

ATEN = exir_ops.edge.aten


def put_in_identities(exported: Any) -> Any:
    """Their last step before tagging, and then an identity behind each pixel shuffle."""
    exported = ORIGINAL(exported)
    graph = exported.graph_module.graph
    shuffles = [n for n in graph.nodes if "q8ta_pixel_shuffle" in str(n.target)]
    for node, (base, overload) in zip(shuffles, IDENTITIES, strict=True):
        (reader,) = node.users
        shape = [list(node.meta["val"].shape)] if base == "view_copy" else []
        with graph.inserting_before(reader):
            new = graph.call_function(getattr(getattr(ATEN, base), overload), (node, *shape))
        new.meta["val"] = node.meta["val"]
        new.meta["spec"] = TensorSpec.from_tensor(node.meta["val"])
        reader.replace_input_with(node, new)
    return exported


ORIGINAL = preprocess.insert_prepack_nodes


@pytest.mark.parametrize(
    ("takes", "sets"),
    [("float layouts", utils.ANY_STORAGE), ("float and int8 layouts", utils.ANY_STORAGE_INCL_PACKED_INT8)],
    ids=["float", "int8"],
)
def test_clones(takes: str, sets: utils.TensorRepSet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preprocess, "insert_prepack_nodes", put_in_identities)
    for identity in (ATEN.clone.default, ATEN.view_copy.default):
        features = registry.get_op_features(identity)
        for side in ("inputs_storage", "outputs_storage"):
            monkeypatch.setattr(features, side, utils.TensorRepSetList(sets))
    (blob,) = theirs.delegates(theirs.lower(program("FourPixelShuffles")[0]))
    assert theirs.clones(blob) == CLONES[takes]
