// Pointwise convolution of a 4W4C tensor; also the second step of im2col. An invocation computes four columns x four
// output channels.
//
// UNSIGNED_DOT: for devices with a fast unsigned dot product alone. Inputs and weights lie 128 higher, the weights
// by their packing: sum x w = sum (x + 128)(w + 128) - 128 sum (x + 128) - 128 sum w.
// WEIGHT_BUFFER: the texels of the weights lie in a buffer, row after row.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/dot.glsl"
#include "include/tensor.glsl"

layout(local_size_x_id = 0, local_size_y_id = 1, local_size_z_id = 2) in;
layout(constant_id = 3) const uint apply_bias = 1;
layout(constant_id = 4) const uint activation = 0;
layout(constant_id = 5) const uint OUT_LAYOUT = 0;
layout(constant_id = 6) const uint IN_LAYOUT = 0;

layout(set = 0, binding = 0) restrict writeonly buffer Out { int out_words[]; };
layout(set = 0, binding = 1) restrict readonly buffer In { ivec4 in_blocks[]; };
#ifdef WEIGHT_BUFFER
layout(set = 0, binding = 2) restrict readonly buffer Weights { ivec4 weights[]; };
#else
layout(set = 0, binding = 2) uniform highp isampler2D weights;
#endif
layout(set = 0, binding = 3) restrict readonly buffer WeightSums { ivec4 weight_sums[]; };
layout(set = 0, binding = 4) restrict readonly buffer WeightScales { vec4 weight_scales[]; };
layout(set = 0, binding = 5) restrict readonly buffer Bias { vec4 biases[]; };
layout(set = 0, binding = 6) uniform OutTensor { Tensor out_tensor; };
layout(set = 0, binding = 7) uniform InTensor { Tensor in_tensor; };
layout(push_constant) uniform Push {
    float in_scale;
    int in_zp;
    float inv_out_scale;
    int out_zp;
    int k4_per_group;
    int oc4_per_group;
};

#include "include/epilogue.glsl"

ivec4 weight_texel(uint oc4, uint k4) {
#ifdef WEIGHT_BUFFER
    return weights[k4 * div_up(out_tensor.sizes[0].z, 4u) + oc4];
#else
    return texelFetch(weights, ivec2(oc4, k4), 0);
#endif
}

// Sums of four columns (the first index) for four output channels.
void add_up(uint column4, uint row, uint oc4, uint n, out ivec4 sums[4]) {
    const uint first = oc4 / uint(oc4_per_group) * uint(k4_per_group);
#ifdef UNSIGNED_DOT
    uvec4 raised[4] = uvec4[4](uvec4(0), uvec4(0), uvec4(0), uvec4(0));
    uvec4 inputs = uvec4(0);
#endif
    for (uint column = 0u; column < 4u; column++) {
        sums[column] = ivec4(0);
    }
    for (uint k4 = 0u; k4 < uint(k4_per_group); k4++) {
        const uvec4 from = uvec4(4u * column4, row, 4u * (first + k4), n);
        const ivec4 x = in_blocks[element_at(in_tensor, IN_LAYOUT, from) / 16u];
        const ivec4 w = weight_texel(oc4, k4);
        for (uint column = 0u; column < 4u; column++) {
#ifdef UNSIGNED_DOT
            const uint high = uint(x[column]) ^ 0x80808080u;
            inputs[column] = accumulate(high, 0x01010101u, inputs[column]);
            for (uint k = 0u; k < 4u; k++) {
                raised[column][k] = accumulate(high, uint(w[k]), raised[column][k]);
            }
#else
            for (uint k = 0u; k < 4u; k++) {
                sums[column][k] = accumulate(x[column], w[k], sums[column][k]);
            }
#endif
        }
    }
#ifdef UNSIGNED_DOT
    for (uint column = 0u; column < 4u; column++) {
        sums[column] = ivec4(raised[column] - 128u * inputs[column]) - 128 * weight_sums[oc4];
    }
#endif
}

void main() {
    const uint oc4 = gl_GlobalInvocationID.x, column4 = gl_GlobalInvocationID.y, row = gl_GlobalInvocationID.z;
    const uvec4 sizes = out_tensor.sizes[0];
    if (oc4 >= div_up(sizes.z, 4u) || column4 >= div_up(sizes.x, 4u) || row >= sizes.y) {
        return;
    }
    // the scratch tensor of im2col holds one image
    for (uint n = 0u; n < min(sizes.w, in_tensor.sizes[0].w); n++) {
        ivec4 sums[4];
        add_up(column4, row, oc4, n, sums);
        for (uint column = 0u; column < 4u; column++) {
            OUT_WORD(int_epilogue, sums[column], oc4, sizes.z, word)
            const uvec4 to = uvec4(4u * column4 + column, row, 4u * oc4, n);
            if (to.x < sizes.x) {
                out_words[word_at(out_tensor, OUT_LAYOUT, to)] = word;
            }
        }
    }
}
