#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/push/choose_qparams_affine_zp.glsl"
#include "include/launch.glsl"
#include "include/lanes.glsl"

INPUT(0, x);
OUTPUT(1, result);
#include "include/row_range.glsl"

shared int bytes[4];

// x is a word of the output, y one of its four rows
void main() {
    int rows = push[ROWS], words = (rows + 3) >> 2, word = int(gl_GlobalInvocationID.x);
    int line = word / words, lane = int(gl_LocalInvocationID.y), row = word % words * 4 + lane;
    bool live = row < rows;
    vec3 found = scaled(row_range(line * rows + row, live));
    if (gl_LocalInvocationID.z == 0) bytes[lane] = live ? zero_point(found) & 255 : 0;
    barrier();
    if (lane == 0 && gl_LocalInvocationID.z == 0) {
        result[word] = bytes[0] | bytes[1] << 8 | bytes[2] << 16 | bytes[3] << 24;
    }
}
