// Signed 4-bit weights in blocks of 8 rows and 4 columns (refsim/ops/base/int4.py).
#ifndef REFSIM_INT4_GLSL
#define REFSIM_INT4_GLSL

const int BLOCK_ROWS = 8;

// the value of the nibble at a shift
float nibble(int word, int shift) {
    return float((word >> shift & 15) - 8);
}

// the values of the four bytes of a word, of the low nibbles (high 0) or of the high ones (high 1)
vec4 nibbles(int word, int high) {
    return vec4((ivec4(word, word >> 8, word >> 16, word >> 24) >> 4 * high & 15) - 8);
}

#endif
