// What both linear kernels have beside input and output.
#ifndef LINEAR_BINDINGS_GLSL
#define LINEAR_BINDINGS_GLSL

layout(local_size_x_id = 0, local_size_y_id = 1, local_size_z_id = 2) in;
layout(constant_id = 3) const uint apply_bias = 1;
layout(constant_id = 4) const uint activation = 0;

layout(set = 0, binding = 2) uniform highp isampler2D weights;
layout(set = 0, binding = 3) restrict readonly buffer WeightSums { ivec4 weight_sums[]; };
layout(set = 0, binding = 4) restrict readonly buffer WeightScales { vec4 weight_scales[]; };
layout(set = 0, binding = 5) restrict readonly buffer Bias { vec4 biases[]; };
layout(set = 0, binding = 6) uniform OutSizes { ivec4 out_sizes; };
layout(set = 0, binding = 7) uniform InSizes { ivec4 in_sizes; };
layout(push_constant) uniform Push { float in_scale; int in_zp; float inv_out_scale; int out_zp; };

#include "include/epilogue.glsl"

const uint TILE_N4 = 2u;  // words of outputs along a row that an invocation computes

uint fours(int size) {
    return (uint(size) + 3u) / 4u;
}

#endif
