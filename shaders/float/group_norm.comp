#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/push/float/group_norm.glsl"
#include "include/launch.glsl"
#include "include/qmath.glsl"
#include "include/real.glsl"
#include "include/function.glsl"

INPUT(0, x);
INPUT(1, weight);
INPUT(2, bias);
OUTPUT(3, result);

const int LANES = 64;
shared float sums[LANES], squares[LANES];

float given(int n, int c, int pixel) {
    int h = pixel / push[WIDTH], w = pixel % push[WIDTH];
    return intBitsToFloat(
        x[n * push[X_N_STRIDE] + c * push[X_C_STRIDE] + h * push[X_H_STRIDE] + w * push[X_W_STRIDE]]);
}

// A workgroup has a group of channels of an image. Each lane adds a run of its texels, which hold four channels counted
// from channel 0, pixel by pixel; then a tree. WHAT: 0 the result, 1 the mean, 2 the inverse deviation.
void main() {
    int lane = int(gl_LocalInvocationID.x), group = int(gl_WorkGroupID.x), n = int(gl_WorkGroupID.y);
    int depth = push[DEPTH], pixels = push[WIDTH] * push[HEIGHT], first = group * depth, begin = first / 4;
    int each = (first + depth + 3) / 4 - begin, texels = each * pixels, run = (texels + LANES - 1) / LANES;
    float part = 0.0, part_squared = 0.0;
    for (int t = lane * run; t < min(lane * run + run, texels); ++t) {
        for (int k = 0; k < 4; ++k) {
            int c = 4 * (begin + t % each) + k;
            if (c < first || c >= first + depth) continue;
            float next = given(n, c, t / each);
            part = sum(part, next);
            part_squared = chained(next, next, part_squared);
        }
    }
    sums[lane] = part;
    squares[lane] = part_squared;
    barrier();
    for (int apart = LANES / 2; apart > 0; apart /= 2) {
        if (lane < apart) {
            sums[lane] = sum(sums[lane], sums[lane + apart]);
            squares[lane] = sum(squares[lane], squares[lane + apart]);
        }
        barrier();
    }
    float count = float(depth * pixels), mean = quotient(from_zero(sums[0]), count);
    float away = uintBitsToFloat(floatBitsToUint(mean) ^ 0x80000000u);
    float variance = chained(away, mean, quotient(squares[0], count));
    float inverse = quotient(1.0, square_root(sum(variance, push_float(EPS))));
    if (WHAT != 0) {
        int at = n * push[OUT_N_STRIDE] + group * push[OUT_C_STRIDE];
        if (lane == 0) result[at] = floatBitsToInt(WHAT == 1 ? mean : inverse);
        return;
    }
    for (int i = lane; i < depth * pixels; i += LANES) {
        int c = first + i / pixels, pixel = i % pixels, h = pixel / push[WIDTH], w = pixel % push[WIDTH];
        float scaled = product(sum(given(n, c, pixel), away), inverse);
        float made = product(scaled, WEIGHT ? intBitsToFloat(weight[c]) : 1.0);
        made = BIAS ? sum(made, intBitsToFloat(bias[c])) : from_zero(made);
        result[n * push[OUT_N_STRIDE] + c * push[OUT_C_STRIDE] + h * push[OUT_H_STRIDE] + w * push[OUT_W_STRIDE]] =
            floatBitsToInt(made);
    }
}
