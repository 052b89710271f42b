// The buffers and sizes of the kernels on cooperative matrices; see coop_gemm.glsl. A build is for one size of tile
// (refsim/ops/base/coopmat.py), or, with REFSIM_FINISH, adds up the sums that such builds left in a scratch buffer.
#ifndef REFSIM_COOP_GLSL
#define REFSIM_COOP_GLSL

INPUT(0, x);
INPUT4(0, x4);
INPUT4(0, partial);
INPUT4(1, weight);
INPUT4(2, sums);
INPUT4(3, scales);
INPUT4(4, bias);
OUTPUT(5, result);
OUTPUT4(5, result4);

#include "epilogue.glsl"

#ifdef REFSIM_FINISH

const uint SLOTS = 1;

#else

const uint TILE_M = REFSIM_TILE_M, TILE_N = REFSIM_TILE_N, TILE_K = REFSIM_TILE_K;
const uint WARP_M = REFSIM_WARP_M, WARP_N = REFSIM_WARP_N, BUFFERS = REFSIM_BUFFERS;
const uint WARPS_M = TILE_M / WARP_M, WARPS_N = TILE_N / WARP_N, THREADS = 32 * WARPS_M * WARPS_N;
const uint TILE_QUADS = TILE_M / 4, K_WORDS = TILE_K / 4, K_CHUNKS = TILE_K / 16;
const uint ROW = K_CHUNKS + 1;  // vectors from a row to the next; the odd one spreads the banks
const uint STAGE = (TILE_M + TILE_N) * ROW;
const uint STRIP_ROW = WARP_N / 4 + 1, STRIP = 16 * STRIP_ROW;  // sums of 16 positions of a subgroup
const uint STRIPS = WARPS_M * WARPS_N * STRIP;
const uint POOL = BUFFERS * STAGE > STRIPS ? BUFFERS * STAGE : STRIPS;
const uint SLOTS = TILE_QUADS * K_WORDS / THREADS;  // quads that an invocation fetches
const uint COLUMNS = TILE_N * K_CHUNKS / THREADS;   // chunks of weights that it fetches
const uint ROWS_M = WARP_M / 16, ROWS_N = WARP_N / 16;

#endif
#endif
