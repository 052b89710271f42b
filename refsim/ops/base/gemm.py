"""The tiles of the matrix-like kernels: data, picked by the number of positions and channels; and their sums.

A workgroup computes local x * tile x positions by local y * tile y words of channels. Every row fulfils what
`shaders/include/gemm.glsl` needs: a whole number of warps of 32, tile x a multiple of 4, at most 16 fetched
words of positions per invocation and stage.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from refsim.core.jit import jitable
from refsim.core.lanes import add_dot4
from refsim.core.launch import Triple

POSITIONS = 4  # an invocation takes them four at a time
STAGE = 8  # words of K that pass through shared memory together


@jitable
def products(
    acc: Any, words: Any, x_words: Any, source: Any, k_step: Any, weight: Any, oc: Any, all_out: Any
) -> Any:
    """Four sums, the products of all ``words`` of K added to them stage by stage, as a workgroup fetches these.

    The words of a position begin at ``source``, ``k_step`` apart. A row of weights has ``all_out`` words, one for each
    output channel; the sums are those of ``oc`` and the next three.
    """
    for stage in range(0, words, STAGE):
        for k1 in range(min(STAGE, words - stage)):
            k4 = stage + k1
            acc = add_dot4(acc, x_words[source + k4 * k_step], weight, k4 * all_out + oc)
    return acc


@jitable
def position_place(position: Any, across: Any, down: Any) -> Any:
    """(place in its row, row, plane) of a position, which lies beside the first one of its invocation."""
    first, beside = position // POSITIONS * POSITIONS, position % POSITIONS
    row = (first + beside) // across
    return (first + beside) % across, row % down, row // down


@dataclass(frozen=True)
class TileConfig:
    """One size of tile: invocations of a workgroup, and the output words that each of them computes.

    Used where there are at least ``min_workgroups`` and K has at most ``max_k`` words, or where nothing else applies.
    """

    local: Triple
    tile: Triple
    min_workgroups: int
    max_k: int = 1 << 31

    @property
    def name(self) -> str:
        """The build of the shaders for this tile."""
        return f"{self.local[0]}x{self.local[1]}.{self.tile[0]}x{self.tile[1]}"

    @property
    def definitions(self) -> dict[str, int]:
        """What this build defines."""
        (x, y, _), (tile_x, tile_y, _) = self.local, self.tile
        sizes = {"LOCAL_X": x, "LOCAL_Y": y, "TILE_X": tile_x, "TILE_Y": tile_y}
        return {f"REFSIM_{key}": size for key, size in sizes.items()}

    @property
    def positions(self) -> int:
        return self.local[0] * self.tile[0]

    @property
    def words(self) -> int:
        return self.local[1] * self.tile[1]

    def workgroups(self, positions: int, words: int, slices: int) -> int:
        return -(-positions // self.positions) * -(-words // self.words) * slices


#: A short K first: setting out costs more than its products, so an invocation takes more positions. Then the largest
#: first: a large tile reads less, a small one keeps more of a device busy.
TILE_CONFIGS = (
    TileConfig((8, 8, 1), (8, 1, 1), 128, max_k=12),
    TileConfig((8, 16, 1), (4, 1, 1), 128),
    TileConfig((8, 8, 1), (4, 1, 1), 0),
)


def tile_config(positions: int, words: int, k: int, slices: int = 1) -> TileConfig:
    """The first row whose tile is not much wider than the channels and that gives enough workgroups."""
    for row in TILE_CONFIGS:
        if (
            k <= row.max_k
            and row.words < 2 * words
            and row.workgroups(positions, words, slices) >= row.min_workgroups
        ):
            return row
    return TILE_CONFIGS[-1]
