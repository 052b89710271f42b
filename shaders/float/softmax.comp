#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/push/float/softmax.glsl"
#include "include/launch.glsl"
#include "include/qmath.glsl"
#include "include/real.glsl"
#include "include/function.glsl"

const bool BINARY = false;
const int B_AT = 0, B_0 = 0;
#include "include/strided.glsl"

INPUT(0, a);
layout(std430, set = 0, binding = 1) coherent buffer result_buffer { int result_guard[GUARD_WORDS]; int result[]; };

const float LEAST_MOST = -3.402823e38, LEAST_TOTAL = 1e-37;

Places at;

float given(int i) {
    return intBitsToFloat(a[at.a + i * push[A_STEP]]);
}
float lower(int i, float most) {
    return sum(given(i), uintBitsToFloat(floatBitsToUint(most) ^ 0x80000000u));
}
int made_at(int i) {
    return at.result + i * push[OUT_STEP];
}
float power(int i) {
    return intBitsToFloat(result[made_at(i)]);
}

// Four workers, of which worker t adds elements t, t + 4, ..
float dealt() {
    float total = 0.0;
    for (int t = 0; t < 4; ++t) {
        float part = 0.0;
        for (int i = t; i < push[LENGTH]; i += 4) part = sum(part, power(i));
        total = sum(total, part);
    }
    return total;
}

// Component k of worker t adds that of texels t, t + 4, ..; what is left of the last texel goes to the first component
// of the worker in turn.
float by_texels() {
    int texels = push[LENGTH] / 4;
    float total[4] = float[](0.0, 0.0, 0.0, 0.0);
    for (int t = 0; t < 4; ++t) {
        [[unroll]] for (int k = 0; k < 4; ++k) {
            float part = 0.0;
            for (int i = t; i < texels; i += 4) part = sum(part, power(4 * i + k));
            if (k == 0 && t == texels % 4) {
                for (int i = 4 * texels; i < push[LENGTH]; ++i) part = sum(part, power(i));
            }
            total[k] = sum(total[k], part);
        }
    }
    return sum(sum(sum(sum(0.0, total[0]), total[1]), total[2]), total[3]);
}

void wait() {
    memoryBarrierBuffer();
    barrier();
}

// A workgroup has a row: its lanes share the functions, and each adds up all of them.
void main() {
    int row = int(gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x), lane = int(gl_LocalInvocationID.x);
    bool inside = row < push[COUNT];
    int length = inside ? push[LENGTH] : 0;
    at = places(inside ? row : 0);
    float most = given(0);
    for (int i = 1; i < length; ++i) most = larger(most, given(i));
    if (BOUNDED) most = larger(most, LEAST_MOST);
    for (int i = lane; i < length; i += int(LANES)) {
        result[made_at(i)] = floatBitsToInt(exponential(lower(i, most)));
    }
    wait();
    float total = larger(BY_TEXELS ? by_texels() : dealt(), LEAST_TOTAL);
    wait();
    float away = uintBitsToFloat(floatBitsToUint(LOGARITHM ? logarithm(total) : total) ^ 0x80000000u);
    for (int i = lane; i < length; i += int(LANES)) {
        float made = LOGARITHM ? sum(lower(i, most), away) : quotient(power(i), total);
        if (FINITE && size_of(made) >= INFINITE) made = 0.0;
        result[made_at(i)] = floatBitsToInt(made);
    }
}
