// Arithmetic of the float kernels, as NumPy's: no device is asked for a division, a comparison or a NaN. Additions and
// products are `precise`. In a build with REFSIM_SPELLED_OUT they are right for denormals on a device that flushes them.
#ifndef REFSIM_REAL_GLSL
#define REFSIM_REAL_GLSL

#include "wide.glsl"

const uint INFINITE = 0x7F800000u, QUIET = 0x7FC00000u;

// the bits without the sign
uint size_of(float x) {
    return floatBitsToUint(x) & 0x7FFFFFFFu;
}
bool is_nan(float x) {
    return size_of(x) > INFINITE;  // isnan() may be optimized away
}

// a < b of the bits: a device may take denormals for 0
int rank_of(float x) {
    int size = int(size_of(x));
    return floatBitsToInt(x) < 0 ? -size : size;
}
bool less(float a, float b) {
    return !is_nan(a) && !is_nan(b) && rank_of(a) < rank_of(b);
}

// NaN stays; of equal numbers the second, as of 0 and -0
float larger(float a, float b) {
    return is_nan(a) || less(b, a) ? a : b;
}
float smaller(float a, float b) {
    return is_nan(a) || less(a, b) ? a : b;
}

// A mantissa of 24 bits, and the exponent that belongs to it, of a number that is neither 0 nor infinite.
uint mantissa(uint bits, out int exponent) {
    exponent = int(bits >> 23);
    if (exponent > 0) return (bits & 0x7FFFFFu) | 0x800000u;
    int shift = 23 - findMSB(bits);
    exponent = 1 - shift;
    return bits << shift;
}

// a / b, correctly rounded: long division, as devices divide in any way within 2.5 ulp
float quotient(float a, float b) {
    uint sign = (floatBitsToUint(a) ^ floatBitsToUint(b)) & 0x80000000u;
    uint over = floatBitsToUint(a) & 0x7FFFFFFFu, under = floatBitsToUint(b) & 0x7FFFFFFFu, found = 0u;
    if (over > INFINITE || under > INFINITE || over == under && (over == 0u || over == INFINITE)) {
        found = QUIET;
    } else if (over == INFINITE || under == 0u) {
        found = sign | INFINITE;
    } else if (over == 0u || under == INFINITE) {
        found = sign;
    } else {
        int up, down;
        uint rest = mantissa(over, up), divisor = mantissa(under, down), digits = 0u;
        int exponent = up - down + 127;
        if (rest < divisor) {
            rest <<= 1;
            --exponent;
        }
        for (int k = 0; k < 24; ++k) {
            digits <<= 1;
            if (rest >= divisor) {
                rest -= divisor;
                digits |= 1u;
            }
            rest <<= 1;
        }
        // rest / 2 is what is left of the last digit, which is one of 24 or, below the normal numbers, fewer
        if (exponent >= 255) {
            found = sign | INFINITE;
        } else if (exponent > 0) {
            uint up_by = uint(rest > divisor || rest == divisor && (digits & 1u) == 1u);
            found = sign | (uint(exponent - 1) << 23) + digits + up_by;
        } else {
            int lost = min(1 - exponent, 25);
            uint kept = digits >> lost, gone = digits - (kept << lost), half_way = 1u << (lost - 1);
            bool more = gone > half_way || gone == half_way && (rest != 0u || (kept & 1u) == 1u);
            found = sign | kept + uint(more);
        }
    }
    return uintBitsToFloat(found);
}

// scaled * 2^(exponent - 62), rounded to nearest even; bit 62 or 63 is the first one of ``scaled``
uint rounded(uvec2 scaled, int exponent) {
    if ((scaled.y & 0x80000000u) != 0u) {
        scaled = right(scaled, 1u) | uvec2(scaled.x & 1u, 0u);
        ++exponent;
    }
    int biased = exponent + 127, drop = 39;
    if (biased > 254) return INFINITE;
    if (biased < 1) {
        drop += 1 - biased;
        biased = 0;
        if (drop > 63) return 0u;
    }
    uint kept = right(scaled, uint(drop)).x;
    uvec2 lost = subtracted(scaled, left(uvec2(kept, 0u), uint(drop))), middle = left(uvec2(1u, 0u), uint(drop - 1));
    if (above(lost, middle) || lost == middle && (kept & 1u) == 1u) ++kept;
    return biased > 0 ? kept + (uint(biased - 1) << 23) : kept;  // a carry moves on to the exponent, up to infinity
}

#ifdef REFSIM_SPELLED_OUT
const float UP = 18446744073709551616.0, UNIT_UP = 2.58493941422821148397e-26;  // 2^64, 2^-149 * 2^64
const uint NORMAL = 0x00800000u, SMALL = 0x0D800000u;  // 2^-126, 2^-100

// a number below 2^-100 times 2^64, where nothing is denormal
float raised(float x) {
    uint size = size_of(x);
    if (size >= NORMAL || size == 0u) {
        precise float up = x * UP;
        return up;
    }
    precise float up = float(size) * UNIT_UP;
    return uintBitsToFloat(floatBitsToUint(up) | floatBitsToUint(x) & 0x80000000u);
}

// of such numbers; a denormal sum is exact
float small_sum(float a, float b) {
    precise float up = raised(a) + raised(b);
    uint size = size_of(up), sign = floatBitsToUint(up) & 0x80000000u;
    if (size >= NORMAL + (64u << 23)) return uintBitsToFloat(sign | size - (64u << 23));
    precise float units = uintBitsToFloat(size) * 38685626227668133590597632.0;  // 2^85
    return uintBitsToFloat(sign | uint(units));
}

float whole_product(float a, float b) {
    uint sign = (floatBitsToUint(a) ^ floatBitsToUint(b)) & 0x80000000u, x = size_of(a), y = size_of(b);
    if (x > INFINITE || y > INFINITE || max(x, y) == INFINITE && min(x, y) == 0u) return uintBitsToFloat(QUIET);
    if (max(x, y) == INFINITE) return uintBitsToFloat(sign | INFINITE);
    if (min(x, y) == 0u) return uintBitsToFloat(sign);
    int e, f;
    uint m = mantissa(x, e), n = mantissa(y, f);
    uvec2 whole;
    umulExtended(m, n, whole.y, whole.x);  // 47 or 48 bits
    return uintBitsToFloat(sign | rounded(left(whole, 16u), e + f - 254));
}
#endif

// the same sum whether or not it stands in an expression
float sum(float a, float b) {
#ifdef REFSIM_SPELLED_OUT
    if (max(size_of(a), size_of(b)) < SMALL) return small_sum(a, b);
#endif
    precise float total = a + b;
    return total;
}
float product(float a, float b) {
    precise float total = a * b;
#ifdef REFSIM_SPELLED_OUT
    if (size_of(total) < NORMAL || is_nan(total)) return whole_product(a, b);
#endif
    return total;
}
// x + 0, of which drivers make x
float from_zero(float x) {
    return size_of(x) == 0u ? 0.0 : x;
}
// a * b + c in two roundings
float chained(float a, float b, float c) {
    return sum(product(a, b), c);
}

#endif
