#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/tile.glsl"
#include "include/qmath.glsl"

// Push words as in refsim/ops/q8ta_add.py.
const int OUT = 0, A = 8, B = 16, A_SCALE = 24, A_ZP = 25, B_SCALE = 26, B_ZP = 27, INV = 28, ZP = 29, ALPHA = 30;
layout(constant_id = 6) const uint OUT_HASH = 0;
layout(constant_id = 7) const uint A_HASH = 0;
layout(constant_id = 8) const uint B_HASH = 0;
layout(constant_id = 9) const bool OUT_VECTORS = false;
layout(constant_id = 10) const bool A_VECTORS = false;
layout(constant_id = 11) const bool B_VECTORS = false;
INPUT(0, a);
INPUT4(0, a4);
INPUT(1, b);
INPUT4(1, b4);
OUTPUT(2, result);
OUTPUT4(2, result4);

INT8_LOADER(a, A_VECTORS)
INT8_LOADER(b, B_VECTORS)
INT8_STORER(result, OUT_VECTORS)

int word(int word_a, int word_b) {
    vec4 addend = dequant4(lanes_of(word_b), push[B_ZP], push_float(B_SCALE));
    precise vec4 scaled = push_float(ALPHA) * addend;
    vec4 total = mul_add4(vec4(lanes_of(word_a)) - float(push[A_ZP]), vec4(push_float(A_SCALE)), scaled);
    return requant4(total, push_float(INV), lowest(push[ZP], false), push[ZP]);
}

void main() {
    ivec4 origin = tile_origin(OUT), tile[4], other[4];
    Walk to = walk(OUT, OUT_HASH, origin);
    if (any(lessThanEqual(to.live, ivec3(0)))) return;
    load_a(walk(A, A_HASH, origin), tile);
    load_b(walk(B, B_HASH, origin), other);
    [[unroll]] for (int v = 0; v < 4; ++v) {
        [[unroll]] for (int u = 0; u < 4; ++u) tile[v][u] = word(tile[v][u], other[v][u]);
    }
    clear_padding(tile, to, 0);
    store_result(to, tile);
}
