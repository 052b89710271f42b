#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/push/q8ta_add.glsl"
#include "include/tile.glsl"
#include "include/qmath.glsl"

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
    return requant4(total, push_float(INV), bounds(push[ZP], false, push[FLAGS]), push[ZP]);
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
