#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/conv.glsl"

// x is a word of channels, y an output column, z an output row of one batch. An invocation takes TILE_Y columns.
INPUT(0, x);
INPUT(1, weight);
INPUT(2, sums);
INPUT(3, scales);
INPUT(4, bias);
OUTPUT(5, result);
#include "include/epilogue.glsl"

void main() {
    int word = int(gl_GlobalInvocationID.x), words = push[OUT + 2] >> 2;
    int first = int(gl_GlobalInvocationID.y * TILE_Y);
    if (word >= words || first >= push[OUT]) return;
    int n = int(gl_WorkGroupID.z) / push[OUT + 1], oh = int(gl_WorkGroupID.z) % push[OUT + 1];
    ivec4 acc[TILE_Y];
    for (uint t = 0; t < TILE_Y; ++t) acc[t] = ivec4(0);
    for (int i = 0; i < push[KERNEL]; ++i) {
        int h = oh * push[STRIDE] - push[PADDING] + i * push[DILATION];
        for (int j = 0; j < push[KERNEL + 1]; ++j) {
            int taps = weight[(i * push[KERNEL + 1] + j) * words + word];
            ivec4 w4 = ivec4(lane(taps, 0), lane(taps, 1), lane(taps, 2), lane(taps, 3));
            for (uint t = 0; t < TILE_Y; ++t) {
                int w = (first + int(t)) * push[STRIDE + 1] - push[PADDING + 1] + j * push[DILATION + 1];
                int source = in_image(w, h) ? x[x_word(w, h, word, n)] : splat(push[IN_ZP]);
                acc[t] += ivec4(lane(source, 0), lane(source, 1), lane(source, 2), lane(source, 3)) * w4;
            }
        }
    }
    Channels of = channels_at(4 * word);
    for (uint t = 0; t < TILE_Y && first + int(t) < push[OUT]; ++t) {
        int to = word_idx(OUT, OUT_HASH, ivec4(first + int(t), oh, 4 * word, n));
        result[to] = out_word(false, acc[t], of, 4 * word, push[OUT + 2]);
    }
}
