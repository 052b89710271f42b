#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/push/int8x4_to_nchw.glsl"
#include "include/index.glsl"
#include "include/lanes.glsl"
#include "include/qmath.glsl"

// The output is one-dimensional, so p.x is the element's number.
INPUT(0, x);
OUTPUT(1, result);
OUTPUT4(1, result4);

int source[4];

void fetch(int t, int i, ivec4 p) {
    int gathered = 0;
    int lanes = lanes_inside(OUT, OUT_HASH, p);
    [[unroll]] for (int k = 0; k < 4; ++k) {
        if (k < lanes) {
            uvec4 size = uvec4(push[X + W], push[X + H], push[X + C], 0);
            uint row = uint(p.x + k) / size.x, plane = row / size.y;
            ivec4 at = ivec4(uint(p.x + k) % size.x, row % size.y, plane % size.z, plane / size.z);
            int place = buf_idx(X, X_HASH, at);
            gathered = insert(gathered, k, lane(x[place >> 2], place & 3));
        }
    }
    source[t] = gathered;
}

int word(int t, ivec4 p, int lanes) {
    return lanes > 0 ? source[t] : 0;
}

#include "include/elementwise.glsl"
