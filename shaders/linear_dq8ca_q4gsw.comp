#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/dot.glsl"
#include "include/push/linear_dq8ca_q4gsw.glsl"
#include "include/launch.glsl"
#include "include/lanes.glsl"
#include "include/qmath.glsl"
#include "include/quotient.glsl"

// x is an output, y a row. With more than one row a workgroup quantizes a stretch of its row, a word for each
// invocation, and multiplies it in integers. For a single row 64 invocations along z share K, and each computes TILE_X
// outputs in floats; that sum is no integer, so its order is fixed.
INPUT(0, x);
INPUT(1, scale);
INPUT(2, zp);
INPUT(3, weight);
INPUT(4, sums);
INPUT(5, weight_scales);
INPUT(6, bias);
OUTPUT(7, result);

const int LANES = 64, COLUMNS = 4;
const int NIBBLES = 0x0F0F0F0F, EIGHTS = 0x08080808;

shared int stretch[LANES];
shared float partial[LANES * COLUMNS];

// four nibbles of output n, each in the low half of a byte
int nibbles(int n, int k4) {
    return weight[((n >> 3) * push[K4] + k4) * 4 + (n & 3)] >> (n & 4) & NIBBLES;
}

void finish(int at, int n, float total) {
    precise float out_ = total;
    if ((push[FLAGS] & HAS_BIAS) != 0) {
        precise float with_bias = total + intBitsToFloat(bias[n]);
        out_ = with_bias;
    }
    result[at + n] = floatBitsToInt(out_);
}

void many_rows() {
    int n = int(gl_GlobalInvocationID.x), row = int(gl_GlobalInvocationID.y), own = int(gl_LocalInvocationID.x);
    int outputs = push[OUTPUTS], k4 = push[K4], group4 = push[GROUP4], padded = (outputs + 3) >> 2 << 2;
    int line = row / push[M], in_line = row % push[M];
    int zero = lane(zp[line * ((push[M] + 3) >> 2) + (in_line >> 2)], in_line & 3);
    float step = intBitsToFloat(scale[row]), inv = quotient(1.0, step), total = 0.0;
    bool live = n < outputs;
    int acc = 0;
    for (int first = 0; first < k4; first += LANES) {
        barrier();
        if (first + own < k4) {
            int at = (row * k4 + first + own) * 4;
            vec4 four = intBitsToFloat(ivec4(x[at], x[at + 1], x[at + 2], x[at + 3]));
            stretch[own] = quantize4(four, inv, zero);
        }
        barrier();
        int last = min(LANES, k4 - first);
        for (int i = 0; live && i < last; ++i) {
            int q = stretch[i];
            acc += dot4(q, nibbles(n, first + i)) - dot4(q, EIGHTS);
            if ((first + i + 1) % group4 == 0) {
                int at = (first + i) / group4 * padded + n;
                precise float factor = step * intBitsToFloat(weight_scales[at]);
                total = mul_add(float(acc - zero * sums[at]), factor, total);
                acc = 0;
            }
        }
    }
    if (live) finish(row * outputs, n, total);
}

void single_row() {
    int first = int(gl_GlobalInvocationID.x) * COLUMNS, row = int(gl_GlobalInvocationID.y);
    int own = int(gl_LocalInvocationID.z), outputs = push[OUTPUTS], padded = (outputs + 3) >> 2 << 2;
    vec4 total = vec4(0.0);
    for (int k4 = own; k4 < push[K4]; k4 += LANES) {
        int at = (row * push[K4] + k4) * 4, group = k4 / push[GROUP4] * padded;
        vec4 factor = vec4(0.0);
        ivec4 four = ivec4(EIGHTS);
        [[unroll]] for (int c = 0; c < COLUMNS; ++c) {
            if (first + c < outputs) {
                factor[c] = intBitsToFloat(weight_scales[group + first + c]);
                four[c] = nibbles(first + c, k4);
            }
        }
        [[unroll]] for (int k = 0; k < 4; ++k) {
            precise vec4 real = vec4((four >> (8 * k) & 15) - 8) * factor;
            total = mul_add4(vec4(intBitsToFloat(x[at + k])), real, total);
        }
    }
    [[unroll]] for (int c = 0; c < COLUMNS; ++c) partial[own * COLUMNS + c] = total[c];
    for (int left = LANES >> 1; left > 0; left >>= 1) {
        barrier();
        if (own < left) {
            [[unroll]] for (int c = 0; c < COLUMNS; ++c) {
                precise float sum = partial[own * COLUMNS + c] + partial[(own + left) * COLUMNS + c];
                partial[own * COLUMNS + c] = sum;
            }
        }
    }
    barrier();
    if (own < COLUMNS && first + own < outputs) finish(row * outputs, first + own, partial[own]);
}

void main() {
    if (LOCAL_Z > 1) single_row(); else many_rows();
}
