// What follows an integer sum (refsim/ops/_epilogue.py). A kernel defines QUANT, where the five words of
// `quantization` begin among its push words, and the buffers sums, scales and bias.
#ifndef REFSIM_EPILOGUE_GLSL
#define REFSIM_EPILOGUE_GLSL

const int RELU = 1 << 8, HAS_BIAS = 1 << 9;

struct Channels {  // the constants of four output channels
    ivec4 sums;
    vec4 scales, bias;
};

Channels channels_at(int oc) {
    Channels four;
    [[unroll]] for (int k = 0; k < 4; ++k) {
        four.sums[k] = sums[oc + k];
        four.scales[k] = intBitsToFloat(scales[oc + k]);
        four.bias[k] = (push[QUANT + 4] & HAS_BIAS) != 0 ? intBitsToFloat(bias[oc + k]) : 0.0;
    }
    return four;
}

int finish(float t, float combined, float b) {
    int flags = push[QUANT + 4];
    precise float scaled = t * combined;
    if ((flags & HAS_BIAS) != 0) {
        precise float biased = scaled + b;
        scaled = biased;
    }
    if ((flags & RELU) != 0) scaled = max(scaled, 0.0);
    return requant(scaled, push_float(QUANT + 3), push[QUANT + 1]);
}

// pointwise, im2col, linear: the zero point is taken out in int32
int int_value(int acc, int wsum, float weight_scale, float b) {
    precise float combined = weight_scale * push_float(QUANT + 2);
    return finish(float(acc - push[QUANT] * wsum), combined, b);
}

// general, depthwise, transposed: the zero point is taken out in binary32
int float_value(int acc, int wsum, float weight_scale, float b) {
    precise float combined = weight_scale * push_float(QUANT + 2);
    return finish(mul_add(-float(wsum), float(push[QUANT]), float(acc)), combined, b);
}

// The output word of four sums that are all of channels.
int full_word(bool integer, ivec4 acc, Channels of) {
    int packed = 0;
    [[unroll]] for (int k = 0; k < 4; ++k) {
        packed = insert(packed, k, integer ? int_value(acc[k], of.sums[k], of.scales[k], of.bias[k])
                                           : float_value(acc[k], of.sums[k], of.scales[k], of.bias[k]));
    }
    return packed;
}

// The output word of four sums; lanes beyond the channels hold the zero point.
int out_word(bool integer, ivec4 acc, Channels of, int oc, int channels) {
    int packed = 0;
    [[unroll]] for (int k = 0; k < 4; ++k) {
        int q = push[QUANT + 1];
        if (oc + k < channels) {
            q = integer ? int_value(acc[k], of.sums[k], of.scales[k], of.bias[k])
                        : float_value(acc[k], of.sums[k], of.scales[k], of.bias[k]);
        }
        packed = insert(packed, k, q);
    }
    return packed;
}

#endif
