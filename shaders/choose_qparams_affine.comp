#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/push/choose_qparams_affine.glsl"
#include "include/launch.glsl"

INPUT(0, x);
OUTPUT(1, result);
#include "include/row_range.glsl"

void main() {
    int row = int(gl_GlobalInvocationID.x), rows = push[COUNT];
    bool live = row < rows;
    vec3 found = scaled(row_range(row, live));
    if (live && gl_LocalInvocationID.z == 0) result[row] = floatBitsToInt(found.x);
}
