// A float tensor in a 3-d texture: four elements of the packed dim to a texel.
#ifndef TEXTURE_GLSL
#define TEXTURE_GLSL

struct Texture {
    ivec4 sizes;
    ivec3 limits;
    ivec4 axis_map;  // the axis of W, of H and of C; the dim along which batches lie one behind the other
    int packed_dim;
};

// The texel that holds an element.
ivec3 texel_at(Texture t, uvec4 whcn) {
    ivec4 texels = t.sizes, at = ivec4(whcn);
    texels[t.packed_dim] = (texels[t.packed_dim] + 3) / 4;
    at[t.packed_dim] /= 4;
    at[t.axis_map.w] += at.w * texels[t.axis_map.w];
    ivec3 place = ivec3(0);
    place[t.axis_map.x] = at.x;
    place[t.axis_map.y] = at.y;
    place[t.axis_map.z] = at.z;
    return place;
}

#endif
