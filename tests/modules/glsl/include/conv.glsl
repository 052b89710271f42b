// What the convolutions share: the window's uniform block, and the address of a tap.
#ifndef CONV_GLSL
#define CONV_GLSL

#include "include/tensor.glsl"

// Pairs are (x, y): the width comes first. K counts the products of one output.
struct Conv {
    ivec2 kernel;
    ivec2 stride;
    ivec2 padding;
    ivec2 dilation;
    int groups;
    int out_channels_per_group;
    int in_channels_per_group;
    int logical_k_per_group;
    int k_per_group;  // aligned to 4
    int k4_per_group;
    int logical_k;
    int k;
    int k4;
};

// Words of four input channels in a group, at each tap.
uint in_words_per_group(Conv conv) {
    return div_up(uint(conv.in_channels_per_group), 4u);
}

// The group of four output channels.
uint group_of(Conv conv, uint oc4) {
    return oc4 * 4u / uint(conv.out_channels_per_group);
}

// The input column and row under a tap of an output.
ivec2 under(Conv conv, uvec2 to, uvec2 tap) {
    return ivec2(to) * conv.stride - conv.padding + ivec2(tap) * conv.dilation;
}

bool in_image(Tensor t, ivec2 at) {
    return all(greaterThanEqual(at, ivec2(0))) && all(lessThan(at, ivec2(t.sizes[0].xy)));
}

#endif
