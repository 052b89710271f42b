#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/dot.glsl"
#include "include/push/q8ta_linear_gemv.glsl"
#include "include/launch.glsl"
#include "include/lanes.glsl"
#include "include/qmath.glsl"

// y is a word of outputs; the invocations along z share its K between them. Integer sums may be added in any order.
INPUT(0, x);
INPUT4(1, weight);
INPUT4(2, sums);
INPUT4(3, scales);
INPUT4(4, bias);
OUTPUT(5, result);
#include "include/epilogue.glsl"

const uint FANIN = 8;  // partial sums added by one invocation; LOCAL_Z is a power of it

shared ivec4 partial[LOCAL_Y * LOCAL_Z];

void main() {
    int words = (push[OUT + W] + 3) >> 2;
    int word = min(int(gl_GlobalInvocationID.y), words - 1);
    uint part = gl_LocalInvocationID.z, column = gl_LocalInvocationID.y;
    Channels of = channels_at(4 * word);  // asked for early: they are there when the sums are
    ivec4 acc = ivec4(0);
    int step = int(LOCAL_Z);
    for (int k = int(part); k < push[K4]; k += 8 * step) {
        ivec4 four[8];
        int a[8];
        [[unroll]] for (int u = 0; u < 8; ++u) {
            bool live = k + u * step < push[K4];
            four[u] = live ? weight[(k + u * step) * words + word] : ivec4(0);
            a[u] = live ? x[k + u * step] : 0;
        }
        [[unroll]] for (int u = 0; u < 8; ++u) {
            acc += ivec4(dot4(a[u], four[u].x), dot4(a[u], four[u].y), dot4(a[u], four[u].z), dot4(a[u], four[u].w));
        }
    }
    partial[part * LOCAL_Y + column] = acc;
    [[unroll]] for (uint left = LOCAL_Z / FANIN; left > 0; left /= FANIN) {
        barrier();
        ivec4 sum = ivec4(0);
        if (part < left) {
            [[unroll]] for (uint u = 0; u < FANIN; ++u) sum += partial[(part + u * left) * LOCAL_Y + column];
        }
        barrier();
        if (part < left) partial[part * LOCAL_Y + column] = sum;
    }
    if (part == 0 && int(gl_GlobalInvocationID.y) < words) {
        result[word] = out_word(true, partial[column], of, 4 * word, push[OUT + W]);
    }
}
