// A packed tensor in another layout. An invocation takes 4 x 4 elements. Equal layouts: padding is copied too.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/blocks.glsl"
#include "include/lanes.glsl"

layout(local_size_x_id = 0, local_size_y_id = 1, local_size_z_id = 2) in;
layout(constant_id = 3) const uint IN_LAYOUT = 0;
layout(constant_id = 4) const uint OUT_LAYOUT = 0;
layout(constant_id = 5) const uint IN_CONFIG = 0;
layout(constant_id = 6) const uint OUT_CONFIG = 0;

layout(set = 0, binding = 0) restrict writeonly buffer Out { int out_words[]; };
layout(set = 0, binding = 1) restrict readonly buffer In { int in_words[]; };
layout(set = 0, binding = 2) uniform OutTensor { Tensor out_tensor; };
layout(set = 0, binding = 3) uniform InTensor { Tensor in_tensor; };

int gathered(uvec4 at, uint along) {
    const uint lanes = lanes_inside(out_tensor, at, along);
    int word = 0;
    for (uint k = 0u; k < 4u; k++) {
        if (k < lanes) {
            const uint byte_at = element_at(in_tensor, IN_LAYOUT, moved(at, along, k));
            word = with_lane(word, k, lane(in_words[byte_at / 4u], byte_at % 4u));
        }
    }
    return word;
}

void main() {
    Coord first;
    if (!block_by_number(in_tensor, IN_CONFIG, gl_GlobalInvocationID.x, first)) {
        return;
    }
    const uint along = inner_dim(OUT_CONFIG), across = outer_dim(OUT_CONFIG);
    for (uint row = 0u; row < 4u; row++) {
        const uvec4 at = moved(first.whcn, across, row);
        if (at[across] < padded_size(out_tensor, OUT_LAYOUT, across)) {
            const uint to = word_at(out_tensor, OUT_LAYOUT, at);
            out_words[to] = IN_LAYOUT == OUT_LAYOUT ? in_words[to] : gathered(at, along);
        }
    }
}
