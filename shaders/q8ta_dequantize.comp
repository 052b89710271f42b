#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/index.glsl"
#include "include/lanes.glsl"
#include "include/qmath.glsl"

// Push words as in refsim/ops/q8ta_dequantize.py; an output word is one float.
const int OUT = 0, X = 8, SCALE = 16, ZP = 17;
layout(constant_id = 6) const uint OUT_HASH = 0;
layout(constant_id = 7) const uint X_HASH = 0;
INPUT(0, x);
OUTPUT(1, result);
OUTPUT4(1, result4);

const bool FETCH4 = false;
int source[4];

void fetch(int t, int i, ivec4 p) {
    int at = buf_idx(X, X_HASH, p);
    source[t] = lane(x[at >> 2], at & 3);
}

void fetch4(int i, ivec4 p) {}

int word(int t, ivec4 p, int lanes) {
    return floatBitsToInt(dequant(source[t], push[ZP], push_float(SCALE)));
}

#include "include/elementwise.glsl"
