// Channels to space. An invocation writes one word of four channels.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/blocks.glsl"
#include "include/lanes.glsl"
#include "include/requant.glsl"

layout(local_size_x_id = 0, local_size_y_id = 1, local_size_z_id = 2) in;
layout(constant_id = 3) const uint IN_LAYOUT = 0;
layout(constant_id = 4) const uint OUT_LAYOUT = 0;

layout(set = 0, binding = 0) restrict writeonly buffer Out { int out_words[]; };
layout(set = 0, binding = 1) restrict readonly buffer In { int in_words[]; };
layout(set = 0, binding = 2) uniform OutTensor { Tensor out_tensor; };
layout(set = 0, binding = 3) uniform InTensor { Tensor in_tensor; };
layout(push_constant) uniform Push {
    float in_scale;
    float inv_out_scale;
    int in_zp;
    int out_zp;
    int upscale;
    int passthrough;  // input and output are quantized alike: bytes only move
};

int value_at(uvec4 to) {
    const uint r = uint(upscale);
    const uint channel = to.z * r * r + to.y % r * r + to.x % r;
    const uint byte_at = element_at(in_tensor, IN_LAYOUT, uvec4(to.x / r, to.y / r, channel, to.w));
    const int q = lane(in_words[byte_at / 4u], byte_at % 4u);
    return passthrough != 0 ? q : requant(real_value(q, in_scale, in_zp), inv_out_scale, out_zp);
}

void main() {
    const uvec4 sizes = out_tensor.sizes[0];
    uint rest = gl_GlobalInvocationID.x;
    uvec4 at;
    at.z = 4u * (rest % div_up(sizes.z, 4u));
    rest /= div_up(sizes.z, 4u);
    at.x = rest % sizes.x;
    rest /= sizes.x;
    at.y = rest % sizes.y;
    at.w = rest / sizes.y;
    if (at.w >= sizes.w) {
        return;
    }
    const uint lanes = lanes_inside(out_tensor, at, 2u);
    int word = 0;
    for (uint k = 0u; k < 4u; k++) {
        if (k < lanes) {
            word = with_lane(word, k, value_at(moved(at, 2u, k)));
        }
    }
    out_words[word_at(out_tensor, OUT_LAYOUT, at)] = word;
}
