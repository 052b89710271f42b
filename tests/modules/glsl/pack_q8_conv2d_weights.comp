// Weights (OC, taps, ICg), rows padded to 4, to texels of four output channels; each of their words has four input
// channels. x: output channels, then kernel column. y: kernel row, then input channels.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/packed.glsl"

layout(push_constant) uniform Push { ivec4 packed_sizes; ivec4 weight_sizes; };  // OC, KH, KW, ICg

void main() {
    const int out_channels = weight_sizes.x, kernel_h = weight_sizes.y, kernel_w = weight_sizes.z;
    const int in_channels = weight_sizes.w, words = fours(in_channels);
    const ivec2 at = ivec2(gl_GlobalInvocationID.xy);
    const int width = fours(out_channels) * kernel_w;
    if (at.x >= width || at.y >= kernel_h * words) {
        return;
    }
    const int row = 4 * fours(kernel_h * kernel_w * in_channels);
    const int tap = at.y / words * kernel_w + at.x % kernel_w;
    ivec4 texel = ivec4(0);
    for (int j = 0; j < 4; j++) {
        const int oc = at.x / kernel_w * 4 + j;
        for (int k = 0; k < 4; k++) {
            const int ic = at.y % words * 4 + k;
            if (oc < out_channels && ic < in_channels) {
                texel[j] = with_lane(texel[j], uint(k), source_byte(oc * row + tap * in_channels + ic));
            }
        }
    }
    store(at, width, texel);
}
