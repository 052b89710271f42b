// Matrix product of one row, over 4W tensors. A workgroup computes eight outputs; its invocations divide K.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/dot.glsl"
#include "include/linear_bindings.glsl"

const uint MOST_WORKERS = 64u;

layout(set = 0, binding = 0) restrict writeonly buffer Out { int out_words[]; };
layout(set = 0, binding = 1) restrict readonly buffer In { int in_words[]; };

shared ivec4 partial[MOST_WORKERS][TILE_N4];

void main() {
    const uint n4s = fours(out_sizes.x), first = TILE_N4 * gl_GlobalInvocationID.x;
    const uint worker = gl_LocalInvocationID.z, workers = gl_WorkGroupSize.z;
    if (first >= n4s) {
        return;  // all invocations of the workgroup do: its size along x is 1
    }
    ivec4 sums[TILE_N4] = ivec4[TILE_N4](ivec4(0), ivec4(0));
    for (uint k4 = worker; k4 < fours(in_sizes.x); k4 += workers) {
        const int x = in_words[k4];
        for (uint tile = 0u; tile < min(TILE_N4, n4s - first); tile++) {
            const ivec4 w = texelFetch(weights, ivec2(first + tile, k4), 0);
            for (uint k = 0u; k < 4u; k++) {
                sums[tile][k] = accumulate(x, w[k], sums[tile][k]);
            }
        }
    }
    partial[worker] = sums;
    memoryBarrierShared();
    barrier();
    if (worker >= min(TILE_N4, n4s - first)) {
        return;
    }
    ivec4 total = ivec4(0);
    for (uint other = 0u; other < workers; other++) {
        total += partial[other][worker];
    }
    OUT_WORD(int_epilogue, total, first + worker, uint(out_sizes.x), word)
    out_words[first + worker] = word;
}
