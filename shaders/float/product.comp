#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/push/float/product.glsl"
#include "include/launch.glsl"
#include "include/qmath.glsl"
#include "include/real.glsl"

const bool BINARY = true;
#define REFSIM_THIRD
#include "include/strided.glsl"

INPUT(0, a);
INPUT(1, b);
INPUT(2, c);
OUTPUT(3, result);

// Rows times columns, one addition after another.
void main() {
    int number = element_number();
    if (number >= push[COUNT]) return;
    Places at = places(number);
    float total = 0.0;
    for (int k = 0; k < push[LENGTH]; ++k) {
        float x = intBitsToFloat(a[at.a + k * push[A_STEP]]), y = intBitsToFloat(b[at.b + k * push[B_STEP]]);
        total = chained(x, y, total);
    }
    if (BIAS) total = sum(total, intBitsToFloat(c[third_place(number)]));
    result[at.result] = floatBitsToInt(total);
}
