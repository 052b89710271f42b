#version 450
#extension GL_GOOGLE_include_directive : require
// Pins dot4 of include/dot.glsl, as one OpSDot, to plain integer arithmetic.
#include "dot_body.glsl"
