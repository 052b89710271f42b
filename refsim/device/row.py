"""What is known about one operator of a device's run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from refsim.bytediff import Report
from refsim.exec.trace import Traced
from refsim.graph.describe import NodeOutput
from refsim.ops.base.binding import BoundCase

#: On what an operator was computed of whose inputs one was not dumped.
GIVEN = "inputs that were not all dumped, taken from your run"


@dataclass(frozen=True)
class Row(NodeOutput):
    """One node. ``run`` compares its dump with a run from the start, ``alone`` with the node on its dumped inputs.

    ``wrong``: the operator itself is at fault; its output is wrong though its inputs are as dumped, or were right.
    ``cause``: what is known to be wrong with upstream's kernel here, for a node that no kernel computes or whose buffer
    has exactly the bytes of that defect; of a node that is not wrong, with what it read. ``own`` is the call with its
    dumped inputs. ``is_int8``: the output is an int8 buffer of a kernel, which a whole dump has. ``unfit`` says why the
    dumped buffer cannot be compared: it is of another shape or layout. ``given``: an input of ``own`` was not dumped,
    and is that of the right run. ``doubt``: what there is to say about the inputs of such an operator, see
    `refsim.device.doubts`.
    """

    run: Report | None
    alone: Report | None
    wrong: bool
    cause: str = ""
    own: BoundCase | None = None
    is_int8: bool = True
    unfit: str = ""
    given: bool = False
    doubt: str = ""

    @classmethod
    def of(
        cls, traced: Traced, name: str, run: Report | None, alone: Report | None, diverged: bool, **more: Any
    ) -> Row:
        """A node's row. ``diverged``: it read other values than in the right run, so ``alone`` says who is wrong."""
        node = traced.node
        wrong = run is not None and not run.same and (not diverged if alone is None else not alone.same)
        return cls(traced.delegate, node.number, node.operator, name, run, alone, wrong, **more)

    @property
    def judged(self) -> Report | None:
        """The report about the operator itself: on its own inputs, if they are known."""
        return self.run if self.alone is None else self.alone

    @property
    def excused(self) -> bool:
        """Whether other inputs explain its bytes, and no cause does."""
        return bool(self.doubt) and not self.wrong
