// Matrix product over 4H4W tensors. An invocation computes four rows x eight outputs, of every plane.
//
// One loop over K serves both blocks of outputs: lavapipe ends all loops of an invocation after 65535 iterations together.
#version 450
#extension GL_EXT_control_flow_attributes : require
#extension GL_GOOGLE_include_directive : require
#include "include/dot.glsl"
#include "include/linear_bindings.glsl"

layout(set = 0, binding = 0) restrict writeonly buffer Out { ivec4 out_blocks[]; };
layout(set = 0, binding = 1) restrict readonly buffer In { ivec4 in_blocks[]; };

// Four rows x eight outputs, from words n4 of weights on; beyond the last output the weights read as 0.
void add_up(uint first, uint m4, uint plane, out ivec4 sums[TILE_N4][4]) {
    const uint k4s = fours(in_sizes.x), first_block = (plane * fours(in_sizes.y) + m4) * k4s;
    [[unroll]] for (uint tile = 0u; tile < TILE_N4; tile++) {
        sums[tile] = ivec4[4](ivec4(0), ivec4(0), ivec4(0), ivec4(0));
    }
    for (uint k4 = 0u; k4 < k4s; k4++) {
        const ivec4 x = in_blocks[first_block + k4];
        [[unroll]] for (uint tile = 0u; tile < TILE_N4; tile++) {
            const uint n4 = first + tile;
            const ivec4 w = texelFetch(weights, ivec2(n4, k4), 0);
            [[unroll]] for (uint row = 0u; row < 4u; row++) {
                [[unroll]] for (uint k = 0u; k < 4u; k++) {
                    sums[tile][row][k] = accumulate(x[row], w[k], sums[tile][row][k]);
                }
            }
        }
    }
}

// The block of four rows x four outputs; rows beyond the last are 0.
ivec4 block_of(ivec4 sums[4], uint n4, uint m4) {
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
    if (m4 >= m4s || first >= n4s) {
        return;
    }
    for (uint plane = 0u; plane < uint(out_sizes.z * out_sizes.w); plane++) {
        ivec4 sums[TILE_N4][4];
        add_up(first, m4, plane, sums);
        for (uint tile = 0u; tile < TILE_N4; tile++) {
            const uint n4 = first + tile;
            if (n4 < n4s) {
                out_blocks[(plane * m4s + m4) * n4s + n4] = block_of(sums[tile], n4, m4);
            }
        }
    }
}
