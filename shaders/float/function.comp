#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/push/float/function.glsl"
#include "include/launch.glsl"
#include "include/qmath.glsl"
#include "include/real.glsl"
#include "include/function.glsl"

const bool BINARY = false;
#include "include/strided.glsl"

INPUT(0, a);
OUTPUT(1, result);

float negative(float x) {
    return uintBitsToFloat(floatBitsToUint(x) ^ 0x80000000u);
}

float sigmoid(float x) {
    return quotient(1.0, sum(1.0, exponential(negative(x))));
}

// (0.5 x) (1 + tanh(p (x + ((q x) x) x)))
float gelu(float x, float p, float q) {
    float inner = product(p, sum(x, product(product(product(q, x), x), x)));
    return product(product(0.5, x), sum(1.0, hyperbolic_tangent(inner)));
}

float value(float x, float p, float q) {
    switch (FUNCTION) {
        case EXP: return exponential(x);
        case SIGMOID: return sigmoid(x);
        case SILU: return product(x, sigmoid(x));
        case TANH: return hyperbolic_tangent(x);
        case GELU: return gelu(x, p, q);
        case LOG: return logarithm(x);
        case SQRT: return square_root(x);
        case RSQRT: return quotient(1.0, square_root(x));
        case ROOT_OF_SIZE: return square_root(uintBitsToFloat(size_of(x)));
        default: return quotient(1.0, x);
    }
}

void main() {
    int number = element_number();
    if (number >= push[COUNT]) return;
    Places at = places(number);
    float made = value(intBitsToFloat(a[at.a]), push_float(P), push_float(Q));
    result[at.result] = floatBitsToInt(made);
}
