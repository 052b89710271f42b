// The constants of four output channels, which epilogues read: the buffers sums, scales and bias, four channels at a
// time. A kernel's push words have IN_SCALE and FLAGS among them.
#ifndef REFSIM_CHANNELS_GLSL
#define REFSIM_CHANNELS_GLSL

struct Channels {
    ivec4 sums;
    vec4 scales, bias;  // scales: the weight's times the input's
};

Channels channels_at(int oc) {  // oc is a multiple of 4
    int at = oc >> 2;
    bool has_bias = (push[FLAGS] & HAS_BIAS) != 0;
    precise vec4 combined = intBitsToFloat(scales[at]) * push_float(IN_SCALE);
    return Channels(sums[at], combined, has_bias ? intBitsToFloat(bias[at]) : vec4(0.0));
}

#endif
