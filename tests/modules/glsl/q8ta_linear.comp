// Matrix product over 4H4W tensors. An invocation computes four rows x eight outputs, of every plane.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/dot.glsl"
#include "include/linear_bindings.glsl"

layout(set = 0, binding = 0) restrict writeonly buffer Out { ivec4 out_blocks[]; };
layout(set = 0, binding = 1) restrict readonly buffer In { ivec4 in_blocks[]; };

// The block of four rows x four outputs; rows beyond the last are 0.
ivec4 block_at(uint n4, uint m4, uint plane) {
    const uint k4s = fours(in_sizes.x), first = (plane * fours(in_sizes.y) + m4) * k4s;
    ivec4 sums[4] = ivec4[4](ivec4(0), ivec4(0), ivec4(0), ivec4(0));
    for (uint k4 = 0u; k4 < k4s; k4++) {
        const ivec4 x = in_blocks[first + k4], w = texelFetch(weights, ivec2(n4, k4), 0);
        for (uint row = 0u; row < 4u; row++) {
            for (uint k = 0u; k < 4u; k++) {
                sums[row][k] = accumulate(x[row], w[k], sums[row][k]);
            }
        }
    }
    ivec4 block = ivec4(0);
    for (uint row = 0u; row < 4u; row++) {
        OUT_WORD(int_epilogue, sums[row], n4, uint(out_sizes.x), word)
        block[row] = 4u * m4 + row < uint(out_sizes.y) ? word : 0;
    }
    return block;
}

void main() {
    const uint n4s = fours(out_sizes.x), m4s = fours(out_sizes.y), m4 = gl_GlobalInvocationID.y;
    const uint first = TILE_N4 * gl_GlobalInvocationID.x;
    if (m4 >= m4s) {
        return;
    }
    for (uint plane = 0u; plane < uint(out_sizes.z * out_sizes.w); plane++) {
        for (uint tile = 0u; tile < TILE_N4; tile++) {
            const uint n4 = first + tile;
            if (n4 < n4s) {
                out_blocks[(plane * m4s + m4) * n4s + n4] = block_at(n4, m4, plane);
            }
        }
    }
}
