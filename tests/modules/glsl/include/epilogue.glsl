// From four integer sums to a word of four output channels. A shader declares before: the specialization constants
// apply_bias and activation, the push words in_scale, in_zp, inv_out_scale and out_zp, and bindings 3 to 5.
#ifndef EPILOGUE_GLSL
#define EPILOGUE_GLSL

#include "include/lanes.glsl"
#include "include/requant.glsl"

const uint RELU = 1u;

int finished(float real) {
    if (activation == RELU) {
        real = max(real, 0.0);
    }
    return requant(real, inv_out_scale, out_zp);
}

float scaled(float sum, uint oc) {
    precise float scale = weight_scales[oc / 4u][oc % 4u] * in_scale;
    precise float real = sum * scale;
    if (apply_bias != 0u) {
        real = real + biases[oc / 4u][oc % 4u];
    }
    return real;
}

// The zero point of the input is subtracted in binary32: general, depthwise, transposed.
int float_epilogue(int sum, uint oc) {
    const float weight_sum = float(weight_sums[oc / 4u][oc % 4u]);
    precise float correction = weight_sum * float(in_zp);
    precise float corrected = float(sum) - correction;
    return finished(scaled(corrected, oc));
}

// The zero point of the input is subtracted in int32: pointwise, linear.
int int_epilogue(int sum, uint oc) {
    return finished(scaled(float(sum - in_zp * weight_sums[oc / 4u][oc % 4u]), oc));
}

// Lanes beyond the output channels hold the zero point.
#define OUT_WORD(epilogue, sums, oc4, channels, word) \
    int word = splat(out_zp); \
    for (uint k = 0u; k < 4u; k++) { \
        if (4u * (oc4) + k < (channels)) { \
            word = with_lane(word, k, epilogue((sums)[k], 4u * (oc4) + k)); \
        } \
    }

#endif
