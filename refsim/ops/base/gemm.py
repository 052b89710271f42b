"""How the matrix-like kernels are cut into workgroups: data, picked by the number of positions and channels.

A workgroup computes local x * tile x positions by local y * tile y words of channels. Every row fulfils what
`shaders/include/gemm.glsl` needs: a whole number of warps of 32, tile x a multiple of 4, at most 16 fetched
words of positions per invocation and stage.
"""

from __future__ import annotations

from dataclasses import dataclass

from refsim.core.launch import Triple


@dataclass(frozen=True)
class Cut:
    """One way to cut; used where there are at least so many workgroups of it and K has at most so many words, or
    where nothing else applies."""

    local: Triple
    tile: Triple
    least_groups: int
    most_k: int = 1 << 31

    @property
    def name(self) -> str:
        """The variant of the shaders that is built for this cut."""
        return f"{self.local[0]}x{self.local[1]}.{self.tile[0]}x{self.tile[1]}"

    @property
    def sizes(self) -> dict[str, int]:
        """What the variant is built with."""
        x, y, _ = self.local
        return {"LOCAL_X": x, "LOCAL_Y": y, "TILE_X": self.tile[0], "TILE_Y": self.tile[1]}

    @property
    def positions(self) -> int:
        return self.local[0] * self.tile[0]

    @property
    def words(self) -> int:
        return self.local[1] * self.tile[1]

    def groups(self, positions: int, words: int, slices: int) -> int:
        return -(-positions // self.positions) * -(-words // self.words) * slices


#: A short K first: setting out costs more than its products, so an invocation takes more positions. Then the largest
#: first: a large tile reads less, a small one keeps more of a device busy.
CUTS = (
    Cut((8, 8, 1), (8, 1, 1), 128, most_k=12),
    Cut((8, 16, 1), (4, 1, 1), 128),
    Cut((8, 8, 1), (4, 1, 1), 0),
)


def cut(positions: int, words: int, k: int, slices: int = 1) -> Cut:
    """The first row whose tile is not much wider than the channels and that gives enough workgroups."""
    for row in CUTS:
        if (
            k <= row.most_k
            and row.words < 2 * words
            and row.groups(positions, words, slices) >= row.least_groups
        ):
            return row
    return CUTS[-1]
