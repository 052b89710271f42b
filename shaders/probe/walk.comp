#version 450
#extension GL_GOOGLE_include_directive : require
#include "../include/push/probe/walk.glsl"
#include "../include/index.glsl"
// Pins the walk over a buffer's words, as kernels that compute each word by itself take it (include/elementwise.glsl),
// to refsim/core/index.py: every word holds a number made of its coordinate and of how many of its lanes are inside.

OUTPUT(0, result);
OUTPUT4(0, result4);

void fetch(int t, int i, ivec4 p) {}
int word(int t, ivec4 p, int lanes) {
    return p.x * push[RADIX_W] + p.y * push[RADIX_H] + p.z * push[RADIX_C] + p.w * push[RADIX_N] +
           lanes * push[RADIX_LANES];
}

#include "../include/elementwise.glsl"
