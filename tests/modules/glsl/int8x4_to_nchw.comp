// A packed tensor to contiguous bytes (NCHW). An invocation writes one word.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/lanes.glsl"
#include "include/tensor.glsl"

layout(local_size_x_id = 0, local_size_y_id = 1, local_size_z_id = 2) in;
layout(constant_id = 3) const uint IN_LAYOUT = 0;

layout(set = 0, binding = 0) restrict writeonly buffer Out { int staging[]; };
layout(set = 0, binding = 1) restrict readonly buffer In { int in_words[]; };
layout(set = 0, binding = 2) uniform InTensor { Tensor in_tensor; };

void main() {
    const uvec4 sizes = in_tensor.sizes[0];
    const uint numel = sizes.x * sizes.y * sizes.z * sizes.w;
    const uint number = gl_GlobalInvocationID.x;
    if (number >= div_up(numel, 4u)) {
        return;
    }
    int word = 0;
    for (uint k = 0u; k < 4u; k++) {
        uint rest = 4u * number + k;
        uvec4 at;
        for (uint dim = 0u; dim < 4u; dim++) {
            at[dim] = rest % sizes[dim];
            rest /= sizes[dim];
        }
        if (4u * number + k < numel) {
            const uint byte_at = element_at(in_tensor, IN_LAYOUT, at);
            word = with_lane(word, k, lane(in_words[byte_at / 4u], byte_at % 4u));
        }
    }
    staging[number] = word;
}
