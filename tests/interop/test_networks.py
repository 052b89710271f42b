"""ExecuTorch's lowering of each network against ours: every operator, argument, constant, layout, in order.

The networks in ``DELIBERATE`` differ on purpose; docs/partitioner.md says why, by the same keys. They may not stop
differing unnoticed, and no network may need more clones here than there.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from lowering.networks import NETWORKS, program

from refsim.partition.lower import lower
from refsim.vkgraph.read import Blob, read_blob

from . import executorch_lowering as theirs

DOC = Path(__file__).parents[2] / "docs" / "partitioner.md"
#: network -> the difference's key in docs/partitioner.md.
DELIBERATE = {
    "AddmmByInput": "weight-by-input",
    "SquareMm": "weight-by-input",
    "Bmm": "weight-by-input",
    "LeadingRows": "rows",
    "OddChannelsLinear": "float-weight",
    "OddGroups": "float-weight",
    "TransposedWrongAxis": "float-weight",
    "OddGroupInputs": "group-inputs",
    "AddRelu": "add-relu",
    "AddAlpha": "alpha",
    "BroadcastAdd": "broadcast",
}
#: Networks that ExecuTorch cannot lower at all.
CRASHES = {"OddDepthwise": "depthwise-channels", "Attention": "bmm-of-linear"}


def ours(name: str) -> list[Blob]:
    exported, _inputs = program(name)
    return [read_blob(d.serialized.blob(name), name) for d in lower(exported, name).delegates]


@pytest.mark.parametrize("name", [n for n in NETWORKS if n not in CRASHES])
def test_network(name: str) -> None:
    mine = ours(name)
    other = theirs.delegates(theirs.lower(program(name)[0]))
    same = [theirs.contents(b) for b in mine] == [theirs.contents(b) for b in other]
    if name in DELIBERATE:
        assert not same, "no longer different: take it out of DELIBERATE and out of the documentation"
    else:
        for one, two in zip(mine, other, strict=True):
            assert theirs.chain(one) == theirs.chain(two)
            assert theirs.contents(one) == theirs.contents(two)
    assert sum(map(theirs.clones, mine)) <= sum(map(theirs.clones, other))


@pytest.mark.parametrize("name", CRASHES)
def test_only_lowered_here(name: str) -> None:
    exported, _inputs = program(name)
    with pytest.raises(Exception, match=r"FusePatternsPass|^$"):  # an assertion without a message
        theirs.lower(exported)
    assert ours(name)


def test_every_difference_is_documented() -> None:
    text = DOC.read_text()
    for key in {*DELIBERATE.values(), *CRASHES.values()}:
        assert f"`{key}`" in text, key
