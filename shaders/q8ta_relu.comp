#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/index.glsl"
#include "include/lanes.glsl"
#include "include/qmath.glsl"

// Push words as in refsim/ops/q8ta_relu.py.
const int OUT = 0, X = 8, IN_SCALE = 16, IN_ZP = 17, INV = 18, ZP = 19;
layout(constant_id = 6) const uint OUT_HASH = 0;
layout(constant_id = 7) const uint X_HASH = 0;
INPUT(0, x);
INPUT4(0, x4);
OUTPUT(1, result);
OUTPUT4(1, result4);

int source[4];
const bool FETCH4 = X_HASH == OUT_HASH;

void fetch(int t, int i, ivec4 p) {
    source[t] = x[X_HASH == OUT_HASH ? i : word_idx(X, X_HASH, p)];
}

void fetch4(int i, ivec4 p) {
    ivec4 four = x4[i >> 2];
    [[unroll]] for (int t = 0; t < 4; ++t) source[t] = four[t];
}

int word(int t, ivec4 p, int lanes) {
    vec4 real = dequant4(lanes_of(source[t]), push[IN_ZP], push_float(IN_SCALE));
    return first_lanes(requant4(real, push_float(INV), lowest(push[ZP], true), push[ZP]), lanes, 0);
}

#include "include/elementwise.glsl"
