// The sum of two int8 tensors. An invocation takes 4 x 4 elements; all three tensors pack the same dim. The host pushes
// alpha behind these words; the kernels that this one stands in for do not read it, so neither does this.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/blocks.glsl"
#include "include/lanes.glsl"
#include "include/requant.glsl"

layout(local_size_x_id = 0, local_size_y_id = 1, local_size_z_id = 2) in;
layout(constant_id = 3) const uint OUT_LAYOUT = 0;
layout(constant_id = 4) const uint A_LAYOUT = 0;
layout(constant_id = 5) const uint B_LAYOUT = 0;
layout(constant_id = 6) const uint OUT_CONFIG = 0;

layout(set = 0, binding = 0) restrict writeonly buffer Out { int out_words[]; };
layout(set = 0, binding = 1) restrict readonly buffer A { int a_words[]; };
layout(set = 0, binding = 2) restrict readonly buffer B { int b_words[]; };
layout(set = 0, binding = 3) uniform OutTensor { Tensor out_tensor; };
layout(set = 0, binding = 4) uniform ATensor { Tensor a_tensor; };
layout(set = 0, binding = 5) uniform BTensor { Tensor b_tensor; };
layout(push_constant) uniform Push {
    float a_scale;
    int a_zp;
    float b_scale;
    int b_zp;
    float inv_out_scale;
    int out_zp;
};

int sum_of(int qa, int qb) {
    const float a = real_value(qa, a_scale, a_zp), b = real_value(qb, b_scale, b_zp);
    precise float sum = a + b;
    return requant(sum, inv_out_scale, out_zp);
}

void main() {
    Coord first;
    if (!block_by_number(out_tensor, OUT_CONFIG, gl_GlobalInvocationID.x, first)) {
        return;
    }
    const uint along = inner_dim(OUT_CONFIG), across = outer_dim(OUT_CONFIG);
    for (uint row = 0u; row < 4u; row++) {
        const uvec4 at = moved(first.whcn, across, row);
        const uint lanes = lanes_inside(out_tensor, at, along);
        if (lanes > 0u) {
            const int a = a_words[word_at(a_tensor, A_LAYOUT, at)];
            const int b = b_words[word_at(b_tensor, B_LAYOUT, at)];
            int word = 0;
            for (uint k = 0u; k < 4u; k++) {
                word = with_lane(word, k, k < lanes ? sum_of(lane(a, k), lane(b, k)) : 0);
            }
            out_words[word_at(out_tensor, OUT_LAYOUT, at)] = word;
        }
    }
}
