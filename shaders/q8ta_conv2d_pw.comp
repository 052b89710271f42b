#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/dot.glsl"
#include "include/conv.glsl"
#include "include/conv_gemm.glsl"

const uint MAX_SLOTS = 16;
int base[MAX_SLOTS], offset;

int depth() { return push[IC4]; }
int first_channel_word() { return int(gl_WorkGroupID.z) * push[OC4]; }
int weight_row(int k) { return k; }

void place(int slot, int position) {
    ivec3 at = position_coord(position, push[OUT], push[OUT + 1]);
    base[slot] = x_word(at.x, at.y, int(gl_WorkGroupID.z) * push[IC4], at.z);
}

void seek(int k) {
    offset = k * push[X + 6] * words_per_block(X_HASH);
}

int a_word(int slot) {
    return x[base[slot] + offset];
}

void store(int position, int channel_word, ivec4 acc, Channels of) {
    store_at(position_coord(position, push[OUT], push[OUT + 1]), channel_word, acc, of, true);
}

#include "include/gemm.glsl"
