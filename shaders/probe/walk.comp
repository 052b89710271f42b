#version 450
#extension GL_GOOGLE_include_directive : require
#include "../include/index.glsl"
// Pins the walk over a buffer's words, as kernels that compute each word by itself take it (include/elementwise.glsl),
// to refsim/core/index.py: every word holds a number made of its coordinate and of how many of its lanes are inside.

const int OUT = 0, RADIX = 8;  // five multipliers, for w, h, c, n and the lanes
layout(constant_id = 6) const uint OUT_HASH = 0;
OUTPUT(0, result);
OUTPUT4(0, result4);

void fetch(int t, int i, ivec4 p) {}
int word(int t, ivec4 p, int lanes) {
    return p.x * push[RADIX] + p.y * push[RADIX + 1] + p.z * push[RADIX + 2] + p.w * push[RADIX + 3] +
           lanes * push[RADIX + 4];
}

#include "../include/elementwise.glsl"
