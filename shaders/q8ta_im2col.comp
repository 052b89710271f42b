#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/conv.glsl"

// x is a word of K, y a scratch column, z an output row of one batch. An invocation takes TILE_Y columns, which
// are one block of the scratch tensor.
INPUT(0, x);
OUTPUT4(1, result);

void main() {
    int k = int(gl_GlobalInvocationID.x), first = int(gl_GlobalInvocationID.y) * 4;
    if (4 * k >= push[OUT + 2] || first >= push[OUT]) return;
    int n = int(gl_WorkGroupID.z) / push[OUT + 1], oh = int(gl_WorkGroupID.z) % push[OUT + 1];
    int taps = push[KERNEL] * push[KERNEL + 1];
    int rest = k / push[IC4], tap = rest % taps;
    int word = k % push[IC4] + rest / taps * push[IC4];
    int h = oh * push[STRIDE] - push[PADDING] + tap / push[KERNEL + 1] * push[DILATION];
    int w = first * push[STRIDE + 1] - push[PADDING + 1] + tap % push[KERNEL + 1] * push[DILATION + 1];
    ivec4 four;
    [[unroll]] for (int t = 0; t < 4; ++t) {
        four[t] = in_image(w, h) ? x[x_word(w, h, word, n)] : splat(push[IN_ZP]);
        w += push[STRIDE + 1];
    }
    result[word_idx(OUT, OUT_HASH, ivec4(first, oh, 4 * k, n)) >> 2] = four;
}
