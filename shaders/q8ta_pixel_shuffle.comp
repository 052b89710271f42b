#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/push/q8ta_pixel_shuffle.glsl"
#include "include/index.glsl"
#include "include/lanes.glsl"
#include "include/qmath.glsl"

// x is a word of output channels, y output columns, z output rows of all batches. Where neighbouring columns are
// neighbouring words (X_VECTORS, OUT_VECTORS), they move as one vector.
INPUT(0, x);
INPUT2(0, x2);
OUTPUT(1, result);
OUTPUT4(1, result4);

int requantized(int word, int lanes) {
    if (MOVES_BYTES != 0) return word;  // lanes beyond are 0
    vec4 real = dequant4(lanes_of(word), push[IN_ZP], push_float(IN_SCALE));
    return first_lanes(requant4(real, push_float(INV), lowest(push[ZP], false), push[ZP]), lanes, 0);
}

int x_word(int w, int h, int channel_word, int n) {
    return word_idx(X, X_HASH, ivec4(w, h, 4 * channel_word, n));
}

// r == 2: the four values that an input word holds of a channel go to two columns of two rows
void double_both(int first, int row, int word, int lanes) {
    int rows = push[X + H], h = (row >> 1) % rows, n = (row >> 1) / rows, column = first >> 1;
    bool whole = column + 1 < push[X + W];  // there is a second input column
    ivec2 source[4];  // [k]: two input columns of output channel k
    [[unroll]] for (int k = 0; k < 4; ++k) {
        if (k >= lanes) {
            source[k] = ivec2(0);
        } else if (X_VECTORS) {
            source[k] = x2[x_word(column, h, 4 * word + k, n) >> 1];
        } else {
            source[k].x = x[x_word(column, h, 4 * word + k, n)];
            source[k].y = whole ? x[x_word(column + 1, h, 4 * word + k, n)] : 0;
        }
    }
    ivec4 left = transposed(ivec4(source[0].x, source[1].x, source[2].x, source[3].x));
    ivec4 right = transposed(ivec4(source[0].y, source[1].y, source[2].y, source[3].y));
    [[unroll]] for (int r = 0; r < 2; ++r) {
        ivec4 four = ivec4(left[2 * r], left[2 * r + 1], right[2 * r], right[2 * r + 1]), p = ivec4(first, 2 * h + r, 4 * word, n);
        [[unroll]] for (int t = 0; t < 4; ++t) four[t] = t < 2 || whole ? requantized(four[t], lanes) : 0;
        if (OUT_VECTORS) {
            result4[word_idx(OUT, OUT_HASH, p) >> 2] = four;
        } else {
            [[unroll]] for (int t = 0; t < 4; ++t) {
                if (t < 2 || whole) result[word_idx(OUT, OUT_HASH, p + ivec4(t, 0, 0, 0))] = four[t];
            }
        }
    }
}

int gathered(ivec4 p, int lanes) {
    uvec2 from = uvec2(p.xy) / R, place = uvec2(p.xy) % R;
    int packed = 0;
    [[unroll]] for (int k = 0; k < 4; ++k) {
        if (k < lanes) {
            int channel = int((uint(p.z + k) * R + place.y) * R + place.x);
            int at = buf_idx(X, X_HASH, ivec4(from, channel, p.w));
            packed = insert(packed, k, lane(x[at >> 2], at & 3));
        }
    }
    return packed;
}

void main() {
    int word = int(gl_GlobalInvocationID.x), first = int(gl_GlobalInvocationID.y * TILE_Y);
    int lanes = min(4, push[OUT + C] - 4 * word);
    if (lanes <= 0 || first >= push[OUT + W]) return;
    int row = int(gl_GlobalInvocationID.z * TILE_Z);
    if (R == 2) {
        double_both(first, row, word, lanes);
        return;
    }
    ivec4 p = ivec4(first, row % push[OUT + H], 4 * word, row / push[OUT + H]);
    for (; p.x < min(first + int(TILE_Y), push[OUT + W]); ++p.x) {
        result[word_idx(OUT, OUT_HASH, p)] = requantized(gathered(p, lanes), lanes);
    }
}
