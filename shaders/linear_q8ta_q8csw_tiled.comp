#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/dot.glsl"
#include "include/push/linear_q8ta_q8csw_tiled.glsl"
#include "include/index.glsl"
#include "include/lanes.glsl"
#include "include/qmath.glsl"

// A position is a row; leading dims are folded into the rows.
INPUT(0, x);
INPUT4(1, weight);
INPUT4(2, sums);
INPUT4(3, scales);
INPUT4(4, bias);
OUTPUT(5, result);
#include "include/channels.glsl"

const uint MAX_SLOTS = 16;
int base[MAX_SLOTS], offset;

int depth() { return push[K4]; }
int all_channel_words() { return (push[OUT + W] + 3) >> 2; }
int slice_words() { return all_channel_words(); }
int first_channel_word() { return 0; }
int weight_row(int k) { return k; }
int positions() { return push[OUT + H] * push[OUT + C] * push[OUT + N]; }

// a row's coordinate: column (the tensor's h), row (c), plane (n)
ivec2 extents() { return ivec2(push[OUT + H], push[OUT + C]); }
ivec3 locate(int row) {
    uint plane = uint(row) / uint(push[OUT + H]);
    return ivec3(uint(row) % uint(push[OUT + H]), plane % uint(push[OUT + C]), plane / uint(push[OUT + C]));
}

void place(int slot, ivec3 at) {
    base[slot] = word_idx(X, X_HASH, ivec4(0, at));
}

void seek(int k) {
    offset = k * push[X + W_STRIDE] * words_per_block(X_HASH);
}

int a_word(int slot) {
    return x[base[slot] + offset];
}

// Four floats; without a bias 0 is added, which changes no bit: no product is -0.
void store(ivec3 at, int word, ivec4 acc, Channels of) {
    vec4 real = mul_add4(vec4(acc - push[IN_ZP] * of.sums), of.scales, of.bias);
    int first = buf_idx(OUT, OUT_HASH, ivec4(4 * word, at));
    [[unroll]] for (int k = 0; k < 4; ++k) {
        if (4 * word + k < push[OUT + W]) result[first + k * push[OUT + W_STRIDE]] = floatBitsToInt(real[k]);
    }
}

#include "include/gemm.glsl"
