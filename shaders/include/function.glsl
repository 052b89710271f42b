// exp, log, tanh, sqrt and 1 / sqrt of binary32, rounded to nearest even: to the bits of the definition, which rounds binary64.
// All is integers of 64 bits, the same on every device. tests/gpu/test_float_kernels.py says for which numbers it was tried.
#ifndef REFSIM_FUNCTION_GLSL
#define REFSIM_FUNCTION_GLSL

#include "real.glsl"

const uvec2 INVERSE_FACTORIALS[20] = uvec2[](  // 2^62 / n!, from n = 1 on
    uvec2(0x00000000u, 0x40000000u), uvec2(0x00000000u, 0x20000000u), uvec2(0xAAAAAAABu, 0x0AAAAAAAu),
    uvec2(0xAAAAAAABu, 0x02AAAAAAu), uvec2(0x88888889u, 0x00888888u), uvec2(0x16C16C17u, 0x0016C16Cu),
    uvec2(0x03403403u, 0x00034034u), uvec2(0x80680680u, 0x00006806u), uvec2(0xF1D2AB64u, 0x00000B8Eu),
    uvec2(0xE4FB778Au, 0x00000127u), uvec2(0xE64567F5u, 0x0000001Au), uvec2(0x3DDB1DFFu, 0x00000002u),
    uvec2(0x2C248C27u, 0x00000000u), uvec2(0x03272E95u, 0x00000000u), uvec2(0x0035CFE8u, 0x00000000u),
    uvec2(0x00035CFEu, 0x00000000u), uvec2(0x000032A6u, 0x00000000u), uvec2(0x000002D0u, 0x00000000u),
    uvec2(0x00000026u, 0x00000000u), uvec2(0x00000002u, 0x00000000u)
);
const uvec2 TANGENT[14] = uvec2[](  // 2^63 times the size of each coefficient of tanh, which alternate in sign
    uvec2(0x00000000u, 0x80000000u), uvec2(0xAAAAAAABu, 0x2AAAAAAAu), uvec2(0x11111111u, 0x11111111u),
    uvec2(0xE86E86E8u, 0x06E86E86u), uvec2(0x05821F3Eu, 0x02CC9E91u), uvec2(0x5E6C23C9u, 0x01226E35u),
    uvec2(0x3855F77Fu, 0x0075B4F4u), uvec2(0x8A56EBC5u, 0x002FB46Cu), uvec2(0x48036744u, 0x00135582u),
    uvec2(0xDCD34599u, 0x0007D5F5u), uvec2(0x315F95F6u, 0x00032CFCu), uvec2(0x8EEA2526u, 0x0001497Du),
    uvec2(0x969CD303u, 0x00008589u), uvec2(0xE5A7DC4Au, 0x0000361Eu)
);
const uvec2 LOG_2 = uvec2(0xD1CF79ABu, 0xB17217F7u);  // 2^64 log(2)
const uint LOG_2_REST = 0xC9E3B398u;                  // and 32 bits more
const uvec2 LOG_2_57 = uvec2(0xEFA39EF3u, 0x0162E42Fu);  // 2^57 log(2), and 32 bits more
const uint LOG_2_57_REST = 0x5793C767u;
const uvec2 ODD_INVERSES[14] = uvec2[](  // 2^62 / (2 n + 1)
    uvec2(0x00000000u, 0x40000000u), uvec2(0x55555555u, 0x15555555u), uvec2(0xCCCCCCCDu, 0x0CCCCCCCu),
    uvec2(0x24924925u, 0x09249249u), uvec2(0x1C71C71Cu, 0x071C71C7u), uvec2(0x1745D174u, 0x05D1745Du),
    uvec2(0xEC4EC4ECu, 0x04EC4EC4u), uvec2(0x44444444u, 0x04444444u), uvec2(0xC3C3C3C4u, 0x03C3C3C3u),
    uvec2(0x9435E50Du, 0x035E50D7u), uvec2(0x0C30C30Cu, 0x030C30C3u), uvec2(0x21642C86u, 0x02C8590Bu),
    uvec2(0xF5C28F5Cu, 0x028F5C28u), uvec2(0xB425ED09u, 0x025ED097u)
);
const uint ONE = 0x3F800000u, HALF = 0x3F000000u;

