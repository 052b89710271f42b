#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/index.glsl"
#include "include/lanes.glsl"

// An invocation moves 4 columns x 4 rows x 4 channels: x is a word of channels, y of columns, z of rows padded to 4,
// of all batches. Push words as in refsim/ops/q8ta_clone.py.
const int OUT = 0, X = 8, ROWS = 16;
layout(constant_id = 6) const uint OUT_HASH = 0;
layout(constant_id = 7) const uint X_HASH = 0;
// where neighbouring columns are neighbouring words, they move as one vector; and so do the rows of a block
layout(constant_id = 8) const bool OUT_ADJOINS = false;
layout(constant_id = 9) const bool X_ADJOINS = false;
#define ROWS_ADJOIN(hashed) (words_per_block(hashed) == 4 && outer_dim(hashed) == H)
#define BY_CHANNELS(hashed) (inner_dim(hashed) == C)
INPUT(0, x);
INPUT4(0, x4);
OUTPUT(1, result);
OUTPUT4(1, result4);

ivec4 cells[4];  // [row]: the words of channels of four columns

int x_word(ivec4 p) { return word_idx(X, X_HASH, p); }
int out_word(ivec4 p) { return word_idx(OUT, OUT_HASH, p); }

void load(ivec4 p) {
    if (BY_CHANNELS(X_HASH)) {
        [[unroll]] for (int r = 0; r < 4; ++r) {
            cells[r] = ivec4(0);
            ivec4 at = p + ivec4(0, r, 0, 0);
            if (at.y < push[X + 1]) {
                if (X_ADJOINS) {
                    cells[r] = x4[x_word(at) >> 2];
                } else {
                    [[unroll]] for (int j = 0; j < 4; ++j) {
                        if (at.x + j < push[X]) cells[r][j] = x[x_word(at + ivec4(j, 0, 0, 0))];
                    }
                }
            }
        }
        return;
    }
    ivec4 rows[4];  // [channel]: the words of columns of four rows
    [[unroll]] for (int k = 0; k < 4; ++k) {
        rows[k] = ivec4(0);
        ivec4 at = p + ivec4(0, 0, k, 0);
        if (at.z < push[X + 2]) {
            if (ROWS_ADJOIN(X_HASH)) {
                rows[k] = x4[x_word(at) >> 2];
            } else {
                [[unroll]] for (int r = 0; r < 4; ++r) {
                    if (at.y + r < push[X + 1]) rows[k][r] = x[x_word(at + ivec4(0, r, 0, 0))];
                }
            }
        }
    }
    [[unroll]] for (int r = 0; r < 4; ++r) cells[r] = transposed(ivec4(rows[0][r], rows[1][r], rows[2][r], rows[3][r]));
}

// between equal layouts padding is copied; else it is 0
void clear_padding(ivec4 p) {
    int lanes = min(4, push[OUT + 2] - p.z);
    [[unroll]] for (int r = 0; r < 4; ++r) {
        [[unroll]] for (int j = 0; j < 4; ++j) {
            bool live = p.x + j < push[OUT] && p.y + r < push[OUT + 1];
            cells[r][j] = live ? first_lanes(cells[r][j], lanes, 0) : 0;
        }
    }
}

void store(ivec4 p) {
    if (BY_CHANNELS(OUT_HASH)) {
        [[unroll]] for (int r = 0; r < 4; ++r) {
            ivec4 at = p + ivec4(0, r, 0, 0);
            if (at.y < push[OUT + 1]) {
                if (OUT_ADJOINS) {
                    result4[out_word(at) >> 2] = cells[r];
                } else {
                    [[unroll]] for (int j = 0; j < 4; ++j) {
                        if (at.x + j < push[OUT]) result[out_word(at + ivec4(j, 0, 0, 0))] = cells[r][j];
                    }
                }
            }
        }
        return;
    }
    [[unroll]] for (int r = 0; r < 4; ++r) cells[r] = transposed(cells[r]);
    [[unroll]] for (int k = 0; k < 4; ++k) {
        ivec4 at = p + ivec4(0, 0, k, 0);
        if (at.z < push[OUT + 2]) {
            if (ROWS_ADJOIN(OUT_HASH)) {
                result4[out_word(at) >> 2] = ivec4(cells[0][k], cells[1][k], cells[2][k], cells[3][k]);
            } else {
                [[unroll]] for (int r = 0; r < 4; ++r) {
                    if (at.y + r < push[OUT + 1]) result[out_word(at + ivec4(0, r, 0, 0))] = cells[r][k];
                }
            }
        }
    }
}

void main() {
    int row = 4 * int(gl_GlobalInvocationID.z);
    ivec4 p = ivec4(4 * int(gl_GlobalInvocationID.y), row % push[ROWS], 4 * int(gl_GlobalInvocationID.x), row / push[ROWS]);
    if (p.x >= push[OUT] || p.z >= push[OUT + 2]) return;
    load(p);
    if (X_HASH != OUT_HASH) clear_padding(p);
    store(p);
}
