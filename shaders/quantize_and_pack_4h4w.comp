#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/push/quantize_and_pack_4h4w.glsl"
#include "include/index.glsl"
#include "include/lanes.glsl"
#include "include/qmath.glsl"

// x counts rows, padded to four in each plane, y words of K. An invocation writes a block of four rows.
INPUT(0, x);
OUTPUT4(1, result);

void main() {
    int row = int(gl_GlobalInvocationID.x) * 4, k4 = int(gl_GlobalInvocationID.y);
    int height = (push[OUT + H] + 3) / 4 * 4;
    if (row >= height * push[OUT + C] * push[OUT + N] || 4 * k4 >= push[OUT + W]) return;
    int plane = row / height, h = row % height;
    ivec4 at = ivec4(4 * k4, h, plane % push[OUT + C], plane / push[OUT + C]), block;
    [[unroll]] for (int r = 0; r < 4; ++r) {
        vec4 four = vec4(0.0);
        if (h + r < push[OUT + H]) {
            int first = buf_idx(X, X_HASH, at + ivec4(0, r, 0, 0));
            [[unroll]] for (int k = 0; k < 4; ++k) four[k] = intBitsToFloat(x[first + k * push[X + W_STRIDE]]);
        }
        block[r] = quantize4(four, push_float(INV), push[ZP]);
    }
    result[word_idx(OUT, OUT_HASH, at) >> 2] = block;
}
