// Contiguous bytes (NCHW) to a packed tensor. An invocation writes one word; padding becomes 0.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/blocks.glsl"
#include "include/lanes.glsl"

layout(local_size_x_id = 0, local_size_y_id = 1, local_size_z_id = 2) in;
layout(constant_id = 3) const uint OUT_LAYOUT = 0;

layout(set = 0, binding = 0) restrict writeonly buffer Out { int out_words[]; };
layout(set = 0, binding = 1) restrict readonly buffer In { int staging[]; };
layout(set = 0, binding = 2) uniform OutTensor { Tensor out_tensor; };

void main() {
    const uint number = gl_GlobalInvocationID.x;
    if (number >= out_tensor.counts.y / 4u) {
        return;
    }
    const uvec4 first = coord_at(out_tensor, OUT_LAYOUT, 4u * number), sizes = out_tensor.sizes[0];
    const uint along = inner_dim(OUT_LAYOUT), lanes = lanes_inside(out_tensor, first, along);
    int word = 0;
    for (uint k = 0u; k < 4u; k++) {
        if (k < lanes) {
            const uvec4 at = moved(first, along, k);
            const uint byte_at = ((at.w * sizes.z + at.z) * sizes.y + at.y) * sizes.x + at.x;
            word = with_lane(word, k, lane(staging[byte_at / 4u], byte_at % 4u));
        }
    }
    out_words[number] = word;
}
