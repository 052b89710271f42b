// The one place that rounds (refsim/core/qmath.py, profile `canonical`). Every product and sum is `precise`: no fused
// operation, no contraction. No division. Values are clamped before they become integers.
#ifndef REFSIM_QMATH_GLSL
#define REFSIM_QMATH_GLSL

bvec4 is_nan4(vec4 x) {
    return greaterThan(floatBitsToInt(x) & 0x7FFFFFFF, ivec4(0x7F800000));  // isnan() may be optimized away
}

// The least that a value may be before it is rounded. A relu asks for no comparison of its own: scales are positive.
float lowest(int zp, bool relu) {
    return relu ? 0.0 : float(-128 - zp);
}

// The bytes int(clamp(rne(y), low, high)) + zp of a word, high at most 127 - zp. The bounds are integers, so clamping first gives the
// same; then |y| < 2^8, and adding 3 * 2^22 rounds it to an integer n, ties to even, in the low bits of the sum: one
// addition in place of a rounding and a conversion. probe/qmath.comp holds this against roundEven(). The four sums are
// put together as digits to the base 256, modulo 2^32; what each has beyond n + zp + 128, which is a digit, is
// taken from all at once.
int to_int8x4(vec4 y, float low, float high, int zp) {
    precise vec4 shifted = clamp(y, vec4(low), vec4(high)) + 12582912.0;
    ivec4 digit = floatBitsToInt(shifted);
    int all = digit.x + (digit.y + (digit.z + (digit.w << 8) << 8) << 8);
    return all - (0x4B400000 - zp - 128) * 0x01010101 ^ int(0x80808080u);
}

int to_int8x4(vec4 y, float low, int zp) {
    return to_int8x4(y, low, float(127 - zp), zp);
}

// What a value lies between before it is rounded: what zp leaves of the int8 range, narrowed by a relu and by the bounds
// in a kernel's flags (`bounds_bits` in refsim/core/qmath.py).
vec2 bounds(int zp, bool relu, int flags) {
    int low = (flags >> 16 & 255) - 128 - zp, high = 127 - (flags >> 24 & 255) - zp;
    return vec2(min(relu ? max(low, 0) : low, high), high);
}

// of numbers of which none is NaN
int requant4(vec4 y, float inv, vec2 bounds, int zp) {
    precise vec4 scaled = y * inv;
    return to_int8x4(scaled, bounds.x, bounds.y, zp);
}
int requant4(vec4 y, float inv, float low, int zp) {
    precise vec4 scaled = y * inv;
    return to_int8x4(scaled, low, zp);
}

// of any numbers; NaN counts as 0
int quantize4(vec4 x, float inv, int zp) {
    precise vec4 scaled = x * inv;
    return to_int8x4(mix(scaled, vec4(0.0), is_nan4(scaled)), lowest(zp, false), zp);
}

// f32(q - zp) * scale; the difference is exact
float dequant(int q, int zp, float scale) {
    precise float real = (float(q) - float(zp)) * scale;
    return real;
}
vec4 dequant4(ivec4 q, int zp, float scale) {
    precise vec4 real = (vec4(q) - float(zp)) * scale;
    return real;
}

// a * b + c in two roundings
float mul_add(float a, float b, float c) {
    precise float product = a * b;
    precise float total = product + c;
    return total;
}
vec4 mul_add4(vec4 a, vec4 b, vec4 c) {
    precise vec4 product = a * b;
    precise vec4 total = product + c;
    return total;
}

#endif
