// Bindings, specialization constants and push words of the convolutions with a window: general, depthwise, transposed.
#ifndef CONV_BINDINGS_GLSL
#define CONV_BINDINGS_GLSL

#include "include/conv.glsl"

layout(local_size_x_id = 0, local_size_y_id = 1, local_size_z_id = 2) in;
layout(constant_id = 3) const uint apply_bias = 1;
layout(constant_id = 4) const uint activation = 0;
layout(constant_id = 5) const uint IN_LAYOUT = 0;
layout(constant_id = 6) const uint OUT_LAYOUT = 0;

layout(set = 0, binding = 0) restrict writeonly buffer Out { int out_words[]; };
layout(set = 0, binding = 1) restrict readonly buffer In { int in_words[]; };
layout(set = 0, binding = 2) uniform highp isampler2D weights;
layout(set = 0, binding = 3) restrict readonly buffer WeightSums { ivec4 weight_sums[]; };
layout(set = 0, binding = 4) restrict readonly buffer WeightScales { vec4 weight_scales[]; };
layout(set = 0, binding = 5) restrict readonly buffer Bias { vec4 biases[]; };
layout(set = 0, binding = 6) uniform OutTensor { Tensor out_tensor; };
layout(set = 0, binding = 7) uniform InTensor { Tensor in_tensor; };
layout(set = 0, binding = 8) uniform ConvParams { Conv conv; };
layout(push_constant) uniform Push { float in_scale; int in_zp; float inv_out_scale; int out_zp; };

#endif
