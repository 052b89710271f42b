#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/index.glsl"
#include "include/lanes.glsl"
#include "include/qmath.glsl"

// Push words as in refsim/ops/q8ta_add.py.
const int OUT = 0, A = 8, B = 16, A_SCALE = 24, A_ZP = 25, B_SCALE = 26, B_ZP = 27, INV = 28, ZP = 29, ALPHA = 30;
layout(constant_id = 6) const uint OUT_HASH = 0;
layout(constant_id = 7) const uint A_HASH = 0;
layout(constant_id = 8) const uint B_HASH = 0;
INPUT(0, a);
INPUT4(0, a4);
INPUT(1, b);
INPUT4(1, b4);
OUTPUT(2, result);
OUTPUT4(2, result4);

int word_a[4], word_b[4];
const bool FETCH4 = A_HASH == OUT_HASH && B_HASH == OUT_HASH;

void fetch(int t, int i, ivec4 p) {
    word_a[t] = a[A_HASH == OUT_HASH ? i : word_idx(A, A_HASH, p)];
    word_b[t] = b[B_HASH == OUT_HASH ? i : word_idx(B, B_HASH, p)];
}

void fetch4(int i, ivec4 p) {
    ivec4 va = a4[i >> 2], vb = b4[i >> 2];
    [[unroll]] for (int t = 0; t < 4; ++t) {
        word_a[t] = va[t];
        word_b[t] = vb[t];
    }
}

int word(int t, ivec4 p, int lanes) {
    vec4 addend = dequant4(lanes_of(word_b[t]), push[B_ZP], push_float(B_SCALE));
    precise vec4 scaled = push_float(ALPHA) * addend;
    vec4 total = mul_add4(vec4(lanes_of(word_a[t])) - float(push[A_ZP]), vec4(push_float(A_SCALE)), scaled);
    return first_lanes(requant4(total, push_float(INV), lowest(push[ZP], false), push[ZP]), lanes, 0);
}

#include "include/elementwise.glsl"
