#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/dot.glsl"
// A loop of packed dot products and nothing else: what a matrix-like kernel could reach at best. Eight sums that do
// not depend on each other; push word 0 is the number of rounds, 64 dot products each.
layout(local_size_x = 256) in;
layout(push_constant) uniform Push { int rounds; };
layout(std430, set = 0, binding = 0) readonly buffer In { int seed[]; };
layout(std430, set = 0, binding = 1) buffer Out { int result[]; };

void main() {
    int at = int(gl_GlobalInvocationID.x);
    int a[8], acc[8];
    for (int i = 0; i < 8; ++i) {
        a[i] = seed[(at + i) & 1023];
        acc[i] = i;
    }
    for (int r = 0; r < rounds; ++r) {
        for (int j = 0; j < 8; ++j) {
            for (int i = 0; i < 8; ++i) acc[i] += dot4(a[i], a[j]);
        }
        for (int i = 0; i < 8; ++i) a[i] ^= r;
    }
    int sum = 0;
    for (int i = 0; i < 8; ++i) sum ^= acc[i];
    result[at] = sum;
}
