// What follows an integer sum (refsim/ops/base/epilogue.py). A kernel's push words have those of QUANTIZATION among them.
#ifndef REFSIM_EPILOGUE_GLSL
#define REFSIM_EPILOGUE_GLSL

#include "channels.glsl"

// The output word of four sums that are all of channels. The zero point is taken out in int32 (pointwise, im2col,
// linear) or in binary32 (general, depthwise, transposed). Without a bias 0 is added, which changes no byte.
int full_word(bool integer, ivec4 acc, Channels of) {
    int in_zp = push[IN_ZP], zp = push[ZP];
    vec4 t = integer ? vec4(acc - in_zp * of.sums) : mul_add4(-vec4(of.sums), vec4(float(in_zp)), vec4(acc));
    vec2 within = bounds(zp, (push[FLAGS] & RELU) != 0, push[FLAGS]);
    return requant4(mul_add4(t, of.scales, of.bias), push_float(INV), within, zp);
}

// The output word of four sums; lanes beyond the channels hold the zero point.
int out_word(bool integer, ivec4 acc, Channels of, int oc, int channels) {
    return first_lanes(full_word(integer, acc, of), channels - oc, splat(push[ZP]));
}

#endif
