// Positions of the convolutions; their words are those of WINDOW in refsim/ops/base/conv.py.
#ifndef REFSIM_CONV_GLSL
#define REFSIM_CONV_GLSL

#include "index.glsl"
#include "lanes.glsl"
#include "qmath.glsl"

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
    return uint(w) < uint(push[X + W]) && uint(h) < uint(push[X + H]);
}

#endif
