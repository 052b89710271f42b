#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/push/float/pool.glsl"
#include "include/launch.glsl"
#include "include/qmath.glsl"
#include "include/real.glsl"

INPUT(0, x);
OUTPUT(1, result);

const float LEAST = -3.402823466e38;

// elements of one dim that a window counts: those in the image, or also those in the padding
int counted(int begin, int taps, int size, int edge) {
    return min(begin + taps, size + edge) - max(begin, -edge);
}

void main() {
    int width = push[OUT_W], height = push[OUT_H], channels = push[OUT_C];
    int w = int(gl_GlobalInvocationID.x) % width, h = int(gl_GlobalInvocationID.x) / width;
    int c = int(gl_GlobalInvocationID.y), n = int(gl_GlobalInvocationID.z);
    if (CHANNELS_FIRST) {
        c = int(gl_GlobalInvocationID.x) % channels;
        w = int(gl_GlobalInvocationID.x) / channels;
        h = int(gl_GlobalInvocationID.y);
    }
    if (w >= width || h >= height || c >= channels) return;
    int left = w * push[STRIDE_W] - push[PAD_W], top = h * push[STRIDE_H] - push[PAD_H];
    int first = c * push[X_C_STRIDE] + n * push[X_N_STRIDE];
    float found = 0.0;
    bool any_yet = false;
    for (int i = 0; i < push[KERNEL_H]; ++i) {
        int y = top + i * push[DILATION_H];
        if (y < 0 || y >= push[X_H]) continue;
        for (int j = 0; j < push[KERNEL_W]; ++j) {
            int at = left + j * push[DILATION_W];
            if (at < 0 || at >= push[X_W]) continue;
            float next = intBitsToFloat(x[first + y * push[X_H_STRIDE] + at * push[X_W_STRIDE]]);
            if (AVERAGE) {
                found = sum(found, next);
            } else if (!any_yet || less(found, next) || is_nan(next)) {
                found = next;
            }
            any_yet = true;
        }
    }
    if (AVERAGE) {
        float divisor = push_float(DIVISOR);
        if (push[DIVISOR] == 0) {
            int rows = counted(top, push[KERNEL_H], push[X_H], push[EDGE_H]);
            divisor = float(rows * counted(left, push[KERNEL_W], push[X_W], push[EDGE_W]));
        }
        found = quotient(found, divisor);
    } else {
        found = larger(found, LEAST);
    }
    result[w * push[OUT_W_STRIDE] + h * push[OUT_H_STRIDE] + c * push[OUT_C_STRIDE] + n * push[OUT_N_STRIDE]] =
        floatBitsToInt(found);
}
