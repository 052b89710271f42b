#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/dot.glsl"
#include "include/conv.glsl"
#include "include/conv_gemm.glsl"

const uint MAX_SLOTS = 16;
ivec3 origin[MAX_SLOTS];  // the tap (0, 0) of a position: column, row, batch
ivec2 tap;                // offset of the sought tap: column, row
int channel_word;

int depth() { return push[KERNEL] * push[KERNEL + 1] * push[IC4]; }
int first_channel_word() { return int(gl_WorkGroupID.z) * push[OC4]; }
int weight_row(int k) { return k; }

void place(int slot, int position) {
    ivec3 at = position_coord(position, push[OUT], push[OUT + 1]);
    at.x = at.x * push[STRIDE + 1] - push[PADDING + 1];
    at.y = at.y * push[STRIDE] - push[PADDING];
    origin[slot] = at;
}

void seek(int k) {
    uint number = uint(k) / uint(push[IC4]);
    channel_word = int(uint(k) % uint(push[IC4])) + int(gl_WorkGroupID.z) * push[IC4];
    tap.x = int(number % uint(push[KERNEL + 1])) * push[DILATION + 1];
    tap.y = int(number / uint(push[KERNEL + 1])) * push[DILATION];
}

int a_word(int slot) {
    ivec2 at = origin[slot].xy + tap;
    return in_image(at.x, at.y) ? x[x_word(at.x, at.y, channel_word, origin[slot].z)] : splat(push[IN_ZP]);
}

void store(int position, int word, ivec4 acc, Channels of) {
    store_at(position_coord(position, push[OUT], push[OUT + 1]), word, acc, of, false);
}

#include "include/gemm.glsl"
