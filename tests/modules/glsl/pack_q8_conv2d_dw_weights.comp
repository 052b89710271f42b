// Depthwise weights (KH, KW, OC) to texels of four kernel columns; each of their words has four channels.
// x: channels. y: kernel row, then kernel columns.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/packed.glsl"

layout(push_constant) uniform Push { ivec4 packed_sizes; ivec3 weight_sizes; };  // KH, KW, OC

void main() {
    const int kernel_h = weight_sizes.x, kernel_w = weight_sizes.y, channels = weight_sizes.z;
    const ivec2 at = ivec2(gl_GlobalInvocationID.xy);
    const int width = fours(channels), across = fours(kernel_w);
    if (at.x >= width || at.y >= kernel_h * across) {
        return;
    }
    const int ky = at.y / across;
    ivec4 texel = ivec4(0);
    for (int j = 0; j < 4; j++) {
        const int kx = at.y % across * 4 + j;
        for (int k = 0; k < 4; k++) {
            const int channel = at.x * 4 + k;
            if (kx < kernel_w && channel < channels) {
                const int byte_at = (ky * kernel_w + kx) * channels + channel;
                texel[j] = with_lane(texel[j], uint(k), source_byte(byte_at));
            }
        }
    }
    store(at, width, texel);
}
