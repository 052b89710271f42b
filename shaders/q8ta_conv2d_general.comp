#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/dot.glsl"
#include "include/push/q8ta_conv2d_general.glsl"
#include "include/conv.glsl"
#include "include/conv_gemm.glsl"

const uint MAX_SLOTS = 16;
ivec3 origin[MAX_SLOTS];  // the tap (0, 0) of a position: column, row, batch
ivec2 tap;                // offset of the sought tap: column, row
int channel_word;

int depth() { return push[KERNEL_H] * push[KERNEL_W] * push[IC4]; }
int first_channel_word() { return int(gl_WorkGroupID.z) * push[OC4]; }
int weight_row(int k) { return k; }

ivec2 extents() { return ivec2(push[OUT + W], push[OUT + H]); }
ivec3 locate(int position) { return position_coord(position, push[OUT + W], push[OUT + H]); }

void place(int slot, ivec3 at) {
    at.x = at.x * push[STRIDE_W] - push[PADDING_W];
    at.y = at.y * push[STRIDE_H] - push[PADDING_H];
    origin[slot] = at;
}

void seek(int k) {
    uint words = uint(push[IC4]), number = words == 1 ? uint(k) : uint(k) / words;
    channel_word = k - int(number * words) + int(gl_WorkGroupID.z) * push[IC4];
    tap.x = int(number % uint(push[KERNEL_W])) * push[DILATION_W];
    tap.y = int(number / uint(push[KERNEL_W])) * push[DILATION_H];
}

int a_word(int slot) {
    ivec2 at = origin[slot].xy + tap;
    return in_image(at.x, at.y) ? x[x_word(at.x, at.y, channel_word, origin[slot].z)] : splat(push[IN_ZP]);
}

void store(ivec3 at, int word, ivec4 acc, Channels of) {
    store_at(at, word, acc, of, false);
}

#include "include/gemm.glsl"
