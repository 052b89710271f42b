"""The matrix-like operators on cooperative matrices: int8 products of 16 x 32 by 32 x 16 with int32 sums.

Some devices multiply such matrices much faster than they compute packed dot products. The sums are integers, so the
bytes are the same. An operator says by `MatrixProblem` which product it is; `plan` picks the tile by measured rules.
How a kernel works is told in `shaders/include/coop_gemm.glsl`. Weights are laid out for it on their own:
`MATRIX_WEIGHT` names them in a dispatch.

K is counted in chunks of 16 bytes. The channels of each tap are padded to whole chunks, with weights of 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from refsim.core.launch import Launch, Triple
from refsim.core.layout import WIDTH_PACKED
from refsim.core.push import SpecWords, hashed, uint32
from refsim.core.tensor import TensorDesc
from refsim.ops.base.prepared import Prepared
from refsim.ops.base.spec import Call, Dispatch
from refsim.ops.base.traits import MatrixProblem

#: How dispatches name the weights as these kernels read them, and the sums of parts of K.
MATRIX_WEIGHT, PARTIAL = "weight:matrix", "partial"
CHUNK = 16  # bytes of K
STAGE_CHUNKS = 8  # the longest stage: K of the weights is padded to it
SUBGROUP = 32

#: INTEGER_ZP: the epilogue. X_QUADS: how four positions of a word of K are read (`XQuads`). The others: the parts of K
#: that are summed by themselves, and the sizes of the buffer of those sums.
SPEC = SpecWords(
    hashed("X"),
    hashed("OUT"),
    uint32("INTEGER_ZP"),
    uint32("X_QUADS"),
    uint32("SPLITS", 1),
    uint32("PARTIAL_ROWS", 1),
    uint32("PARTIAL_COLUMNS", 1),
)
FINISH, EMULATED = "finish", ".emulated"  # the build that adds up the parts; the ending of an emulated one
FINISH_LOCAL = (16, 4, 1)


@dataclass(frozen=True)
class CoopTile:
    """The tile of a workgroup, positions x channels x bytes of K of a stage, and of a subgroup in it.

    ``buffers``: how many stages shared memory holds.
    """

    m: int
    n: int
    k: int
    warp_m: int
    warp_n: int
    buffers: int

    @property
    def name(self) -> str:
        return f"{self.m}x{self.n}x{self.k}.{self.warp_m}x{self.warp_n}.{self.buffers}"

    @property
    def threads(self) -> int:
        return SUBGROUP * (self.m // self.warp_m) * (self.n // self.warp_n)

    @property
    def definitions(self) -> dict[str, int]:
        """What its build defines."""
        sizes = {"LOCAL_X": self.threads, "LOCAL_Y": 1, "TILE_X": 1, "TILE_Y": 1}
        sizes |= {"TILE_M": self.m, "TILE_N": self.n, "TILE_K": self.k}
        sizes |= {"WARP_M": self.warp_m, "WARP_N": self.warp_n, "BUFFERS": self.buffers}
        return {f"REFSIM_{key}": size for key, size in sizes.items()}

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a workgroup: stages, or the sums of 16 positions of each subgroup, whichever is more."""
        stages = self.buffers * (self.m + self.n) * (self.k + 16)
        return max(stages, self.threads // SUBGROUP * 16 * (self.warp_n + 4) * 4)

    def grid(self, problem: MatrixProblem, splits: int) -> Triple:
        return (-(-problem.positions // self.m), -(-problem.channels // self.n), problem.groups * splits)


@dataclass(frozen=True)
class CoopPlan:
    """How a problem is computed: a tile, and into how many parts K is split."""

    tile: CoopTile
    splits: int = 1


def parts(problem: MatrixProblem, tile: CoopTile, wanted: int) -> int:
    """At most ``wanted`` parts of K, of as many stages each, none of them empty."""
    stages = -(-problem.chunks * CHUNK // tile.k)
    return -(-stages // -(-stages // max(1, min(wanted, stages))))


#: Stages of K from which a second dispatch, which adds up parts, costs less than the first one gains.
LONG_K = 12


@dataclass(frozen=True)
class CoopRule:
    """A tile, for problems of at least ``least_n`` channels and ``groups`` workgroups.

    ``split``: a K of at least ``long_k`` stages is split until there are about so many workgroups; 0: never.
    ``most_k``: the most bytes of K.
    """

    tile: CoopTile
    groups: int = 0
    least_n: int = 0
    split: int = 0
    long_k: int = LONG_K
    most_k: int = 1 << 31


#: From the largest tile down: a large one reads less, a small one keeps more of a device busy. docs/performance-gpu.md
#: has the times.
RULES = (
    CoopRule(CoopTile(128, 128, 64, 64, 64, 1), groups=400, least_n=96),
    CoopRule(CoopTile(128, 128, 128, 64, 32, 1), groups=96, least_n=96),
    CoopRule(CoopTile(64, 64, 64, 32, 32, 2), groups=192, least_n=48, most_k=1024),
    CoopRule(CoopTile(64, 64, 128, 32, 32, 1), groups=96, least_n=48),
    CoopRule(CoopTile(64, 32, 128, 32, 16, 1), groups=192),
    CoopRule(CoopTile(32, 64, 128, 16, 16, 1), split=192),
)
TILES = tuple(rule.tile for rule in RULES)
#: Those that are built with emulated instructions too: the most and the fewest fetches, whole and split.
EMULATED_TILES = (TILES[0], TILES[2], TILES[-1])


def plan(problem: MatrixProblem, rules: Sequence[CoopRule] = RULES) -> CoopPlan:
    """The first rule that applies; the last one always does."""
    for rule in rules:
        workgroups = prod(rule.tile.grid(problem, 1))
        fits = problem.channels >= rule.least_n and problem.depth <= rule.most_k and workgroups >= rule.groups
        if fits or rule is rules[-1]:
            split = rule.split if problem.chunks * CHUNK >= rule.long_k * rule.tile.k else 0
            return CoopPlan(rule.tile, parts(problem, rule.tile, split // workgroups))
    raise AssertionError(rules)


#: The smallest problem that was measured, and was faster: positions, channels of a group, bytes of K.
LEAST = (48, 32, 128)


def worthwhile(problem: MatrixProblem) -> bool:
    """Whether cooperative matrices are faster than packed dot products here: as far as that was measured."""
    sizes = (problem.positions, problem.channels, problem.depth)
    padded = problem.chunks * CHUNK > 2 * problem.depth
    return not padded and all(size >= least for size, least in zip(sizes, LEAST, strict=True))


def dispatches(call: Call, problem: MatrixProblem, how: CoopPlan, build: str = "") -> list[Dispatch]:
    """The dispatches of a call: one, or one for the parts of K and one that adds them up. ``build``: an ending."""
    tile, splits = how.tile, how.splits
    grid = tile.grid(problem, splits)
    rows, columns = grid[0] * tile.m, grid[1] * tile.n
    spec = SPEC.pack(
        call.tensors,
        INTEGER_ZP=int(problem.integer_zp),
        X_QUADS=problem.x_quads.value,
        SPLITS=splits,
        PARTIAL_ROWS=rows,
        PARTIAL_COLUMNS=columns,
    )
    inputs = ("x", MATRIX_WEIGHT, "weight_sums", "weight_scales", "bias")
    sums = TensorDesc((grid[2], rows, columns), WIDTH_PACKED, "int32")
    first = Launch(
        shader=problem.shader,
        out=call.out if splits == 1 else sums,
        spec=spec,
        push=problem.push,
        global_size=(grid[0] * tile.threads, grid[1], grid[2]),
        local=(tile.threads, 1, 1),
        grid=grid,
        variant=tile.name + build,
    )
    if splits == 1:
        return [Dispatch(first, inputs)]
    finish = Launch(
        shader=problem.shader,
        out=call.out,
        spec=spec,
        push=problem.push,
        global_size=(-(-problem.channels // 4), problem.positions, problem.groups),
        local=FINISH_LOCAL,
        variant=FINISH,
    )
    return [Dispatch(first, inputs, PARTIAL), Dispatch(finish, (PARTIAL, *inputs[1:]))]


def pack_weight(weight: np.ndarray, groups: int) -> np.ndarray:
    """int8 (output channels, taps, input channels) to int32 words [group][chunk][output channel][4 words of K]."""
    out, taps, channels = weight.shape
    each = -(-channels // CHUNK)
    rows = np.zeros((out, taps, each * CHUNK), np.int8)
    rows[:, :, :channels] = weight
    chunks, per_group = taps * each, out // groups
    shape = (groups, -(-chunks // STAGE_CHUNKS) * STAGE_CHUNKS, -(-per_group // 4) * 4, CHUNK)
    packed = np.zeros(shape, np.int8)
    packed[:, :chunks, :per_group] = rows.reshape(groups, per_group, chunks, CHUNK).swapaxes(1, 2)
    return packed.view(np.int32).reshape(-1)


class CoopPrepared(Prepared):
    """A call with its dispatches on cooperative matrices."""

    def __init__(
        self, call: Call, source: Call, problem: MatrixProblem, how: CoopPlan, build: str = ""
    ) -> None:
        """``source``: the call that the problem is of: ``call``, or the one that it stands for."""
        super().__init__(call)
        self.source, self.problem = source, problem
        self.dispatches = dispatches(source, problem, how, build)

    @property
    def constants(self) -> tuple[str, ...]:
        return (MATRIX_WEIGHT, *super().constants)

    def laid_out(self, name: str) -> np.ndarray:
        if name != MATRIX_WEIGHT:
            return super().laid_out(name)
        (weight,) = self.call.given("weight")
        return pack_weight(self.problem.weight(weight), self.problem.groups)
