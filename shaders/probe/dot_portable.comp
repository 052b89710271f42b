#version 450
#extension GL_GOOGLE_include_directive : require
// The same probe without OpSDot: what a device without VK_KHR_shader_integer_dot_product runs.
#define REFSIM_NO_DOT
#include "dot_body.glsl"
