// a / b, rounded to nearest even. Vulkan lets a device divide less exactly, and lose denormals; so this divides the
// bits, one digit after another. b is positive and no NaN.
#ifndef REFSIM_QUOTIENT_GLSL
#define REFSIM_QUOTIENT_GLSL

const uint INFINITE = 0x7F800000u, FRACTION = 0x007FFFFFu;

// (fraction with its leading one in bit 23, exponent) of the bits of a finite number above 0
uvec2 normal(uint bits) {
    uint exponent = bits >> 23, fraction = bits & FRACTION;
    if (exponent > 0u) return uvec2(fraction | 0x00800000u, exponent + 64u);
    uint up = 23u - uint(findMSB(fraction));
    return uvec2(fraction << up, 65u - up);
}

float quotient(float a, float b) {
    uint sign = floatBitsToUint(a) & 0x80000000u, above = floatBitsToUint(a) & 0x7FFFFFFFu, below = floatBitsToUint(b);
    if (above > INFINITE || (above == INFINITE && below == INFINITE)) return uintBitsToFloat(0x7FC00000u);
    if (above == 0u || below == INFINITE) return uintBitsToFloat(sign);
    if (above == INFINITE || below == 0u) return uintBitsToFloat(sign | INFINITE);
    uvec2 p = normal(above), q = normal(below);
    int exponent = int(p.y) - int(q.y) + 127;
    uint rest = p.x, digits = 0u;
    if (rest < q.x) {
        rest <<= 1;
        exponent -= 1;
    }
    for (int i = 0; i < 26; ++i) {  // 24 digits and two more, of which the last also stands for all that follow
        bool fits = rest >= q.x;
        if (fits) rest -= q.x;
        digits = digits << 1 | uint(fits);
        rest <<= 1;
    }
    if (rest != 0u) digits |= 1u;
    int drop = 2;
    if (exponent < 1) {  // denormal: digits are lost on the right
        drop = min(2 + 1 - exponent, 28);
        exponent = 0;
    }
    uint kept = digits >> drop, half_ = 1u << (drop - 1), lost = digits & ((1u << drop) - 1u);
    if (lost > half_ || (lost == half_ && (kept & 1u) == 1u)) kept += 1u;
    uint bits = exponent > 0 ? kept + (uint(exponent - 1) << 23) : kept;  // a carry moves on to the exponent
    return uintBitsToFloat(sign | min(bits, INFINITE));
}

#endif
