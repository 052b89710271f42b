// Packed int8 to a float tensor. An invocation takes 4 x 4 elements.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/blocks.glsl"
#include "include/lanes.glsl"
#include "include/requant.glsl"
#include "include/texture.glsl"

layout(local_size_x_id = 0, local_size_y_id = 1, local_size_z_id = 2) in;
layout(constant_id = 3) const uint OUT_LAYOUT = 0;
layout(constant_id = 4) const uint IN_LAYOUT = 0;
layout(constant_id = 5) const uint OUT_CONFIG = 0;
layout(constant_id = 6) const uint IN_CONFIG = 0;

#ifdef TEXTURE
layout(set = 0, binding = 0, rgba32f) uniform restrict writeonly highp image3D out_texels;
layout(set = 0, binding = 2) uniform OutTexture { Texture out_texture; };
#else
layout(set = 0, binding = 0) restrict writeonly buffer Out { float out_floats[]; };
layout(set = 0, binding = 2) uniform OutTensor { Tensor out_tensor; };
#endif
layout(set = 0, binding = 1) restrict readonly buffer In { int in_words[]; };
layout(set = 0, binding = 3) uniform InTensor { Tensor in_tensor; };
layout(push_constant) uniform Push { float scale; int zp; };

float real_at(Coord at) {
    const uint byte_at = element_at(in_tensor, IN_LAYOUT, at);
    return real_value(lane(in_words[byte_at / 4u], byte_at % 4u), scale, zp);
}

void main() {
    Coord first;
#ifdef TEXTURE
    const bool inside = block_by_place(in_tensor, IN_CONFIG, gl_GlobalInvocationID, first);
#else
    const bool inside = block_by_number(in_tensor, IN_CONFIG, gl_GlobalInvocationID.x, first);
#endif
    if (!inside) {
        return;
    }
    const uint along = inner_dim(OUT_CONFIG), across = outer_dim(OUT_CONFIG);
    for (uint row = 0u; row < 4u; row++) {
        const Coord at = Coord(moved(first.whcn, across, row), first.beyond);
        const uint lanes = lanes_inside(in_tensor, at.whcn, along);
        vec4 reals = vec4(0.0);
        for (uint k = 0u; k < 4u; k++) {
            if (k < lanes) {
                const Coord to = Coord(moved(at.whcn, along, k), at.beyond);
                reals[k] = real_at(to);
#ifndef TEXTURE
                out_floats[element_at(out_tensor, OUT_LAYOUT, to)] = reals[k];
#endif
            }
        }
#ifdef TEXTURE
        if (lanes > 0u) {
            imageStore(out_texels, texel_at(out_texture, at.whcn), reals);
        }
#endif
    }
}