// e^x = E * 2^(exponent - 62) for 2^-26 <= |x| < 128, with E from 2^62 to 1.006 * 2^63
uvec2 power_of_e(float x, out int exponent) {
    precise float steps = x * 1.442695041;
    precise float lower = steps - 0.004;  // so that the rest is not negative
    exponent = int(floor(lower));
    int shift = int(size_of(x) >> 23) - 86;
    uvec2 rest = left(uvec2(floatBitsToUint(x) & 0x7FFFFFu | 0x800000u, 0u), uint(shift)), whole;  // modulo 1
    uint count = uint(abs(exponent)), beyond, unused;
    umulExtended(count, LOG_2.x, whole.y, whole.x);
    umulExtended(count, LOG_2_REST, beyond, unused);
    whole = added(uvec2(whole.x, whole.y + count * LOG_2.y), uvec2(beyond, 0u));
    rest = x < 0.0 ? subtracted(uvec2(0u), rest) : rest;
    rest = exponent < 0 ? added(rest, whole) : subtracted(rest, whole);
    uvec2 total = INVERSE_FACTORIALS[19];
    [[unroll]] for (int n = 18; n >= 0; --n) total = added(INVERSE_FACTORIALS[n], times(rest, total));
    return added(uvec2(0u, 0x40000000u), times(rest, total));
}

float exponential(float x) {
    uint size = size_of(x);
    bool negative = floatBitsToInt(x) < 0;
    if (size > INFINITE) return uintBitsToFloat(floatBitsToUint(x) | QUIET);
    if (size >= 0x42D00000u) return negative ? 0.0 : uintBitsToFloat(INFINITE);  // 104
    if (size < 0x32800000u) return 1.0;                                          // 2^-26
    int exponent;
    uvec2 power = power_of_e(x, exponent);
    return uintBitsToFloat(rounded(power, exponent));
}

// shifted until bit 62 is the first one; ``exponent`` follows
uvec2 shifted_up(uvec2 scaled, inout int exponent) {
    if ((scaled.y & 0x80000000u) != 0u) {
        ++exponent;
        return right(scaled, 1u) | uvec2(scaled.x & 1u, 0u);
    }
    int by = scaled.y != 0u ? 30 - findMSB(scaled.y) : 62 - findMSB(scaled.x);
    exponent -= by;
    return left(scaled, uint(by));
}

float hyperbolic_tangent(float x) {
    uint size = size_of(x), sign = floatBitsToUint(x) & 0x80000000u;
    if (size > INFINITE) return uintBitsToFloat(floatBitsToUint(x) | QUIET);
    if (size >= 0x41200000u) return uintBitsToFloat(sign | ONE);  // 10
    if (size < 0x39800000u) return x;                             // 2^-12
    int exponent = int(size >> 23) - 127;
    uvec2 scaled;
    if (size < 0x3E800000u) {  // 1/4: a series in the square
        uint m = size & 0x7FFFFFu | 0x800000u;
        uvec2 square;
        umulExtended(m, m, square.y, square.x);
        int by = 18 + 2 * exponent;
        square = by < 0 ? right(square, uint(-by)) : left(square, uint(by));
        uvec2 total = TANGENT[13];
        [[unroll]] for (int n = 12; n >= 0; --n) total = subtracted(TANGENT[n], times(square, total));
        scaled = times(uvec2(0u, m << 8), total);
        if ((scaled.y & 0x40000000u) == 0u) {
            scaled = left(scaled, 1u);
            --exponent;
        }
    } else {  // (1 - u) / (1 + u), digit by digit, of u = exp(-2 |x|)
        int down;
        uvec2 u = power_of_e(uintBitsToFloat(size + 0x00800000u | 0x80000000u), down), one = uvec2(0u, 0x40000000u);
        u = right(u, uint(-down));
        uvec2 rest = subtracted(one, u), divisor = added(one, u);
        scaled = uvec2(0u);
        for (int digit = 0; digit < 63; ++digit) {
            rest = left(rest, 1u);
            scaled = left(scaled, 1u);
            if (!above(divisor, rest)) {
                rest = subtracted(rest, divisor);
                scaled.x |= 1u;
            }
        }
        exponent = -1;
        scaled = shifted_up(scaled, exponent);
    }
    return uintBitsToFloat(sign | rounded(scaled, exponent));
}

