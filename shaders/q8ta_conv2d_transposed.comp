#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/dot.glsl"
#include "include/push/q8ta_conv2d_transposed.glsl"
#include "include/conv.glsl"
#include "include/conv_gemm.glsl"

// z is a phase (remainders of row and column by the stride) within a group. Taps that cannot hit in a phase are
// skipped; what they contribute, zp_in * w, stands behind the weights: [phase][output channel].
const uint MAX_SLOTS = 16;
ivec3 origin[MAX_SLOTS];  // the input that the phase's first tap reads: column, row, batch
ivec2 step;               // how many taps of the phase further
int channel_word;

int phases() { return push[STRIDE_H] * push[STRIDE_W]; }
int group() { return int(gl_WorkGroupID.z) / phases(); }
ivec2 phase() {
    int number = int(gl_WorkGroupID.z) % phases();
    return ivec2(number % push[STRIDE_W], number / push[STRIDE_W]);
}
ivec2 padding() { return ivec2(push[PADDING_W], push[PADDING_H]); }
ivec2 stride() { return ivec2(push[STRIDE_W], push[STRIDE_H]); }
ivec2 kernel() { return ivec2(push[KERNEL_W], push[KERNEL_H]); }
ivec2 first_tap() { return (phase() + padding()) % stride(); }
ivec2 taps() { return max((kernel() - first_tap() + stride() - 1) / stride(), ivec2(0)); }
ivec2 grid() { return (ivec2(push[OUT + W], push[OUT + H]) + stride() - 1) / stride(); }

int depth() { return taps().x * taps().y * push[IC4]; }
int first_channel_word() { return group() * push[OC4]; }

int weight_row(int k) {
    int number = k / push[IC4];
    ivec2 at = first_tap() + ivec2(number % taps().x, number / taps().x) * stride();
    return (at.y * push[KERNEL_W] + at.x) * push[IC4] + k % push[IC4];
}

ivec2 extents() { return grid(); }
ivec3 locate(int position) { return position_coord(position, grid().x, grid().y); }

void place(int slot, ivec3 at) {
    at.xy = (at.xy * stride() + phase() + padding() - first_tap()) / stride();
    origin[slot] = at;
}

void seek(int k) {
    int number = k / push[IC4];
    channel_word = k % push[IC4] + group() * push[IC4];
    step = ivec2(number % taps().x, number / taps().x);
}

int a_word(int slot) {
    ivec2 at = origin[slot].xy - step;
    return in_image(at.x, at.y) ? x[x_word(at.x, at.y, channel_word, origin[slot].z)] : splat(push[IN_ZP]);
}

void store(ivec3 at, int word, ivec4 acc, Channels of) {
    at.xy = at.xy * stride() + phase();
    if (at.x >= push[OUT + W] || at.y >= push[OUT + H]) return;
    int rows = push[KERNEL_H] * push[KERNEL_W] * push[IC4] + int(gl_WorkGroupID.z) % phases();
    store_at(at, word, acc + push[IN_ZP] * weight[rows * all_channel_words() + word], of, false);
}

#define positions() (grid().x * grid().y * push[OUT + N])
#include "include/gemm.glsl"
