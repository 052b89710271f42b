// A float tensor to packed int8. An invocation takes 4 x 4 elements. Padding becomes the zero point.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/blocks.glsl"
#include "include/lanes.glsl"
#include "include/requant.glsl"
#include "include/texture.glsl"

layout(local_size_x_id = 0, local_size_y_id = 1, local_size_z_id = 2) in;
layout(constant_id = 3) const uint IN_LAYOUT = 0;
layout(constant_id = 4) const uint OUT_LAYOUT = 0;
layout(constant_id = 5) const uint IN_CONFIG = 0;
layout(constant_id = 6) const uint OUT_CONFIG = 0;

layout(set = 0, binding = 0) restrict writeonly buffer Out { int out_words[]; };
#ifdef TEXTURE
layout(set = 0, binding = 1) uniform highp sampler3D in_texels;
layout(set = 0, binding = 3) uniform InTexture { Texture in_texture; };
#else
layout(set = 0, binding = 1) restrict readonly buffer In { float in_floats[]; };
layout(set = 0, binding = 3) uniform InTensor { Tensor in_tensor; };
#endif
layout(set = 0, binding = 2) uniform OutTensor { Tensor out_tensor; };
layout(push_constant) uniform Push { float inv_scale; int zp; };

float source(Coord at) {
#ifdef TEXTURE
    return texelFetch(in_texels, texel_at(in_texture, at.whcn), 0)[at.whcn[in_texture.packed_dim] % 4u];
#else
    return in_floats[element_at(in_tensor, IN_LAYOUT, at)];
#endif
}

void main() {
    Coord first;
#ifdef TEXTURE
    const bool inside = block_by_place(out_tensor, IN_CONFIG, gl_GlobalInvocationID, first);
#else
    const bool inside = block_by_number(out_tensor, IN_CONFIG, gl_GlobalInvocationID.x, first);
#endif
    if (!inside) {
        return;
    }
    const uint along = inner_dim(OUT_CONFIG), across = outer_dim(OUT_CONFIG);
    for (uint row = 0u; row < 4u; row++) {
        const Coord at = Coord(moved(first.whcn, across, row), first.beyond);
        const uint lanes = lanes_inside(out_tensor, at.whcn, along);
        int word = splat(zp);
        for (uint k = 0u; k < 4u; k++) {
            if (k < lanes) {
                const float real = source(Coord(moved(at.whcn, along, k), at.beyond));
                word = with_lane(word, k, requant(real, inv_scale, zp));
            }
        }
        if (at.whcn[across] < padded_size(out_tensor, OUT_LAYOUT, across)) {
            out_words[element_at(out_tensor, OUT_LAYOUT, at) / 4u] = word;
        }
    }
}
