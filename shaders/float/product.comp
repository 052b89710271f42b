#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/push/float/product.glsl"
#include "include/launch.glsl"
#include "include/qmath.glsl"
#include "include/real.glsl"

const bool BINARY = true;
#include "include/strided.glsl"

INPUT(0, a);
INPUT(1, b);
INPUT(2, c);
OUTPUT(3, result);

int place_of_bias(int number) {
    int at = push[C_AT];
    uint rest = uint(number);
    for (int k = 0; k < int(DIMS); ++k) {
        uint size = uint(push[SIZE_0 + k]);
        at += int(rest % size) * push[C_0 + k];
        rest /= size;
    }
    return at;
}

// Rows times columns, one addition after another.
void main() {
    int number = element_number();
    if (number >= push[COUNT]) return;
    Places at = places(number);
    float total = 0.0;
    for (int k = 0; k < push[LENGTH]; ++k) {
        float x = intBitsToFloat(a[at.a + k * push[A_STEP]]), y = intBitsToFloat(b[at.b + k * push[B_STEP]]);
        total = mul_add(x, y, total);
    }
    if (BIAS) total = sum(total, intBitsToFloat(c[place_of_bias(number)]));
    result[at.result] = floatBitsToInt(total);
}
