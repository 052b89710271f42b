#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/push/q8ta_im2col.glsl"
#include "include/conv.glsl"

// x is a word of K, y a scratch column, z an output row of one batch. An invocation takes TILE_Y columns, which
// are one block of the scratch tensor.
INPUT(0, x);
OUTPUT4(1, result);

void main() {
    int k = int(gl_GlobalInvocationID.x), first = int(gl_GlobalInvocationID.y) * 4;
    if (4 * k >= push[OUT + C] || first >= push[OUT + W]) return;
    int n = int(gl_WorkGroupID.z) / push[OUT + H], oh = int(gl_WorkGroupID.z) % push[OUT + H];
    int taps = push[KERNEL_H] * push[KERNEL_W];
    int rest = k / push[IC4], tap = rest % taps;
    int word = k % push[IC4] + rest / taps * push[IC4];
    int h = oh * push[STRIDE_H] - push[PADDING_H] + tap / push[KERNEL_W] * push[DILATION_H];
    int w = first * push[STRIDE_W] - push[PADDING_W] + tap % push[KERNEL_W] * push[DILATION_W];
    ivec4 four;
    [[unroll]] for (int t = 0; t < 4; ++t) {
        four[t] = in_image(w, h) ? x[x_word(w, h, word, n)] : splat(push[IN_ZP]);
        w += push[STRIDE_W];
    }
    result[word_idx(OUT, OUT_HASH, ivec4(first, oh, 4 * k, n)) >> 2] = four;
}
