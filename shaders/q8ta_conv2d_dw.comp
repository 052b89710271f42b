#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/dot.glsl"
#include "include/push/q8ta_conv2d_dw.glsl"
#include "include/conv.glsl"

// x is a word of channels, y an output column, z a row: (batch, output row padded to 4). An invocation takes four
// columns of ROWS rows, so that an input row is read once for all the output rows that it serves. Where four
// neighbouring columns are four neighbouring words (X_VECTORS, OUT_VECTORS), they move as one vector.
INPUT(0, x);
INPUT(1, weight);
INPUT4(2, sums);
INPUT4(3, scales);
INPUT4(4, bias);
OUTPUT(5, result);
INPUT4(0, x4);
OUTPUT4(5, result4);
#include "include/epilogue.glsl"

// a build for one window has these as literals, and dilation 1: its loops unroll and its arrays are registers
#ifdef REFSIM_KERNEL_H
const int TAPS_H = REFSIM_KERNEL_H, TAPS_W = REFSIM_KERNEL_W;
const int STEP_H = REFSIM_STRIDE_H, STEP_W = REFSIM_STRIDE_W, PAD_W = REFSIM_PAD_W;
const int ROWS = REFSIM_ROWS;
#define ANY_WINDOW false
#else
const int TAPS_H = 1, TAPS_W = 1, STEP_H = 1, STEP_W = 1, PAD_W = 0;
const int ROWS = int(TILE_Z);
#define ANY_WINDOW true
#endif
const int COLUMNS = 4, MOST_ROWS = 4;
const int SPAN_H = (ROWS - 1) * STEP_H + TAPS_H, SPAN_W = (COLUMNS - 1) * STEP_W + TAPS_W;
const int GROUPS = (SPAN_W + 3) / 4;    // input columns, four at a time
const int PARTS = (TAPS_W + 3) / 4;   // a row of taps, four at a time

// One output row of the invocation's four columns.
void store(ivec4 at, ivec4 acc[COLUMNS], Channels of) {
    if (at.y >= push[OUT + H]) return;
    ivec4 four = ivec4(0);
    [[unroll]] for (int t = 0; t < COLUMNS; ++t) {
        if (at.x + t < push[OUT + W]) four[t] = full_word(false, acc[t], of);
    }
    if (OUT_VECTORS) {
        result4[word_idx(OUT, OUT_HASH, at) >> 2] = four;  // words beyond the width are 0, which is what they hold
    } else {
        [[unroll]] for (int t = 0; t < COLUMNS; ++t) {
            if (at.x + t < push[OUT + W]) result[word_idx(OUT, OUT_HASH, at + ivec4(t, 0, 0, 0))] = four[t];
        }
    }
}

