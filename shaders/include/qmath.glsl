// The one place that rounds (refsim/qmath.py, profile `canonical`). Every product and sum is `precise`: no fused
// operation, no contraction. No division. Values are clamped before they become integers.
#ifndef REFSIM_QMATH_GLSL
#define REFSIM_QMATH_GLSL

bool is_nan(float x) {
    return (floatBitsToInt(x) & 0x7FFFFFFF) > 0x7F800000;  // isnan() may be optimized away
}

// int(clamp(rne(y), -128 - zp, 127 - zp)) + zp; NaN counts as 0
int to_int8(float y, int zp) {
    float rounded = is_nan(y) ? 0.0 : roundEven(y);
    return int(clamp(rounded, float(-128 - zp), float(127 - zp))) + zp;
}

int requant(float y, float inv, int zp) {
    precise float scaled = y * inv;
    return to_int8(scaled, zp);
}

// f32(q - zp) * scale
float dequant(int q, int zp, float scale) {
    precise float real = float(q - zp) * scale;
    return real;
}

// a * b + c in two roundings
float mul_add(float a, float b, float c) {
    precise float product = a * b;
    precise float total = product + c;
    return total;
}

#endif
