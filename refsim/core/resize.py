"""What ET-VK's runtime does to an operator's output in a run whose shapes are not those of the bound.

Most operators give their output the shape that follows from their inputs. Rows here are of those that do not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Resize:
    """A defect: a name, and a sentence for people.

    ``shape(bound, meant)``: the output's shape in the runtime, from that at the bound and that which the operator
    means; None where the run stops. ``applies``: whether arguments show it. They are in serialized order, with shapes
    for tensors.

    ``keeps``: its output has the bound's shape, and stale elements (refsim/exec/one_process.py). ``reads_all``: these
    were read behind the smaller input; else they are what lay in the output. ``meant``: a single run computes what the
    operator means all the same; else what the runtime leaves.
    """

    name: str
    note: str
    shape: Callable[[Shape, Shape], Shape] | None
    applies: Callable[..., bool] = lambda *args: True
    keeps: bool = False
    reads_all: bool = False
    meant: bool = True

    @property
    def stops(self) -> bool:
        """Whether the runtime throws, and then at every later run."""
        return self.shape is None

    def wrong(self, bound: Shape, meant: Shape) -> bool:
        """Whether it shows where an output has one shape at the bound and should have another."""
        return bound != meant and (self.shape is None or self.shape(bound, meant) != meant)


#: The elements of the smaller tensor have their places; what lies at the others was there before.
STALE_ROWS = Resize(
    "stale-rows",
    "upstream does not resize its output: that keeps the bound's shape, and has stale rows beyond the new ones",
    lambda bound, meant: bound,
    keeps=True,
)
#: The same of a kernel that goes over all of its output, so that it reads the stale rows of its input.
STALE_READS = replace(STALE_ROWS, reads_all=True)
#: An operator without any resize: it computes the bound's shape, whatever lies in the memory of its inputs.
FIXED = replace(
    STALE_READS,
    name="fixed-shape",
    note="the runtime does not resize it: it computes the bound's shape, of what lies in the memory of its inputs",
    meant=False,
)
BOUND_BATCH = Resize(
    "bound-batch",
    "upstream resizes height and width alone: the output keeps the bound's batch",
    lambda bound, meant: (*bound[:-3], meant[-3], *meant[-2:]),
)
FOUR_DIMS_STOP = Resize(
    "four-dims-stop",
    "upstream resizes its output to three dims and throws, in this run and in every later one",
    None,
    lambda x, *args: len(x) > 3,
)
NEGATIVE_DIMS_STOP = Resize(
    "negative-dims-stop",
    "upstream's resize looks up a negative dim and throws, in this run and in every later one",
    None,
    lambda x, dims, *args: min(dims, default=0) < 0,
)