void main() {
    int word = int(gl_GlobalInvocationID.x), words = push[OUT + C] >> 2;
    int first = int(gl_GlobalInvocationID.y) * COLUMNS;
    if (word >= words || first >= push[OUT + W]) return;
    int groups = (push[OUT + H] + MOST_ROWS - 1) / MOST_ROWS * (MOST_ROWS / ROWS);  // of rows, in one batch
    int n = int(gl_WorkGroupID.z) / groups, top = int(gl_WorkGroupID.z) % groups * ROWS;
    Channels of = channels_at(4 * word);
    ivec4 acc[ROWS][COLUMNS];
    [[unroll]] for (int r = 0; r < ROWS; ++r) {
        [[unroll]] for (int t = 0; t < COLUMNS; ++t) acc[r][t] = ivec4(0);
    }
    int border = splat(push[IN_ZP]);
    if (ANY_WINDOW) {
        for (int i = 0; i < push[KERNEL_H]; ++i) {
            for (int j = 0; j < push[KERNEL_W]; ++j) {
                ivec4 tap = lanes_of(weight[(i * push[KERNEL_W] + j) * words + word]);
                [[unroll]] for (int r = 0; r < ROWS; ++r) {
                    int h = (top + r) * push[STRIDE_H] - push[PADDING_H] + i * push[DILATION_H];
                    [[unroll]] for (int t = 0; t < COLUMNS; ++t) {
                        int w = (first + t) * push[STRIDE_W] - push[PADDING_W] + j * push[DILATION_W];
                        acc[r][t] += lanes_of(in_image(w, h) ? x[x_word(w, h, word, n)] : border) * tap;
                    }
                }
            }
        }
    } else {
        // by channel, not by word: four columns of a channel are a word, and a row of taps is one or two dot products
        ivec4 taps[TAPS_H * PARTS];
        [[unroll]] for (int i = 0; i < TAPS_H; ++i) {
            [[unroll]] for (int part = 0; part < PARTS; ++part) {
                ivec4 row = ivec4(0);
                [[unroll]] for (int j = 0; j < 4; ++j) {
                    if (4 * part + j < TAPS_W) row[j] = weight[(i * TAPS_W + 4 * part + j) * words + word];
                }
                taps[i * PARTS + part] = transposed(row);
            }
        }
        int w0 = first * STEP_W - PAD_W, h0 = top * STEP_H - push[PADDING_H];
        int column[SPAN_W];  // where each input column's word lies in row 0; the row comes on top
        [[unroll]] for (int j = 0; j < SPAN_W; ++j) column[j] = x_word(max(w0 + j, 0), 0, word, n);
        int row_step = push[X + H_STRIDE] * words_per_block(X_HASH);
        [[unroll]] for (int i = 0; i < SPAN_H; ++i) {
            int words_in[4 * GROUPS];
            bool row_in = uint(h0 + i) < uint(push[X + H]);
            int row = (h0 + i) * row_step;
            [[unroll]] for (int j = 0; j < 4 * GROUPS; ++j) {
                bool hit = row_in && uint(w0 + j) < uint(push[X + W]);
                bool in_vector = j >= PAD_W && j < PAD_W + (SPAN_W - PAD_W) / 4 * 4;
                if (j >= SPAN_W) {
                    words_in[j] = 0;
                } else if (!(X_VECTORS && in_vector)) {
                    words_in[j] = hit ? x[column[j] + row] : border;
                }
            }
            if (X_VECTORS) {
                [[unroll]] for (int v = 0; v < (SPAN_W - PAD_W) / 4; ++v) {
                    int j = PAD_W + 4 * v;
                    bool hit = row_in && w0 + j < push[X + W];  // the vector's first column; the others may lie beyond
                    ivec4 four = hit ? x4[(column[j] + row) >> 2] : ivec4(border);
                    [[unroll]] for (int l = 0; l < 4; ++l) {
                        words_in[j + l] = w0 + j + l < push[X + W] ? four[l] : border;
                    }
                }
            }
            ivec4 source[GROUPS + 1];  // [g][c]: columns 4 * g to 4 * g + 3 of channel c
            [[unroll]] for (int g = 0; g < GROUPS; ++g) {
                source[g] = transposed(
                    ivec4(words_in[4 * g], words_in[4 * g + 1], words_in[4 * g + 2], words_in[4 * g + 3]));
            }
            source[GROUPS] = ivec4(0);
            [[unroll]] for (int t = 0; t < COLUMNS; ++t) {
                [[unroll]] for (int part = 0; part < PARTS; ++part) {
                    int j = t * STEP_W + 4 * part, shift = j % 4 * 8;
                    ivec4 window = source[j / 4];
                    // a row of up to three taps leaves a byte free: one column later, the taps move instead of the columns
                    bool later = TAPS_W < 4 && shift == 8;
                    if (shift > 0 && !later) window = ivec4(uvec4(window) >> shift) | source[j / 4 + 1] << 32 - shift;
                    [[unroll]] for (int r = 0; r < ROWS; ++r) {
                        int tap = i - r * STEP_H;
                        if (tap >= 0 && tap < TAPS_H) {
                            [[unroll]] for (int k = 0; k < 4; ++k) {
                                int row = taps[tap * PARTS + part][k];
                                acc[r][t][k] += dot4(window[k], later ? row << 8 : row);
                            }
                        }
                    }
                }
            }
        }
    }
    [[unroll]] for (int r = 0; r < ROWS; ++r) store(ivec4(first, top + r, 4 * word, n), acc[r], of);
}
