#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/conv.glsl"

// x is a word of channels, y an output column, z a row: (batch, output row padded to 4). An invocation takes four
// columns of ROWS rows, so that an input row is read once for all the output rows that it serves.
INPUT(0, x);
INPUT(1, weight);
INPUT(2, sums);
INPUT(3, scales);
INPUT(4, bias);
OUTPUT(5, result);
INPUT4(0, x4);
OUTPUT4(5, result4);
#include "include/epilogue.glsl"

// a build for one window has these as literals, and dilation 1: its loops unroll and its arrays are registers; where
// four neighbouring columns are four neighbouring words, they move as one vector
#ifdef REFSIM_DW_KERNEL_H
const int KERNEL_H = REFSIM_DW_KERNEL_H, KERNEL_W = REFSIM_DW_KERNEL_W;
const int STRIDE_H = REFSIM_DW_STRIDE_H, STRIDE_W = REFSIM_DW_STRIDE_W, PAD_W = REFSIM_DW_PAD_W;
const int ROWS = REFSIM_DW_ROWS;
#define ANY_WINDOW false
#else
const int KERNEL_H = 1, KERNEL_W = 1, STRIDE_H = 1, STRIDE_W = 1, PAD_W = 0;
const int ROWS = int(TILE_Z);
#define ANY_WINDOW true
#endif
const int COLUMNS = 4;
const int SPAN_H = (ROWS - 1) * STRIDE_H + KERNEL_H, SPAN_W = (COLUMNS - 1) * STRIDE_W + KERNEL_W;

// whether words w to w + 3 of a row, w a multiple of 4, are neighbours at a multiple of four words
bool columns_adjoin(uint hashed, int width) {
    return words_per_block(hashed) == 4 || (dim_at(hashed, 0) == W && (width & 3) == 0);
}

ivec4 lanes_of(int word) {
    return ivec4(lane(word, 0), lane(word, 1), lane(word, 2), lane(word, 3));
}

void main() {
    int word = int(gl_GlobalInvocationID.x), words = push[OUT + 2] >> 2;
    int first = int(gl_GlobalInvocationID.y) * COLUMNS;
    if (word >= words || first >= push[OUT]) return;
    int groups = (push[OUT + 1] + 3) / 4 * (4 / ROWS);  // of rows, in one batch
    int n = int(gl_WorkGroupID.z) / groups, top = int(gl_WorkGroupID.z) % groups * ROWS;
    Channels of = channels_at(4 * word);
    ivec4 acc[ROWS * COLUMNS];
    [[unroll]] for (int t = 0; t < ROWS * COLUMNS; ++t) acc[t] = ivec4(0);
    int border = splat(push[IN_ZP]);
    if (ANY_WINDOW) {
        for (int i = 0; i < push[KERNEL]; ++i) {
            for (int j = 0; j < push[KERNEL + 1]; ++j) {
                ivec4 tap = lanes_of(weight[(i * push[KERNEL + 1] + j) * words + word]);
                [[unroll]] for (int t = 0; t < ROWS * COLUMNS; ++t) {
                    int h = (top + t / COLUMNS) * push[STRIDE] - push[PADDING] + i * push[DILATION];
                    int w = (first + t % COLUMNS) * push[STRIDE + 1] - push[PADDING + 1] + j * push[DILATION + 1];
                    acc[t] += lanes_of(in_image(w, h) ? x[x_word(w, h, word, n)] : border) * tap;
                }
            }
        }
    } else {
        ivec4 taps[KERNEL_H * KERNEL_W];
        [[unroll]] for (int i = 0; i < KERNEL_H * KERNEL_W; ++i) taps[i] = lanes_of(weight[i * words + word]);
        int w0 = first * STRIDE_W - PAD_W, h0 = top * STRIDE_H - push[PADDING];
        bool vectors = columns_adjoin(X_HASH, push[X]);
        int column[SPAN_W];  // where each input column's word lies in row 0; the row comes on top
        [[unroll]] for (int j = 0; j < SPAN_W; ++j) column[j] = x_word(max(w0 + j, 0), 0, word, n);
        int row_step = push[X + 5] * words_per_block(X_HASH);
        [[unroll]] for (int i = 0; i < SPAN_H; ++i) {
            int words_in[SPAN_W];
            bool row_in = uint(h0 + i) < uint(push[X + 1]);
            int row = (h0 + i) * row_step;
            [[unroll]] for (int j = 0; j < SPAN_W; ++j) {
                bool hit = row_in && uint(w0 + j) < uint(push[X]);
                bool in_vector = j >= PAD_W && j < PAD_W + (SPAN_W - PAD_W) / 4 * 4;
                if (!(vectors && in_vector)) words_in[j] = hit ? x[column[j] + row] : border;
            }
            if (vectors) {
                [[unroll]] for (int v = 0; v < (SPAN_W - PAD_W) / 4; ++v) {
                    int j = PAD_W + 4 * v;
                    bool hit = row_in && w0 + j < push[X];  // the vector's first column; the others may lie beyond
                    ivec4 four = hit ? x4[(column[j] + row) >> 2] : ivec4(border);
                    [[unroll]] for (int l = 0; l < 4; ++l) {
                        words_in[j + l] = w0 + j + l < push[X] ? four[l] : border;
                    }
                }
            }
            ivec4 source[SPAN_W];
            [[unroll]] for (int j = 0; j < SPAN_W; ++j) source[j] = lanes_of(words_in[j]);
            [[unroll]] for (int r = 0; r < ROWS; ++r) {
                if (i - r * STRIDE_H >= 0 && i - r * STRIDE_H < KERNEL_H) {
                    [[unroll]] for (int t = 0; t < COLUMNS; ++t) {
                        [[unroll]] for (int j = 0; j < KERNEL_W; ++j) {
                            acc[r * COLUMNS + t] += source[t * STRIDE_W + j] * taps[(i - r * STRIDE_H) * KERNEL_W + j];
                        }
                    }
                }
            }
        }
    }
    bool vectors = columns_adjoin(OUT_HASH, push[OUT]);
    [[unroll]] for (int r = 0; r < ROWS; ++r) {
        if (top + r < push[OUT + 1]) {
            int to = word_idx(OUT, OUT_HASH, ivec4(first, top + r, 4 * word, n));
            ivec4 four = ivec4(0);
            [[unroll]] for (int t = 0; t < COLUMNS; ++t) {
                if (first + t < push[OUT]) four[t] = full_word(false, acc[r * COLUMNS + t], of);
            }
            if (vectors) {
                result4[to >> 2] = four;  // words beyond the width are 0, which is what they hold
            } else {
                [[unroll]] for (int t = 0; t < COLUMNS; ++t) {
                    if (first + t < push[OUT]) {
                        result[word_idx(OUT, OUT_HASH, ivec4(first + t, top + r, 4 * word, n))] = four[t];
                    }
                }
            }
        }
    }
}
