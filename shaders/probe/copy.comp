#version 450
// Four words from one buffer to another: the bandwidth that a memory-bound kernel could reach.
layout(local_size_x = 256) in;
layout(std430, set = 0, binding = 0) readonly buffer In { ivec4 source[]; };
layout(std430, set = 0, binding = 1) buffer Out { ivec4 result[]; };

void main() {
    uint at = (gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x) * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
    result[at] = source[at];
}
