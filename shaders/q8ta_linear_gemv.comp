#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/dot.glsl"
#include "include/launch.glsl"
#include "include/lanes.glsl"
#include "include/qmath.glsl"

// Push words as in refsim/ops/_linear.py. y is a word of outputs; the invocations along z share its K between
// them. Integer sums may be added in any order.
const int X = 0, OUT = 8, K4 = 16, QUANT = 17;
INPUT(0, x);
INPUT4(1, weight);
INPUT(2, sums);
INPUT(3, scales);
INPUT(4, bias);
OUTPUT(5, result);
#include "include/epilogue.glsl"

shared ivec4 partial[LOCAL_Y * LOCAL_Z];

void main() {
    int words = (push[OUT] + 3) >> 2;
    int word = int(gl_GlobalInvocationID.y);
    uint part = gl_LocalInvocationID.z;
    ivec4 acc = ivec4(0);
    if (word < words) {
        for (int k = int(part); k < push[K4]; k += int(LOCAL_Z)) {
            ivec4 four = weight[k * words + word];
            int a = x[k];
            acc += ivec4(dot4(a, four.x), dot4(a, four.y), dot4(a, four.z), dot4(a, four.w));
        }
    }
    partial[part * LOCAL_Y + gl_LocalInvocationID.y] = acc;
    for (uint half_parts = LOCAL_Z / 2; half_parts > 0; half_parts /= 2) {  // LOCAL_Z is a power of two
        barrier();
        if (part < half_parts) {
            partial[part * LOCAL_Y + gl_LocalInvocationID.y] += partial[(part + half_parts) * LOCAL_Y + gl_LocalInvocationID.y];
        }
    }
    if (part == 0 && word < words) {
        result[word] = out_word(true, partial[gl_LocalInvocationID.y], channels_at(4 * word), 4 * word, push[OUT]);
    }
}
