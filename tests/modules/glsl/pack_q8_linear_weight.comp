// Weights (N, K) to texels of four outputs; each of their words has four of K. x: outputs. y: K.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/packed.glsl"

layout(push_constant) uniform Push { ivec4 packed_sizes; ivec2 weight_sizes; };  // K, N

void main() {
    const int k_size = weight_sizes.x, outputs = weight_sizes.y, width = fours(outputs);
    const ivec2 at = ivec2(gl_GlobalInvocationID.xy);
    if (at.x >= width || at.y >= fours(k_size)) {
        return;
    }
    ivec4 texel = ivec4(0);
    for (int j = 0; j < 4; j++) {
        const int n = 4 * at.x + j;
        if (n < outputs) {
            texel[j] = source[n * (k_size / 4) + at.y];
        }
    }
    store(at, width, texel);
}
