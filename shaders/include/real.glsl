// Arithmetic of the float kernels, as NumPy's: no device is asked for a division, a maximum or a NaN. Additions and
// products are `precise`. A device may flush denormals all the same; the quotient here is right for them too.
#ifndef REFSIM_REAL_GLSL
#define REFSIM_REAL_GLSL

const uint INFINITE = 0x7F800000u, QUIET = 0x7FC00000u;

bool is_nan(float x) {
    return (floatBitsToUint(x) & 0x7FFFFFFFu) > INFINITE;  // isnan() may be optimized away
}

// NaN stays; of equal numbers the second, as of 0 and -0
float larger(float a, float b) {
    return is_nan(a) || a > b ? a : b;
}
float smaller(float a, float b) {
    return is_nan(a) || a < b ? a : b;
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

// the same sum whether or not it stands in an expression
float sum(float a, float b) {
    precise float total = a + b;
    return total;
}
float product(float a, float b) {
    precise float total = a * b;
    return total;
}

#endif
