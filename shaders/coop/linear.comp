#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/push/coop/linear.glsl"
#include "include/index.glsl"
#include "include/lanes.glsl"
#include "include/qmath.glsl"
#include "include/coop.glsl"

// A position is a row, and a quad four rows of a block; leading dims are planes.
int origin[SLOTS], word_of_k;

ivec2 extents() { return ivec2((push[OUT + H] + 3) >> 2, push[OUT + C]); }
int planes() { return push[OUT + N]; }
int columns() { return push[OUT + H]; }
int chunks() { return (push[K4] + 3) >> 2; }
int all_channels() { return push[OUT + W]; }
int slice_words() { return (push[OUT + W] + 3) >> 2; }
bool out_quads() { return true; }
bool quads_first() { return false; }
int out_index(ivec3 at, int channel) { return word_idx(OUT, OUT_HASH, ivec4(channel, at)); }

ivec3 locate(int quad) {
    uint plane = uint(quad) / uint(extents().x);
    return ivec3(4 * (uint(quad) % uint(extents().x)), plane % uint(push[OUT + C]), plane / uint(push[OUT + C]));
}

void place(int slot, ivec3 at) {
    origin[slot] = word_idx(X, X_HASH, ivec4(0, at)) >> 2;
}

// Beyond K the weights are 0: any word will do there, if it lies in the tensor.
void seek(int k) {
    word_of_k = min(k, push[K4] - 1);
}

ivec4 a_low(int slot) { return x4[origin[slot] + word_of_k]; }
ivec4 a_high(int slot) { return ivec4(0); }
ivec4 a_quad(int slot, ivec4 low, ivec4 high) { return low; }

#include "include/coop_gemm.glsl"
