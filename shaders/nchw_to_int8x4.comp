#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/index.glsl"
#include "include/lanes.glsl"
#include "include/qmath.glsl"

// Push words as in refsim/ops/nchw_to_int8x4.py.
const int OUT = 0;
layout(constant_id = 6) const uint OUT_HASH = 0;
INPUT(0, x);
OUTPUT(1, result);
OUTPUT4(1, result4);

int source[4];

void fetch(int t, int i, ivec4 p) {
    int gathered = 0;
    int lanes = lanes_inside(OUT, OUT_HASH, p);
    [[unroll]] for (int k = 0; k < 4; ++k) {
        if (k < lanes) {
            ivec4 at = lane_coord(OUT_HASH, p, k);
            int flat_index = ((at.w * push[OUT + 2] + at.z) * push[OUT + 1] + at.y) * push[OUT] + at.x;
            gathered = insert(gathered, k, lane(x[flat_index >> 2], flat_index & 3));
        }
    }
    source[t] = gathered;
}

int word(int t, ivec4 p, int lanes) {
    return lanes > 0 ? source[t] : 0;
}

#include "include/elementwise.glsl"
