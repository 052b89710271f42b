#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/push/float/choose.glsl"
#include "include/launch.glsl"

const bool BINARY = true;
#define REFSIM_THIRD
#include "include/strided.glsl"

INPUT(0, a);
INPUT(1, b);
INPUT(2, c);
OUTPUT(3, result);

void main() {
    int number = element_number();
    if (number >= push[COUNT]) return;
    Places at = places(number);
    result[at.result] = c[third_place(number)] != 0 ? a[at.a] : b[at.b];
}
