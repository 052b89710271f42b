#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/push/nchw_to_int8x4.glsl"
#include "include/index.glsl"
#include "include/lanes.glsl"
#include "include/qmath.glsl"

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
            int flat_index = ((at.w * push[OUT + C] + at.z) * push[OUT + H] + at.y) * push[OUT + W] + at.x;
            gathered = insert(gathered, k, lane(x[flat_index >> 2], flat_index & 3));
        }
    }
    source[t] = gathered;
}

int word(int t, ivec4 p, int lanes) {
    return lanes > 0 ? source[t] : 0;
}

#include "include/elementwise.glsl"
