// max(x, 0) between two quantizations. An invocation takes 4 x 4 elements; both tensors pack the same dim.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/blocks.glsl"
#include "include/lanes.glsl"
#include "include/requant.glsl"

layout(local_size_x_id = 0, local_size_y_id = 1, local_size_z_id = 2) in;
layout(constant_id = 3) const uint OUT_LAYOUT = 0;
layout(constant_id = 4) const uint IN_LAYOUT = 0;
layout(constant_id = 5) const uint OUT_CONFIG = 0;

layout(set = 0, binding = 0) restrict writeonly buffer Out { int out_words[]; };
layout(set = 0, binding = 1) restrict readonly buffer In { int in_words[]; };
layout(set = 0, binding = 2) uniform OutTensor { Tensor out_tensor; };
layout(set = 0, binding = 3) uniform InTensor { Tensor in_tensor; };
layout(push_constant) uniform Push { float in_scale; int in_zp; float inv_out_scale; int out_zp; };

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
            const int source = in_words[word_at(in_tensor, IN_LAYOUT, at)];
            int word = 0;
            for (uint k = 0u; k < 4u; k++) {
                const float real = max(real_value(lane(source, k), in_scale, in_zp), 0.0);
                word = with_lane(word, k, k < lanes ? requant(real, inv_out_scale, out_zp) : 0);
            }
            out_words[word_at(out_tensor, OUT_LAYOUT, at)] = word;
        }
    }
}
