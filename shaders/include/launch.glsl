// What every kernel is given: the workgroup, the tile and the push words (push/launch.glsl), and buffers of 32-bit words
// between guard words. What a kernel alone is given is in push/NAME.glsl.
#ifndef REFSIM_LAUNCH_GLSL
#define REFSIM_LAUNCH_GLSL

#extension GL_EXT_control_flow_attributes : require  // [[unroll]]: arrays stay in registers

#include "push/launch.glsl"
#ifdef REFSIM_LOCAL_X
// a variant built for one tile (refsim/ops/base/gemm.py): compilers unroll loops with literal bounds more reliably
const uint LOCAL_X = REFSIM_LOCAL_X, LOCAL_Y = REFSIM_LOCAL_Y, LOCAL_Z = 1;
const uint TILE_X = REFSIM_TILE_X, TILE_Y = REFSIM_TILE_Y, TILE_Z = 1;
#endif

float push_float(int at) {
    return intBitsToFloat(push[at]);
}

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
