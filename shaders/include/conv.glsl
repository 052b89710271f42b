// Push words, buffers and positions of the convolutions (refsim/ops/base/conv.py). Pairs are (height, width).
#ifndef REFSIM_CONV_GLSL
#define REFSIM_CONV_GLSL

#include "index.glsl"
#include "lanes.glsl"
#include "qmath.glsl"

const int X = 0, OUT = 8, KERNEL = 16, STRIDE = 18, PADDING = 20, DILATION = 22, IC4 = 24, OC4 = 25, QUANT = 26;
const int IN_ZP = QUANT;
layout(constant_id = 6) const uint X_HASH = 0;
layout(constant_id = 7) const uint OUT_HASH = 0;

// (column, row, batch) of an output position
ivec3 position_coord(int position, int columns, int rows) {
    uint row = uint(position) / uint(columns);
    return ivec3(uint(position) % uint(columns), row % uint(rows), row / uint(rows));
}

// the word of an input coordinate, with the channel given in words
int x_word(int w, int h, int channel_word, int n) {
    return word_idx(X, X_HASH, ivec4(w, h, 4 * channel_word, n));
}

bool in_image(int w, int h) {
    return uint(w) < uint(push[X]) && uint(h) < uint(push[X + 1]);
}

#endif
