// Depthwise convolution. An invocation computes four columns x four channels.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/conv_bindings.glsl"
#include "include/epilogue.glsl"

int source(ivec2 at, uint channel, uint n) {
    if (!in_image(in_tensor, at)) {
        return splat(in_zp);
    }
    return in_words[word_at(in_tensor, IN_LAYOUT, uvec4(at, channel, n))];
}

ivec4 sums_at(uvec2 to, uint c4, uint n) {
    const uint texels_per_row = div_up(uint(conv.kernel.x), 4u);
    ivec4 sums = ivec4(0);
    for (uint ky = 0u; ky < uint(conv.kernel.y); ky++) {
        for (uint kx = 0u; kx < uint(conv.kernel.x); kx++) {
            const int x = source(under(conv, to, uvec2(kx, ky)), 4u * c4, n);
            // a texel has four taps of a row, each a word of four channels
            const int w = texelFetch(weights, ivec2(c4, ky * texels_per_row + kx / 4u), 0)[kx % 4u];
            for (uint k = 0u; k < 4u; k++) {
                sums[k] += lane(x, k) * lane(w, k);
            }
        }
    }
    return sums;
}

void main() {
    const uint row = gl_GlobalInvocationID.y, c4 = gl_GlobalInvocationID.z;
    const uvec4 sizes = out_tensor.sizes[0];
    if (row >= sizes.y || c4 >= div_up(sizes.z, 4u)) {
        return;
    }
    for (uint n = 0u; n < sizes.w; n++) {
        for (uint tile = 0u; tile < 4u; tile++) {
            const uint column = 4u * gl_GlobalInvocationID.x + tile;
            const ivec4 sums = sums_at(uvec2(column, row), c4, n);
            OUT_WORD(float_epilogue, sums, c4, sizes.z, word)
            if (column < sizes.x) {
                out_words[word_at(out_tensor, OUT_LAYOUT, uvec4(column, row, 4u * c4, n))] = word;
            }
        }
    }
}
