// Scale and zero point of a row (refsim/ops/base/row_range.py). LOCAL_Z invocations read a row together; LOCAL_X *
// LOCAL_Y rows are read at a time. Least and greatest value are found as integers: NaN never counts, denormals do.
#ifndef REFSIM_ROW_RANGE_GLSL
#define REFSIM_ROW_RANGE_GLSL

#include "quotient.glsl"

const float NO_RANGE = 0.1, LEAST = 6.1e-5, WIDTH = 255.0;
const uint INVERSE_IS_INFINITE = 0x00200000u;  // of this scale and of every smaller one

shared uvec2 partial[LOCAL_X * LOCAL_Y * LOCAL_Z];

// (magnitude of the least value, of the greatest), as bits: neither is on the wrong side of 0
uvec2 row_range(int row, bool live) {
    uvec2 found = uvec2(0u);
    int k = push[K];
    for (int i = int(gl_LocalInvocationID.z); live && i < k; i += int(LOCAL_Z)) {
        uint bits = uint(x[row * k + i]), magnitude = bits & 0x7FFFFFFFu;
        if (magnitude <= INFINITE) {
            if (bits != magnitude) found.x = max(found.x, magnitude); else found.y = max(found.y, magnitude);
        }
    }
    uint across = LOCAL_X * LOCAL_Y, own = gl_LocalInvocationID.y * LOCAL_X + gl_LocalInvocationID.x;
    partial[gl_LocalInvocationID.z * across + own] = found;
    barrier();
    for (uint z = 0u; z < LOCAL_Z; ++z) found = max(found, partial[z * across + own]);
    return found;
}

// (scale, lo, hi)
vec3 scaled(uvec2 range) {
    float lo = -uintBitsToFloat(range.x), hi = uintBitsToFloat(range.y);
    precise float width = hi - lo;
    float s = quotient(width, float(push[QMAX] - push[QMIN]));
    if (floatBitsToUint(s) <= INVERSE_IS_INFINITE) s = NO_RANGE;
    if (s >= LEAST) return vec3(s, lo, hi);
    precise float wide = LEAST * WIDTH;
    float larger = quotient(LEAST, s);
    precise vec2 both = vec2(lo, hi) * larger;
    if (range.x == 0u) return vec3(LEAST, 0.0, wide);
    if (range.y == 0u) return vec3(LEAST, -wide, 0.0);
    return vec3(LEAST, both);
}

int zero_point(vec3 of) {
    float least = float(push[QMIN]), most = float(push[QMAX]);
    float a = quotient(of.y, of.x), b = quotient(of.z, of.x);
    precise float left = abs(least) - abs(a), right = abs(most) - abs(b);
    precise float low = least - a, high = most - b;
    float z = left < right ? low : high;
    if ((floatBitsToUint(z) & 0x7FFFFFFFu) > INFINITE) z = 0.0;
    z = min(max(z, least), most);
    precise float shifted = z + 12582912.0;  // rounds to an integer in the low bits, ties to even
    return floatBitsToInt(shifted) - 0x4B400000;
}

#endif
