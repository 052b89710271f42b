"""Nobody changes by accident what is chosen for calls of any size: both sides of a bound are among those drawn.

After a change on purpose: ``python tests/exec/cpu/drawn.py --write``, and look at what it changed.
"""

from __future__ import annotations

import drawn
import planned
import pytest

from refsim.exec.cpu.conv_problem import ConvProblem
from refsim.exec.cpu.isa import Isa
from refsim.exec.cpu.winograd import prepack as winograd
from refsim.exec.cpu.winograd.kernel import WinogradTransform


@pytest.mark.few(3)
@pytest.mark.parametrize("machine", planned.MACHINES, ids=lambda row: f"{row[0]}-{row[1]}")
def test_what_is_chosen_for_drawn_sizes_is_what_is_written_down(machine: tuple[str, int]) -> None:
    assert drawn.lines(machine) == drawn.path(machine).read_text().splitlines()


def test_a_bound_that_no_layer_of_a_network_lies_at_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer input channels than two vectors hold: the vectors decide how large a block of tiles is, not the words."""
    machine = ("avx512vbmi", 4)
    before = drawn.lines(machine)

    def vectors_forgotten(
        conv: ConvProblem, transform: WinogradTransform, isa: Isa, threads: int = 1
    ) -> tuple[int, int]:
        return plain(conv, transform, Isa(**{**vars(isa), "lanes": 1}), threads)

    plain = winograd.blocks
    monkeypatch.setattr(winograd, "blocks", vectors_forgotten)
    after = drawn.lines(machine)
    others = [line for line, other in zip(after, before, strict=True) if line != other]
    assert others and all("block_" in line for line in others)
