#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/push/linear_q4gsw.glsl"
#include "include/launch.glsl"
#include "include/qmath.glsl"
#include "include/int4.glsl"

// Several rows (LANES == 1): an invocation adds up four outputs of four rows, each in one chain over K. One row: the
// invocations along z are the lanes, each with eight outputs; their sums are then added as a tree.
INPUT4(0, x);
INPUT2(1, weight);
INPUT4(2, scales);
INPUT4(3, bias);
OUTPUT4(4, result);

const int WORKGROUP = 64;

shared vec4 partial[2 * WORKGROUP];

// column j of the block for its outputs 0 to 3 (pair.x has two of them, pair.y the other two)
vec4 weights(ivec2 pair, int j, vec4 scale) {
    precise vec4 real = vec4(nibble(pair.x, 8 * j), nibble(pair.x, 8 * j + 4),
                             nibble(pair.y, 8 * j), nibble(pair.y, 8 * j + 4)) * scale;
    return real;
}

vec4 with_bias(vec4 acc, int n4) {
    precise vec4 total = acc;
    if ((push[FLAGS] & HAS_BIAS) != 0) total = acc + intBitsToFloat(bias[n4]);
    return total;
}

void several_rows() {
    int n4 = int(gl_GlobalInvocationID.x), row0 = 4 * int(gl_GlobalInvocationID.y);
    int outputs = push[OUT + W] >> 2, strips = (push[OUT + W] + 7) >> 3, k4s = push[K4];
    if (n4 >= outputs || row0 >= push[ROWS]) return;
    int last = push[ROWS] - 1;
    vec4 acc[4] = vec4[4](vec4(0.0), vec4(0.0), vec4(0.0), vec4(0.0));
    for (int k4 = 0; k4 < k4s; ++k4) {
        ivec2 pair = weight[2 * (k4 * strips + (n4 >> 1)) + (n4 & 1)];
        vec4 scale = intBitsToFloat(scales[k4 / push[GROUP4] * outputs + n4]);
        vec4 real[4];
        [[unroll]] for (int j = 0; j < 4; ++j) real[j] = weights(pair, j, scale);
        [[unroll]] for (int r = 0; r < 4; ++r) {
            vec4 four = intBitsToFloat(x[min(row0 + r, last) * k4s + k4]);
            [[unroll]] for (int j = 0; j < 4; ++j) acc[r] = mul_add4(vec4(four[j]), real[j], acc[r]);
        }
    }
    [[unroll]] for (int r = 0; r < 4; ++r) {
        if (row0 + r <= last) result[(row0 + r) * outputs + n4] = floatBitsToInt(with_bias(acc[r], n4));
    }
}

void one_row() {
    int outputs = push[OUT + W] >> 2, strips = (push[OUT + W] + 7) >> 3, k4s = push[K4];
    int strip = int(gl_GlobalInvocationID.x), row = int(gl_GlobalInvocationID.y);
    int lane = int(gl_LocalInvocationID.z), column = int(gl_LocalInvocationID.x);
    int of = min(strip, strips - 1), n4 = 2 * of, other = min(n4 + 1, outputs - 1);
    vec4 low = vec4(0.0), high = vec4(0.0);
    for (int k4 = lane; k4 < k4s; k4 += LANES) {
        int at = 2 * (k4 * strips + of), group = k4 / push[GROUP4] * outputs;
        ivec2 first = weight[at], second = weight[at + 1];
        vec4 scale = intBitsToFloat(scales[group + n4]), scale2 = intBitsToFloat(scales[group + other]);
        vec4 four = intBitsToFloat(x[row * k4s + k4]);
        [[unroll]] for (int j = 0; j < 4; ++j) {
            low = mul_add4(vec4(four[j]), weights(first, j, scale), low);
            high = mul_add4(vec4(four[j]), weights(second, j, scale2), high);
        }
    }
    int columns = WORKGROUP / LANES, place = 2 * (lane * columns + column);
    partial[place] = low;
    partial[place + 1] = high;
    for (int left = LANES >> 1; left > 0; left >>= 1) {
        barrier();
        if (lane < left) {
            int from = place + 2 * left * columns;
            precise vec4 sum = partial[place] + partial[from], sum2 = partial[place + 1] + partial[from + 1];
            partial[place] = sum;
            partial[place + 1] = sum2;
        }
    }
    if (lane == 0 && strip < strips) {
        result[row * outputs + n4] = floatBitsToInt(with_bias(partial[place], n4));
        if (n4 + 1 < outputs) result[row * outputs + other] = floatBitsToInt(with_bias(partial[place + 1], other));
    }
}

void main() {
    if (LANES == 1) {
        several_rows();
    } else {
        one_row();
    }
}
