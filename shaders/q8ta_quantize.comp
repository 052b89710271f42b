#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/push/q8ta_quantize.glsl"
#include "include/tile.glsl"
#include "include/qmath.glsl"

INPUT(0, x);
INPUT4(0, x4);
OUTPUT(1, result);
OUTPUT4(1, result4);

INT8_STORER(result, OUT_VECTORS)

vec4 four_floats(Walk from, int at) {
    if (X_VECTORS) return intBitsToFloat(x4[at >> 2]);
    vec4 four = vec4(0.0);
    [[unroll]] for (int k = 0; k < 4; ++k) {
        if (k < from.live.z) four[k] = intBitsToFloat(x[at + k * from.lane]);
    }
    return four;
}

void main() {
    ivec4 origin = tile_origin(OUT), tile[4];
    Walk from = walk(X, X_HASH, origin), to = walk(OUT, OUT_HASH, origin);
    if (any(lessThanEqual(to.live, ivec3(0)))) return;
    [[unroll]] for (int v = 0; v < 4; ++v) {
        [[unroll]] for (int u = 0; u < 4; ++u) {
            vec4 four = vec4(0.0);
            if (v < from.live.x && u < from.live.y) four = four_floats(from, from.first + v * from.vector + u * from.word);
            tile[v][u] = quantize4(four, push_float(INV), push[ZP]);
        }
    }
    turn(tile, X_HASH, OUT_HASH);
    clear_padding(tile, to, splat(push[ZP]));
    store_result(to, tile);
}
