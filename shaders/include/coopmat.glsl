// Products of 16 x 32 by 32 x 16 bytes with int32 sums, which the 32 invocations of a subgroup compute together. Operands
// come from `pool`, which a kernel declares before it includes this: rows of K bytes, ROW vectors apart.
//   SUM, TILE_A, TILE_B                   16 x 16 sums, 16 rows of A, 16 rows of B (its columns)
//   ZERO                                  sums of nothing
//   LOAD_A(tile, at), LOAD_B(tile, at)    from vector `at` of the pool on
//   MULTIPLY(a, b, sum)                   add the products
//   STORE_SHARED(sum, at, stride)         to the pool, a row of sums every `stride` vectors
//   STORE_OUT(sum, at, stride)            to the words of `result`
//   SUBGROUP, LANE, SUBGROUP_BARRIER      the number of the subgroup, and of the invocation in it
// With REFSIM_EMULATED, integer loops stand for the device's instructions; staging, addresses and epilogues are the same.
#ifndef REFSIM_COOPMAT_GLSL
#define REFSIM_COOPMAT_GLSL

const uint EDGE = 16, DEPTH = 32, LANES = 32;

#ifdef REFSIM_EMULATED

struct Sum { int own[EDGE * EDGE / LANES]; };  // half a row

#define SUM Sum
#define TILE_A uint
#define TILE_B uint
#define ZERO Sum(int[8](0, 0, 0, 0, 0, 0, 0, 0))
#define SUBGROUP (gl_LocalInvocationIndex / LANES)
#define LANE (gl_LocalInvocationIndex % LANES)
#define SUBGROUP_BARRIER barrier()
#define LOAD_A(tile, at) tile = at
#define LOAD_B(tile, at) tile = at
#define MULTIPLY(a, b, sum) multiply(a, b, sum)
#define OWN_ROW (LANE / 2)
#define OWN_COLUMN (LANE % 2 * 8)

void multiply(uint a, uint b, inout Sum sum) {
    for (uint n = 0; n < 8; ++n) {
        for (uint k = 0; k < DEPTH / 4; ++k) {
            uint from_a = pool[a + OWN_ROW * ROW + k / 4][k % 4];
            uint from_b = pool[b + (OWN_COLUMN + n) * ROW + k / 4][k % 4];
            for (int l = 0; l < 4; ++l) sum.own[n] += lane(int(from_a), l) * lane(int(from_b), l);
        }
    }
}

#define STORE_SHARED(sum, at, stride) \
    for (uint o = 0; o < 8; ++o) { \
        pool[(at) + OWN_ROW * (stride) + (OWN_COLUMN + o) / 4][(OWN_COLUMN + o) % 4] = uint(sum.own[o]); \
    }
#define STORE_OUT(sum, at, stride) \
    for (uint o = 0; o < 8; ++o) result[(at) + OWN_ROW * (stride) + OWN_COLUMN + o] = sum.own[o];

#else

#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_EXT_shader_explicit_arithmetic_types_int8 : require

#define SUM coopmat<int, gl_ScopeSubgroup, EDGE, EDGE, gl_MatrixUseAccumulator>
#define TILE_A coopmat<int8_t, gl_ScopeSubgroup, EDGE, DEPTH, gl_MatrixUseA>
#define TILE_B coopmat<int8_t, gl_ScopeSubgroup, DEPTH, EDGE, gl_MatrixUseB>
#define ZERO SUM(0)
#define SUBGROUP gl_SubgroupID
#define LANE gl_SubgroupInvocationID
#define SUBGROUP_BARRIER subgroupMemoryBarrierShared(); subgroupBarrier()
#define LOAD_A(tile, at) coopMatLoad(tile, pool, at, ROW, gl_CooperativeMatrixLayoutRowMajor)
#define LOAD_B(tile, at) coopMatLoad(tile, pool, at, ROW, gl_CooperativeMatrixLayoutColumnMajor)
#define MULTIPLY(a, b, sum) sum = coopMatMulAdd(a, b, sum)
#define STORE_SHARED(sum, at, stride) coopMatStore(sum, pool, at, stride, gl_CooperativeMatrixLayoutRowMajor)
#define STORE_OUT(sum, at, stride) coopMatStore(sum, result, at, stride, gl_CooperativeMatrixLayoutRowMajor)

#endif
#endif
