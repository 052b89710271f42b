// What every kernel is given, in the words of refsim/core/launch.py: the workgroup, the tile, the push words, and
// buffers of 32-bit words between guard words.
#ifndef REFSIM_LAUNCH_GLSL
#define REFSIM_LAUNCH_GLSL

#extension GL_EXT_control_flow_attributes : require  // [[unroll]]: arrays stay in registers

layout(local_size_x_id = 0, local_size_y_id = 1, local_size_z_id = 2) in;
#ifdef REFSIM_CUT_LOCAL_X
// a variant built for one cut (refsim/ops/base/gemm.py): compilers unroll loops with literal bounds more reliably
const uint LOCAL_X = REFSIM_CUT_LOCAL_X, LOCAL_Y = REFSIM_CUT_LOCAL_Y, LOCAL_Z = 1;
const uint TILE_X = REFSIM_CUT_TILE_X, TILE_Y = REFSIM_CUT_TILE_Y, TILE_Z = 1;
#else
layout(constant_id = 0) const uint LOCAL_X = 1;
layout(constant_id = 1) const uint LOCAL_Y = 1;
layout(constant_id = 2) const uint LOCAL_Z = 1;
layout(constant_id = 3) const uint TILE_X = 1;
layout(constant_id = 4) const uint TILE_Y = 1;
layout(constant_id = 5) const uint TILE_Z = 1;
#endif
// a kernel's own specialization words begin at 6

layout(push_constant) uniform Push {
    int push[32];
};

float push_float(int at) {
    return intBitsToFloat(push[at]);
}

const int GUARD_WORDS = 16;

#define INPUT(slot, name) \
    layout(std430, set = 0, binding = slot) readonly buffer name##_buffer { int name##_guard[GUARD_WORDS]; int name[]; }
#define OUTPUT(slot, name) \
    layout(std430, set = 0, binding = slot) buffer name##_buffer { int name##_guard[GUARD_WORDS]; int name[]; }
// the same memory, two or four words at a time; only where a kernel knows that its words begin at a multiple of that
#define INPUT2(slot, name) \
    layout(std430, set = 0, binding = slot) readonly buffer name##_buffer { ivec2 name##_guard[GUARD_WORDS / 2]; ivec2 name[]; }
#define INPUT4(slot, name) \
    layout(std430, set = 0, binding = slot) readonly buffer name##_buffer { ivec4 name##_guard[GUARD_WORDS / 4]; ivec4 name[]; }
#define OUTPUT4(slot, name) \
    layout(std430, set = 0, binding = slot) buffer name##_buffer { ivec4 name##_guard[GUARD_WORDS / 4]; ivec4 name[]; }

#endif
