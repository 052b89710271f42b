// Where a packer of weights stores its texels: in a texture, or row after row in a buffer (WEIGHT_BUFFER).
#ifndef PACKED_GLSL
#define PACKED_GLSL

#include "include/lanes.glsl"

layout(local_size_x_id = 0, local_size_y_id = 1, local_size_z_id = 2) in;

#ifdef WEIGHT_BUFFER
layout(set = 0, binding = 0) restrict writeonly buffer Packed { ivec4 packed[]; };
#else
layout(set = 0, binding = 0, rgba32i) uniform restrict writeonly highp iimage2D packed;
#endif
layout(set = 0, binding = 1) restrict readonly buffer Source { int source[]; };

int fours(int size) {
    return (size + 3) / 4;
}

int source_byte(int at) {
    return lane(source[at / 4], uint(at) % 4u);
}

// UNSIGNED_DOT stores every weight 128 higher, padding included.
void store(ivec2 at, int width, ivec4 texel) {
#ifdef UNSIGNED_DOT
    texel ^= ivec4(0x80808080);
#endif
#ifdef WEIGHT_BUFFER
    packed[at.y * width + at.x] = texel;
#else
    imageStore(packed, at, texel);
#endif
}

#endif
