#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/push/embedding_q4gsw.glsl"
#include "include/launch.glsl"
#include "include/qmath.glsl"
#include "include/int4.glsl"

// x is a word of four columns, y and z are the number of the row; an invocation writes four elements.
INPUT4(0, weight);
INPUT(1, scales);
INPUT(2, indices);
OUTPUT4(3, result);

void main() {
    int column = 4 * int(gl_GlobalInvocationID.x), width = push[OUT + W];
    int number = int(gl_GlobalInvocationID.z) * PLANE_ROW + int(gl_GlobalInvocationID.y);
    if (column >= width || int(gl_GlobalInvocationID.y) >= PLANE_ROW || number >= push[ROWS]) return;
    int row = indices[number], group = push[GROUP];
    precise vec4 values = vec4(0.0);
    if (row >= 0 && row < push[TABLE_ROWS]) {
        int word = weight[row / BLOCK_ROWS * (width >> 2) + (column >> 2)][row & 3];
        int at = row * (width / group);
        ivec4 of = at + (column + ivec4(0, 1, 2, 3)) / group;
        vec4 scale = intBitsToFloat(ivec4(scales[of.x], scales[of.y], scales[of.z], scales[of.w]));
        values = nibbles(word, row >> 2 & 1) * scale;
    }
    result[(number * width + column) >> 2] = floatBitsToInt(values);
}