// e log(2) + log(m), m from 1 / sqrt(2) to sqrt(2), of which the second is 2 artanh((m - 1) / (m + 1))
float logarithm(float x) {
    uint bits = floatBitsToUint(x), size = size_of(x);
    if (size == 0u) return uintBitsToFloat(INFINITE | 0x80000000u);
    if (bits > INFINITE) return uintBitsToFloat(QUIET);
    if (bits == INFINITE) return x;
    int e, exponent;
    uint m = mantissa(bits, e), one = 1u << 23;
    e -= 127;
    if (m > 0xB504F3u) {
        one <<= 1;
        ++e;
    }
    bool below = m < one;
    uint over = below ? one - m : m - one, under = m + one, shift = 0u;
    uvec2 scaled = uvec2(0u);
    if (over != 0u) {
        while (over << (shift + 1u) <= under) ++shift;
        uint rest = over << shift;
        uvec2 digits = uvec2(0u);
        for (int digit = 0; digit < 63; ++digit) {
            rest <<= 1;
            digits = left(digits, 1u);
            if (rest >= under) {
                rest -= under;
                digits.x |= 1u;
            }
        }
        digits = left(digits, 1u);
        uvec2 ratio = right(digits, shift), square = times(ratio, ratio), total = ODD_INVERSES[13];
        [[unroll]] for (int n = 12; n >= 0; --n) total = added(ODD_INVERSES[n], times(square, total));
        scaled = times(digits, total);
    }
    bool negative = below;
    if (e == 0) {
        if (over == 0u) return 0.0;
        exponent = 1 - int(shift);
    } else {
        uint count = uint(abs(e)), beyond, unused;
        uvec2 whole;
        umulExtended(count, LOG_2_57.x, whole.y, whole.x);
        umulExtended(count, LOG_2_57_REST, beyond, unused);
        whole = added(uvec2(whole.x, whole.y + count * LOG_2_57.y), uvec2(beyond, 0u));
        scaled = right(scaled, 4u + shift);
        negative = e < 0;
        scaled = below == negative ? added(whole, scaled) : subtracted(whole, scaled);
        exponent = 5;
    }
    scaled = shifted_up(scaled, exponent);
    // to 53 bits first, as the definition rounds twice, which shows where the first one is a tie of the second
    uint lost = scaled.x & 1023u;
    scaled.x &= ~1023u;
    if (lost > 512u || lost == 512u && (scaled.x & 1024u) != 0u) scaled = added(scaled, uvec2(1024u, 0u));
    return uintBitsToFloat((negative ? 0x80000000u : 0u) | rounded(scaled, exponent));
}

// x = m * 4^half_exponent, with m from 2^23 to 2^25, for a positive finite x
uint even_mantissa(float x, out int half_exponent) {
    int exponent;
    uint m = mantissa(size_of(x), exponent);
    exponent -= 150;
    bool odd = (exponent & 1) != 0;
    half_exponent = (exponent - int(odd)) / 2;
    return odd ? m << 1 : m;
}

float square_root(float x) {
    uint bits = floatBitsToUint(x), size = size_of(x);
    if (size == 0u || bits == INFINITE) return x;
    if (size > INFINITE || bits > INFINITE) return uintBitsToFloat(QUIET);
    int half_exponent;
    uvec2 square = left(uvec2(even_mantissa(x, half_exponent), 0u), 26u);
    uint root = 0u;
    for (int bit = 25; bit >= 0; --bit) {
        uint next = root | 1u << bit;
        uvec2 product;
        umulExtended(next, next, product.y, product.x);
        if (!above(product, square)) root = next;
    }
    uvec2 whole;
    umulExtended(root, root, whole.y, whole.x);
    int exponent = half_exponent + 48;
    uvec2 scaled = shifted_up(uvec2(root << 1 | uint(whole != square), 0u), exponent);
    return uintBitsToFloat(rounded(scaled, exponent));
}

// not above 2^74
bool within(uint root, uint m) {
    uvec2 square, low, high;
    umulExtended(root, root, square.y, square.x);
    umulExtended(square.x, m, low.y, low.x);
    umulExtended(square.y, m, high.y, high.x);
    uint carry, middle = uaddCarry(low.y, high.x, carry), top = high.y + carry;
    return top < 1024u || top == 1024u && (middle | low.x) == 0u;
}

float inverse_root(float x) {
    uint bits = floatBitsToUint(x), size = size_of(x);
    if (size == 0u) return uintBitsToFloat(bits | INFINITE);
    if (bits == INFINITE) return 0.0;
    if (size > INFINITE || bits > INFINITE) return uintBitsToFloat(QUIET);
    int half_exponent;
    uint m = even_mantissa(x, half_exponent), root = 0u;
    for (int bit = 25; bit >= 0; --bit) {
        uint next = root | 1u << bit;
        if (within(next, m)) root = next;
    }
    bool exact = (m & (m - 1u)) == 0u && (findMSB(m) & 1) == 0;  // a power of 4
    int exponent = 24 - half_exponent;
    uvec2 scaled = shifted_up(uvec2(root << 1 | uint(!exact), 0u), exponent);
    return uintBitsToFloat(rounded(scaled, exponent));
}

#endif
