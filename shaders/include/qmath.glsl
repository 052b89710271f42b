// The one place that rounds (refsim/qmath.py, profile `canonical`). Every product and sum is `precise`: no fused
// operation, no contraction. No division. Values are clamped before they become integers.
#ifndef REFSIM_QMATH_GLSL
#define REFSIM_QMATH_GLSL

bool is_nan(float x) {
    return (floatBitsToInt(x) & 0x7FFFFFFF) > 0x7F800000;  // isnan() may be optimized away
}

// int(clamp(rne(y), -128 - zp, 127 - zp)) + zp. The bounds are integers, so clamping first gives the same; then
// |y| < 2^8, and adding 3 * 2^22 rounds it to an integer, ties to even, in the low bits of the sum: one addition
// in place of a rounding and a conversion. probe/qmath.comp holds this against roundEven().
int to_int8(float y, int zp) {
    precise float shifted = clamp(y, float(-128 - zp), float(127 - zp)) + 12582912.0;
    return floatBitsToInt(shifted) - 0x4B400000 + zp;
}

// of a sum of integers, which is never NaN
int requant(float y, float inv, int zp) {
    precise float scaled = y * inv;
    return to_int8(scaled, zp);
}

// of any float; NaN counts as 0
int quantize(float x, float inv, int zp) {
    precise float scaled = x * inv;
    return to_int8(is_nan(scaled) ? 0.0 : scaled, zp);
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
