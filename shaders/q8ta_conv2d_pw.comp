#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/dot.glsl"
#include "include/push/q8ta_conv2d_pw.glsl"
#include "include/conv.glsl"
#include "include/conv_gemm.glsl"

const uint MAX_SLOTS = 16;
int base[MAX_SLOTS], offset;

int depth() { return push[IC4]; }
int first_channel_word() { return int(gl_WorkGroupID.z) * push[OC4]; }
int weight_row(int k) { return k; }

ivec2 extents() { return ivec2(push[OUT + W], push[OUT + H]); }
ivec3 locate(int position) { return position_coord(position, push[OUT + W], push[OUT + H]); }

void place(int slot, ivec3 at) {
    base[slot] = x_word(at.x, at.y, int(gl_WorkGroupID.z) * push[IC4], at.z);
}

void seek(int k) {
    offset = k * push[X + C_STRIDE] * words_per_block(X_HASH);
}

int a_word(int slot) {
    return x[base[slot] + offset];
}

void store(ivec3 at, int channel_word, ivec4 acc, Channels of) {
    store_at(at, channel_word, acc, of, true);
}

#include "include/gemm.glsl"
