#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/index.glsl"
#include "include/lanes.glsl"
#include "include/qmath.glsl"

// Push words as in refsim/ops/q8ta_pixel_shuffle.py.
const int OUT = 0, X = 8, IN_SCALE = 16, IN_ZP = 17, INV = 18, ZP = 19;
layout(constant_id = 6) const uint OUT_HASH = 0;
layout(constant_id = 7) const uint X_HASH = 0;
layout(constant_id = 8) const uint MOVES_BYTES = 0;
layout(constant_id = 9) const uint R = 2;
INPUT(0, x);
OUTPUT(1, result);
OUTPUT4(1, result4);

// four neighbouring columns of one row, from two columns of the source
#define FETCH4 (R == 2 && (words_per_block(OUT_HASH) == 4 || (dim_at(OUT_HASH, 0) == W && (push[OUT] & 3) == 0)))
int source[4];

void fetch(int t, int i, ivec4 p) {
    uvec2 from = uvec2(p.xy) / R, place = uvec2(p.xy) % R;
    int gathered = 0;
    // with R == 2 the four values of a channel are the lanes of one word
    int base = word_idx(X, X_HASH, ivec4(from, 4 * p.z, p.w)), step = push[X + 6] * words_per_block(X_HASH);
    int lanes = lanes_inside(OUT, OUT_HASH, p);
    [[unroll]] for (int k = 0; k < 4; ++k) {
        if (k < lanes) {
            int at = 4 * (base + k * step) + int(2 * place.y + place.x);
            if (R != 2) {
                int channel = int((uint(p.z + k) * R + place.y) * R + place.x);
                at = buf_idx(X, X_HASH, ivec4(from, channel, p.w));
            }
            gathered = insert(gathered, k, lane(x[at >> 2], at & 3));
        }
    }
    source[t] = gathered;
}

void fetch4(int i, ivec4 p) {
    int step = push[X + 6] * words_per_block(X_HASH), shift = 16 * (p.y & 1);
    int lanes = min(4, push[OUT + 2] - p.z);
    [[unroll]] for (int half_of = 0; half_of < 2; ++half_of) {
        int from = min((p.x >> 1) + half_of, push[X] - 1);
        int base = word_idx(X, X_HASH, ivec4(from, p.y >> 1, 4 * p.z, p.w));
        int left = 0, right = 0;
        [[unroll]] for (int k = 0; k < 4; ++k) {
            int both = k < lanes ? x[base + k * step] >> shift : 0;
            left |= (both & 255) << (8 * k);
            right |= (both >> 8 & 255) << (8 * k);
        }
        source[2 * half_of] = left;
        source[2 * half_of + 1] = right;
    }
}

int word(int t, ivec4 p, int lanes) {
    int packed = 0;
    [[unroll]] for (int k = 0; k < 4; ++k) {
        if (k < lanes) {
            int q = lane(source[t], k);
            if (MOVES_BYTES == 0) {
                q = requant(dequant(q, push[IN_ZP], push_float(IN_SCALE)), push_float(INV), push[ZP]);
            }
            packed = insert(packed, k, q);
        }
    }
    return packed;
}

#include "include/elementwise.glsl"
