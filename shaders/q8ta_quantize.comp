#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/index.glsl"
#include "include/lanes.glsl"
#include "include/qmath.glsl"

// Push words as in refsim/ops/q8ta_quantize.py.
const int OUT = 0, X = 8, INV = 16, ZP = 17;
layout(constant_id = 6) const uint OUT_HASH = 0;
layout(constant_id = 7) const uint X_HASH = 0;
INPUT(0, x);
OUTPUT(1, result);
OUTPUT4(1, result4);

const bool FETCH4 = false;
int source[4];

void fetch(int t, int i, ivec4 p) {
    vec4 gathered = vec4(0.0);
    int lanes = lanes_inside(OUT, OUT_HASH, p);
    [[unroll]] for (int k = 0; k < 4; ++k) {
        if (k < lanes) gathered[k] = intBitsToFloat(x[buf_idx(X, X_HASH, lane_coord(OUT_HASH, p, k))]);
    }
    source[t] = quantize4(gathered, push_float(INV), push[ZP]);
}

void fetch4(int i, ivec4 p) {}

// padding is the quantized 0.0
int word(int t, ivec4 p, int lanes) {
    return first_lanes(source[t], lanes, splat(push[ZP]));
}

#include "include/elementwise.glsl"
