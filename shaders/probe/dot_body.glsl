// Runs dot4 over two arrays of words; shared by dot.comp and dot_portable.comp.
#include "../include/dot.glsl"

layout(local_size_x = 64, local_size_y = 1, local_size_z = 1) in;

layout(std430, set = 0, binding = 0) readonly buffer A { int a_words[]; };
layout(std430, set = 0, binding = 1) readonly buffer B { int b_words[]; };
layout(std430, set = 0, binding = 2) writeonly buffer Out { int out_words[]; };

layout(push_constant) uniform Push { uint count; };

void main() {
    const uint i = gl_GlobalInvocationID.x;
    if (i < count) {
        out_words[i] = dot4(a_words[i], b_words[i]);
    }
}
