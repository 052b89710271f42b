#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/index.glsl"
#include "include/lanes.glsl"
#include "include/qmath.glsl"

// Push words as in refsim/ops/q8ta_clone.py.
const int OUT = 0, X = 8;
layout(constant_id = 6) const uint OUT_HASH = 0;
layout(constant_id = 7) const uint X_HASH = 0;
INPUT(0, x);
INPUT4(0, x4);
OUTPUT(1, result);
OUTPUT4(1, result4);

int source[4];
const bool FETCH4 = X_HASH == OUT_HASH;
#define SAME_LANES (inner_dim(X_HASH) == inner_dim(OUT_HASH))

void fetch(int t, int i, ivec4 p) {
    if (X_HASH == OUT_HASH) {
        source[t] = x[i];
    } else if (SAME_LANES) {
        source[t] = x[word_idx(X, X_HASH, p)];
    } else {
        int gathered = 0;
        int lanes = lanes_inside(OUT, OUT_HASH, p);
        [[unroll]] for (int k = 0; k < 4; ++k) {
            if (k < lanes) {
                int at = buf_idx(X, X_HASH, lane_coord(OUT_HASH, p, k));
                gathered = insert(gathered, k, lane(x[at >> 2], at & 3));
        }
        }
        source[t] = gathered;
    }
}

void fetch4(int i, ivec4 p) {
    ivec4 four = x4[i >> 2];
    [[unroll]] for (int t = 0; t < 4; ++t) source[t] = four[t];
}

// between equal layouts padding is copied too; else it is 0
int word(int t, ivec4 p, int lanes) {
    return X_HASH == OUT_HASH || lanes == 4 ? source[t] : source[t] & ((1 << (8 * lanes)) - 1);
}

#include "include/elementwise.glsl"
