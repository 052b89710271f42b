#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/push/float/convolution.glsl"
#include "include/launch.glsl"
#include "include/qmath.glsl"
#include "include/real.glsl"
#include "include/image.glsl"

INPUT(0, x);
INPUT(1, weight);
INPUT(2, bias);
OUTPUT(3, result);

// One chain of products and sums, BLOCK channels at a time: for these all taps, of each tap all these channels. What
// lies outside of the image is 0, and is multiplied like the rest.
void main() {
    int number = element_number();
    if (number >= push[COUNT]) return;
    Element made = element(number);
    int c = made.c, left = made.w * push[STRIDE_W] - push[PAD_W], top = made.h * push[STRIDE_H] - push[PAD_H];
    int image = made.n * push[X_N_STRIDE] + c / push[GROUP_OUT] * push[GROUP_IN] * push[X_C_STRIDE];
    int taps = c * push[WEIGHT_N_STRIDE];
    float added = BIAS ? intBitsToFloat(bias[c]) : 0.0;
    float total = BIAS && BIAS_FIRST ? from_zero(added) : 0.0;
    for (int first = 0; first < push[GROUP_IN]; first += push[BLOCK]) {
        int end = min(first + push[BLOCK], push[GROUP_IN]);
        for (int i = 0; i < push[KERNEL_H]; ++i) {
            int y = top + i * push[DILATION_H];
            for (int j = 0; j < push[KERNEL_W]; ++j) {
                int at = left + j * push[DILATION_W];
                bool inside = y >= 0 && y < push[X_H] && at >= 0 && at < push[X_W];
                int from = image + y * push[X_H_STRIDE] + at * push[X_W_STRIDE];
                int tap = taps + i * push[WEIGHT_H_STRIDE] + j * push[WEIGHT_W_STRIDE];
                for (int k = first; k < end; ++k) {
                    float seen = inside ? intBitsToFloat(x[from + k * push[X_C_STRIDE]]) : 0.0;
                    total = chained(seen, intBitsToFloat(weight[tap + k * push[WEIGHT_C_STRIDE]]), total);
                }
            }
        }
    }
    if (BIAS && !BIAS_FIRST) total = sum(total, added);
    if (CLAMP) total = smaller(larger(total, push_float(LOW)), push_float(HIGH));
    result[place_of(made)] = floatBitsToInt(total);
}
