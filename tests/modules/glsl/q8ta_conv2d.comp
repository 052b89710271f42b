// Convolution over any window, dilation and groups. An invocation computes four columns x four output channels.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/conv_bindings.glsl"
#include "include/dot.glsl"
#include "include/epilogue.glsl"

// The input word under a tap; outside of the image, zero points.
int source(ivec2 at, uint channel, uint n) {
    if (!in_image(in_tensor, at)) {
        return splat(in_zp);
    }
    return in_words[word_at(in_tensor, IN_LAYOUT, uvec4(at, channel, n))];
}

ivec4 sums_at(uvec2 to, uint oc4, uint n) {
    const uint words = in_words_per_group(conv), group = group_of(conv, oc4);
    ivec4 sums = ivec4(0);
    for (uint ky = 0u; ky < uint(conv.kernel.y); ky++) {
        for (uint kx = 0u; kx < uint(conv.kernel.x); kx++) {
            for (uint ic4 = 0u; ic4 < words; ic4++) {
                const int x = source(under(conv, to, uvec2(kx, ky)), 4u * (group * words + ic4), n);
                const ivec4 w = texelFetch(
                    weights, ivec2(oc4 * uint(conv.kernel.x) + kx, ky * words + ic4), 0);
                for (uint k = 0u; k < 4u; k++) {
                    sums[k] = accumulate(x, w[k], sums[k]);
                }
            }
        }
    }
    return sums;
}

void main() {
    const uint row = gl_GlobalInvocationID.y, oc4 = gl_GlobalInvocationID.z;
    const uvec4 sizes = out_tensor.sizes[0];
    if (row >= sizes.y || oc4 >= div_up(sizes.z, 4u)) {
        return;
    }
    for (uint n = 0u; n < sizes.w; n++) {
        for (uint tile = 0u; tile < 4u; tile++) {
            const uint column = 4u * gl_GlobalInvocationID.x + tile;
            const ivec4 sums = sums_at(uvec2(column, row), oc4, n);
            OUT_WORD(float_epilogue, sums, oc4, sizes.z, word)
            if (column < sizes.x) {
                out_words[word_at(out_tensor, OUT_LAYOUT, uvec4(column, row, 4u * oc4, n))] = word;
            }
        }
    }
}
