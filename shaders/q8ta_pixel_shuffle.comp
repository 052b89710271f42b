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

const bool FETCH4 = false;
int source[4];

void fetch(int t, int i, ivec4 p) {
    uvec2 from = uvec2(p.xy) / R, place = uvec2(p.xy) % R;
    int gathered = 0;
    for (int k = 0; k < lanes_inside(OUT, OUT_HASH, p); ++k) {
        int channel = int((uint(p.z + k) * R + place.y) * R + place.x);
        int at = buf_idx(X, X_HASH, ivec4(from, channel, p.w));
        gathered = insert(gathered, k, lane(x[at >> 2], at & 3));
    }
    source[t] = gathered;
}

void fetch4(int i) {}

int word(int t, ivec4 p, int lanes) {
    if (lanes == 0) return 0;
    if (MOVES_BYTES != 0) return source[t];
    int packed = 0;
    for (int k = 0; k < lanes; ++k) {
        float real = dequant(lane(source[t], k), push[IN_ZP], push_float(IN_SCALE));
        packed = insert(packed, k, requant(real, push_float(INV), push[ZP]));
    }
    return packed;
}

#include "include/elementwise.glsl"
