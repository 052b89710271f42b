#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/push/float/layer_norm.glsl"
#include "include/launch.glsl"
#include "include/qmath.glsl"
#include "include/real.glsl"
#include "include/function.glsl"

const bool BINARY = false;
const int B_AT = 0, B_0 = 0;
#include "include/strided.glsl"

INPUT(0, a);
INPUT(1, weight);
INPUT(2, bias);
OUTPUT(3, result);

shared float parts[4][64];

Places at;

float given(int i) {
    return intBitsToFloat(a[at.a + i * push[A_STEP]]);
}
float negative(float x) {
    return uintBitsToFloat(floatBitsToUint(x) ^ 0x80000000u);
}

// The elements, or the squares of their distances from the mean, by component of a texel where texels lie along a row.
// LANES lanes take them in turn; then a tree adds those half of them apart (HALVES), or neighbours.
float total(bool squared, float mean) {
    int lane = int(gl_LocalInvocationID.x), lanes = int(LANES), each = TEXELS ? 4 : 1;
    for (int k = 0; k < each && lane < lanes; ++k) {
        float part = 0.0;
        for (int i = lane * each + k; i < push[LENGTH]; i += lanes * each) {
            float x = given(i);
            if (squared) {
                x = sum(x, negative(mean));
                x = product(x, x);
            }
            part = sum(part, x);
        }
        parts[k][lane] = part;
    }
    barrier();
    for (int width = 1; width < lanes; width *= 2) {
        int apart = HALVES ? lanes / 2 / width : width;
        bool mine = HALVES ? lane < apart : lane < lanes && lane % (2 * width) == 0;
        for (int k = 0; k < each && mine; ++k) parts[k][lane] = sum(parts[k][lane], parts[k][lane + apart]);
        barrier();
    }
    float found = parts[0][0];
    for (int k = 1; k < each; ++k) found = sum(found, parts[k][0]);
    barrier();
    return from_zero(found);
}

// A workgroup has a row. WHAT: 0 the result, 1 the mean, 2 the inverse deviation.
void main() {
    int row = int(gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x), lane = int(gl_LocalInvocationID.x);
    bool inside = row < push[COUNT];
    at = places(inside ? row : 0);
    float count = float(push[LENGTH]);
    float mean = quotient(total(false, 0.0), count);
    float variance = quotient(total(true, mean), count);
    float inverse = inverse_root(sum(variance, push_float(EPS)));
    if (WHAT != 0) {
        if (inside && lane == 0) result[at.result] = floatBitsToInt(WHAT == 1 ? mean : inverse);
        return;
    }
    float back = negative(product(inverse, mean));
    for (int i = lane; i < push[LENGTH] && inside; i += int(gl_WorkGroupSize.x)) {
        float x = given(i);
        float scaled = FROM_MEAN ? product(sum(x, negative(mean)), inverse) : chained(x, inverse, back);
        float w = WEIGHT ? intBitsToFloat(weight[i * push[WEIGHT_STEP]]) : 1.0;
        float made = product(scaled, w);
        made = BIAS ? sum(made, intBitsToFloat(bias[i * push[BIAS_STEP]])) : from_zero(made);
        result[at.result + i * push[OUT_STEP]] = floatBitsToInt(made);
    }
}
